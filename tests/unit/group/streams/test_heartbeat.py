"""Heartbeats of streams groups: what is soft state, and what operators are told. The rest: tests/golden."""

import json
from typing import Any

from kafkapy.protocol.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse
from tests.support.consumer_groups import CLIENT, image_of
from tests.support.streams_groups import StreamsShard, chain, request_of

DELAY_MS = 3_000
TOPOLOGY = chain(False, sources=("foo",))


def shard_with(**config: Any) -> StreamsShard:
    return StreamsShard(image_of(foo=2), **{"group_streams_assignment_interval_ms": 0, **config})


def join(shard: StreamsShard, member_id: str) -> StreamsGroupHeartbeatResponse:
    return shard.heartbeat(request_of(member_id, TOPOLOGY)).response


def test_first_assignment_waits_for_its_delay_and_not_for_a_heartbeat() -> None:
    shard = shard_with()
    join(shard, "a")
    join(shard, "b")  # only now has the group, which its first heartbeat made, a topology that is configured
    assert shard.streams_group().deadline_ms() is not None
    shard.pass_time(0)
    assert not shard.pass_time(DELAY_MS - 1)
    shard.pass_time(1)
    assert {each.active["0"] for each in shard.streams_group().log.targets.values()} == {frozenset({0}), frozenset({1})}


def test_another_coordinator_does_not_wait() -> None:
    shard = shard_with()
    join(shard, "a")
    shard.restart()
    assert [each.partitions for each in join(shard, "b").active_tasks or ()] == [[0]]


def test_delay_of_a_group_whose_records_are_not_written_begins_anew() -> None:
    shard = shard_with()
    shard.shard.streams.heartbeat(request_of("a", TOPOLOGY), 1, CLIENT, shard.now_ms)  # nothing is committed
    shard.now_ms += DELAY_MS
    join(shard, "a")
    deadline_ms = shard.streams_group().timers.initial_delay_until_ms
    assert deadline_ms == shard.now_ms + DELAY_MS


def test_rebalances_are_explained_by_tasks() -> None:
    shard = shard_with(group_streams_initial_rebalance_delay_ms=0)
    join(shard, "a")
    join(shard, "b")
    *_, latest = json.loads(shard.shard.explain_group("g"))
    assert latest["reasons"] == ["member b (client client) joined"]
    changes = {each["member"]: (each["gained"], each["lost"]) for each in latest["members"]}
    assert changes == {"a": ([], [["0", 1]]), "b": ([["0", 1]], [])}
