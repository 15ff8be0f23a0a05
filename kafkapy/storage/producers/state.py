"""What a partition knows of its producers: duplicates, gaps, fenced epochs, open transactions, the last stable offset.

Of each producer the last five batches are kept, so a batch sent again is answered with the offset it had. Numbers must
follow each other; a new epoch begins at sequence 0. A transaction is open from its first batch to its marker; the
first unstable offset, where read_committed readers stop, is that of the oldest transaction that is open or whose marker
is above the high watermark. KIP-98, KIP-360, KIP-890.

Pure: `prepare` checks an append and leaves the state as it is, `commit` takes it over once the bytes are written. The
log owns the `.snapshot` files and gives their bytes to `decode_snapshot`:

    int16 version 1, uint32 CRC-32C of what follows, int32 count, then 46 bytes a producer: int64 producer id, int16
    epoch, int32 last sequence, int64 last offset, int32 offset delta, int64 timestamp ms, int32 coordinator epoch,
    int64 first offset of its open transaction; -1 where there is none
"""

import struct
from collections.abc import Iterable
from dataclasses import field
from itertools import islice, takewhile
from typing import Final, NamedTuple

from kafkapy.dataclass import dataclass
from kafkapy.errors import ApiError
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
VERIFICATION_EXPIRATION_MS: Final = 5 * 60 * 1000
"""How long a verification may go unused: more than a producer tries to deliver a batch (delivery.timeout.ms, 2 min).

A deviation: Apache Kafka keeps it for producer.id.expiration.ms, a day."""
SNAPSHOT_VERSION: Final = 1
SNAPSHOT_HEADER: Final = struct.Struct(">hI")
SNAPSHOT_COUNT: Final = struct.Struct(">i")
SNAPSHOT_ENTRY: Final = struct.Struct(">qhiqiqiq")


class LateTransaction(NamedTuple):
    """An open transaction whose producer has been silent for too long; last_timestamp_ms: of its last batch."""

    producer_id: int
    first_offset: int
    last_timestamp_ms: int


@dataclass(slots=True)
class PreparedAppend:
    """An append that was checked: `commit` takes it over. With a duplicate nothing may be appended."""

    duplicate: BatchMetadata | None = None
    staged: dict[int, StagedProducer] = field(default_factory=dict)
    completed: list[CompletedTransaction] = field(default_factory=list)


class ProducerState:
    """All producers of one partition, up to map_end_offset."""

    def __init__(self, *, producer_id_expiration_ms: int = 86400000, is_verification_enabled: bool = True) -> None:
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.is_verification_enabled = is_verification_enabled
        self.producers: dict[int, ProducerEntry] = {}
        self.map_end_offset = 0
        self.first_unstable_offset: int | None = None
        """The first offset of the oldest transaction that is open, or whose marker is above the high watermark."""
        self._open: dict[int, int] = {}
        """Producer id of each open transaction by its first offset, in the order of these offsets."""
        self._unreplicated: dict[int, int] = {}
        """Offset of the marker by first offset, in the order of the markers."""
        self._verifications: dict[int, VerificationState] = {}
        """By producer id, in the order in which they began."""

    @property
    def is_empty(self) -> bool:
        return not self.producers and not self._unreplicated

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        entry = self.producers.get(producer_id)
        return (
            entry is not None
            and entry.transaction_first_offset != NO_TRANSACTION
            and entry.producer_epoch == producer_epoch
        )

    def late_transaction(self, now_ms: int, max_transaction_timeout_ms: int) -> LateTransaction | None:
        """Return the oldest open transaction if it has been silent for longer than any may take."""
        first_offset, producer_id = next(iter(self._open.items()), (NO_TRANSACTION, NO_PRODUCER_ID))
        entry = self.producers.get(producer_id)
        last_ms = entry.last_timestamp_ms if entry is not None else NO_TIMESTAMP
        if last_ms <= 0 or now_ms - last_ms <= max_transaction_timeout_ms + LATE_TRANSACTION_BUFFER_MS:
            return None
        return LateTransaction(producer_id, first_offset, last_ms)

    def producer_in_sequence(
        self, producer_id: int, producer_epoch: int, base_sequence: int, is_transactional: bool
    ) -> ProducerEntry | None:
        """Return the producer that a client's batch follows in sequence; None if `prepare` must check the batch."""
        entry = self.producers.get(producer_id)
        if entry is None or producer_id in self._verifications:
            return None
        return entry if entry.is_followed_by(producer_epoch, base_sequence, is_transactional) else None

    def prepare(
        self,
        batches: Iterable[ProducerBatch],
        origin: AppendOrigin,
        *,
        verification: VerificationGuard | None = None,
        transaction_version: int = 0,
    ) -> PreparedAppend:
        """Check batches that are about to be appended; nothing changes but verifications that they use up.

        Raises ApiError: OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE,
        TRANSACTION_COORDINATOR_FENCED.
        """
        prepared = PreparedAppend()
        for batch in batches:
            entry = self.producers.get(batch.producer_id)
            if origin is AppendOrigin.CLIENT and entry is not None:
                prepared.duplicate = entry.find_duplicate(batch)
                if prepared.duplicate is not None:
                    return prepared
            if batch.is_transactional and origin in (AppendOrigin.CLIENT, AppendOrigin.COORDINATOR):
                self._check_verified(batch, entry, verification)
            staged = prepared.staged.get(batch.producer_id)
            if staged is None:
                entry = entry if entry is not None else ProducerEntry(batch.producer_id)
                staged = StagedProducer(entry, origin, self._verifications.get(batch.producer_id))
                prepared.staged[batch.producer_id] = staged
            self._stage(prepared, staged, batch, transaction_version)
        return prepared

    def _stage(
        self, prepared: PreparedAppend, staged: StagedProducer, batch: ProducerBatch, transaction_version: int
    ) -> None:
        if batch.marker is None:
            staged.add_batch(batch)
        else:
            completed = staged.add_marker(batch, batch.marker, transaction_version)
            if completed is not None:
                prepared.completed.append(completed)

    def _check_verified(
        self, batch: ProducerBatch, entry: ProducerEntry | None, verification: VerificationGuard | None
    ) -> None:
        """Raise where the first batch of a transaction comes without proof that the coordinator knows of it."""
        if self.has_open_transaction(batch.producer_id, batch.producer_epoch):
            return
        if entry is not None and batch.producer_epoch < entry.producer_epoch:
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
        """Take over an append that was written; `complete` its transactions afterwards, one by one."""
        started: list[tuple[int, int]] = []
        for producer_id, staged in prepared.staged.items():
            entry = self.producers.setdefault(producer_id, staged.entry)
            entry.move_to_epoch(staged.producer_epoch)
            entry.batches.extend(staged.batches)
            del entry.batches[:-MAX_BATCHES_KEPT]
            entry.coordinator_epoch = staged.coordinator_epoch
            entry.last_timestamp_ms = staged.last_timestamp_ms
            entry.transaction_first_offset = staged.transaction_first_offset
            started += [(first_offset, producer_id) for first_offset in staged.started]
        if started:
            self._note_started(started)
        if self._verifications:
            self._end_verifications(prepared)

    def _note_started(self, started: list[tuple[int, int]]) -> None:
        """Note transactions that one append began, (first offset, producer id), by their offsets: one append may hold
        several of each producer."""
        last_offset = next(reversed(self._open), -1)
        for first_offset, producer_id in sorted(started):
            assert first_offset > last_offset, f"a transaction begins at {first_offset}, after one at {last_offset}"
            self._open[first_offset] = producer_id
            last_offset = first_offset
        self._find_first_unstable()

    def _end_verifications(self, prepared: PreparedAppend) -> None:
        """A transaction that has begun needs no proof any more, nor does one that has ended.

        From KIP-890 on each transaction has an epoch of its own: a marker of the epoch that is being verified ended the
        transaction before, and the verification of the next one goes on.
        """
        for producer_id, staged in prepared.staged.items():
            state = self._verifications.get(producer_id)
            if state is None or not (staged.has_transactional_data or staged.has_marker):
                continue
            is_next_one = state.supports_epoch_bump and state.producer_epoch == staged.producer_epoch
            if staged.has_transactional_data or not is_next_one:
                del self._verifications[producer_id]

    def last_stable_offset_after(self, completed: CompletedTransaction) -> int:
        """Return where read_committed readers will stop once `completed` is complete: what .txnindex records.

        A lookup in that index ends at the first entry whose last stable offset is beyond what it looks for. A deviation
        from Apache Kafka, which passes over all transactions of the same producer: if one append holds this one and the
        next, the entry says that the next one was decided, and read_committed readers get it if it is aborted later.
        """
        opened = islice(self._open, 2)  # by their offsets, `completed` among them
        return next((first for first in opened if first != completed.first_offset), completed.last_offset + 1)

    def complete(self, completed: CompletedTransaction) -> None:
        """Close a transaction; it stays unstable until the high watermark has passed its marker."""
        assert completed.first_offset in self._open, f"{completed} was never begun"
        del self._open[completed.first_offset]
        self._unreplicated[completed.first_offset] = completed.last_offset
        self._find_first_unstable()

    def on_high_watermark(self, high_watermark: int) -> None:
        """Let go of the transactions whose markers are below it."""
        if not self._unreplicated:
            return
        passed = list(takewhile(lambda first: self._unreplicated[first] < high_watermark, self._unreplicated))
        for first_offset in passed:
            del self._unreplicated[first_offset]
        if passed:
            self._find_first_unstable()

    def _find_first_unstable(self) -> None:
        self.first_unstable_offset = min((*self._unreplicated, *islice(self._open, 1)), default=None)

    def start_verification(
        self, producer_id: int, sequence: int, producer_epoch: int, *, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard | None:
        """Return the guard that the first batch of a transaction must bring, None if it is open already.

        supports_epoch_bump: the client is one of KIP-890, each of whose transactions has an epoch of its own. A guard
        whose verification is under way is returned again. It is valid until its transaction begins or ends here, until
        `abandon_verification`, and for VERIFICATION_EXPIRATION_MS. Raises INVALID_PRODUCER_EPOCH.
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
        elif producer_epoch == state.producer_epoch:
            state.lowest_sequence = min(state.lowest_sequence, sequence)
        return state.guard

    def abandon_verification(self, producer_id: int, producer_epoch: int, guard: VerificationGuard) -> None:
        """End a verification that the coordinator has refused for good: nothing will be appended with its guard.

        Not after an error that the client retries: until it does, later batches must not overtake the one refused.
        """
        state = self._verifications.get(producer_id)
        if state is not None and state.guard is guard and state.producer_epoch == producer_epoch:
            del self._verifications[producer_id]

    def take_over_verifications(self, other: "ProducerState") -> None:
        """Go on with the verifications of a log that this one is a copy of: what waits for them is appended here."""
        self._verifications = other._verifications.copy()

    def _expire_verifications(self, now_ms: int) -> None:
        limit_ms = now_ms - min(VERIFICATION_EXPIRATION_MS, self.producer_id_expiration_ms)
        while self._verifications:
            producer_id, state = next(iter(self._verifications.items()))
            if state.created_ms > limit_ms:
                return
            del self._verifications[producer_id]

    def remove_expired(self, now_ms: int) -> None:
        """Forget producers that wrote nothing for producer.id.expiration.ms and have no open transaction."""
        expired = [entry.producer_id for entry in self.producers.values() if self._is_expired(entry, now_ms)]
        for producer_id in expired:
            del self.producers[producer_id]
        self._expire_verifications(now_ms)

    def _is_expired(self, entry: ProducerEntry, now_ms: int) -> bool:
        return (
            entry.transaction_first_offset == NO_TRANSACTION
            and now_ms - entry.last_timestamp_ms >= self.producer_id_expiration_ms
        )

    def clear(self, map_end_offset: int) -> None:
        """Forget everything."""
        self.producers.clear()
        self._open.clear()
        self._unreplicated.clear()
        self.first_unstable_offset = None
        self.map_end_offset = map_end_offset

    def load(self, entries: Iterable[ProducerEntry], map_end_offset: int, now_ms: int) -> None:
        """Start over from a snapshot taken at `map_end_offset`; expired producers are left out."""
        self.clear(map_end_offset)
        kept = [entry for entry in entries if not self._is_expired(entry, now_ms)]
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
    """Read a .snapshot file. Raises CorruptSnapshotError."""
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
