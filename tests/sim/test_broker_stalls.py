"""A disk that stalls under a whole broker delays those who wait for it and nobody else, shown in virtual time."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest

from kafkapy.types import TopicPartition
from tests.simulator.broker_world import DATA_DIR, Machine, Topic, values_of
from tests.simulator.loop import SimLoop, run

ROUND_TRIP_MS = 0.2
VALUE = b"x" * 1000


@dataclass
class Stalls:
    """A disk's hook: the next operations on a path take long. `on_loop` collects those that nobody sent to the pool."""

    loop: SimLoop
    on_loop: list[str] = field(default_factory=list)
    stalled: list[str] = field(default_factory=list)
    _next: tuple[str, str, float] | None = None

    def stall_next(self, operation: str, part: str, duration_ms: float) -> None:
        self._next = operation, part, duration_ms

    def __call__(self, operation: str, path: str) -> None:
        if operation in ("sync", "sync_directory") and not self.loop.blocked_ms_in_call:
            self.on_loop.append(f"{operation} {path}")
        if self._next is not None and self._next[0] == operation and self._next[1] in path:
            duration_ms, self._next = self._next[2], None
            self.stalled.append(path)
            self.loop.block(duration_ms)


@dataclass
class Latencies:
    """What other connections measure meanwhile, in ms: one produces and fetches, one polls for what comes."""

    produce: list[float] = field(default_factory=list)
    fetch: list[float] = field(default_factory=list)
    poll: list[float] = field(default_factory=list)

    @property
    def all(self) -> list[float]:
        return [*self.produce, *self.fetch, *self.poll]


async def use_meanwhile(machine: Machine, topic: Topic, duration_ms: int) -> Latencies:
    """Produce to, fetch from and wait on a topic for a while, on connections of their own."""
    found = Latencies()
    loop = machine.loop
    until = loop.time() + duration_ms / 1000
    consumer = asyncio.create_task(_poll(machine, topic, until, found.poll))
    client = machine.connect()
    while loop.time() < until:
        start = loop.time()
        produced = await client.produce(topic, repr(start).encode())
        sent = loop.time()
        assert produced.error_code == 0
        assert (await client.fetch(topic, produced.base_offset)).error_code == 0
        found.produce.append((sent - start) * 1000)
        found.fetch.append((loop.time() - sent) * 1000)
        await asyncio.sleep(0.01)
    await consumer
    return found


async def _poll(machine: Machine, topic: Topic, until: float, found: list[float]) -> None:
    """Follow the topic by long polls; note how old each record is that comes while one waits."""
    client = machine.connect()
    offset = (await client.list_offset(topic, -1)).offset
    while machine.loop.time() < until:
        requested_at = machine.loop.time()
        response = await client.fetch(topic, offset, max_wait_ms=500)
        for value in values_of(response):
            offset += 1
            produced = float(value or b"")
            if produced >= requested_at:  # else it came before the poll did, and waited for it
                found.append((machine.loop.time() - produced) * 1000)


async def chill_all_but(machine: Machine, topic: Topic) -> None:
    """Drop the page cache, then read one topic into it again."""
    client = machine.connect()
    await client.produce(topic, b"0")
    machine.disk.chill()
    await client.fetch(topic, 0)


async def requested_when_cold(
    machine: Machine, stalls: Stalls, warm: Topic, send: Callable[[], Coroutine[Any, Any, Any]]
) -> Any:
    """Ask for what is read from "cold", which takes the disk 500 ms; who uses `warm` meanwhile is not delayed."""
    await chill_all_but(machine, warm)
    stalls.stall_next("read", "cold-0", 500)
    others = asyncio.create_task(use_meanwhile(machine, warm, 1000))
    start = machine.loop.time()
    response = await send()
    took_ms = (machine.loop.time() - start) * 1000
    assert stalls.stalled
    assert 500 <= took_ms < 502
    assert_undelayed(await others, count=90)
    return response


def on_machine(test: Callable[[Machine, Stalls], Coroutine[Any, Any, None]], **properties: str) -> Callable[[], None]:
    """Run a test on a machine that has booted; after it, no sync may have run on the loop's own thread."""

    def call() -> None:
        async def main(loop: SimLoop) -> None:
            machine = Machine(loop, **properties)
            await machine.boot()
            stalls = Stalls(loop)
            machine.disk.hook = stalls
            await test(machine, stalls)
            assert stalls.on_loop == []
            machine.disk.hook = None
            await machine.stop()

        run(main)

    call.__name__ = test.__name__
    return call


def assert_undelayed(found: Latencies, *, count: int) -> None:
    assert min(len(found.produce), len(found.fetch), len(found.poll)) >= count
    assert max(found.all) <= ROUND_TRIP_MS + 0.001


@on_machine
async def test_a_cold_read_of_500_ms_delays_only_its_fetch(machine: Machine, stalls: Stalls) -> None:
    client = machine.connect()
    cold, warm = await client.create_topic("cold"), await client.create_topic("warm")
    for _ in range(50):
        await client.produce(cold, VALUE)
    fetched = await requested_when_cold(machine, stalls, warm, lambda: client.fetch(cold, 0))
    assert values_of(fetched) == [VALUE] * 50


@on_machine
async def test_a_cold_index_of_500_ms_delays_only_lookups_by_time(machine: Machine, stalls: Stalls) -> None:
    client = machine.connect()
    cold, warm = await client.create_topic("cold", index_interval_bytes="1000"), await client.create_topic("warm")
    for _ in range(50):
        await client.produce(cold, VALUE)
        await asyncio.sleep(0.001)
    found = await requested_when_cold(
        machine, stalls, warm, lambda: client.list_offset(cold, machine.clock.wall_ms() - 20)
    )
    assert 0 < found.offset < 50


@on_machine
async def test_a_flush_of_2_s_delays_nobody(machine: Machine, stalls: Stalls) -> None:
    client = machine.connect()
    flushed = await client.create_topic("flushed", flush_ms="100")
    warm = await client.create_topic("warm")
    await asyncio.sleep(2)
    stalls.stall_next("sync", "flushed-0", 2000)
    others = asyncio.create_task(use_meanwhile(machine, warm, 4000))
    latencies = await use_meanwhile(machine, flushed, 4000)
    assert stalls.stalled
    assert_undelayed(latencies, count=350)
    assert_undelayed(await others, count=350)


@on_machine
async def test_flush_messages_holds_the_responses_of_its_topic_until_they_are_durable(
    machine: Machine, stalls: Stalls
) -> None:
    client = machine.connect()
    flushed = await client.create_topic("flushed", flush_messages="1")
    warm = await client.create_topic("warm")
    await asyncio.sleep(2)
    stalls.stall_next("sync", "flushed-0", 2000)
    others = asyncio.create_task(use_meanwhile(machine, warm, 4000))
    start = machine.loop.time()
    responses = await asyncio.gather(*(machine.connect().produce(flushed, b"v") for _ in range(5)))
    assert 2000 <= (machine.loop.time() - start) * 1000 < 2010
    assert sorted(response.base_offset for response in responses) == list(range(5))
    log = machine.logs()[TopicPartition("flushed", 0)]
    assert log.recovery_point == log.log_end_offset == 5
    assert_undelayed(await others, count=350)


@on_machine
async def test_an_fsync_of_the_metadata_of_2_s_delays_only_changes_of_it(machine: Machine, stalls: Stalls) -> None:
    client = machine.connect()
    topic = await client.create_topic("orders")
    stalls.stall_next("sync", "__cluster_metadata-0", 2000)
    others = asyncio.create_task(use_meanwhile(machine, topic, 3000))
    start = machine.loop.time()
    created = await client.create_topic("slow")
    assert 2000 <= (machine.loop.time() - start) * 1000 < 2010
    assert_undelayed(await others, count=280)
    assert (await client.produce(created, b"v")).base_offset == 0


@on_machine
async def test_rolling_a_segment_waits_for_no_disk(machine: Machine, stalls: Stalls) -> None:
    client = machine.connect()
    topic = await client.create_topic("orders", segment_bytes="1048576", index_interval_bytes="4096")
    for _ in range(30):
        start = machine.loop.time()
        await client.produce(topic, b"x" * 100_000)
        assert (machine.loop.time() - start) * 1000 == pytest.approx(ROUND_TRIP_MS)
    segments = [name for name in machine.disk.list_directory(f"{DATA_DIR}/orders-0") if name.endswith(".log")]
    assert len(segments) >= 3
    await asyncio.sleep(2)


def test_a_checkpoint_of_2_s_delays_nobody() -> None:
    @on_machine
    async def test(machine: Machine, stalls: Stalls) -> None:
        topic = await machine.connect().create_topic("orders")
        stalls.stall_next("sync", "replication-offset-checkpoint", 2000)
        latencies = await use_meanwhile(machine, topic, 9000)
        assert stalls.stalled
        assert_undelayed(latencies, count=800)

    test()


async def test_a_stop_waits_for_a_flush_and_is_clean(loop: SimLoop) -> None:
    machine = Machine(loop, num_io_threads="1")
    await machine.boot()
    client = machine.connect()
    topic = await client.create_topic("orders", flush_ms="100")
    # the only worker is busy for longer than a controlled shutdown may take: the flush waits behind that
    machine.io_pool.submit(lambda: loop.block(8000), lambda _result, _error: None)
    await client.produce(topic, b"v")
    await asyncio.sleep(1.5)
    await machine.stop()
    assert loop.time() > 8
    assert machine.disk.exists(f"{DATA_DIR}/.kafka_cleanshutdown")
