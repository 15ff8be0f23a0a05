"""What a client may not do to a streams group: fill its memory, hold its loop, leave soft state behind."""

from typing import Any

import pytest

from kafkapy.errors import ApiError
from kafkapy.group.decision import GroupDecision
from kafkapy.group.settings import MAX_NAMES
from kafkapy.group.streams import group as streams_group
from kafkapy.group.streams.checks import MAX_ID_CHARACTERS
from kafkapy.group.streams.removal import BYTES_PER_BATCH, members_of_one_batch
from kafkapy.group.streams.topic_configuration import MAX_TASKS
from kafkapy.group.streams.topology import MAX_SUBTOPOLOGIES, check_bounds
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TaskOffset,
    Topology,
)
from tests.support.consumer_groups import CLIENT, image_of
from tests.support.interpreter import needs_interpreter
from tests.support.streams_groups import StreamsShard, chain, request_of


def shard_with(**config: Any) -> StreamsShard:
    keys = {"group_streams_assignment_interval_ms": 0, "group_streams_initial_rebalance_delay_ms": 0, **config}
    return StreamsShard(image_of(**{"in": 4}), **keys)


def decided(shard: StreamsShard, request: StreamsGroupHeartbeatRequest) -> GroupDecision:
    return shard.shard.streams.heartbeat(request, 1, CLIENT, shard.now_ms)


def refused(shard: StreamsShard, request: StreamsGroupHeartbeatRequest) -> ErrorCode:
    with pytest.raises(ApiError) as raised:
        decided(shard, request)
    return ErrorCode(raised.value.code)


def fail(decision: GroupDecision) -> None:
    assert decision.on_failed is not None
    assert decision.on_failed(ErrorCode.NOT_ENOUGH_REPLICAS) == []


def test_a_large_topology_is_refused() -> None:
    check_bounds(Topology(0, subtopologies=[Subtopology("0", source_topics=["in"] * MAX_NAMES)]))
    for large in (
        [Subtopology("0", source_topics=["in"] * MAX_NAMES, repartition_sink_topics=["out"])],
        [Subtopology(str(number), source_topics=["in"]) for number in range(MAX_SUBTOPOLOGIES + 1)],
    ):
        with pytest.raises(ApiError) as raised:
            check_bounds(Topology(0, subtopologies=large))
        assert raised.value.code == ErrorCode.INVALID_REQUEST


def test_a_topology_of_very_many_tasks_is_refused() -> None:
    partitions = MAX_TASKS // 10
    shard = StreamsShard(image_of(**{"in": partitions}), group_streams_initial_rebalance_delay_ms=0)
    as_many = [Subtopology(str(number), source_topics=["in"]) for number in range(10)]
    assert decided(shard, request_of("a", Topology(0, subtopologies=as_many))).records
    more = [*as_many, Subtopology("more", source_topics=["in"])]
    assert refused(shard, request_of("a", Topology(0, subtopologies=more))) is ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_a_negative_topology_epoch_is_refused_as_by_apache_kafka() -> None:
    shard = shard_with()
    assert refused(shard, request_of("a", chain(False, epoch=-1))) is ErrorCode.UNKNOWN_SERVER_ERROR
    shard.heartbeat(request_of("a", chain(False)))
    assert refused(shard, request_of("a", chain(False, epoch=-1))) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_subtopology_is_reported_once() -> None:
    shard = shard_with()
    joined = shard.heartbeat(request_of("a", chain(False))).response
    twice = [TaskIds("0", partitions=[0]), TaskIds("0", partitions=[1])]
    request = request_of("a", None, member_epoch=joined.member_epoch, active_tasks=twice)
    assert refused(shard, request) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_offsets_with_long_ids_are_refused() -> None:
    long_ids = [TaskOffset("x" * MAX_ID_CHARACTERS, partition=0, offset=1), TaskOffset("y", partition=0, offset=1)]
    assert refused(shard_with(), request_of("a", chain(False), task_offsets=long_ids)) is ErrorCode.INVALID_REQUEST


@needs_interpreter("it sets a constant")
def test_a_group_keeps_so_many_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams_group, "MAX_OFFSETS", 3)
    shard = shard_with()
    two = [TaskOffset("0", partition=number, offset=1) for number in range(2)]
    for each in "ab":
        shard.heartbeat(request_of(each, chain(True)))
    group = shard.streams_group()
    for each, offsets in (("a", two), ("b", two), ("a", two[:1]), ("b", two)):
        shard.heartbeat(request_of(each, chain(True), task_offsets=offsets))
    assert {each: group.offsets_of(each).count for each in "ab"} == {"a": 1, "b": 2}
    shard.heartbeat(request_of("a", None, member_epoch=-1))
    assert list(group.task_offsets) == ["b"]


def test_soft_state_is_put_back_if_records_fail() -> None:
    shard = shard_with(group_streams_num_warmup_replicas=2)
    for each in "ab":
        shard.heartbeat(request_of(each, chain(True)))
    group = shard.streams_group()
    before = group.configured, group.refined_targets, dict(group.task_offsets)
    offsets = [TaskOffset("0", partition=0, offset=1)]
    decision = decided(shard, request_of("c", chain(True), task_offsets=offsets))
    assert (group.configured, group.refined_targets, dict(group.task_offsets)) != before
    fail(decision)
    assert (group.configured, group.refined_targets, dict(group.task_offsets)) == before


def test_nothing_is_kept_of_a_group_that_could_not_be_made() -> None:
    shard = shard_with(group_streams_initial_rebalance_delay_ms=3_000)
    streams = shard.shard.streams
    fail(decided(shard, request_of("a", chain(True))))
    assert "g" not in shard.groups
    assert streams._initial_delays == {}


def test_members_that_are_late_together_are_removed_by_several_batches() -> None:
    members = [f"{'m' * 30_000}{number}" for number in range(12)]
    parts = []
    while members:
        parts.append(members_of_one_batch("g", members))
        members = members[len(parts[-1]) :]
    assert all(sum(map(len, part)) <= BYTES_PER_BATCH for part in parts)
    assert sum(map(len, parts)) == 12
    assert len(members_of_one_batch("g", [str(number) for number in range(100)])) == 100
    assert len(members_of_one_batch("g", ["m" * BYTES_PER_BATCH])) == 1, "one is always removed"
