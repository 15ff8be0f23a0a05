"""What a transaction shard returns: records to append, the response, and effects of the records once committed."""

from dataclasses import field
from typing import Any, ClassVar

from kafkapy.dataclass import dataclass
from kafkapy.machine import Effect
from kafkapy.transaction.records import TransactionRecord
from kafkapy.types import TopicPartition


class NeedsProducerId(Exception):
    """A new producer id is needed and none is available: call the method again once one is."""


@dataclass(slots=True, frozen=True)
class WriteMarkers(Effect):
    """Write the markers of a decided transaction, then call the shard's markers_written.

    partitions: those without a marker yet, perhaps none. transaction_version: 0 or 2; it determines which producer
    epochs a partition accepts (KIP-1228).
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int
    partitions: tuple[TopicPartition, ...]


@dataclass(slots=True)
class TransactionDecision:
    """The response is sent, and the effects are carried out, once the records are committed.

    If the records cannot be appended, nothing has changed, and the request is answered with the error of the append.
    is_atomic: append all records or none, in one batch. Tombstones need not be atomic.
    """

    response: Any = None
    records: list[TransactionRecord] = field(default_factory=list)
    effects: list[WriteMarkers] = field(default_factory=list)
    is_atomic: bool = True
    replies: ClassVar[tuple[()]] = ()
    on_failed: ClassVar[None] = None
    """Transaction requests are never parked until a later decision."""
