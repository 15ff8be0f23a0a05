"""What simulated members have committed and been told that it is: it must be there, whatever happens afterwards."""

from typing import Any

from kafkapy.errors import ApiError
from kafkapy.group.decision import GroupDecision
from kafkapy.group.offset_requests import OffsetRequests
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkapy.types import Uuid

VERSION = 9


class CommittedOffsets:
    """The offsets that were acknowledged. Each commit is of an offset that was never committed before."""

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._acknowledged: dict[tuple[str, int], int] = {}
        self._next_offset = 0

    def request(self, topic: str, topic_id: Uuid, partition: int, **fields: Any) -> OffsetCommitRequest:
        self._next_offset += 1
        position = OffsetCommitRequestPartition(partition, committed_offset=self._next_offset)
        return OffsetCommitRequest(
            self._group_id, topics=[OffsetCommitRequestTopic(topic, topic_id=topic_id, partitions=[position])], **fields
        )

    def acknowledge(self, request: OffsetCommitRequest) -> None:
        (topic,) = request.topics
        (position,) = topic.partitions
        self._acknowledged[topic.name, position.partition_index] = position.committed_offset

    def forget_topic(self, topic: str) -> None:
        self._acknowledged = {key: offset for key, offset in self._acknowledged.items() if key[0] != topic}

    def check(self, offsets: OffsetRequests) -> None:
        """Assert that what the coordinator has is what was acknowledged, no more and no less."""
        found = {
            (topic, partition): committed.value.offset
            for topic, partitions in offsets.store.of_group(self._group_id).items()
            for partition, committed in partitions.items()
        }
        assert found == self._acknowledged, "what is committed is what was acknowledged"


def decide_commit(offsets: OffsetRequests, request: OffsetCommitRequest, now_ms: int) -> GroupDecision:
    """Decide a commit of one partition; its own error code is raised like that of a whole request."""
    decision = offsets.commit(request, VERSION, now_ms)
    code = decision.response.topics[0].partitions[0].error_code
    if code != ErrorCode.NONE:
        raise ApiError(code)
    return decision
