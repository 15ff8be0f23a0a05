"""A coordinator of very many transactional ids: no look at all of them holds the loop."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.list_transactions_request import ListTransactionsRequest
from kafkapy.runtime.coordinators.marker_writer import MARKERS_PER_FLUSH
from kafkapy.runtime.coordinators.markers import Marker
from kafkapy.runtime.coordinators.transaction_host import IDS_PER_SLICE
from kafkapy.runtime.turns import STEPS_PER_TURN
from kafkapy.transaction.filters import TransactionFilters
from kafkapy.transaction.metadata import created, with_partitions
from kafkapy.transaction.records import TransactionRecord
from kafkapy.transaction.states import TransactionState
from kafkapy.types import TopicPartition
from tests.simulator.loop import SimLoop
from tests.support.hosting import NOW_MS, new_walk
from tests.support.transaction_hosting import TransactionHosting
from tests.support.transaction_world import changed

ORDERS = TopicPartition("orders", 0)
COUNT = 4 * STEPS_PER_TURN
TIMEOUT_MS = 60_000


def hosting_of_many(loop: SimLoop, count: int = COUNT, **changes: Any) -> TransactionHosting:
    """Return a coordinator of so many ids, each with a transaction that has begun, changed as told."""
    hosting = TransactionHosting(loop)
    hosting.create_state_topic()
    hosting.create_topic("orders")
    shard = hosting.transactions.host_of("t").shard
    for number in range(count):
        empty = created(number, timeout_ms=TIMEOUT_MS, now_ms=NOW_MS)
        begun = with_partitions(empty, [ORDERS], client_transaction_version=2, now_ms=NOW_MS)
        shard.replay(TransactionRecord(f"t-{number}", changed(begun, **changes), 1), number)
    return hosting


async def passes_during(loop: SimLoop, work: Coroutine[Any, Any, None]) -> int:
    """Return how many passes of the loop it takes."""
    task = loop.create_task(work)
    passes = 0
    while not task.done():
        await asyncio.sleep(0)
        passes += 1
    task.result()
    return passes


async def test_listing_them_gives_way(loop: SimLoop) -> None:
    hosting = hosting_of_many(loop)
    filters = TransactionFilters.of(ListTransactionsRequest(producer_id_filters=[3]))
    began_ms = hosting.clock.monotonic_ms()
    listed = await hosting.transactions.read_all(
        lambda shard: shard.list_transactions(filters, NOW_MS), new_walk(hosting.clock)
    )
    assert [each.transactional_id for each in listed] == ["t-3"]
    assert hosting.clock.monotonic_ms() - began_ms >= COUNT // STEPS_PER_TURN - 1, "a pause after each turn"


async def test_ids_that_come_and_go_while_they_are_listed_disturb_nobody(loop: SimLoop) -> None:
    hosting = hosting_of_many(loop)
    shard = hosting.transactions.host_of("t").shard
    filters = TransactionFilters.of(ListTransactionsRequest())
    listing = loop.create_task(
        hosting.transactions.read_all(lambda each: each.list_transactions(filters, NOW_MS), new_walk(hosting.clock))
    )
    await asyncio.sleep(0)
    assert not listing.done()
    shard.replay(TransactionRecord("t-1", None, 1), COUNT)
    shard.replay(TransactionRecord("new", created(COUNT, timeout_ms=TIMEOUT_MS, now_ms=NOW_MS), 1), COUNT + 1)
    assert len({each.transactional_id for each in await listing}) == COUNT


async def test_looking_for_timed_out_ones_gives_way(loop: SimLoop) -> None:
    hosting = hosting_of_many(loop)
    assert await passes_during(loop, hosting.transactions.abort_timed_out()) >= COUNT // IDS_PER_SLICE


async def test_markers_of_many_are_written_some_at_a_time_and_each_once(loop: SimLoop) -> None:
    hosting = hosting_of_many(loop, state=TransactionState.PREPARE_ABORT)
    host = hosting.transactions.host_of("t")
    effects = host.shard.on_loaded(NOW_MS).effects
    writes = NotedWrites()
    host.markers._sink = writes
    for effect in effects:
        host.markers.enqueue(host, effect)
    while len(writes.producer_ids) < COUNT:
        written_before = len(writes.producer_ids)
        await asyncio.sleep(0)
        assert len(writes.producer_ids) - written_before <= MARKERS_PER_FLUSH
    assert writes.producer_ids == [effect.producer_id for effect in effects]
    assert host.markers.waiting_count == 0
    assert {each.state for each in host.shard.transactions.values()} == {TransactionState.COMPLETE_ABORT}


class NotedWrites:
    """Partitions that take every marker."""

    def __init__(self) -> None:
        self.producer_ids: list[int] = []

    def write(self, markers: dict[TopicPartition, list[Marker]], *, timeout_ms: int, on_done: Any) -> None:
        self.producer_ids += [each.producer_id for of_partition in markers.values() for each in of_partition]
        on_done({partition: [ErrorCode.NONE] * len(each) for partition, each in markers.items()})
