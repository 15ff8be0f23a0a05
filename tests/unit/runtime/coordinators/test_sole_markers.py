"""Markers that are written with the decision, since nothing else is open in their partitions, and those that wait."""

import asyncio
import errno
from collections.abc import Callable, Mapping

import pytest

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.runtime.coordinators.markers import LocalMarkers, Marker, MarkerResults, MarkersByPartition, MarkerSink
from kafkapy.types import TopicPartition
from tests.simulator.loop import SimLoop
from tests.support.transaction_hosting import SimProducer, TransactionHosting, batches_of, shape_of

ENDED, OPEN = ["records", "marker"], ["records"]


async def two_partitions(
    loop: SimLoop, configs: Mapping[str, str] | None = None, hosting: TransactionHosting | None = None
) -> tuple[TransactionHosting, SimProducer]:
    """Return a producer whose transaction is open in partitions 0 and 1."""
    hosting = hosting or TransactionHosting(loop)
    hosting.create_state_topic()
    hosting.create_topic("orders", 2, configs=dict(configs or {}))
    producer = SimProducer(hosting)
    assert await producer.init() == ErrorCode.NONE
    assert [await producer.send(partition_id=number) for number in range(2)] == [ErrorCode.NONE] * 2
    return hosting, producer


async def passes_of(loop: SimLoop, producer: SimProducer) -> int:
    """End the transaction; return how many passes of the loop that took, beyond the one in which it was decided."""
    ending = loop.create_task(producer.end())
    await asyncio.sleep(0)
    passes = 0
    while not ending.done():
        passes += 1
        await asyncio.sleep(0)
    assert ending.result() == ErrorCode.NONE
    return passes


async def test_markers_alone_in_their_partitions_are_written_with_the_decision(loop: SimLoop) -> None:
    hosting, producer = await two_partitions(loop)
    assert await passes_of(loop, producer) == 0
    assert [shape_of(batches_of(hosting, "orders", number)) for number in range(2)] == [ENDED, ENDED]
    assert producer.state() == "CompleteCommit"


async def test_markers_written_with_the_decision_leave_nothing_to_the_next_turn(loop: SimLoop) -> None:
    _, producer = await two_partitions(loop)
    scheduled = list(loop._ready)  # type: ignore[attr-defined]
    with pytest.raises(StopIteration):
        producer.end().send(None)
    assert list(loop._ready) == scheduled  # type: ignore[attr-defined]


@pytest.mark.parametrize("shared", [0, 1])
async def test_a_marker_beside_another_open_transaction_waits_for_the_flush(loop: SimLoop, shared: int) -> None:
    hosting, producer = await two_partitions(loop)
    other = SimProducer(hosting, "other")
    assert await other.init() == ErrorCode.NONE
    assert await other.send(partition_id=shared) == ErrorCode.NONE
    assert await passes_of(loop, producer) > 0
    found = [shape_of(batches_of(hosting, "orders", number)) for number in range(2)]
    assert found[1 - shared] == ENDED
    assert found[shared] == ["records", "records", "marker"]
    assert producer.state() == "CompleteCommit"


async def test_markers_that_are_to_be_flushed_are_answered_once_durable(loop: SimLoop) -> None:
    hosting, producer = await two_partitions(loop, {"flush.messages": "2"})
    assert await producer.end() == ErrorCode.NONE
    for number in range(2):
        partition = hosting.manager.partitions.find("orders", number)
        assert partition is not None
        assert partition.log is not None
        assert shape_of(batches_of(hosting, "orders", number)) == ENDED
        while partition.log.recovery_point < 2:
            await asyncio.sleep(0.001)
    while producer.state() != "CompleteCommit":
        await asyncio.sleep(0.001)


async def test_a_sole_marker_that_its_partition_refuses_is_tried_again(loop: SimLoop) -> None:
    hosting, producer = await two_partitions(loop)
    hosting.disk.fail("write", errno.ENOSPC, path="orders-0/")
    assert await producer.end() == ErrorCode.NONE
    assert shape_of(batches_of(hosting, "orders", 1)) == ENDED
    assert producer.state() == "PrepareCommit"
    while producer.state() != "CompleteCommit":
        await asyncio.sleep(0.01)
    assert shape_of(batches_of(hosting, "orders", 0)) == ENDED


class SilentLeader:
    """The markers of orders-1 are for another broker, which does not answer."""

    def __init__(self, local: MarkerSink) -> None:
        self._local = local

    def write(self, markers: MarkersByPartition, *, timeout_ms: int, on_done: Callable[[MarkerResults], None]) -> None:
        here = {partition: of_it for partition, of_it in markers.items() if partition.partition == 0}
        if here:
            self._local.write(here, timeout_ms=timeout_ms, on_done=on_done)

    def write_sole(self, topic_partition: TopicPartition, marker: Marker) -> int | None:
        return self._local.write_sole(topic_partition, marker) if topic_partition.partition == 0 else None


class BesideSilentLeader(TransactionHosting):
    def _new_sink(self) -> MarkerSink:
        return SilentLeader(LocalMarkers(self.manager, self.groups, self.clock))


async def test_a_refused_sole_marker_is_tried_again_while_another_broker_does_not_answer(loop: SimLoop) -> None:
    hosting, producer = await two_partitions(loop, hosting=BesideSilentLeader(loop))
    hosting.disk.fail("write", errno.ENOSPC, path="orders-0/")
    ending = loop.create_task(producer.end())
    await asyncio.sleep(1)
    assert shape_of(batches_of(hosting, "orders", 0)) == ENDED
    assert producer.state() == "PrepareCommit"
    ending.cancel()


async def test_offsets_that_share_a_write_may_make_a_sole_markers_flush_due(loop: SimLoop) -> None:
    """They are written right before the marker, so that the flush is due earlier than by the marker alone."""
    hosting = TransactionHosting(loop)
    hosting.create_state_topic()
    partition = hosting.create_offsets_topic(configs={"flush.messages": "6"})
    producer = SimProducer(hosting)
    assert await producer.init() == ErrorCode.NONE
    assert await producer.commit_offset(7) == [ErrorCode.NONE]
    commits = [loop.create_task(hosting.commit_offset(offset)) for offset in range(5)]
    ending = loop.create_task(producer.end())
    assert await asyncio.gather(*commits) == [[ErrorCode.NONE]] * 5
    assert await ending == ErrorCode.NONE
    while producer.state() != "CompleteCommit":
        await asyncio.sleep(0.001)
    assert partition.log.recovery_point >= 6


LATER_CODE = 9_999


class LaterLeader:
    """The markers of orders-1 are for another broker, of a later release: it first answers a code of its own."""

    def __init__(self, local: MarkerSink) -> None:
        self._local = local
        self._codes = [LATER_CODE]

    def write(self, markers: MarkersByPartition, *, timeout_ms: int, on_done: Callable[[MarkerResults], None]) -> None:
        if self._codes:
            code = self._codes.pop()
            on_done({partition: [code] * len(of_it) for partition, of_it in markers.items()})
        else:
            self._local.write(markers, timeout_ms=timeout_ms, on_done=on_done)

    def write_sole(self, topic_partition: TopicPartition, marker: Marker) -> int | None:
        return self._local.write_sole(topic_partition, marker) if topic_partition.partition == 0 else None


class BesideLaterLeader(TransactionHosting):
    def _new_sink(self) -> MarkerSink:
        return LaterLeader(LocalMarkers(self.manager, self.groups, self.clock))


async def test_a_marker_that_is_refused_by_a_code_of_a_later_release_is_tried_again(loop: SimLoop) -> None:
    hosting, producer = await two_partitions(loop, hosting=BesideLaterLeader(loop))
    assert await producer.end() == ErrorCode.NONE
    await asyncio.sleep(5)
    assert producer.state() == "CompleteCommit"
    assert shape_of(batches_of(hosting, "orders", 1)) == ENDED
