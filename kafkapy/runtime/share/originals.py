"""Reads the records to copy to a dead-letter topic: some of a letter's offsets, within a bound of memory."""

import logging
from typing import Final

from kafkapy.errors import ApiError, StorageError
from kafkapy.record.batch import Record, RecordBatch
from kafkapy.record.batches import batches
from kafkapy.record.builder import encode_records
from kafkapy.record.errors import RecordTooLargeError
from kafkapy.replication.hosted_partitions import HostedPartition
from kafkapy.runtime.pool import run_in_pool
from kafkapy.seams import IoPool
from kafkapy.share.dead_letters import KeyAndValue, Originals
from kafkapy.storage.errors import NeedsWarming
from kafkapy.storage.log.reader import FetchIsolation

READ_BYTES: Final = 1 << 20
"""Bytes of a read, as in Apache Kafka; one batch may be larger."""

logger = logging.getLogger("kafkapy.share")


async def read_originals(
    hosted: HostedPartition, first_offset: int, last_offset: int, *, max_bytes: int, io_pool: IoPool
) -> Originals:
    """Return the records of some offsets from first_offset on, of max_bytes together.

    A record that is larger than max_bytes, or in a compressed batch that inflates to more, is left out. After an error
    no more is read: the dead letters of the other offsets have headers only.
    """
    found = _Collected(last_offset, max_bytes, first_offset - 1)
    next_offset = first_offset
    while next_offset <= last_offset and not found.is_full:
        try:
            data = await _read(hosted, next_offset, io_pool)
            advanced = await run_in_pool(io_pool, lambda data=data, at=next_offset: found.collect(data, at))  # type: ignore[misc]
        except (ApiError, StorageError) as error:
            logger.warning(
                "Dead letters of %s: offsets from %d on cannot be read, their records are not copied: %s",
                hosted.topic_partition,
                next_offset,
                error,
            )
            return Originals(found.records, last_offset)
        # The log has no more records here, or the next one did not fit.
        if advanced <= next_offset:
            return Originals(found.records, found.resolved_to if found.is_full else last_offset)
        next_offset = advanced
    return Originals(found.records, found.resolved_to)


async def _read(hosted: HostedPartition, offset: int, io_pool: IoPool) -> bytes:
    """Return batches from the one with this offset. Raises ApiError, StorageError."""
    while True:
        log = hosted.log
        if log is None:
            return b""
        try:
            try:
                read = log.read(offset, READ_BYTES, isolation=FetchIsolation.HIGH_WATERMARK, min_one_batch=True)
            except NeedsWarming as cold:
                await run_in_pool(io_pool, cold.warm)
                continue
            region = read.region
            if region is None:
                return b""
            try:
                return await run_in_pool(io_pool, region.read)
            finally:
                region.release()
        except OSError as error:
            raise log.log_dir.handle_os_error(error, f"reading {hosted.topic_partition}") from error


class _Collected:
    """The records that were read. is_full: the next record did not fit."""

    def __init__(self, last_offset: int, max_bytes: int, resolved_to: int) -> None:
        self.records: dict[int, KeyAndValue] = {}
        self.resolved_to = resolved_to
        self.is_full = False
        self._last_offset = last_offset
        self._max_bytes = max_bytes
        self._size_bytes = 0

    def collect(self, data: bytes, next_offset: int) -> int:
        """Add the records of batches from next_offset on; return the next offset to read. Raises RecordsError."""
        for batch in batches(data):
            if self.is_full or next_offset > self._last_offset:
                break
            next_offset = self._collect_batch(batch, next_offset)
        return next_offset

    def _collect_batch(self, batch: RecordBatch, next_offset: int) -> int:
        try:
            for record in batch.records(self._max_bytes if batch.compression else len(batch.raw())):
                if record.offset < next_offset:
                    continue
                if record.offset > self._last_offset:
                    return next_offset
                size_bytes = _size_of(batch, record)
                if size_bytes <= self._max_bytes:
                    if self._size_bytes + size_bytes > self._max_bytes:
                        self.is_full = True
                        return next_offset
                    self.records[record.offset] = record.key, record.value
                    self._size_bytes += size_bytes
                self.resolved_to = max(self.resolved_to, record.offset)
                next_offset = record.offset + 1
        except RecordTooLargeError:
            last_offset = min(batch.last_offset, self._last_offset)
            self.resolved_to = max(self.resolved_to, last_offset)
            return max(next_offset, last_offset + 1)
        return next_offset


def _size_of(batch: RecordBatch, record: Record) -> int:
    """Return the size of a record in its batch, in bytes."""
    fields = (record.timestamp_ms, record.key, record.value, record.headers)
    return len(encode_records((fields,), (record.offset - batch.base_offset,), batch.base_timestamp))
