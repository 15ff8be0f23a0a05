"""A follower's changes of its log after a leader's response: append, truncate, start over. KIP-101, 279, 595.

Plain calls on the loop's thread. They raise RecordsError for batches that are corrupt or do not continue the log, and
StorageError if the disk fails.
"""

import logging
from typing import TYPE_CHECKING, Protocol

from kafkapy.seams import FileRegion, ReadableBuffer
from kafkapy.types import OffsetAndEpoch

if TYPE_CHECKING:
    from kafkapy.replication.hosted_partitions import HostedPartition
    from kafkapy.storage.log.log import Log
    from kafkapy.storage.manager.log_manager import LogManager

logger = logging.getLogger("kafkapy.replication")


class LeaderResponse(Protocol):
    """A partition of a leader's response. Fetch's generated struct has these fields."""

    high_watermark: int
    log_start_offset: int

    @property
    def records(self) -> memoryview | bytes | FileRegion | None: ...


class FollowerLogs:
    """The logs of the partitions that this broker follows."""

    def __init__(self, log_manager: "LogManager") -> None:
        self._log_manager = log_manager

    def append(self, partition: "HostedPartition", log: "Log", response: LeaderResponse, now_ms: int) -> bool:
        """Append the records, update high watermark and log start offset; return whether the high watermark moved.

        Batches of a later leader epoch than the partition's are skipped (KAFKA-18723).

        Deviation: Apache Kafka's followers take over the smaller high watermark with which a new leader may start. Here
        it never decreases, because readers have seen what is below it.
        """
        data = response.records or b""
        assert not isinstance(data, FileRegion)
        if data:
            self._maybe_begin_earlier(partition, log, data)
            log.append_as_follower(data, now_ms, leader_epoch=partition.leader_epoch)
        high_watermark = log.high_watermark
        log.update_high_watermark(max(high_watermark, min(response.high_watermark, log.log_end_offset)))
        log.maybe_increment_log_start_offset(min(response.log_start_offset, log.high_watermark))
        assert log.log_start_offset <= log.high_watermark, "records that readers may see are gone"
        return log.high_watermark != high_watermark

    def _maybe_begin_earlier(self, partition: "HostedPartition", log: "Log", records: ReadableBuffer) -> None:
        """Restart an empty log at the first batch's base offset if the leader's log start offset lies within it."""
        base_offset = int.from_bytes(records[:8], "big")
        if base_offset < log.log_end_offset == log.log_start_offset:
            last_offset = base_offset + int.from_bytes(records[23:27], "big")
            if last_offset >= log.log_end_offset:
                self.start_over(partition, base_offset)

    def truncate_to_agreement(self, partition: "HostedPartition", log: "Log", diverging: OffsetAndEpoch) -> None:
        """Truncate the log to where it diverges from the leader's: the smaller end of the epoch that both have.

        diverging: the leader's largest epoch at or below our last one, and its end. If this log does not have that
        epoch, the next fetch compares again.
        """
        ours = log.end_offset_for_epoch(diverging.leader_epoch)
        offset = diverging.offset if ours is None else min(ours.offset, diverging.offset)
        logger.info("%s diverges from its leader's log in epoch %d", partition.topic_partition, diverging.leader_epoch)
        self.truncate(partition, min(offset, log.log_end_offset))

    def truncate(self, partition: "HostedPartition", offset: int) -> None:
        """Truncate the log: remove all records at and above offset."""
        self._log_manager.truncate_to({partition.topic_partition: offset})

    def start_over(self, partition: "HostedPartition", offset: int) -> None:
        """Delete all records and restart the log at offset."""
        self._log_manager.truncate_fully_and_start_at(partition.topic_partition, offset)
