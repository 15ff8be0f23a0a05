"""Append several client batches with one write: each is checked as it arrives, all are written at once.

The result is the same as that of append_as_leader for each batch: the same bytes in the log and its indexes, the same
producer state. Only the simple case is handled: batches accepted by record/small_batch.py, from producers in sequence
and (transactional ones) with an open transaction, without a roll or a flush. Other batches are refused before any
change, and the caller appends them one by one.
"""

from struct import Struct
from typing import Final

from kafkapy.record.append_rules import MAX_INT64
from kafkapy.record.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, MAX_INT32
from kafkapy.record.leader_batch import PLACE
from kafkapy.record.small_batch import PLAIN, TRANSACTIONAL, check_plain, takes_plain
from kafkapy.storage.log.append import PlacedBatch, Sequel
from kafkapy.storage.log.log import Log
from kafkapy.storage.producers.entry import ProducerEntry

MIN_FLUSH_MESSAGES: Final = 100
"""With a smaller flush.messages, flushes are so frequent that most batches would have to be appended one by one."""

_pack_place = PLACE.pack_into
_unpack_producer = Struct(">43xqh").unpack_from
"""Fields of a batch header: producer id and epoch."""


class GatheredAppend:
    """Batches to append to one log. Call `add` for each, then `write`; the log must not change in between."""

    __slots__ = (
        "_attributes",
        "_batches",
        "_data",
        "_earliest_ms",
        "_epoch",
        "_index_room",
        "_latest_ms",
        "_log",
        "_max_timestamp",
        "_most_bytes",
        "_now_ms",
        "_sequels",
        "base_offsets",
        "end_offset",
    )

    def __init__(self, log: Log, *, leader_epoch: int, now_ms: int, is_transactional: bool = False) -> None:
        """is_transactional: the batches are of an open transaction; otherwise of none."""
        rules = log.client_rules
        self._attributes = TRANSACTIONAL if is_transactional else PLAIN
        self._log = log
        self._epoch = leader_epoch
        self._now_ms = now_ms
        self._earliest_ms = now_ms - rules.timestamp_before_max_ms
        self._latest_ms = min(now_ms + rules.timestamp_after_max_ms, MAX_INT64)
        self._most_bytes = rules.max_message_bytes
        self._index_room = log.segments.active.index_room
        self._data = bytearray()
        self._batches: list[PlacedBatch] = []
        self._sequels: list[Sequel] = []
        self._max_timestamp = -1
        self.base_offsets: list[int] = []
        self.end_offset = log.log_end_offset

    @property
    def size_bytes(self) -> int:
        """Return the size of all batches."""
        return len(self._data)

    @staticmethod
    def is_possible(log: Log) -> bool:
        """Return whether batches may currently be gathered for this log."""
        return (
            takes_plain(log.client_rules)
            and not log.log_dir.is_full
            and not log.log_dir.is_offline
            and log.flush_messages >= MIN_FLUSH_MESSAGES
            and log.segments.active.size > 0
            and log.segments.active.index_room > 0
        )

    def add(self, data: bytes, start: int, end: int) -> bool:
        """Add the batch data[start:end]; return False, with nothing changed, if it must be appended on its own."""
        if self._attributes and not self._is_open(data, start, end):
            return False
        header = check_plain(
            data,
            start,
            end,
            attributes=self._attributes,
            most_bytes=self._most_bytes,
            earliest_ms=self._earliest_ms,
            latest_ms=self._latest_ms,
        )
        if header is None or len(self._batches) >= self._index_room:  # each may need an index entry
            return False
        _, _, _, _, _, _, delta, _, max_timestamp, producer_id, producer_epoch, base_sequence, _ = header
        written = self._data
        position = len(written)
        base_offset = self.end_offset
        last_offset = base_offset + delta
        if producer_id >= 0:
            producer = self._producer(producer_id, producer_epoch, base_sequence)
            last_sequence = base_sequence + delta
            if producer is None or last_sequence > MAX_INT32:
                return False
            self._sequels.append(Sequel(producer, last_sequence, last_offset, delta, max_timestamp))
        written += data[start:end]
        _pack_place(written, position, base_offset, end - start - LOG_OVERHEAD_BYTES, self._epoch)
        self._batches.append(PlacedBatch(end - start, base_offset, last_offset, max_timestamp, self._epoch))
        self.base_offsets.append(base_offset)
        self.end_offset = last_offset + 1
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
        return True

    def _is_open(self, data: bytes, start: int, end: int) -> bool:
        """Whether the transaction of a batch is open. Asked before its records are checked, which takes longer."""
        if end - start < HEADER_BYTES:
            return False
        producer_id, producer_epoch = _unpack_producer(data, start)
        return self._log.producer_state.has_open_transaction(producer_id, producer_epoch)

    def _producer(self, producer_id: int, producer_epoch: int, base_sequence: int) -> ProducerEntry | None:
        """Return the producer if this batch is next in its sequence, after the batches already added, else None."""
        for sequel in reversed(self._sequels):
            producer = sequel.producer
            if producer.producer_id == producer_id:
                goes_on = producer_epoch == producer.producer_epoch and base_sequence == sequel.last_sequence + 1
                return producer if goes_on else None
        return self._log.producer_state.producer_in_sequence(
            producer_id, producer_epoch, base_sequence, self._attributes != PLAIN
        )

    def write(self) -> bool:
        """Append the added batches; return False, with nothing changed, if each must be appended on its own.

        Raises ApiError (no space), StorageError (the disk failed); the log is then unchanged.
        """
        log, end_offset = self._log, self.end_offset
        if end_offset - log.recovery_point >= log.flush_messages or log.must_roll(
            len(self._data), self._max_timestamp, end_offset - 1, self._now_ms
        ):
            return False
        log.commit_append(
            log.segments.active, [self._data], len(self._data), self._batches, self._now_ms, self._sequels
        )
        return True
