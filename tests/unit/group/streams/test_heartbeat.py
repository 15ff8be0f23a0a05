"""Heartbeats of streams groups: what is soft state, and what operators are told. The rest: tests/golden."""

import json
from typing import Any

from kafkapy.group.streams.decision import HeartbeatResult
from kafkapy.group.streams.group import StreamsGroup
from kafkapy.protocol.messages.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)
from kafkapy.protocol.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse
from tests.support.consumer_groups import CLIENT, GroupWorld, image_of

DELAY_MS = 3_000


def world_with(**config: Any) -> GroupWorld:
    return GroupWorld(image_of(foo=2), **{"group_streams_assignment_interval_ms": 0, **config})


def join(world: GroupWorld, member_id: str, **fields: Any) -> StreamsGroupHeartbeatResponse:
    topology = Topology(0, subtopologies=[Subtopology("0", source_topics=["foo"])])
    values = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": [], "process_id": member_id, **fields}
    request = StreamsGroupHeartbeatRequest(
        "g", member_id=member_id, rebalance_timeout_ms=1_000, topology=topology, **values
    )
    decision = world.shard.streams.heartbeat(request, 1, CLIENT, world.now_ms)
    world.commit(decision)
    assert isinstance(decision.response, HeartbeatResult)
    return decision.response.response


def group_of(world: GroupWorld) -> StreamsGroup:
    group = world.groups["g"]
    assert isinstance(group, StreamsGroup)
    return group


def test_first_assignment_waits_for_its_delay_and_not_for_a_heartbeat() -> None:
    world = world_with()
    join(world, "a")
    join(world, "b")  # only now has the group, which its first heartbeat made, a topology that is configured
    assert group_of(world).deadline_ms() is not None
    world.pass_time(0)
    assert not world.pass_time(DELAY_MS - 1)
    world.pass_time(1)
    assert {each.active["0"] for each in group_of(world).log.targets.values()} == {frozenset({0}), frozenset({1})}


def test_another_coordinator_does_not_wait() -> None:
    world = world_with()
    join(world, "a")
    world.restart()
    assert [each.partitions for each in join(world, "b").active_tasks or ()] == [[0]]


def test_delay_of_a_group_whose_records_are_not_written_begins_anew() -> None:
    world = world_with()
    request = StreamsGroupHeartbeatRequest(
        "g",
        member_id="a",
        rebalance_timeout_ms=1_000,
        topology=Topology(0, subtopologies=[Subtopology("0", source_topics=["foo"])]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )
    world.shard.streams.heartbeat(request, 1, CLIENT, world.now_ms)  # nothing is committed
    world.now_ms += DELAY_MS
    join(world, "a")
    deadline_ms = group_of(world).timers.initial_delay_until_ms
    assert deadline_ms == world.now_ms + DELAY_MS


def test_rebalances_are_explained_by_tasks() -> None:
    world = world_with(group_streams_initial_rebalance_delay_ms=0)
    join(world, "a")
    join(world, "b")
    *_, latest = json.loads(world.shard.explain_group("g"))
    assert latest["reasons"] == ["member b (client client) joined"]
    changes = {each["member"]: (each["gained"], each["lost"]) for each in latest["members"]}
    assert changes == {"a": ([], [["0", 1]]), "b": ([["0", 1]], [])}
