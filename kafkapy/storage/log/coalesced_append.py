"""Append several client batches with one write: each is checked as it arrives, all are written at once.

The result is the same as that of append_as_leader for each batch: the same bytes in the log and its indexes, the same
producer state. Only the simple case is handled: batches accepted by record/small_batch.py, from producers in sequence
(or one that begins a transaction), without a roll or a flush. Other batches are refused before any change, and the
caller appends them one by one. Of ten batches of one record each takes 3.5 us, in place of 8 by plain_append (CPython
3.11, without the disk): the write, the offsets and the index are updated once.
"""

from collections.abc import Callable
from typing import Final

from kafkapy.errors import ApiError
from kafkapy.record.append_rules import AppendOrigin
from kafkapy.record.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES
from kafkapy.record.leader_batch import PLACE
from kafkapy.record.small_batch import PLAIN, TRANSACTIONAL, check_plain, unpack_header
from kafkapy.seams import ReadableBuffer
from kafkapy.storage.log.append import PlacedBatch
from kafkapy.storage.log.log import Log
from kafkapy.storage.producers.entry import ProducerBatch, ProducerEntry, VerificationGuard
from kafkapy.storage.producers.state import PreparedAppend
from kafkapy.types import INT32_MAX, MIN_VIEW_BYTES

MIN_FLUSH_MESSAGES: Final = 100
"""With a smaller flush.messages, flushes are so frequent that most batches would have to be appended one by one."""

Verify = Callable[[int, int, int], VerificationGuard | None]
"""Takes producer id, producer epoch and base sequence of a transaction's first batch; returns its guard, or None."""

_pack_place = PLACE.pack_into


class CoalescedAppend:
    """Batches to append to one log. Call `add` for each, then `write`; the log must not change in between."""

    __slots__ = (
        "_attributes",
        "_batches",
        "_bounds",
        "_buffers",
        "_epoch",
        "_in_sequence",
        "_index_room",
        "_log",
        "_max_timestamp",
        "_now_ms",
        "_prepared",
        "_tail",
        "_verify",
        "base_offsets",
        "end_offset",
        "size_bytes",
    )

    def __init__(self, log: Log, *, leader_epoch: int, now_ms: int, verify: Verify | None = None) -> None:
        """verify: called before the first batch of a transaction; None if the batches are of no transaction."""
        rules = log.client_rules
        self._verify = verify
        self._attributes = PLAIN if verify is None else TRANSACTIONAL
        self._prepared: PreparedAppend | None = None
        self._log = log
        self._epoch = leader_epoch
        self._now_ms = now_ms
        self._bounds = (
            rules.max_message_bytes,
            now_ms - rules.timestamp_before_max_ms,
            now_ms + rules.timestamp_after_max_ms,
        )
        self._index_room = log.segments.active.index_room
        self._tail = bytearray()
        """Takes small batches, and the first bytes of a large one, which is written from where it was received."""
        self._buffers: list[ReadableBuffer] = [self._tail]
        self.size_bytes = 0
        self._batches: list[PlacedBatch] = []
        self._in_sequence: list[PlacedBatch] = []
        self._max_timestamp = -1
        self.base_offsets: list[int] = []
        self.end_offset = log.log_end_offset

    @staticmethod
    def is_possible(log: Log) -> bool:
        """Return whether batches may currently be coalesced for this log."""
        return (
            log.takes_plain_batches
            and not log.log_dir.is_full
            and not log.log_dir.is_offline
            and log.flush_messages >= MIN_FLUSH_MESSAGES
            and log.segments.active.size > 0
            and log.segments.active.index_room > 0
        )

    def add(self, data: bytes, start: int, end: int) -> bool:
        """Add the batch data[start:end]; return False, with nothing changed, if it must be appended on its own."""
        size = end - start
        if size <= HEADER_BYTES or self._index_room <= 0:  # each batch may need an index entry
            return False
        header = unpack_header(data, start)
        if header[5] != self._attributes or not check_plain(header, data, start, end, self._bounds):
            return False
        _, _, _, _, _, _, delta, _, max_timestamp, producer_id, producer_epoch, base_sequence, _ = header
        base_offset = self.end_offset
        last_offset = base_offset + delta
        placed = PlacedBatch(size, base_offset, last_offset, max_timestamp, self._epoch)
        if producer_id >= 0:
            producer = self._producer(producer_id, producer_epoch, base_sequence)
            last_sequence = base_sequence + delta
            if last_sequence > INT32_MAX:
                return False
            if producer is not None:
                placed.follow(producer, last_sequence)
                self._in_sequence.append(placed)
            elif (
                self._verify is None
                or self._batches
                or not self._begin_transaction(
                    ProducerBatch(
                        producer_id,
                        producer_epoch,
                        base_sequence,
                        last_sequence,
                        base_offset,
                        last_offset,
                        max_timestamp,
                        True,
                    )
                )
            ):
                return False
        elif self._verify is not None:
            return False
        tail = self._tail
        if size < MIN_VIEW_BYTES:
            position = len(tail)
            tail += data[start:end]
            _pack_place(tail, position, base_offset, size - LOG_OVERHEAD_BYTES, self._epoch)
        else:
            tail += PLACE.pack(base_offset, size - LOG_OVERHEAD_BYTES, self._epoch)
            self._tail = bytearray()
            self._buffers += (memoryview(data)[start + PLACE.size : end], self._tail)
        self.size_bytes += size
        self._index_room -= 1
        self._batches.append(placed)
        self.base_offsets.append(base_offset)
        self.end_offset = last_offset + 1
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
        return True

    def _begin_transaction(self, batch: ProducerBatch) -> bool:
        """Verify a transaction's first batch; it is then the only one of this append until it is written."""
        producers = self._log.producer_state
        assert self._verify is not None
        if batch.producer_epoch < 0 or batch.base_sequence < 0:
            return False  # INVALID_RECORD; `prepare` takes any sequence of a producer that it does not know
        if producers.has_open_transaction(batch.producer_id, batch.producer_epoch):
            return False  # a duplicate, or out of order
        guard = self._verify(batch.producer_id, batch.producer_epoch, batch.base_sequence)
        if guard is None:
            return False
        try:
            prepared = producers.prepare((batch,), AppendOrigin.CLIENT, verification=guard)
        except ApiError:
            return False
        if prepared.duplicate is not None:
            return False
        self._prepared = prepared
        return True

    def _producer(self, producer_id: int, producer_epoch: int, base_sequence: int) -> ProducerEntry | None:
        """Return the producer if this batch is next in its sequence, after the batches already added, else None."""
        if self._prepared is not None:
            return None
        for sequel in reversed(self._in_sequence):
            producer = sequel.producer
            if producer is not None and producer.producer_id == producer_id:
                is_in_sequence = producer_epoch == producer.producer_epoch and base_sequence == sequel.last_sequence + 1
                return producer if is_in_sequence else None
        return self._log.producer_state.producer_in_sequence(
            producer_id, producer_epoch, base_sequence, self._attributes != PLAIN
        )

    def write(self) -> bool:
        """Append the added batches; return False, with nothing changed, if each must be appended on its own.

        Raises ApiError (no space), StorageError (the disk failed); the log is then unchanged.
        """
        log, end_offset = self._log, self.end_offset
        if end_offset - log.recovery_point >= log.flush_messages or log.must_roll(
            self.size_bytes, self._max_timestamp, end_offset - 1, self._now_ms
        ):
            return False
        if not self._tail:
            self._buffers.pop()
        log.write_batches(
            log.segments.active,
            self._buffers,
            self.size_bytes,
            self._batches,
            self._now_ms,
            self._in_sequence,
            self._prepared,
        )
        return True
