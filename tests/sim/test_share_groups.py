"""A broker whose partitions are read as queues, with the share coordinator on it: what a stop and a crash leave.

The handlers are called as the router would call them.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kafkapy.protocol.messages.share_fetch_request import FetchPartition, FetchTopic, ShareFetchRequest
from kafkapy.serving.large_requests import LARGE_FRAME_BYTES
from kafkapy.share.persister import InitialState
from kafkapy.share.record_state import ACK_ACCEPT, ACK_REJECT, ACK_RELEASE
from tests.simulator.broker_world import Machine, Topic
from tests.simulator.disk import SimDisk
from tests.simulator.loop import SimLoop, run
from tests.support.share_partition_hosting import Member, acquired_of, parts_of

ALL_RECORDS = 100
MEMBER = "AAAAAAAAQACAAAAAAAAAAQ"


def lives(*works: Callable[[Machine, Topic], Awaitable[None]], crash: str | None = None) -> None:
    """Run lives of one broker: the first with a new topic of ten batches; between them a stop, or a crash.

    crash: "all" if what was written is there afterwards, as after kill -9.
    """
    disk = SimDisk()
    topics: list[Topic] = []

    async def live(loop: SimLoop, work: Callable[[Machine, Topic], Awaitable[None]]) -> None:
        machine = Machine(loop, disk=disk)
        await machine.boot()
        if not topics:
            client = machine.connect()
            topics.append(await client.create_topic("orders"))
            for _ in range(10):
                await client.produce(topics[0], *[b"x"] * 10)
            state = InitialState(topics[0].topic_id, 0, 0, 0)
            (result,) = await services_of(machine).share.persister.initialize("g", [state])
            assert result.error_code == 0
        await work(machine, topics[0])
        if crash is None:
            await machine.stop()

    for work in works:
        run(lambda loop, work=work: live(loop, work))
        if crash is not None:
            disk.crash(crash)


def services_of(machine: Machine) -> Any:
    return machine.server._services


def member_of(machine: Machine, topic: Topic, name: str = "m1", connection: str = "c1") -> Member:
    return Member(services_of(machine), topic.topic_id, name, connection=connection)


def offsets_of(acquired: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
    return [(offset, count) for first, last, count in acquired for offset in range(first, last + 1)]


@pytest.mark.parametrize("crash", [None, "all"])
def test_what_was_acknowledged_stays_so_and_the_rest_comes_again(crash: str | None) -> None:
    async def consume(machine: Machine, topic: Topic) -> None:
        member = member_of(machine, topic)
        assert offsets_of(await member.acquire()) == [(offset, 1) for offset in range(ALL_RECORDS)]
        types = [ACK_ACCEPT, ACK_REJECT, ACK_RELEASE]
        acks = [(0, 29, [types[offset % 3] for offset in range(30)]), (40, 49, [ACK_ACCEPT])]
        (part,) = parts_of(await member.acknowledge({0: acks}))
        assert part.error_code == 0

    async def look(machine: Machine, topic: Topic) -> None:
        got = offsets_of(await member_of(machine, topic).acquire())
        forgotten = [*range(30, 40), *range(50, ALL_RECORDS)]  # acquired, which is not persisted
        expected = [(offset, 2) for offset in range(2, 30, 3)] + [(offset, 1) for offset in forgotten]
        assert sorted(got) == sorted(expected)

    lives(consume, look, crash=crash)


def test_a_closed_connection_releases_what_its_members_have() -> None:
    async def close(machine: Machine, topic: Topic) -> None:
        one, other = member_of(machine, topic), member_of(machine, topic, "m2", "c2")
        assert len(offsets_of(await one.acquire())) == ALL_RECORDS
        waiting = machine.loop.create_task(other.fetch(max_wait_ms=10_000))
        services_of(machine).share_partitions().connection_closed("c1")
        got = offsets_of(acquired_of(await waiting))
        assert got == [(offset, 2) for offset in range(ALL_RECORDS)]

    lives(close)


def test_a_connection_that_closes_while_its_large_fetch_is_decoded_leaves_no_session() -> None:
    """None would ever end it, and after 2,000 of them no group would be served."""

    async def close(machine: Machine, topic: Topic) -> None:
        client = machine.connect()
        named = [FetchPartition(number) for number in range(LARGE_FRAME_BYTES // 4)]
        request = ShareFetchRequest("g", member_id=MEMBER, topics=[FetchTopic(topic.topic_id, partitions=named)])
        machine.io_pool._call_ms = 100
        await client.send(request, 2)
        await asyncio.sleep(0.05)
        for link in list(machine.server._reactor._links()):
            link.close()
        await asyncio.sleep(1)
        assert len(services_of(machine).share_partitions().sessions) == 0

    lives(close)
