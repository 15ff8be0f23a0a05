"""What is asked of a large group is answered in turns, as one response, and others are served in between."""

import asyncio
from typing import Any

import pytest

from kafkapy.handlers import described_groups
from kafkapy.handlers.groups import offset_fetch
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkapy.protocol.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from kafkapy.runtime import turns
from tests.simulator.broker_world import KafkaClient, Machine
from tests.simulator.loop import SimLoop
from tests.support.interpreter import needs_interpreter

pytestmark = needs_interpreter("it replaces constants, which compiled code has inlined")
TOPICS, PARTITIONS, MEMBERS = ("a", "b", "c"), 120, 25


@pytest.fixture(autouse=True)
def small_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "STEPS_PER_TURN", 40)
    monkeypatch.setattr(offset_fetch, "PART_ELEMENTS", 20)


async def started(loop: SimLoop) -> tuple[Machine, KafkaClient]:
    machine = Machine(loop, offsets_topic_num_partitions="1")
    await machine.boot()
    client = machine.connect()
    await client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["group"]), 5)
    return machine, client


async def overtaken(machine: Machine, requested: Any, version: int) -> tuple[Any, int]:
    """Return the response, and how many requests of another connection were answered meanwhile."""
    other, count = machine.connect(), 0
    response = asyncio.ensure_future(machine.connect().call(requested, version))
    while not response.done():
        await other.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["group"]), 5)
        count += 1
    return response.result(), count


@pytest.mark.parametrize("version", [7, 9])
async def test_all_offsets_of_a_group_with_many_are_fetched_in_turns(
    loop: SimLoop, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, client = await started(loop)
    for name in TOPICS:
        await client.create_topic(name, PARTITIONS)
        partitions = [OffsetCommitRequestPartition(each, committed_offset=each + 7) for each in range(PARTITIONS)]
        committed = await client.call(
            OffsetCommitRequest("group", topics=[OffsetCommitRequestTopic(name, partitions=partitions)]), 9
        )
        assert {each.error_code for each in committed.topics[0].partitions} == {ErrorCode.NONE}
    requested = OffsetFetchRequest("group", topics=None, groups=[OffsetFetchRequestGroup("group", topics=None)])
    if version < offset_fetch.BATCHED_SINCE:
        requested.groups = []
    else:
        requested.group_id, requested.topics = "", []

    at_once, count_at_once = await overtaken(machine, requested, version)
    monkeypatch.setattr(offset_fetch, "ALL_AT_ONCE", len(TOPICS) * PARTITIONS - 1)
    in_turns, count_in_turns = await overtaken(machine, requested, version)

    assert in_turns == at_once
    topics = in_turns.groups[0].topics if in_turns.groups else in_turns.topics
    found = {(topic.name, each.partition_index): each.committed_offset for topic in topics for each in topic.partitions}
    assert found == {(name, each): each + 7 for name in TOPICS for each in range(PARTITIONS)}
    assert count_in_turns > count_at_once
    await machine.stop()


async def test_a_group_of_many_members_is_described_in_turns(loop: SimLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    machine, client = await started(loop)
    await client.create_topic("a", PARTITIONS)
    for number in range(MEMBERS):
        joining = ConsumerGroupHeartbeatRequest(
            "group",
            member_id=f"member-{number:02}",
            rebalance_timeout_ms=300_000,
            subscribed_topic_names=["a"],
            topic_partitions=[],
        )
        assert (await client.call(joining, 1)).error_code == ErrorCode.NONE
    requested = ConsumerGroupDescribeRequest(["group"])

    at_once, count_at_once = await overtaken(machine, requested, 1)
    for size in (MEMBERS, MEMBERS - 1, 5, 1):
        monkeypatch.setattr(described_groups, "MEMBERS_AT_ONCE", size)
        in_turns, count_in_turns = await overtaken(machine, requested, 1)
        assert in_turns == at_once
        assert count_in_turns > count_at_once
    assert len(at_once.groups[0].members) == MEMBERS
    await machine.stop()


async def test_a_group_that_changes_while_it_is_described_is_described_as_it_is_then(
    loop: SimLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, client = await started(loop)
    await client.create_topic("a", PARTITIONS)
    joining = ConsumerGroupHeartbeatRequest(
        "group", rebalance_timeout_ms=300_000, subscribed_topic_names=["a"], topic_partitions=[]
    )
    for number in range(MEMBERS):
        joining.member_id = f"member-{number:02}"
        await client.call(joining, 1)
    monkeypatch.setattr(described_groups, "MEMBERS_AT_ONCE", 2)
    response = asyncio.ensure_future(machine.connect().call(ConsumerGroupDescribeRequest(["group"]), 1))
    leaving = ConsumerGroupHeartbeatRequest("group", member_id="member-00", member_epoch=-1)
    assert (await client.call(leaving, 1)).error_code == ErrorCode.NONE
    assert not response.done()

    (group,) = (await response).groups
    assert sorted(member.member_id for member in group.members) == [f"member-{each:02}" for each in range(1, MEMBERS)]
    await machine.stop()
