"""A read of committed records ends where it would have to tell of too many aborted transactions."""

from kafkapy.storage.log.log import Log
from kafkapy.storage.log.reader import MAX_ABORTED_IN_READ, FetchIsolation
from tests.simulator.disk import SimDisk
from tests.support.batches import build_batch
from tests.support.logs import NOW_MS, marker, open_small_log

COUNT = MAX_ABORTED_IN_READ + 500
CHUNK = 1000
LONG_ONE = 9
"""The producer of a transaction that is open at the log's start, and aborted at its end."""


def data_at(offset: int, producer_id: int, sequence: int) -> bytes:
    return build_batch(
        [(NOW_MS, b"k", b"v", ())],
        base_offset=offset,
        leader_epoch=0,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=True,
    )


def abort_at(offset: int, producer_id: int) -> bytes:
    batch = marker(is_abort=True, producer_id=producer_id)
    batch[:8] = offset.to_bytes(8, "big")
    batch[12:16] = bytes(4)
    return bytes(batch)


def log_of_aborts(disk: SimDisk) -> Log:
    """A transaction of LONG_ONE around COUNT of producer 7, each of one record."""
    log = open_small_log(disk, segment_bytes=1 << 30, segment_index_bytes=1 << 20, index_interval_bytes=4096)
    chunk = bytearray(data_at(0, LONG_ONE, 0))
    for number in range(COUNT):
        chunk += data_at(2 * number + 1, 7, number) + abort_at(2 * number + 2, 7)
        if number % CHUNK == CHUNK - 1:
            log.append_as_follower(chunk, NOW_MS, leader_epoch=0)
            disk.sync_all()
            chunk = bytearray()
    log.append_as_follower(chunk + abort_at(2 * COUNT + 1, LONG_ONE), NOW_MS, leader_epoch=0)
    log.update_high_watermark(log.log_end_offset)
    return log


def test_reads_return_few_aborts_at_a_time_and_all_that_they_touch() -> None:
    log = log_of_aborts(SimDisk())
    read = log.read(0, 1 << 30, isolation=FetchIsolation.TXN_COMMITTED, wait=True)
    assert read.aborted_transactions is not None
    assert read.next_offset == 2 * MAX_ABORTED_IN_READ + 1
    assert len(read.aborted_transactions) == MAX_ABORTED_IN_READ + 1
    assert read.aborted_transactions[-1][:2] == (LONG_ONE, 0), "it ends behind what was read"
    rest = log.read(read.next_offset, 1 << 30, isolation=FetchIsolation.TXN_COMMITTED, wait=True)
    assert rest.aborted_transactions is not None
    assert rest.next_offset == log.log_end_offset
    assert len(rest.aborted_transactions) == COUNT - MAX_ABORTED_IN_READ + 1
    assert rest.first_offset == read.next_offset
    assert read.size_bytes + rest.size_bytes == log.size_bytes
    for each in (read, rest):
        assert each.region is not None
        each.region.release()


def test_other_reads_are_as_long_as_they_may_be() -> None:
    log = log_of_aborts(SimDisk())
    read = log.read(0, 1 << 30, isolation=FetchIsolation.HIGH_WATERMARK, wait=True)
    assert read.size_bytes == log.size_bytes
    assert read.region is not None
    read.region.release()
