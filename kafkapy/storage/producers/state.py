"""A partition's producer state: duplicates, sequence gaps, fenced epochs, open transactions, the last stable offset.

The last five batches of each producer are kept, so a resent batch is answered with its original offset. Sequence
numbers must be consecutive; a new epoch begins at 0. A transaction is open from its first batch to its marker. The
first unstable offset, where read_committed readers stop, is the first offset of the oldest transaction that is open, or
whose marker is at or above the high watermark. KIP-98, KIP-360, KIP-890.

No IO here: `prepare` checks an append without a change of state, `commit` applies it after the bytes are written. The
log reads and writes the `.snapshot` files, whose format is:

    int16 version 1, uint32 CRC-32C of what follows, int32 count, then 46 bytes per producer: int64 producer id, int16
    epoch, int32 last sequence, int64 last offset, int32 offset delta, int64 timestamp ms, int32 coordinator epoch,
    int64 first offset of its open transaction, or -1
"""

import struct
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

from kafkapy.errors import ApiError
from kafkapy.named_tuple import NamedTuple
from kafkapy.record.batch import NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP
from kafkapy.record.crc import crc32c
from kafkapy.record.validate import AppendOrigin
from kafkapy.storage.errors import INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, CorruptSnapshotError
from kafkapy.storage.producers.entry import (
    MAX_BATCHES_KEPT,
    NO_TRANSACTION,
    BatchMetadata,
    CompletedTransaction,
    ProducerBatch,
    ProducerEntry,
    StagedProducer,
    TransactionMarker,
    VerificationGuard,
    VerificationState,
)
from kafkapy.storage.producers.producer_counts import ProducerCounts
from kafkapy.storage.segment.txn_index import AbortedTransaction

__all__ = [
    "NO_TRANSACTION",
    "AppendOrigin",
    "BatchMetadata",
    "CompletedTransaction",
    "PreparedAppend",
    "ProducerBatch",
    "ProducerEntry",
    "ProducerState",
    "TransactionMarker",
    "VerificationGuard",
    "decode_snapshot",
]

LATE_TRANSACTION_BUFFER_MS: Final = 5 * 60 * 1000
"""A transaction is late if it is open for so long after the longest time-out, as in Apache Kafka (KIP-664)."""
VERIFICATION_EXPIRATION_MS: Final = 5 * 60 * 1000
"""How long an unused verification is valid: longer than a producer retries a batch (delivery.timeout.ms, 2 min).

Deviation: Apache Kafka keeps it for producer.id.expiration.ms, a day. Here less, because while there is one the fast
paths are off."""
SNAPSHOT_VERSION: Final = 1
SNAPSHOT_HEADER: Final = struct.Struct(">hI")
SNAPSHOT_COUNT: Final = struct.Struct(">i")
SNAPSHOT_ENTRY: Final = struct.Struct(">qhiqiqiq")


class LateTransaction(NamedTuple):
    """An open transaction without a batch for too long; last_timestamp_ms: of its last batch."""

    producer_id: int
    first_offset: int
    last_timestamp_ms: int


class PreparedAppend:
    """A checked append, to be passed to `commit`. If `duplicate` is set, nothing may be appended."""

    __slots__ = ("completed", "duplicate", "staged")

    def __init__(self) -> None:
        self.duplicate: BatchMetadata | None = None
        self.staged: dict[int, StagedProducer] = {}
        self.completed: list[CompletedTransaction] = []


class ProducerState:
    """All producers of one partition, as of map_end_offset."""

    def __init__(
        self,
        *,
        producer_id_expiration_ms: int = 86400000,
        is_verification_enabled: bool = True,
        counts: ProducerCounts | None = None,
    ) -> None:
        """counts: bounds the producers of all partitions; None: this one has bounds of its own."""
        self._counts = counts if counts is not None else ProducerCounts()
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.is_verification_enabled = is_verification_enabled
        self.producers: dict[int, ProducerEntry] = {}
        self.map_end_offset = 0
        self.first_unstable_offset: int | None = None
        """First offset of the oldest transaction that is open or whose marker is not below the high watermark."""
        self._open: dict[int, int] = {}
        """Open transactions: producer id by first offset, ordered by first offset."""
        self._unreplicated: dict[int, int] = {}
        """Ended transactions whose marker is not below the high watermark: its offset by first offset, marker order."""
        self._verifications: dict[int, VerificationState] = {}
        """Pending verifications by producer id, in order of their start."""

    def configure(self, producer_id_expiration_ms: int, *, is_verification_enabled: bool) -> None:
        """Change the settings, effective from the next append and the next `remove_expired`."""
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.is_verification_enabled = is_verification_enabled

    @property
    def is_empty(self) -> bool:
        return not self.producers and not self._unreplicated

    @property
    def open_count(self) -> int:
        """The number of open transactions."""
        return len(self._open)

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        entry = self.producers.get(producer_id)
        return (
            entry is not None
            and entry.transaction_first_offset != NO_TRANSACTION
            and entry.producer_epoch == producer_epoch
        )

    def late_transaction(self, now_ms: int, max_transaction_timeout_ms: int) -> LateTransaction | None:
        """Return the oldest open transaction if its last batch is older than the longest allowed transaction."""
        first_offset, producer_id = next(iter(self._open.items()), (NO_TRANSACTION, NO_PRODUCER_ID))
        entry = self.producers.get(producer_id)
        last_ms = entry.last_timestamp_ms if entry is not None else NO_TIMESTAMP
        if last_ms <= 0 or now_ms - last_ms <= max_transaction_timeout_ms + LATE_TRANSACTION_BUFFER_MS:
            return None
        return LateTransaction(producer_id, first_offset, last_ms)

    def producer_in_sequence(
        self, producer_id: int, producer_epoch: int, base_sequence: int, is_transactional: bool
    ) -> ProducerEntry | None:
        """Return the producer if a client's batch is simply next in its sequence, as nearly all are.

        Then `prepare` would accept the batch, and the producer's `add_batch` is the only necessary update. None if
        `prepare` must check it.
        """
        entry = self.producers.get(producer_id)
        if (
            entry is None
            or producer_epoch != entry.producer_epoch
            or not entry.batches
            or base_sequence != entry.batches[-1].last_sequence + 1
            or is_transactional != (entry.transaction_first_offset != NO_TRANSACTION)
            or producer_id in self._verifications
        ):
            return None
        return entry

    def prepare(
        self,
        batches: Iterable[ProducerBatch],
        origin: AppendOrigin,
        *,
        verification: VerificationGuard | None = None,
        transaction_version: int = 0,
    ) -> PreparedAppend:
        """Check batches that are about to be appended, without a change of state.

        Raises ApiError: OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE,
        TRANSACTION_COORDINATOR_FENCED; UNKNOWN_PRODUCER_ID as producer_counts.py describes.
        """
        prepared = PreparedAppend()
        for batch in batches:
            entry = self.producers.get(batch.producer_id)
            # only a client sends a batch twice; it gets the offsets of the first time
            if origin is AppendOrigin.CLIENT and entry is not None:
                prepared.duplicate = entry.find_duplicate(batch)
                if prepared.duplicate is not None:
                    return prepared
            if batch.is_transactional and origin in (AppendOrigin.CLIENT, AppendOrigin.COORDINATOR):
                self._check_verified(batch, entry, verification)
            # a copy: each batch is checked against those before it in this append, and a refused one leaves no trace
            staged = prepared.staged.get(batch.producer_id)
            if staged is None:
                if entry is None:
                    if origin is AppendOrigin.CLIENT:
                        self._counts.check(batch.producer_id)
                    entry = ProducerEntry(batch.producer_id)
                staged = StagedProducer(entry, origin, self._verifications.get(batch.producer_id))
                prepared.staged[batch.producer_id] = staged
            if batch.marker is None:
                staged.add_batch(batch)
            else:
                completed = staged.add_marker(batch, batch.marker, transaction_version)
                if completed is not None:
                    prepared.completed.append(completed)
        return prepared

    def _check_verified(
        self, batch: ProducerBatch, entry: ProducerEntry | None, verification: VerificationGuard | None
    ) -> None:
        """Raise ApiError if the first batch of a transaction was not verified with the transaction coordinator."""
        if entry is not None:
            if entry.transaction_first_offset != NO_TRANSACTION and entry.producer_epoch == batch.producer_epoch:
                return
            if batch.producer_epoch < entry.producer_epoch:
                raise ApiError(
                    INVALID_PRODUCER_EPOCH,
                    f"Epoch {batch.producer_epoch} of producer {batch.producer_id} is fenced by {entry.producer_epoch}",
                )
        if not self.is_verification_enabled or batch.marker is not None:
            return
        state = self._verifications.get(batch.producer_id)
        if state is None or verification is not state.guard:
            raise ApiError(INVALID_TXN_STATE, "Record was not part of an ongoing transaction")

    def commit(self, prepared: PreparedAppend) -> None:
        """Apply an append that was written; then call `complete` for each of its ended transactions."""
        assert prepared.duplicate is None, f"{prepared.duplicate} is not appended again"
        started: list[tuple[int, int]] = []
        for producer_id, staged in prepared.staged.items():
            if producer_id not in self.producers:
                self._counts.add(producer_id)
            entry = self.producers.setdefault(producer_id, staged.entry)
            entry.move_to_epoch(staged.producer_epoch)
            entry.batches.extend(staged.batches)
            del entry.batches[:-MAX_BATCHES_KEPT]
            entry.coordinator_epoch = staged.coordinator_epoch
            entry.last_timestamp_ms = staged.last_timestamp_ms
            entry.transaction_first_offset = staged.transaction_first_offset
            if staged.started:
                started += [(first_offset, producer_id) for first_offset in staged.started]
        if started:
            self._add_started(started)
        if self._verifications:
            self._end_verifications(prepared)

    def _add_started(self, started: list[tuple[int, int]]) -> None:
        """Add the (first offset, producer id) of transactions begun by one append, maybe several per producer."""
        last_offset = next(reversed(self._open), -1)
        for first_offset, producer_id in sorted(started):
            assert first_offset > last_offset, f"a transaction begins at {first_offset}, after one at {last_offset}"
            self._open[first_offset] = producer_id
            last_offset = first_offset
        self._find_first_unstable()

    def _end_verifications(self, prepared: PreparedAppend) -> None:
        """End the verifications of transactions that have begun or ended.

        Since KIP-890 each transaction has its own epoch: a marker of the epoch being verified ended the previous
        transaction, so the verification of the next one stays valid.
        """
        for producer_id, staged in prepared.staged.items():
            state = self._verifications.get(producer_id)
            if state is None or not (staged.has_transactional_data or staged.has_marker):
                continue
            is_next_one = state.supports_epoch_bump and state.producer_epoch == staged.producer_epoch
            if staged.has_transactional_data or not is_next_one:
                del self._verifications[producer_id]

    def aborted_by(self, prepared: PreparedAppend) -> Sequence[AbortedTransaction]:
        """Return the entries of .txnindex for the transactions that an append is about to abort, before `commit`.

        A lookup in that index ends at the first entry whose last stable offset is at or above the end of its range.
        Deviation: Apache Kafka ignores all open transactions of the same producer here. Here only this one, because if
        one append holds this transaction and the next, its entry would imply that the next one has ended, too, and
        read_committed readers would get the next one's records if it is aborted later.
        """
        if not prepared.completed:
            return ()
        aborted: list[AbortedTransaction] = []
        ended: set[int] = set()
        started = sorted(offset for staged in prepared.staged.values() for offset in staged.started)
        open_offsets = chain(self._open, started)  # ordered: an append's offsets are above those before it
        oldest = next(open_offsets, None)
        for completed in prepared.completed:
            ended.add(completed.first_offset)
            while oldest is not None and oldest in ended:
                oldest = next(open_offsets, None)
            if completed.is_aborted:
                last_stable_offset = completed.last_offset + 1 if oldest is None else oldest
                aborted.append(AbortedTransaction(*completed[:3], last_stable_offset))
        return aborted

    def complete(self, completed: CompletedTransaction) -> None:
        """End a transaction; it stays unstable until the high watermark has passed its marker."""
        assert completed.first_offset in self._open, f"{completed} was never begun"
        assert completed.first_offset < completed.last_offset, f"{completed} ends before it begins"
        del self._open[completed.first_offset]
        self._unreplicated[completed.first_offset] = completed.last_offset
        self._find_first_unstable()

    def on_high_watermark(self, high_watermark: int) -> None:
        """Remove the ended transactions whose markers are below the high watermark."""
        if not self._unreplicated:
            return
        passed = []
        for first_offset, marker_offset in self._unreplicated.items():  # in the order of the markers
            if marker_offset >= high_watermark:
                break
            passed.append(first_offset)
        for first_offset in passed:
            del self._unreplicated[first_offset]
        if passed:
            self._find_first_unstable()

    def _find_first_unstable(self) -> None:
        first_offset = next(iter(self._open), None)
        if self._unreplicated:
            oldest = min(self._unreplicated)
            first_offset = oldest if first_offset is None else min(oldest, first_offset)
        self.first_unstable_offset = first_offset

    def start_verification(
        self, producer_id: int, sequence: int, producer_epoch: int, *, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard | None:
        """Return the guard to pass with the first batch of a transaction, None if the transaction is already open.

        supports_epoch_bump: the client uses KIP-890, with a new epoch for each transaction. If a verification is
        pending, its guard is returned again. A guard is valid until its transaction begins or ends here,
        `abandon_verification` is called, or VERIFICATION_EXPIRATION_MS have passed. Raises INVALID_PRODUCER_EPOCH.
        """
        self._expire_verifications(now_ms)
        entry = self.producers.get(producer_id)
        if entry is not None and producer_epoch < entry.producer_epoch:
            raise ApiError(
                INVALID_PRODUCER_EPOCH,
                f"Epoch {producer_epoch} of producer {producer_id} is fenced by {entry.producer_epoch}",
            )
        if self.has_open_transaction(producer_id, producer_epoch):
            return None
        state = self._verifications.get(producer_id)
        if state is None:
            state = VerificationState(VerificationGuard(), sequence, producer_epoch, supports_epoch_bump, now_ms)
            self._verifications[producer_id] = state
        elif producer_epoch > state.producer_epoch:
            state.producer_epoch, state.lowest_sequence = producer_epoch, sequence
        # Several batches may be in flight, and arrive in any order: the transaction begins with the lowest sequence.
        elif producer_epoch == state.producer_epoch:
            state.lowest_sequence = min(state.lowest_sequence, sequence)
        return state.guard

    def abandon_verification(self, producer_id: int, producer_epoch: int, guard: VerificationGuard) -> None:
        """End a verification that the coordinator refused with a fatal error: its guard will not be used.

        Do not call it after a retriable error: later batches must not be appended before the refused one is retried.
        """
        state = self._verifications.get(producer_id)
        if state is not None and state.guard is guard and state.producer_epoch == producer_epoch:
            del self._verifications[producer_id]

    def take_over_verifications(self, other: "ProducerState") -> None:
        """Copy the verifications of the log that this one replaces, for batches waiting to be appended."""
        self._verifications = other._verifications.copy()

    def _expire_verifications(self, now_ms: int) -> None:
        limit_ms = now_ms - min(VERIFICATION_EXPIRATION_MS, self.producer_id_expiration_ms)
        while self._verifications:
            producer_id, state = next(iter(self._verifications.items()))
            if state.created_ms > limit_ms:
                return
            del self._verifications[producer_id]

    def remove_expired(self, now_ms: int) -> None:
        """Remove producers without an open transaction, and without a batch for producer.id.expiration.ms.

        That is shorter if the broker keeps very many (producer_counts.py).
        """
        limit_ms = self._counts.expiration_ms(self.producer_id_expiration_ms)
        expired = [entry.producer_id for entry in self.producers.values() if _is_expired(entry, now_ms, limit_ms)]
        for producer_id in expired:
            del self.producers[producer_id]
        self._expire_verifications(now_ms)

    def active(self, now_ms: int) -> list[ProducerEntry]:
        """Return the producers that have not expired."""
        limit_ms = self.producer_id_expiration_ms
        return [entry for entry in self.producers.values() if not _is_expired(entry, now_ms, limit_ms)]

    def record_end_offset(self, map_end_offset: int) -> None:
        """Record that all batches below `map_end_offset` are applied. Without producers it may decrease."""
        assert map_end_offset >= self.map_end_offset or self.is_empty, f"{self.map_end_offset} to {map_end_offset}"
        self.map_end_offset = map_end_offset

    def clear(self, map_end_offset: int) -> None:
        """Remove everything except verifications; set map_end_offset."""
        assert map_end_offset >= 0, f"producers as of {map_end_offset}"
        self.producers.clear()
        self._open.clear()
        self._unreplicated.clear()
        self.first_unstable_offset = None
        self.map_end_offset = map_end_offset

    def load(self, entries: Iterable[ProducerEntry], map_end_offset: int, now_ms: int) -> None:
        """Replace the state by a snapshot taken at `map_end_offset`, without expired producers."""
        self.clear(map_end_offset)
        kept = [entry for entry in entries if not _is_expired(entry, now_ms, self.producer_id_expiration_ms)]
        self.producers = {entry.producer_id: entry for entry in kept}
        opened = [entry for entry in kept if entry.transaction_first_offset != NO_TRANSACTION]
        opened.sort(key=lambda entry: entry.transaction_first_offset)
        self._open = {entry.transaction_first_offset: entry.producer_id for entry in opened}
        self._find_first_unstable()

    def encode_snapshot(self) -> bytes:
        """Return the bytes of a .snapshot file for map_end_offset."""
        body = bytearray(SNAPSHOT_COUNT.pack(len(self.producers)))
        for entry in self.producers.values():
            last = entry.batches[-1] if entry.batches else BatchMetadata(NO_SEQUENCE, -1, 0, NO_TIMESTAMP)
            body += SNAPSHOT_ENTRY.pack(
                entry.producer_id, entry.producer_epoch, last.last_sequence, last.last_offset, last.offset_delta,
                entry.last_timestamp_ms, entry.coordinator_epoch, entry.transaction_first_offset,
            )  # fmt: skip
        return SNAPSHOT_HEADER.pack(SNAPSHOT_VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    """Decode a .snapshot file. Raises CorruptSnapshotError."""
    header_bytes = SNAPSHOT_HEADER.size + SNAPSHOT_COUNT.size
    if len(data) < header_bytes:
        raise CorruptSnapshotError(f"a snapshot of {len(data)} bytes")
    version, crc = SNAPSHOT_HEADER.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise CorruptSnapshotError(f"a snapshot of version {version}")
    if crc != crc32c(data[SNAPSHOT_HEADER.size :]):
        raise CorruptSnapshotError("the CRC does not fit")
    (count,) = SNAPSHOT_COUNT.unpack_from(data, SNAPSHOT_HEADER.size)
    if count < 0 or len(data) != header_bytes + count * SNAPSHOT_ENTRY.size:
        raise CorruptSnapshotError(f"{count} producers in {len(data)} bytes")
    return [_decode_entry(fields) for fields in SNAPSHOT_ENTRY.iter_unpack(data[header_bytes:])]


def _decode_entry(fields: tuple[int, ...]) -> ProducerEntry:
    producer_id, producer_epoch, sequence, offset, delta, timestamp_ms, coordinator_epoch, transaction = fields
    batches = [BatchMetadata(sequence, offset, delta, timestamp_ms)] if offset >= 0 else []
    transaction = transaction if transaction >= 0 else NO_TRANSACTION
    return ProducerEntry(producer_id, producer_epoch, coordinator_epoch, timestamp_ms, transaction, batches)


def _is_expired(entry: ProducerEntry, now_ms: int, limit_ms: int) -> bool:
    return entry.transaction_first_offset == NO_TRANSACTION and now_ms - entry.last_timestamp_ms >= limit_ms
