"""The input of an acquisition, which are the batches read from the log, and its result, the acquired records."""

from collections.abc import Sequence

from kafkapy.dataclass import dataclass
from kafkapy.named_tuple import NamedTuple


class FetchedBatch(NamedTuple):
    """The header of a record batch. `is_abort_marker`: a control batch by which a transaction was aborted."""

    base_offset: int
    last_offset: int
    producer_id: int = -1
    is_transactional: bool = False
    is_abort_marker: bool = False


class AbortedTransaction(NamedTuple):
    """As in the response of a fetch with isolation level read_committed."""

    producer_id: int
    first_offset: int


class AcquiredRecords(NamedTuple):
    """Offsets that a member has acquired, and how often they have been delivered by that."""

    first_offset: int
    last_offset: int
    delivery_count: int

    @property
    def record_count(self) -> int:
        return self.last_offset - self.first_offset + 1


@dataclass(slots=True)
class FetchedRecords:
    """The batches read from fetch_offset on. `aborted` is empty unless the group reads committed records only."""

    fetch_offset: int
    batches: Sequence[FetchedBatch]
    aborted: Sequence[AbortedTransaction] = ()


@dataclass(slots=True, frozen=True)
class AcquireLimits:
    """The limits that a member sets for its records: fields of ShareFetch.

    `is_record_limit` (KIP-1206): never more than max_records, even if a batch is divided by that. Otherwise batches are
    acquired to their end, so that the last one may exceed max_records, and several are joined up to batch_size.
    """

    max_records: int
    batch_size: int
    is_record_limit: bool = False
