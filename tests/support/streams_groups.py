"""A shard of streams groups without a broker, and a topology to join with."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any

from kafkapy.errors import ApiError
from kafkapy.group.decision import GroupDecision
from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.streams.decision import HeartbeatResult
from kafkapy.group.streams.group import StreamsGroup
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from tests.support.consumer_groups import CLIENT, GroupWorld

Task = tuple[str, int]


class StreamsShard(GroupWorld):
    """One shard, its log, its clock; groups are streams groups."""

    refuses_append: Callable[[], bool] | None = None
    """Called for each decision with records: whether they cannot be appended, as in runtime/coordinators."""

    def commit(self, decision: GroupDecision) -> list[CoordinatorRecord]:
        if decision.records and self.refuses_append is not None and self.refuses_append():
            if decision.on_failed is not None:
                decision.on_failed(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return super().commit(decision)

    def streams_group(self, group_id: str = "g") -> StreamsGroup:
        found = self.groups[group_id]
        assert isinstance(found, StreamsGroup)
        return found

    def heartbeat(self, request: StreamsGroupHeartbeatRequest, version: int = 1) -> HeartbeatResult:
        decision = self.shard.streams.heartbeat(request, version, CLIENT, self.now_ms)
        self.commit(decision)
        assert isinstance(decision.response, HeartbeatResult)
        return decision.response


def chain(*stateful: bool, sources: Iterable[str] = ("in",), epoch: int = 0) -> Topology:
    """Return subtopologies 0, 1, ...: the first reads `sources`, each other what the one before writes."""
    subtopologies = []
    for number, has_state in enumerate(stateful):
        changelogs = [TopicInfo(f"app-store{number}-changelog")] if has_state else []
        subtopologies.append(
            Subtopology(
                str(number),
                source_topics=list(sources) if number == 0 else [],
                state_changelog_topics=changelogs,
                repartition_source_topics=[TopicInfo(f"app-{number}-repartition")] if number else [],
                repartition_sink_topics=[f"app-{number + 1}-repartition"] if number + 1 < len(stateful) else [],
            )
        )
    return Topology(epoch, subtopologies=subtopologies)


def request_of(member_id: str, topology: Topology | None, **fields: Any) -> StreamsGroupHeartbeatRequest:
    """Return the heartbeat of a member that has no tasks, in a process of its own."""
    values = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": [], "process_id": member_id, **fields}
    return StreamsGroupHeartbeatRequest(
        "g", member_id=member_id, rebalance_timeout_ms=1_000, topology=topology, **values
    )


def each_task(tasks: Mapping[str, Iterable[int]]) -> Iterator[Task]:
    """Yield the tasks of partitions by subtopology."""
    for subtopology_id, partitions in tasks.items():
        for partition in partitions:
            yield subtopology_id, partition


def task_ids(tasks: Set[Task]) -> list[TaskIds]:
    ids = sorted({subtopology_id for subtopology_id, _ in tasks})
    return [TaskIds(each, partitions=sorted(number for owner, number in tasks if owner == each)) for each in ids]


def tasks_of(ids: Iterable[Any] | None) -> set[Task] | None:
    return None if ids is None else {(each.subtopology_id, partition) for each in ids for partition in each.partitions}
