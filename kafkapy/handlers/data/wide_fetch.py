"""A consumer's Fetch of many partitions, in turns: as handlers/data/fetch.py does it, giving way to other requests.

It may name 29,900 partitions, even ones that do not exist. Every step handles one partition, or reads READ_AT_ONCE.
While it waits for data, an append to one of its partitions only sets a flag: what can be read is then counted in turns.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.handlers.data.fetch_counts import count_sent
from kafkapy.handlers.data.fetch_reading import Limits, Readable, read_partitions
from kafkapy.handlers.data.fetch_wire import Reads
from kafkapy.handlers.data_plane import TopicAccess
from kafkapy.protocol.messages.fetch_request import FetchRequest
from kafkapy.replication.delayed_fetch import PartitionsWatch
from kafkapy.replication.fetch_read import FetchRead, available_bytes
from kafkapy.replication.fetch_session import FetchedPartition, PartitionKey
from kafkapy.replication.partition_read import PartitionRead, failed_read
from kafkapy.runtime.turns import Walk
from kafkapy.types import ZERO_UUID

WIDE: Final = 250
"""More partitions are handled in turns: about a millisecond of work."""
READ_AT_ONCE: Final = 50
CHECK_PAUSE_MS: Final = 10
"""The pause after new data that were not enough, before what can be read is counted again."""

T = TypeVar("T")
SortOut = Callable[[Sequence[FetchedPartition], TopicAccess, dict[object, PartitionRead]], list[Readable]]
"""Returns those of some partitions that can be read, and adds the error responses of the others."""


async def partitions_of(
    services: Services, context: RequestContext, request: FetchRequest
) -> tuple[list[FetchedPartition], list[PartitionKey]]:
    """Return the partitions that a large request names, and those that it removes from its session."""
    way = walk(services, context)
    requested = [
        FetchedPartition(topic.topic, topic.topic_id, partition)
        for topic in request.topics
        async for partition in way.over(topic.partitions)
    ]
    forgotten: list[PartitionKey] = [
        (topic.topic_id if topic.topic_id != ZERO_UUID else topic.topic, partition)
        for topic in request.forgotten_topics_data
        async for partition in way.over(topic.partitions)
    ]
    return requested, forgotten


async def refuse_all(
    services: Services, context: RequestContext, partitions: Sequence[FetchedPartition], code: int
) -> Reads:
    return [(each, failed_read(code)) async for each in walk(services, context).over(partitions)]


async def fetch(
    services: Services,
    context: RequestContext,
    request: FetchRequest,
    partitions: Sequence[FetchedPartition],
    *,
    access: TopicAccess,
    sort_out: SortOut,
    limits: Limits,
) -> Reads:
    """Return a response for each partition, in their order."""
    way = walk(services, context)
    await access.count_names(way)
    readable: list[Readable] = []
    refused: dict[object, PartitionRead] = {}
    async for each in way.over(partitions):
        readable += sort_out((each,), access, refused)
    read = await _read(services, way, readable, limits)
    min_bytes = min(request.min_bytes, limits.max_bytes)
    is_enough = read.bytes_read >= min_bytes or read.must_respond or bool(refused)
    if not is_enough and request.max_wait_ms > 0 and readable:
        read.release()  # as fetch_reading.read_or_wait
        await _wait(services, way, readable, limits, min_bytes=min_bytes, max_wait_ms=request.max_wait_ms)
        read = await _read(services, way, readable, limits)
    responses = iter(read.results)
    try:
        return [(each, refused.get(each.key) or next(responses)) async for each in way.over(partitions)]
    except BaseException:
        read.release()
        raise


async def _read(services: Services, way: Walk, readable: list[Readable], limits: Limits) -> FetchRead:
    read: FetchRead | None = None
    try:
        for some in _slices(readable):
            if way.is_over(READ_AT_ONCE):
                await way.give_way()
            first = 0 if read is None else len(read.results)
            read = await read_partitions(services, some, limits, notes_progress=False, read=read)
            if services.replica_manager.traffic is not None:
                count_sent(some, read.results[first:])
    except BaseException:
        if read is not None:
            read.release()
        raise
    assert read is not None, "there is at least one slice"
    return read


class _DataSignal:
    """Wakes the one that waits for an append to any of its partitions, or for the time-out."""

    def __init__(self) -> None:
        self._has_come = False
        self._future: asyncio.Future[None] | None = None

    def set(self) -> None:
        self._has_come = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self) -> None:
        if not self._has_come:
            self._future = asyncio.get_running_loop().create_future()
            await self._future
        self._has_come = False


async def _wait(
    services: Services, way: Walk, readable: list[Readable], limits: Limits, *, min_bytes: int, max_wait_ms: int
) -> None:
    """Return once min_bytes can be read, a partition has an error, or max_wait_ms has passed."""
    deadline_ms = services.clock.monotonic_ms() + max_wait_ms
    signal = _DataSignal()
    watches: list[PartitionsWatch] = []
    try:
        for some in _slices(readable):
            if way.is_over(READ_AT_ONCE):
                await way.give_way()
            left_ms = max(0, deadline_ms - services.clock.monotonic_ms())
            keys = [partition for _, partition in some]
            watches.append(services.replica_manager.watch_for_data(keys, max_wait_ms=left_ms, on_data=signal.set))
        while True:
            await signal.wait()
            if services.clock.monotonic_ms() >= deadline_ms or await _has_enough(way, readable, limits, min_bytes):
                break
            # Under a steady trickle of records each append would have all partitions counted again.
            await asyncio.sleep(CHECK_PAUSE_MS / 1000)
        while watches:
            watches.pop().abandon()
            if way.is_over(READ_AT_ONCE):
                await way.give_way()
    finally:
        for watch in watches:
            watch.abandon()


async def _has_enough(way: Walk, readable: list[Readable], limits: Limits, min_bytes: int) -> bool:
    total = 0
    async for requested, partition in way.over(readable):
        available = available_bytes(partition, requested, limits.isolation, reads_followers=limits.reads_followers)
        if available is None:
            return True
        total += available
        if total >= min_bytes:
            return True
    return False


def _slices(entries: list[T]) -> Iterator[list[T]]:
    """Yield READ_AT_ONCE entries at a time; one empty slice if there are none."""
    yield entries[:READ_AT_ONCE]
    for start in range(READ_AT_ONCE, len(entries), READ_AT_ONCE):
        yield entries[start : start + READ_AT_ONCE]
