"""Groups: how soon a hundred members have settled, what heartbeats cost, how many offsets are committed.

The members are benchmarks.group_client's, the same for both servers. Rebalances are measured twice: with the heartbeat
intervals of stock consumers (3 s; 5 s in KIP-848 groups), which is what an application sees and what the intervals
decide, and with heartbeats every 100 ms, which shows the coordinator. Heartbeats and commits are sent when they are
due, whether or not those before were answered, and their latency counts from then (no coordinated omission).
"""

import asyncio
import gc
import statistics
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

from benchmarks.group_client import (
    ClassicMember,
    ConsumerMember,
    Group,
    Member,
    Peer,
    StreamsMember,
    find_coordinator,
)
from benchmarks.topics import create_topic, delete_topic
from benchmarks.wire import frame
from benchmarks.workload import Figures, Workload
from harness.servers import Server
from kafkapy.protocol.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest, TopicRequest
from kafkapy.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

MEMBERS, PARTITIONS_EACH = 100, 10
START_SPREAD_S = 1.0
"""A hundred processes do not start within a millisecond, and their heartbeats stay as far apart as they have begun."""
EAGER_INTERVAL_S = 0.1
SETTLE_TIMEOUT_S = 120.0
HEARTBEAT_GROUPS, HEARTBEAT_SECONDS = 10, 10.0
"""A thousand members, each with a heartbeat a second."""
COMMITTERS, COMMITS_PER_S, COMMIT_SECONDS = 50, 5_000, 10.0
TICK_S = 0.002
ERROR_OF_HEARTBEAT, ERROR_OF_COMMIT = 9, -5
"""Where the error code is: after the header and the throttle time; before the tags of partition, topic and answer."""
KINDS = ("classic", "consumer")
STREAMS, STREAMS_CLASSIC = "streams", "streams by the classic protocol"
"""Of Kafka Streams: group.protocol=streams, and the classic protocol, in which its assignor adds data of its own."""
USER_DATA = bytes(200)
"""About what the assignor of Kafka Streams says of a process with ten tasks; brokers do not read it."""


# -- rebalances -----------------------------------------------------------------------------------------------------


def settle(
    server: Server, topic: str, scale: float, *, kind: str, interval_s: float | None, member_count: int = MEMBERS
) -> Figures:
    """Have members join an empty group within a second; return when nine in ten and all had their share, and its cost.

    The last ones decide little about a broker: they may have to wait for their next heartbeat.
    """
    count = max(10, int(member_count * scale))
    create_topic(server, topic, count * PARTITIONS_EACH)

    async def run() -> Figures:
        async with members(server, topic, kind, group_count=1, member_count=count) as groups:
            ((group, joining),) = groups.items()
            cpu_s, started = server.cpu_s(), time.monotonic()
            async with running(joining, interval_s):
                await asyncio.wait_for(group.settled.wait(), SETTLE_TIMEOUT_S)
            return {
                "nine_in_ten_settled_s": group.mostly_settled_at - started,
                "all_settled_s": group.settled_at - started,
                "broker_cpu_s": server.cpu_s() - cpu_s,
            }

    figures = measured(run)
    delete_topic(server, topic)
    return figures


@asynccontextmanager
async def members(
    server: Server, topic: str, kind: str, *, group_count: int, member_count: int
) -> AsyncIterator[dict[Group, list[Member]]]:
    """Connect members of groups that want the same topic; they have not joined yet."""
    first = await Peer.connect(server.bootstrap)
    peers = [first]
    try:
        (described,) = (await first.call(DescribeTopicPartitionsRequest([TopicRequest(topic)]), 0)).topics
        groups: dict[Group, list[Member]] = {}
        for number in range(group_count):
            group = Group(f"{topic}-{number}", topic, described.topic_id, member_count * PARTITIONS_EACH, member_count)
            await find_coordinator(first, group.group_id)
            connected = [await Peer.connect(server.bootstrap) for _ in range(member_count)]
            peers += connected
            groups[group] = [new_member(kind, peer, group, index) for index, peer in enumerate(connected)]
        yield groups
    finally:
        for peer in peers:
            peer.close()


def new_member(kind: str, peer: Peer, group: Group, index: int) -> Member:
    name = f"member-{index}"
    if kind == STREAMS_CLASSIC:
        return ClassicMember(peer, group, assignor="stream", user_data=USER_DATA)
    if kind == STREAMS:
        return StreamsMember(peer, group, name=name)
    return ClassicMember(peer, group) if kind == "classic" else ConsumerMember(peer, group, name=name)


@asynccontextmanager
async def running(joining: Sequence[Member], interval_s: float | None) -> AsyncIterator[None]:
    """Let members live, at this interval or their own, until the block ends; raises at once what befalls one."""
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_start(member, START_SPREAD_S * index / len(joining), interval_s))
            for index, member in enumerate(joining)
        ]
        yield
        for task in tasks:
            task.cancel()


async def _start(member: Member, after_s: float, interval_s: float | None) -> None:
    await asyncio.sleep(after_s)
    await member.run(interval_s)


def measured(run: Callable[[], object]) -> Figures:
    """Run it without pauses for garbage in this process."""
    gc.collect()
    gc.disable()
    try:
        figures: Figures = asyncio.run(run())  # type: ignore[arg-type]
        return figures
    finally:
        gc.enable()


# -- requests at a rate ---------------------------------------------------------------------------------------------


class Paced:
    """Requests that are due at a steady rate, in turn from each sender; latencies count from when they were due."""

    def __init__(self, senders: Sequence[tuple[Peer, bytes]], *, per_s: float, count: int, error_at: int) -> None:
        """`error_at` is where in a response the error code begins."""
        self._senders = senders
        self._per_s = per_s
        self._count = count
        self._error_at = error_at
        self._latencies_s: list[float] = []
        self._is_done = asyncio.Event()

    async def run(self) -> float:
        """Send all and wait for the last response; return the seconds that took."""
        started = time.monotonic()
        sent = 0
        while sent < self._count:
            due = min(self._count, int((time.monotonic() - started) * self._per_s))
            for number in range(sent, due):
                peer, request = self._senders[number % len(self._senders)]
                peer.send(request, partial(self._answered, started + number / self._per_s))
            sent = max(sent, due)
            await asyncio.sleep(TICK_S)
        await asyncio.wait_for(self._is_done.wait(), SETTLE_TIMEOUT_S)
        return time.monotonic() - started

    def _answered(self, due_at: float, response: bytes) -> None:
        self._latencies_s.append(time.monotonic() - due_at)
        error = response[self._error_at : self._error_at + 2]
        assert error == b"\0\0", f"refused with {int.from_bytes(error, 'big', signed=True)}"
        if len(self._latencies_s) == self._count:
            self._is_done.set()

    def latencies_ms(self) -> Figures:
        percentiles = statistics.quantiles(self._latencies_s, n=100, method="inclusive")
        return {"p50_ms": percentiles[49] * 1000, "p99_ms": percentiles[98] * 1000}


def heartbeats(server: Server, topic: str, scale: float, *, kind: str) -> Figures:
    """Send each of a thousand settled members' heartbeats once a second."""
    count = max(10, int(MEMBERS * scale))
    create_topic(server, topic, count * PARTITIONS_EACH)

    async def run() -> Figures:
        async with members(server, topic, kind, group_count=HEARTBEAT_GROUPS, member_count=count) as groups:
            everybody = [member for joined in groups.values() for member in joined]
            async with running(everybody, EAGER_INTERVAL_S):
                for group in groups:
                    await asyncio.wait_for(group.settled.wait(), SETTLE_TIMEOUT_S)
            await asyncio.sleep(1)
            senders = [(member.peer, member.heartbeat()) for member in everybody]
            sent = int(len(senders) * max(HEARTBEAT_SECONDS * scale, 3))
            paced = Paced(senders, per_s=len(senders), count=sent, error_at=ERROR_OF_HEARTBEAT)
            cpu_s = server.cpu_s()
            await paced.run()
            return {**paced.latencies_ms(), "broker_cpu_ms_per_1000": (server.cpu_s() - cpu_s) / sent * 1e6}

    figures = measured(run)
    delete_topic(server, topic)
    return figures


def commits(server: Server, topic: str, scale: float, *, group_count: int) -> Figures:
    """Commit one partition's offset a request, 5,000 a second, over fifty connections."""
    create_topic(server, topic, COMMITTERS)
    count = int(COMMITS_PER_S * max(COMMIT_SECONDS * scale, 2))

    async def run() -> Figures:
        peers = [await Peer.connect(server.bootstrap) for _ in range(COMMITTERS)]
        senders = []
        for number, peer in enumerate(peers):
            group_id = f"{topic}-{number % group_count}"
            await find_coordinator(peer, group_id)
            position = OffsetCommitRequestTopic(
                topic, partitions=[OffsetCommitRequestPartition(number, committed_offset=42)]
            )
            senders.append((peer, frame(OffsetCommitRequest(group_id, topics=[position]), 9)))
        paced = Paced(senders, per_s=COMMITS_PER_S, count=count, error_at=ERROR_OF_COMMIT)
        cpu_s = server.cpu_s()
        seconds = await paced.run()
        cost_s = server.cpu_s() - cpu_s
        for peer in peers:
            peer.close()
        return {
            "commits_per_s": count / seconds,
            **paced.latencies_ms(),
            "broker_cpu_us_per_commit": cost_s / count * 1e6,
        }

    figures = measured(run)
    delete_topic(server, topic)
    return figures


WORKLOADS = [
    *(
        Workload(
            f"{MEMBERS} members settle, {kind}, {name}",
            partial(settle, kind=kind, interval_s=interval_s),
            family="groups",
            quick_rounds=int(interval_s is not None),
        )
        for name, interval_s in (("stock intervals", None), ("heartbeats every 100 ms", EAGER_INTERVAL_S))
        for kind in KINDS
    ),
    *(
        Workload(
            f"heartbeats of 1000 members, {kind}",
            partial(heartbeats, kind=kind),
            family="groups",
            quick_rounds=0,
        )
        for kind in KINDS
    ),
    Workload("5000 offset commits a second", partial(commits, group_count=COMMITTERS), family="groups"),
    Workload("5000 offset commits a second, one group", partial(commits, group_count=1), family="groups"),
]
