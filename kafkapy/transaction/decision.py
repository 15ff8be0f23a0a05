"""What a transaction shard returns: records to append, the response, and effects of the records once committed."""

from dataclasses import field
from typing import Any, ClassVar

from kafkapy.dataclass import dataclass
from kafkapy.machine import Effect
from kafkapy.transaction.records import TransactionRecord
from kafkapy.types import TopicPartition


class NeedsProducerId(Exception):
    """A fresh producer id is needed and none is at hand: call the method again once one is."""


@dataclass(slots=True, frozen=True)
class WriteMarkers(Effect):
    """Write the markers of a decided transaction, then tell the shard (markers_written).

    partitions: those that have no marker yet, perhaps none. transaction_version: 0 or 2, which epochs a partition
    accepts (KIP-1228).
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
    """The response leaves, and the effects are carried out, once the records are committed.

    If the records cannot be appended, nothing has changed, and the request is answered with the error of the append.
    is_atomic: all records or none, in one batch. Tombstones need not be.
    """

    response: Any = None
    records: list[TransactionRecord] = field(default_factory=list)
    effects: list[WriteMarkers] = field(default_factory=list)
    is_atomic: bool = True
    replies: ClassVar[tuple[()]] = ()
    on_failed: ClassVar[None] = None
    """Transactions have no requests that wait for a later decision."""
