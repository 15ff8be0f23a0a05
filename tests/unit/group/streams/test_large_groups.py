"""Large topologies and targets are computed in steps, and lead to what is computed at once."""

import gc
from dataclasses import replace
from typing import Any

import pytest

from kafkapy.errors import ApiError
from kafkapy.group.decision import GroupDecision
from kafkapy.group.hash_order import hash_of_text, in_put_order
from kafkapy.group.long_work import LongWorkError, Results
from kafkapy.group.metadata_hash import MANY_PARTITIONS, HashingWork
from kafkapy.group.streams.decision import LargeTargetDue
from kafkapy.group.streams.member import StreamsMember
from kafkapy.group.streams.records import member_record
from kafkapy.group.streams.target import TargetInput
from kafkapy.group.streams.topic_configuration import TopologyInput, configure_topology
from kafkapy.group.streams.topology import MAX_DECODED, MAX_SUBTOPOLOGIES, StreamsTopology, stored_topology
from kafkapy.protocol.messages.streams_group_heartbeat_request import (
    Endpoint,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)
from kafkapy.protocol.messages.streams_group_topology_value import Subtopology as StoredSubtopology
from tests.support.consumer_groups import CLIENT, image_of
from tests.support.steps import counted
from tests.support.streams_groups import StreamsShard, chain, request_of

TASKS = 2_000
DEEP = chain(*[True] * MAX_SUBTOPOLOGIES)


def wide(*, subtopologies: int = 1) -> Topology:
    """Return a topology of TASKS tasks in each subtopology."""
    return Topology(0, subtopologies=[Subtopology(str(each), source_topics=["in"]) for each in range(subtopologies)])


def shard_with(partitions: int = TASKS, **config: Any) -> StreamsShard:
    keys = {"group_streams_assignment_interval_ms": 0, "group_streams_initial_rebalance_delay_ms": 0, **config}
    return StreamsShard(image_of(**{"in": partitions}), **keys)


class InSteps:
    """Decides as runtime/coordinators/long_decisions.py does; `steps` has how many each work took."""

    def __init__(self, shard: StreamsShard) -> None:
        self.shard = shard
        self.steps: list[tuple[type, int]] = []

    def decided(self, request: StreamsGroupHeartbeatRequest) -> GroupDecision:
        results = Results()
        while True:
            try:
                return self.shard.shard.streams.heartbeat(
                    request, 1, CLIENT, self.shard.now_ms, gives_way=True, results=results
                )
            except LongWorkError as error:
                results.keep(error.work, self._result_of(error.work))

    def _result_of(self, work: Any) -> Any:
        count, result = counted(work.steps())
        self.steps.append((type(work), count))
        return result


def at_once(shard: StreamsShard, request: StreamsGroupHeartbeatRequest) -> GroupDecision:
    return shard.shard.streams.heartbeat(request, 1, CLIENT, shard.now_ms)


def test_a_large_target_in_steps_is_the_one_computed_at_once() -> None:
    shard, other = shard_with(), shard_with()
    in_steps = InSteps(shard)
    for member_id in "abc":
        request = request_of(member_id, wide())
        decision, expected = in_steps.decided(request), at_once(other, request)
        assert decision.records == expected.records
        assert decision.response == expected.response
        shard.commit(decision)
        other.commit(expected)
    assert [kind for kind, _ in in_steps.steps] == [TargetInput] * 3
    assert all(count >= 10 for _, count in in_steps.steps)


def test_a_topology_whose_subtopologies_come_in_another_order_is_the_same() -> None:
    shard, known, reordered, other = shard_with(2), *(wide(subtopologies=2) for _ in range(3))
    reordered.subtopologies.reverse()
    other.subtopologies[0].source_topics = ["others"]
    shard.commit(at_once(shard, request_of("a", known)))
    shard.commit(at_once(shard, request_of("b", reordered)))
    assert [each.member_id for each in _members(shard)] == ["a", "b"]
    with pytest.raises(ApiError, match="Topology updates are not supported yet"):
        at_once(shard, request_of("c", other))


def test_a_large_topology_in_steps_is_the_one_configured_at_once() -> None:
    shard = shard_with(2)
    in_steps = InSteps(shard)
    request = request_of("a", DEEP)
    decision, expected = in_steps.decided(request), at_once(shard, request)
    assert decision.records == expected.records
    assert decision.response == expected.response
    ((kind, count),) = in_steps.steps
    assert kind is TopologyInput
    assert count >= 20


def test_topics_of_many_partitions_are_hashed_in_steps() -> None:
    shard = shard_with(MANY_PARTITIONS)
    in_steps = InSteps(shard)
    request = request_of("a", wide())
    decision = in_steps.decided(request)
    assert [kind for kind, _ in in_steps.steps] == [HashingWork, TargetInput]
    assert decision.records == at_once(shard_with(MANY_PARTITIONS), request).records


def test_a_heartbeat_that_gives_way_changes_nothing() -> None:
    shard = shard_with()
    shard.commit(at_once(shard, request_of("a", wide())))
    group = shard.streams_group()
    before = group.configured, group.refined_targets, group.task_offsets.copy(), group.log.version
    with pytest.raises(LongWorkError):
        shard.shard.streams.heartbeat(request_of("b", wide()), 1, CLIENT, shard.now_ms, gives_way=True)
    assert (group.configured, group.refined_targets, group.task_offsets, group.log.version) == before


def test_a_result_for_another_group_of_members_is_not_taken() -> None:
    shard = shard_with()
    shard.commit(at_once(shard, request_of("a", wide())))
    results = Results()
    with pytest.raises(LongWorkError) as raised:
        shard.shard.streams.heartbeat(request_of("b", wide()), 1, CLIENT, shard.now_ms, gives_way=True, results=results)
    results.keep(raised.value.work, "a target without c")
    shard.commit(at_once(shard, request_of("c", wide())))
    with pytest.raises(LongWorkError):
        shard.shard.streams.heartbeat(request_of("b", wide()), 1, CLIENT, shard.now_ms, gives_way=True, results=results)


def test_a_large_target_that_no_heartbeat_waits_for_is_an_effect() -> None:
    shard = shard_with(group_streams_initial_rebalance_delay_ms=3_000)
    shard.commit(at_once(shard, request_of("a", wide())))
    epoch = shard.streams_group().log.members["a"].member_epoch
    shard.commit(at_once(shard, StreamsGroupHeartbeatRequest("g", member_id="a", member_epoch=epoch)))
    shard.now_ms += 3_000
    decision = shard.shard.on_time("g", shard.now_ms)
    assert decision.effects == (LargeTargetDue("g"),)
    assert not decision.records
    due = shard.shard.streams.due_target("g", shard.now_ms, gives_way=False, results=Results())
    shard.commit(due)
    assert shard.streams_group().log.targets["a"].active == {"0": frozenset(range(TASKS))}


def test_a_large_target_that_is_due_leaves_the_delay_of_other_members_to_them() -> None:
    shard = shard_with(group_streams_initial_rebalance_delay_ms=3_000)
    shard.commit(at_once(shard, request_of("a", wide())))
    epoch = shard.streams_group().log.members["a"].member_epoch
    shard.commit(at_once(shard, StreamsGroupHeartbeatRequest("g", member_id="a", member_epoch=epoch)))
    shard.now_ms += 3_000
    assert shard.shard.on_time("g", shard.now_ms).effects
    shard.commit(at_once(shard, StreamsGroupHeartbeatRequest("g", member_id="a", member_epoch=-1)))
    shard.commit(at_once(shard, request_of("b", wide())))
    assert not shard.shard.streams.due_target("g", shard.now_ms, gives_way=False, results=Results()).records
    shard.now_ms += 3_000
    assert shard.shard.on_time("g", shard.now_ms).effects == (LargeTargetDue("g"),)


def test_an_instance_that_a_log_gives_to_two_members_leaves_both_in_the_group() -> None:
    shard = shard_with(2)
    for member_id in "ab":
        shard.commit(at_once(shard, request_of(member_id, wide())))
    shard.load(*(member_record("g", replace(each, instance_id="i")) for each in _members(shard)))
    for each in _members(shard):
        request = StreamsGroupHeartbeatRequest(
            "g", member_id=each.member_id, member_epoch=each.member_epoch, rack_id="r"
        )
        shard.commit(at_once(shard, request))
    assert [each.rack_id for each in _members(shard)] == ["r", "r"]


def _members(shard: StreamsShard) -> list[StreamsMember]:
    return list(shard.streams_group().log.members.values())


def test_a_chain_against_the_order_of_subtopologies_is_gone_through_once() -> None:
    against = chain(*[True] * MAX_SUBTOPOLOGIES)
    in_order = in_put_order([each.subtopology_id for each in against.subtopologies], hash_of_text)
    for subtopology, subtopology_id in zip(against.subtopologies, reversed(in_order), strict=True):
        subtopology.subtopology_id = subtopology_id
    asked: list[str] = []

    def partition_count_of(name: str) -> int | None:
        asked.append(name)
        return 2 if name == "in" else None

    configured = configure_topology(StreamsTopology.of(stored_topology(against)), partition_count_of)
    assert {each.number_of_tasks for each in (configured.subtopologies or {}).values()} == {2}
    assert len(asked) < 20 * MAX_SUBTOPOLOGIES


def test_groups_keep_the_bytes_of_their_topologies_and_no_objects() -> None:
    groups = 2 * MAX_DECODED
    shard = shard_with(2)
    for number in range(groups):
        request = request_of("a", wide(subtopologies=100 + number))
        request.group_id = f"g-{number}"
        shard.commit(at_once(shard, request))
    del request
    decoded = [each for each in gc.get_objects() if type(each) is StoredSubtopology]
    assert 100 <= len(decoded) <= MAX_DECODED * (100 + groups)


def test_the_topology_is_described_once_and_in_the_first_part_alone() -> None:
    shard = shard_with(2)
    shard.commit(at_once(shard, request_of("a", DEEP)))
    first, again = (shard.shard.streams.describe("g", start=0, count=100) for _ in range(2))
    assert first.topology is again.topology
    assert first.topology is not None
    assert shard.shard.streams.describe("g", start=100, count=100).topology is None


def test_endpoints_are_made_once_until_tasks_change() -> None:
    shard = shard_with(4)
    for member_id in "abc":
        shard.commit(at_once(shard, request_of(member_id, wide(), user_endpoint=Endpoint(member_id, port=1))))
    for member_id in "abcabc":
        _endpoints(shard, member_id)
    first, again = _endpoints(shard, "a"), _endpoints(shard, "a")
    assert sorted(first) == ["a", "b", "c"]
    assert all(each.active_partitions and each is again[host] for host, each in first.items())
    shard.image = image_of(2, **{"in": 4})
    anew = _endpoints(shard, "a")
    assert anew == first
    assert all(each is not first[host] for host, each in anew.items())


def _endpoints(shard: StreamsShard, member_id: str) -> dict[str, Any]:
    """Have a member heartbeat that knows no endpoints; return them by host."""
    epoch = shard.streams_group().log.members[member_id].member_epoch
    request = StreamsGroupHeartbeatRequest(
        "g", member_id=member_id, member_epoch=epoch, endpoint_information_epoch=-1, active_tasks=[], standby_tasks=[],
        warmup_tasks=[],
    )  # fmt: skip
    decision = at_once(shard, request)
    shard.commit(decision)
    return {each.user_endpoint.host: each for each in decision.response.response.partitions_by_user_endpoint}
