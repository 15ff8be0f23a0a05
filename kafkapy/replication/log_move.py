"""Moving a replica to another log directory: its future log is a copy of the current one, then replaces it.

Plain calls; runtime/logs/log_dir_mover.py makes them in turns and waits in between. The copy behaves as a follower of
the current log: it appends batches unchanged and takes over the high watermark and the log start offset. If the current
log was truncated, the copy is truncated to where both agree, by leader epochs (KIP-101). Source: KIP-113.
"""

import logging
from typing import TYPE_CHECKING, Final

from kafkapy.errors import ApiError, StorageError
from kafkapy.storage.errors import OFFSET_OUT_OF_RANGE, NeedsWarming
from kafkapy.storage.log.reader import FetchIsolation

if TYPE_CHECKING:
    from kafkapy.replication.hosted_partitions import HostedPartition
    from kafkapy.storage.log.log import Log
    from kafkapy.storage.manager.log_manager import LogManager
    from kafkapy.types import Uuid

logger = logging.getLogger("kafkapy.replication")

CHUNK_BYTES: Final = 128 << 10
"""Copied per call: a sixth of a millisecond of the event loop if batches are large. With 64 KiB the copy takes a third
more CPU, with 256 KiB as much."""
MAX_LAST_BYTES: Final = 1 << 20
"""The most that may be left to copy in the turn of the loop that swaps the logs."""


class LogMove:
    """The move of one replica. `partition` is hosted here, and the log manager has a future log for it."""

    def __init__(self, partition: "HostedPartition", log_manager: "LogManager") -> None:
        current = partition.log
        assert current is not None
        self.partition = partition
        self.current: Log = current
        self.future: Log = log_manager.future_logs[partition.topic_partition]
        self._log_manager = log_manager
        self._truncation_count = -1

    @property
    def source_id(self) -> "Uuid | None":
        """The id of the directory that the replica leaves."""
        return self._log_manager.directory_of(self.current).directory_id

    @property
    def target_id(self) -> "Uuid | None":
        return self._log_manager.directory_of(self.future).directory_id

    @property
    def is_wanted(self) -> bool:
        """Whether both logs still belong to the partition: neither deleted nor failed, and the move not cancelled."""
        manager, topic_partition = self._log_manager, self.partition.topic_partition
        return (
            manager.logs.get(topic_partition) is self.current
            and manager.future_logs.get(topic_partition) is self.future
            and self.partition.log is self.current
        )

    @property
    def lag(self) -> int:
        """The number of offsets still to be copied."""
        return self.current.log_end_offset - self.future.log_end_offset

    def copy(self, now_ms: int, max_bytes: int = CHUNK_BYTES) -> int:
        """Copy some batches; return their size in bytes, 0 if the copy is complete.

        Raises NeedsWarming if a read of the current log would wait for the disk, ApiError, StorageError, RecordsError.
        """
        current, future = self.current, self.future
        if current.truncation_count != self._truncation_count or future.log_end_offset > current.log_end_offset:
            self._align()
        self._follow_offsets()
        try:
            read = current.read(future.log_end_offset, max_bytes, isolation=FetchIsolation.LOG_END)
        except ApiError as error:
            if error.code != OFFSET_OUT_OF_RANGE:
                raise
            self._start_over()  # retention has deleted what comes next
            return self.copy(now_ms, max_bytes)
        region = read.region
        if region is None:
            return 0
        try:
            # on the loop's thread, which serves others: a read that would wait for the disk is left to a worker
            with current.failures("copying to another directory"):
                data = region.file.pread_nowait(region.length, region.position)
            if data is None:
                raise NeedsWarming(region.file, region.position, region.length)
        finally:
            region.release()
        self._begin_with(data)
        future.append_as_follower(data, now_ms, leader_epoch=self.partition.leader_epoch)
        assert future.log_end_offset <= current.log_end_offset, f"{future} has more than {current}"
        self._follow_offsets()
        return len(data)

    def _begin_with(self, data: bytes) -> None:
        """Restart an empty copy at its first batch's base offset: the log start offset may lie within that batch."""
        base_offset, end_offset = int.from_bytes(data[:8], "big"), self.future.log_end_offset
        if base_offset < end_offset == self.future.log_start_offset:
            self._log_manager.truncate_fully_and_start_at(self.partition.topic_partition, base_offset, is_future=True)

    def _follow_offsets(self) -> None:
        """Copy the high watermark and the log start offset, limited to what the copy has."""
        current, future = self.current, self.future
        future.update_high_watermark(current.high_watermark)
        future.maybe_increment_log_start_offset(min(current.log_start_offset, future.high_watermark))

    def _align(self) -> None:
        """Truncate the copy to where it agrees with the current log. Blocks briefly, like any truncation."""
        self._truncation_count = self.current.truncation_count
        offset = self._agreed_offset()
        if offset < self.future.log_end_offset:
            self._log_manager.truncate_to({self.partition.topic_partition: offset}, is_future=True)
        if not self.current.log_start_offset <= self.future.log_end_offset:
            self._start_over()
        assert self.future.log_end_offset <= self.current.log_end_offset, f"{self.future} has more than {self.current}"

    def _agreed_offset(self) -> int:
        """Return the offset up to which both logs are equal: the smaller end of the latest epoch that both have."""
        current, future = self.current, self.future
        limit = min(future.log_end_offset, current.log_end_offset)
        epoch = future.latest_epoch
        while epoch is not None:
            ours = current.end_offset_for_epoch(epoch)
            if ours is None:
                return min(limit, future.high_watermark)
            limit = min(limit, ours.offset)
            theirs = future.end_offset_for_epoch(ours.leader_epoch)
            if theirs is None:
                return min(limit, future.high_watermark)
            limit = min(limit, theirs.offset)
            if theirs.leader_epoch == ours.leader_epoch:
                return limit
            epoch = theirs.leader_epoch
        return min(limit, future.high_watermark)

    def _start_over(self) -> None:
        """Restart the copy at the current log's start offset, which is beyond the copy's end."""
        start = self.current.log_start_offset
        assert start > self.future.log_end_offset, f"{self.future} would lose what {self.current} still has"
        self._log_manager.truncate_fully_and_start_at(self.partition.topic_partition, start, is_future=True)

    @property
    def is_durable(self) -> bool:
        """Whether everything that is durable in the current log is durable in the copy."""
        return self.future.recovery_point >= self.current.recovery_point

    def try_finish(self, now_ms: int) -> bool:
        """Copy the rest and swap the logs, in one turn of the loop; return whether it swapped.

        It does not if the copy is still incomplete or not durable. Raises the errors of `copy`.
        """
        copied = 0
        while copied < MAX_LAST_BYTES and (count := self.copy(now_ms)):
            copied += count
        if self.lag or not self.is_durable:
            return False
        self._log_manager.replace_by_future_log(self.partition.topic_partition)
        self.partition.replace_log(self.future)
        try:
            self._log_manager.schedule_deletion(self.current, now_ms)
        except (ApiError, StorageError) as error:  # the next start finds both logs and keeps the right one
            logger.error(
                "Could not delete the former log of %s, which was moved: %s", self.partition.topic_partition, error
            )
        return True
