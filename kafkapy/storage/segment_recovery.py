"""Reading a segment from its first byte: which batches hold, and the indexes as an append would have made them."""

import logging

from kafkapy.config.log import LogConfig
from kafkapy.record.batch import crc_is_valid
from kafkapy.record.errors import RecordsError
from kafkapy.storage.leader_epochs import LeaderEpochs
from kafkapy.storage.producer_replay import producer_batch, replay_producer_batch
from kafkapy.storage.producer_state import ProducerState
from kafkapy.storage.segment import Segment
from kafkapy.storage.segment_scan import ScannedBatch, scan_batches
from kafkapy.storage.time_index import NO_TIMESTAMP, TimestampOffset

logger = logging.getLogger("kafkapy.storage")


def reset_indexes(segment: Segment, config: LogConfig) -> None:
    segment.offset_index.reset(config.segment_index_bytes)
    segment.time_index.reset(config.segment_index_bytes)
    segment.txn_index.reset()


class SegmentRecovery:
    """Reads a segment from its first byte and makes its indexes anew, as an append would have made them.

    has_gaps: offsets are missing between its batches or in them, so it was compacted.
    """

    def __init__(self, segment: Segment, config: LogConfig, epochs: LeaderEpochs, producers: ProducerState) -> None:
        self._segment = segment
        self._config = config
        self._epochs = epochs
        self._producers = producers
        self._largest = TimestampOffset(NO_TIMESTAMP, segment.base_offset)
        self._indexed_to = 0
        self._valid_bytes = 0
        self.has_gaps = False

    def run(self) -> int:
        """Return the bytes that had to be cut off."""
        segment = self._segment
        reset_indexes(segment, self._config)
        try:
            next_offset = segment.base_offset
            for scanned in scan_batches(segment, 0):
                if not self._holds(scanned, next_offset):
                    break
                self._take(scanned)
                header = scanned.header
                if header.base_offset != next_offset or header.record_count != header.last_offset - next_offset + 1:
                    self.has_gaps = header.magic == 2
                next_offset = header.last_offset + 1
                self._valid_bytes = scanned.position + scanned.header.size_bytes
        except RecordsError as error:
            logger.warning("Found invalid messages in %s at byte %d: %s", segment.log.path, self._valid_bytes, error)
        segment.set_largest(self._largest)
        cut_bytes = self._cut() if self._valid_bytes < segment.size else 0
        if self._largest.timestamp_ms >= 0:
            segment.time_index.maybe_append(*self._largest[:2], use_last_slot=True)
        segment.offset_index.trim()
        segment.time_index.trim()
        segment.bytes_since_index_entry = self._valid_bytes - self._indexed_to
        return cut_bytes

    def _cut(self) -> int:
        """Cut what does not hold, for good: after another crash it would be read behind what is written meanwhile."""
        cut_bytes = self._segment.truncate_to_position(self._valid_bytes)
        self._segment.log.file.sync()
        return cut_bytes

    def _holds(self, scanned: ScannedBatch, next_offset: int) -> bool:
        header = scanned.header
        return (
            next_offset <= header.base_offset <= header.last_offset
            and self._segment.offset_index.can_append(header.last_offset)
            and crc_is_valid(scanned.chunk, header.position, header.size_bytes)
        )

    def _take(self, scanned: ScannedBatch) -> None:
        header = scanned.header
        segment = self._segment
        if header.max_timestamp > self._largest.timestamp_ms:
            self._largest = TimestampOffset(header.max_timestamp, header.last_offset)
        if scanned.position - self._indexed_to > self._config.index_interval_bytes and not segment.offset_index.is_full:
            segment.offset_index.append(header.last_offset, scanned.position)
            segment.time_index.maybe_append(*self._largest[:2], use_last_slot=True)
            self._indexed_to = scanned.position
        latest_epoch = self._epochs.latest_epoch
        if header.leader_epoch >= 0 and (latest_epoch is None or header.leader_epoch > latest_epoch):
            self._epochs.assign(header.leader_epoch, header.base_offset)
        if header.producer_id >= 0:
            batch = producer_batch(header, scanned.chunk)
            for aborted in replay_producer_batch(self._producers, batch):
                segment.txn_index.append(aborted)
        self._producers.map_end_offset = header.last_offset + 1
