"""What a follower does to its log with what its leader answers: append, truncate, start over. KIP-101, 279, 595.

Plain calls on the loop's thread. They raise RecordsError for batches that are damaged or do not follow the log's end,
StorageError where the disk fails.
"""

import logging
from typing import TYPE_CHECKING

from kafkapy.protocol.messages.fetch_response import EpochEndOffset, PartitionData
from kafkapy.seams import FileRegion

if TYPE_CHECKING:
    from kafkapy.replication.hosted import HostedPartition
    from kafkapy.storage.log.log import Log
    from kafkapy.storage.manager.log_manager import LogManager

logger = logging.getLogger("kafkapy.replication")


class FollowerLogs:
    """The logs of the partitions that are followed."""

    def __init__(self, log_manager: "LogManager") -> None:
        self._log_manager = log_manager

    def append(self, partition: "HostedPartition", log: "Log", answer: PartitionData, now_ms: int) -> bool:
        """Append what came, take over high watermark and log start; return whether the high watermark moved.

        Batches of a later leader epoch than the partition's are left out (KAFKA-18723).

        Deviation: the high watermark never goes back. A new leader may not know yet how far the one before had
        committed; in Apache Kafka its followers take its smaller one over.
        """
        data = answer.records or b""
        assert not isinstance(data, FileRegion)
        if data:
            records = bytearray(data)
            self._maybe_begin_earlier(partition, log, records)
            log.append_as_follower(records, now_ms, leader_epoch=partition.leader_epoch)
        high_watermark = log.high_watermark
        log.update_high_watermark(max(high_watermark, min(answer.high_watermark, log.log_end_offset)))
        log.maybe_increment_log_start_offset(min(answer.log_start_offset, log.high_watermark))
        return log.high_watermark != high_watermark

    def _maybe_begin_earlier(self, partition: "HostedPartition", log: "Log", records: bytearray) -> None:
        """Have an empty log begin at its first batch, if the leader's log start offset lies within that."""
        base_offset = int.from_bytes(records[:8], "big")
        if base_offset < log.log_end_offset == log.log_start_offset:
            last_offset = base_offset + int.from_bytes(records[23:27], "big")
            if last_offset >= log.log_end_offset:
                self.start_over(partition, base_offset)

    def truncate_to_agreement(self, partition: "HostedPartition", log: "Log", diverging: EpochEndOffset) -> None:
        """Drop what the leader has not: all from where the epoch that both know ends on either side.

        diverging: the leader's largest epoch at or below our last, and its end. If that epoch is not known here, what
        is left is compared again with the next fetch.
        """
        ours = log.end_offset_for_epoch(diverging.epoch)
        offset = diverging.end_offset if ours is None else min(ours.offset, diverging.end_offset)
        logger.info("%s parts from its leader's log in epoch %d", partition.topic_partition, diverging.epoch)
        self.truncate(partition, min(offset, log.log_end_offset))

    def truncate(self, partition: "HostedPartition", offset: int) -> None:
        """Drop all at and above offset."""
        self._log_manager.truncate_to({partition.topic_partition: offset})

    def start_over(self, partition: "HostedPartition", offset: int) -> None:
        """Drop everything, and go on at offset."""
        self._log_manager.truncate_fully_and_start_at(partition.topic_partition, offset)
