"""The result of a transaction shard: records to append, the response, and effects of the records once committed."""

from collections.abc import Sequence
from typing import Any, ClassVar

from kafkapy.transaction.records import TransactionRecord
from kafkapy.types import TopicPartition


class NeedsProducerId(Exception):
    """A new producer id is needed and none is available: call the method again once one is."""


class WriteMarkers:
    """Write the markers of a decided transaction, then call the shard's markers_written.

    partitions: those without a marker yet, perhaps none. transaction_version: 0 or 2; it determines which producer
    epochs a partition accepts (KIP-1228).
    """

    __slots__ = (
        "coordinator_epoch",
        "is_commit",
        "partitions",
        "producer_epoch",
        "producer_id",
        "transaction_version",
        "transactional_id",
    )

    def __init__(
        self,
        transactional_id: str,
        *,
        producer_id: int,
        producer_epoch: int,
        is_commit: bool,
        coordinator_epoch: int,
        transaction_version: int,
        partitions: tuple[TopicPartition, ...],
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.is_commit = is_commit
        self.coordinator_epoch = coordinator_epoch
        self.transaction_version = transaction_version
        self.partitions = partitions


class TransactionDecision:
    """The response is sent, and the effects are carried out, once the records are committed.

    If the records cannot be appended, nothing has changed, and the request is answered with the error of the append.
    is_atomic: append all records or none, in one batch. Tombstones need not be atomic.
    """

    __slots__ = ("effects", "is_atomic", "records", "response")

    parked_responses: ClassVar[tuple[()]] = ()
    on_failed: ClassVar[None] = None
    """Transaction requests are never parked until a later decision."""

    def __init__(
        self,
        response: Any = None,
        records: Sequence[TransactionRecord] = (),
        effects: Sequence[WriteMarkers] = (),
        *,
        is_atomic: bool = True,
    ) -> None:
        self.response = response
        self.records = records
        self.effects = effects
        self.is_atomic = is_atomic
