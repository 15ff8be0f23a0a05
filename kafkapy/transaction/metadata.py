"""The coordinator's state of one transactional id, and its transitions.

A TransactionMetadata is immutable. Each function returns the next metadata, which becomes the state when its record is
replayed. Illegal transitions fail an assertion (states.py has the table).

Epochs: producers may use epochs up to 32766; 32767 is reserved for the coordinator, so that it can fence any producer.
When the epochs are exhausted, InitProducerId and EndTxn at transaction version 2 continue with a new producer id at
epoch 0. At version 2 every end of a transaction bumps the epoch, so that late requests of the previous transaction are
recognised (KIP-890).
"""

from collections.abc import Iterable
from typing import Any, Final

from kafkapy.record.batch import NO_PRODUCER_ID, NO_TIMESTAMP
from kafkapy.transaction.hash_order import with_added
from kafkapy.transaction.states import NEXT_STATES, TransactionState
from kafkapy.types import INT32_MAX, TopicPartition

NO_EPOCH: Final = -1
MAX_EPOCH: Final = 32767
LAST_CLIENT_EPOCH: Final = MAX_EPOCH - 1
BUMPING_VERSION: Final = 2
"""The transaction version at which each end of a transaction bumps the epoch."""
NO_TIMEOUT_MS: Final = INT32_MAX
"""The time-out of transactions that an external coordinator ends (two-phase commit, KIP-939): they never time out."""


class TransactionMetadata:
    """Times are wall clock ms. `last_producer_epoch` is not in the log, as in Kafka: after a load it is NO_EPOCH.

    previous_producer_id: the producer id before the last transition; equal to producer_id unless that transition
    changed it. next_producer_id: while prepared with exhausted epochs, the producer id to use after the transaction.
    last_producer_epoch: the producer epoch before the last bump, kept if a retry of the bumping request must be
    recognised. partitions: in Kafka's order (hash_order.py). client_transaction_version: of the client that last added
    partitions or ended a transaction, 2 or 0.
    """

    __slots__ = (
        "client_transaction_version",
        "last_producer_epoch",
        "last_update_ms",
        "next_producer_id",
        "partitions",
        "previous_producer_id",
        "producer_epoch",
        "producer_id",
        "start_ms",
        "state",
        "timeout_ms",
    )

    def __init__(
        self,
        producer_id: int,
        *,
        producer_epoch: int,
        state: TransactionState,
        timeout_ms: int,
        last_update_ms: int,
        previous_producer_id: int = NO_PRODUCER_ID,
        next_producer_id: int = NO_PRODUCER_ID,
        last_producer_epoch: int = NO_EPOCH,
        partitions: tuple[TopicPartition, ...] = (),
        start_ms: int = NO_TIMESTAMP,
        client_transaction_version: int = 0,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.state = state
        self.timeout_ms = timeout_ms
        self.last_update_ms = last_update_ms
        self.previous_producer_id = previous_producer_id
        self.next_producer_id = next_producer_id
        self.last_producer_epoch = last_producer_epoch
        self.partitions = partitions
        self.start_ms = start_ms
        self.client_transaction_version = client_transaction_version

    def fields(self) -> dict[str, Any]:
        """Return the values by the names of their fields, as the constructor takes them."""
        return {name: getattr(self, name) for name in FIELDS}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TransactionMetadata) and self.fields() == other.fields()

    def __repr__(self) -> str:
        return f"TransactionMetadata({', '.join(f'{name}={value!r}' for name, value in self.fields().items())})"

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.producer_epoch >= LAST_CLIENT_EPOCH

    def is_timed_out(self, now_ms: int) -> bool:
        return (
            self.state is TransactionState.ONGOING
            and self.timeout_ms != NO_TIMEOUT_MS
            and self.start_ms + self.timeout_ms < now_ms
        )

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        return self.state.is_expirable and self.last_update_ms <= now_ms - expiration_ms


FIELDS: Final = (
    "producer_id",
    "producer_epoch",
    "state",
    "timeout_ms",
    "last_update_ms",
    "previous_producer_id",
    "next_producer_id",
    "last_producer_epoch",
    "partitions",
    "start_ms",
    "client_transaction_version",
)
"""The fields of TransactionMetadata."""


def is_exhausted(producer_epoch: int) -> bool:
    """Whether this is the last epoch that a client may use, or above it."""
    return producer_epoch >= LAST_CLIENT_EPOCH


# -- InitProducerId ---------------------------------------------------------------------------------------------------


def created(producer_id: int, *, timeout_ms: int, now_ms: int) -> TransactionMetadata:
    """Return the metadata of a new transactional id."""
    assert producer_id >= 0, f"{producer_id} is no producer id"
    return TransactionMetadata(
        producer_id,
        producer_epoch=0,
        state=TransactionState.EMPTY,
        timeout_ms=timeout_ms,
        last_update_ms=now_ms,
        previous_producer_id=producer_id,
    )


def with_epoch_bumped(
    metadata: TransactionMetadata, *, last_producer_epoch: int, timeout_ms: int, now_ms: int
) -> TransactionMetadata:
    """Return the metadata after InitProducerId of a known transactional id."""
    assert not metadata.is_epoch_exhausted
    return _emptied(
        metadata, metadata.producer_id, metadata.producer_epoch + 1, last_producer_epoch, timeout_ms, now_ms
    )


def with_epoch_kept(metadata: TransactionMetadata, *, timeout_ms: int, now_ms: int) -> TransactionMetadata:
    """Return the metadata after a retry of the InitProducerId that bumped the epoch (KIP-360)."""
    producer_id, producer_epoch, last_producer_epoch = (
        metadata.producer_id,
        metadata.producer_epoch,
        metadata.last_producer_epoch,
    )
    return _emptied(metadata, producer_id, producer_epoch, last_producer_epoch, timeout_ms, now_ms)


def with_new_producer_id(
    metadata: TransactionMetadata, producer_id: int, *, last_producer_epoch: int, timeout_ms: int, now_ms: int
) -> TransactionMetadata:
    """Return the metadata after InitProducerId with a new producer id, because the epochs are exhausted."""
    return _emptied(metadata, producer_id, 0, last_producer_epoch, timeout_ms, now_ms)


def _emptied(
    metadata: TransactionMetadata,
    producer_id: int,
    producer_epoch: int,
    last_producer_epoch: int,
    timeout_ms: int,
    now_ms: int,
) -> TransactionMetadata:
    return _checked(
        metadata,
        TransactionMetadata(
            producer_id,
            producer_epoch=producer_epoch,
            state=TransactionState.EMPTY,
            timeout_ms=timeout_ms,
            last_update_ms=now_ms,
            previous_producer_id=metadata.producer_id,
            next_producer_id=metadata.next_producer_id,
            last_producer_epoch=last_producer_epoch,
            client_transaction_version=metadata.client_transaction_version,
        ),
    )


# -- a transaction ----------------------------------------------------------------------------------------------------


def with_partitions(
    metadata: TransactionMetadata, added: Iterable[TopicPartition], *, client_transaction_version: int, now_ms: int
) -> TransactionMetadata:
    """Return the metadata after partitions were added to the transaction; begins a transaction if there is none."""
    is_begun = metadata.state is TransactionState.ONGOING
    partitions = with_added(metadata.partitions, added)
    assert len(partitions) >= len(metadata.partitions), "a partition would stay open, as it would get no marker"
    return _checked(
        metadata,
        TransactionMetadata(
            metadata.producer_id,
            producer_epoch=metadata.producer_epoch,
            state=TransactionState.ONGOING,
            timeout_ms=metadata.timeout_ms,
            last_update_ms=now_ms,
            previous_producer_id=metadata.producer_id,
            next_producer_id=metadata.next_producer_id,
            last_producer_epoch=metadata.last_producer_epoch,
            partitions=partitions,
            start_ms=metadata.start_ms if is_begun else now_ms,
            client_transaction_version=client_transaction_version,
        ),
    )


def prepared(metadata: TransactionMetadata, target: TransactionState, *, now_ms: int) -> TransactionMetadata:
    """Return the metadata of a decided transaction at version 0 or 1: the client keeps its epoch."""
    return _prepared(
        metadata,
        target,
        now_ms,
        producer_epoch=metadata.producer_epoch,
        last_producer_epoch=metadata.last_producer_epoch,
        next_producer_id=metadata.next_producer_id,
        client_transaction_version=0,
    )


def prepared_and_fenced(metadata: TransactionMetadata, *, now_ms: int) -> TransactionMetadata:
    """Return the metadata of a transaction aborted by the coordinator at transaction.version 0 or 1."""
    return _prepared(
        metadata,
        TransactionState.PREPARE_ABORT,
        now_ms,
        producer_epoch=min(metadata.producer_epoch + 1, MAX_EPOCH),
        last_producer_epoch=NO_EPOCH,
        next_producer_id=metadata.next_producer_id,
        client_transaction_version=0,
    )


def prepared_and_bumped(
    metadata: TransactionMetadata,
    target: TransactionState,
    *,
    next_producer_id: int,
    client_transaction_version: int,
    now_ms: int,
) -> TransactionMetadata:
    """Return the metadata of a decided transaction at version 2: the epoch is bumped.

    `next_producer_id`: a new one if the epochs are exhausted, else NO_PRODUCER_ID. For an abort without a transaction,
    start_ms is `now_ms`.
    """
    is_exhausted_now = metadata.producer_epoch >= LAST_CLIENT_EPOCH
    assert is_exhausted_now == (next_producer_id != NO_PRODUCER_ID), "a new producer id exactly where epochs end"
    return _prepared(
        metadata,
        target,
        now_ms,
        producer_epoch=min(metadata.producer_epoch + 1, MAX_EPOCH),
        last_producer_epoch=metadata.producer_epoch,
        next_producer_id=next_producer_id,
        client_transaction_version=client_transaction_version,
    )


def _prepared(
    metadata: TransactionMetadata,
    target: TransactionState,
    now_ms: int,
    *,
    producer_epoch: int,
    last_producer_epoch: int,
    next_producer_id: int,
    client_transaction_version: int,
) -> TransactionMetadata:
    assert target.is_prepared
    is_begun = metadata.state is TransactionState.ONGOING
    return _checked(
        metadata,
        TransactionMetadata(
            metadata.producer_id,
            producer_epoch=producer_epoch,
            state=target,
            timeout_ms=metadata.timeout_ms,
            last_update_ms=now_ms,
            previous_producer_id=metadata.producer_id,
            next_producer_id=next_producer_id,
            last_producer_epoch=last_producer_epoch,
            partitions=metadata.partitions,
            start_ms=metadata.start_ms if is_begun else now_ms,
            client_transaction_version=client_transaction_version,
        ),
    )


def completed(metadata: TransactionMetadata, *, now_ms: int) -> TransactionMetadata:
    """Return the metadata of a decided transaction after all its markers were written."""
    is_commit = metadata.state is TransactionState.PREPARE_COMMIT
    producer_id, producer_epoch = following_producer(metadata)
    return _checked(
        metadata,
        TransactionMetadata(
            producer_id,
            producer_epoch=producer_epoch,
            state=TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
            timeout_ms=metadata.timeout_ms,
            last_update_ms=now_ms,
            previous_producer_id=metadata.producer_id,
            last_producer_epoch=metadata.last_producer_epoch,
            start_ms=metadata.start_ms,
            client_transaction_version=metadata.client_transaction_version,
        ),
    )


def following_producer(metadata: TransactionMetadata) -> tuple[int, int]:
    """Return the producer id and epoch that the client uses after a decided transaction."""
    if metadata.next_producer_id != NO_PRODUCER_ID and metadata.client_transaction_version >= 2:
        return metadata.next_producer_id, 0
    return metadata.producer_id, metadata.producer_epoch


def _checked(metadata: TransactionMetadata, following: TransactionMetadata) -> TransactionMetadata:
    """Return the next metadata, asserting that the transition is legal."""
    assert following.state in NEXT_STATES[metadata.state], (metadata.state, following.state)
    assert following.producer_id >= 0
    assert 0 <= following.producer_epoch <= MAX_EPOCH
    is_same_producer = following.producer_id == metadata.producer_id
    assert not is_same_producer or following.producer_epoch >= metadata.producer_epoch, "a fenced producer would return"
    return following
