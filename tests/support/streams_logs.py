"""A streams group that begins as its log says, its members' heartbeats, and an assignor that is told the targets."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from kafkapy.errors import ApiError
from kafkapy.group.metadata_hash import MetadataHashes
from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.streams.assignor_spec import GroupSpec
from kafkapy.group.streams.decision import HeartbeatResult
from kafkapy.group.streams.member import StreamsMember
from kafkapy.group.streams.records import (
    current_record,
    member_record,
    target_epoch_record,
    target_record,
    topology_record,
)
from kafkapy.group.streams.tasks import AssignedTasks, TasksTuple
from kafkapy.group.streams.topology import stored_topology
from kafkapy.metadata.image import MetadataImage
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.streams_group_heartbeat_request import Subtopology, TaskIds, Topology
from kafkapy.protocol.messages.streams_group_metadata_key import StreamsGroupMetadataKey
from kafkapy.protocol.messages.streams_group_metadata_value import LastAssignmentConfig, StreamsGroupMetadataValue
from tests.support.consumer_groups import CLIENT, WALL_START_MS
from tests.support.streams_groups import StreamsShard, request_of

FOO = Topology(0, subtopologies=[Subtopology("1", source_topics=["foo"])])
NOTHING = dict.fromkeys(("active_tasks", "standby_tasks", "warmup_tasks"))
Partitions = Mapping[str, Iterable[int]]
"""By subtopology id."""


class Assignor:
    """Assigns the active tasks that it was told last; a member that it was not told of gets none."""

    def __init__(self) -> None:
        self.targets: dict[str, Partitions] = {}
        self.standbys: list[int] = []
        """The standbys that it was asked for, one number for each target."""

    def __call__(self, spec: GroupSpec) -> Any:
        self.standbys.append(spec.configs.num_standby_replicas)
        yield
        return {each: tasks(self.targets.get(each, {})) for each in spec.members}


def tasks(active: Partitions) -> TasksTuple:
    return TasksTuple(active={each: frozenset(partitions) for each, partitions in active.items()})


def assigned(epoch: int, active: Partitions) -> AssignedTasks:
    return AssignedTasks({each: dict.fromkeys(partitions, epoch) for each, partitions in active.items()})


def ids(active: Partitions) -> list[TaskIds]:
    return [TaskIds(each, partitions=list(partitions)) for each, partitions in active.items()]


def shard_of(image: MetadataImage, **config: int) -> StreamsShard:
    return StreamsShard(image, **{"group_streams_initial_rebalance_delay_ms": 0, **config})


def member(member_id: str, epoch: int, active: Partitions, **fields: Any) -> StreamsMember:
    """Return a member as defaults of a heartbeat leave it, whose tasks were assigned at its epoch."""
    values = {
        "previous_member_epoch": epoch - 1,
        "rebalance_timeout_ms": 1_000,
        "topology_epoch": 0,
        "client_id": CLIENT.client_id,
        "client_host": CLIENT.client_host,
        "process_id": member_id,
        "assigned": assigned(epoch, active),
        **fields,
    }
    return StreamsMember(member_id, member_epoch=epoch, **values)


def metadata(epoch: int, image: MetadataImage, *topics: str, validated: int = 0) -> CoordinatorRecord:
    """Return the record of a group epoch, for these topics as they are in the image."""
    value = StreamsGroupMetadataValue(
        epoch=epoch,
        metadata_hash=MetadataHashes().of(set(topics), image),
        validated_topology_epoch=validated,
        last_assignment_configs=[LastAssignmentConfig("num.standby.replicas", value="0")],
    )
    return CoordinatorRecord(StreamsGroupMetadataKey("g"), value)


def load(shard: StreamsShard, topology: Topology, epoch: CoordinatorRecord, *members: StreamsMember) -> None:
    """Let the log say that a group is at an epoch, and its members have reached their target."""
    assert isinstance(epoch.value, StreamsGroupMetadataValue)
    shard.load(
        *(member_record("g", each) for each in members),
        epoch,
        topology_record("g", stored_topology(topology)),
        *(target_record("g", each.member_id, tasks(each.assigned.active)) for each in members),
        target_epoch_record("g", epoch.value.epoch, 12_345),
        *(current_record("g", each) for each in members),
    )


def join(shard: StreamsShard, member_id: str, topology: Topology = FOO, **fields: Any) -> Any:
    return send(shard, request_of(member_id, topology, **fields))


def beat(shard: StreamsShard, member_id: str, epoch: int, **fields: Any) -> Any:
    request = request_of(member_id, None, **{"member_epoch": epoch, "process_id": None, **NOTHING, **fields})
    request.rebalance_timeout_ms = -1
    return send(shard, request)


def owning(active: Partitions) -> dict[str, Any]:
    return {"active_tasks": ids(active), "standby_tasks": [], "warmup_tasks": []}


def send(shard: StreamsShard, request: Any) -> tuple[HeartbeatResult, list[CoordinatorRecord]]:
    decision = shard.shard.streams.heartbeat(request, 1, CLIENT, shard.now_ms)
    assert isinstance(decision.response, HeartbeatResult)
    return decision.response, shard.commit(decision)


def told(result: HeartbeatResult) -> tuple[int, dict[str, list[int]] | None]:
    """Return the member's epoch, and the active tasks that it is told."""
    active = result.response.active_tasks
    return result.response.member_epoch, None if active is None else {
        each.subtopology_id: each.partitions for each in active
    }


def statuses(result: HeartbeatResult) -> list[tuple[int, str]]:
    return [(each.status_code, each.status_detail) for each in result.response.status or ()]


def refused(call: Callable[..., Any], *arguments: Any, **fields: Any) -> tuple[ErrorCode, str | None]:
    with pytest.raises(ApiError) as caught:
        call(*arguments, **fields)
    return ErrorCode(caught.value.code), caught.value.message


def at_now(shard: StreamsShard) -> int:
    return WALL_START_MS + shard.now_ms
