"""Requests about share groups that are decided by their shard, and then wait for the states of share partitions."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.alter_share_group_offsets_response import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
)
from kafkapy.protocol.messages.delete_share_group_offsets_response import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from kafkapy.types import Uuid

if TYPE_CHECKING:
    from kafkapy.group.shard import GroupShard
    from kafkapy.group.share.decision import ShareDecision
    from kafkapy.protocol.messages.alter_share_group_offsets_request import AlterShareGroupOffsetsRequestTopic
    from kafkapy.runtime.coordinators.shard_host import ShardDecision
    from kafkapy.runtime.coordinators.share_states import ShareStates
    from kafkapy.share.persister import PartitionResult


class Groups(Protocol):
    """The part of the group coordinator that these requests use."""

    @property
    def share_states(self) -> "ShareStates": ...

    async def call(self, group_id: str, decide: "Callable[[GroupShard, int, int], ShardDecision]") -> Any: ...


async def alter_offsets(
    groups: Groups, group_id: str, topics: "Sequence[AlterShareGroupOffsetsRequestTopic]"
) -> AlterShareGroupOffsetsResponse:
    """Initialise the states of share partitions with other offsets. Raises ApiError."""
    states = groups.share_states
    decision = await _decided(groups, group_id, lambda shard: shard.share.alter_offsets(group_id, topics))
    response: AlterShareGroupOffsetsResponse = decision.response
    if decision.initialize is None:
        return response
    results = await states.initialize(decision.initialize, is_tried_again_soon=False)
    failed = {(result.topic_id, result.partition): result for result in results if result.error_code}
    for topic in response.responses:
        for partition in topic.partitions:
            result = failed.get((topic.topic_id, partition.partition_index))
            if result is not None and not partition.error_code:
                _fail(partition, result)
    return response


def _fail(partition: AlterShareGroupOffsetsResponsePartition, result: "PartitionResult") -> None:
    partition.error_code, partition.error_message = result.error_code, result.error_message


async def delete_offsets(
    groups: Groups, group_id: str, topic_names: Sequence[str], names: Mapping[Uuid, str]
) -> DeleteShareGroupOffsetsResponse:
    """Delete the states of topics' share partitions. `names`: the topics by id. Raises ApiError."""
    states = groups.share_states
    decision = await _decided(groups, group_id, lambda shard: shard.share.delete_offsets(group_id, topic_names))
    response: DeleteShareGroupOffsetsResponse = decision.response
    if decision.delete is None:
        return response
    failed: dict[Uuid, PartitionResult] = {}
    for result in await states.delete(decision.delete):
        if result.error_code:
            failed.setdefault(result.topic_id, result)
    for topic_id, result in failed.items():
        response.responses.append(
            DeleteShareGroupOffsetsResponseTopic(
                names.get(topic_id, ""),
                topic_id=topic_id,
                error_code=result.error_code,
                error_message=result.error_message,
            )
        )
    deleted = {topic_id: names.get(topic_id, "") for topic_id in decision.delete.partitions if topic_id not in failed}
    if not deleted:
        return response
    after = await _decided(groups, group_id, lambda shard: shard.share.offsets_deleted(group_id, response, deleted))
    completed: DeleteShareGroupOffsetsResponse = after.response
    return completed


async def delete_states(groups: Groups, group_id: str) -> None:
    """Delete all states of a share group, which is to be deleted then. Raises ApiError."""
    states = groups.share_states
    decision = await _decided(groups, group_id, lambda shard: shard.share.begin_deletion(group_id))
    if decision.delete is None:
        return
    for result in await states.delete(decision.delete):
        if result.error_code:
            raise ApiError(ErrorCode(result.error_code))


async def _decided(groups: Groups, group_id: str, decide: "Callable[[GroupShard], ShareDecision]") -> "ShareDecision":
    """Run a decision on the shard; return it once its records are committed."""
    decisions: list[Any] = []

    def decide_and_keep(shard: "GroupShard", token: int, now_ms: int) -> "ShareDecision":
        decisions.append(decide(shard))
        decision: ShareDecision = decisions[0]
        return decision

    await groups.call(group_id, decide_and_keep)
    kept: ShareDecision = decisions[0]
    return kept
