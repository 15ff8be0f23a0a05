"""The seam between a share partition and its persisted state.

A share partition is a partition that a share group reads. Its state is kept by the share coordinator, which may be on
this broker or on another one; a `Persister` hides which. All methods take one group and several of its share
partitions, each once, and return a result for each, in their order. They raise nothing: a failure is an error code in
the result. A call may wait while the state's coordinator is looked up, at most some seconds.

State of a share partition:

    state_epoch              raised when the state is initialised again (a group that came back, altered offsets)
    leader_epoch             of the topic partition's leader that read the state last; older leaders are fenced
    start_offset             the first offset that is not done; UNINITIALIZED_OFFSET until the first write
    delivery_complete_count  records from start_offset on that are done, for the lag (KIP-1226); -1 if unknown
    state_batches            runs of offsets from start_offset on that are in one state

Errors: FENCED_LEADER_EPOCH (the share partition's leader has changed: drop it), FENCED_STATE_EPOCH (the
state was initialised again), INVALID_REQUEST (not initialised, or deleted), UNKNOWN_TOPIC_OR_PARTITION; and if the
coordinator did not answer in time: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS,
NETWORK_EXCEPTION, REQUEST_TIMED_OUT.

Source: KIP-932, Apache Kafka's interface Persister.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Protocol, TypeVar

from kafkapy.dataclass import dataclass
from kafkapy.named_tuple import NamedTuple
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.types import INT32_MAX, Uuid, uuid_from_string, uuid_to_string

INT32_MIN: Final = -(2**31)
_PARTITION: Final = re.compile(r"[+-]?[0-9]{1,19}")

UNINITIALIZED_OFFSET: Final = -1
UNINITIALIZED_COUNT: Final = -1
"""A delivery_complete_count that is not known: the share partition has no start offset yet."""


class StateBatch(NamedTuple):
    """The offsets from first_offset to last_offset (inclusive), all in one delivery state and delivered as often.

    delivery_state: 0 available, 2 acknowledged, 4 archived. Acquired (1) is never persisted: a crash forgets that
    delivery.
    """

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int

    @property
    def record_count(self) -> int:
        return self.last_offset - self.first_offset + 1


class TopicIdPartition(NamedTuple):
    """A partition, identified by topic id: a topic that is deleted and created again is another one."""

    topic_id: Uuid
    partition: int


class SharePartitionKey(NamedTuple):
    """A partition as one share group reads it."""

    group_id: str
    topic_id: Uuid
    partition: int

    @property
    def coordinator_key(self) -> str:
        """The key by which FindCoordinator looks up the state's coordinator: `group id:topic id:partition`."""
        return _coordinator_key(self)

    @property
    def topic_partition(self) -> TopicIdPartition:
        return TopicIdPartition(self.topic_id, self.partition)


@lru_cache(4096)  # called twice for each write
def _coordinator_key(key: SharePartitionKey) -> str:
    return f"{key.group_id}:{uuid_to_string(key.topic_id)}:{key.partition}"


def parse_coordinator_key(text: str) -> SharePartitionKey:
    """Parse `group id:topic id:partition`; the group id may have colons. Raises ValueError."""
    parts = text.rsplit(":", 2)
    if len(parts) != 3 or not parts[0].strip():
        raise ValueError(f"not group id, topic id and partition: {text}")
    group_id, topic_id, partition = parts
    if _PARTITION.fullmatch(partition) is None or not INT32_MIN <= int(partition) <= INT32_MAX:
        raise ValueError(f"not a partition: {partition}")
    return SharePartitionKey(group_id, uuid_from_string(topic_id), int(partition))


@dataclass(slots=True)
class InitialState:
    """A new state that begins at start_offset; UNINITIALIZED_OFFSET: share.auto.offset.reset decides."""

    topic_id: Uuid
    partition: int
    state_epoch: int
    start_offset: int = UNINITIALIZED_OFFSET


@dataclass(slots=True)
class StateRead:
    """A read of the state by the leader of leader_epoch, which fences earlier leaders."""

    topic_id: Uuid
    partition: int
    leader_epoch: int


@dataclass(slots=True)
class StateWrite:
    """The changes since the last write: offsets that are in no batch keep their state."""

    topic_id: Uuid
    partition: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    state_batches: Sequence[StateBatch] = ()


@dataclass(slots=True)
class PartitionResult:
    """The result of an initialisation, a write or a deletion of one share partition."""

    topic_id: Uuid
    partition: int
    error_code: int = ErrorCode.NONE
    error_message: str | None = None


@dataclass(slots=True)
class StateReadResult:
    """The state of one share partition; with an error code the other fields have no meaning."""

    topic_id: Uuid
    partition: int
    error_code: int = ErrorCode.NONE
    error_message: str | None = None
    state_epoch: int = 0
    start_offset: int = UNINITIALIZED_OFFSET
    state_batches: Sequence[StateBatch] = ()


@dataclass(slots=True)
class StateSummary:
    """The state of one share partition without its batches. If it is not initialised, start_offset is -1."""

    topic_id: Uuid
    partition: int
    error_code: int = ErrorCode.NONE
    error_message: str | None = None
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = UNINITIALIZED_OFFSET
    delivery_complete_count: int = UNINITIALIZED_COUNT


ItemT = TypeVar("ItemT", bound=InitialState | StateRead | StateWrite | TopicIdPartition)
"""A request to a persister for a share partition."""
ResultT = TypeVar("ResultT", bound=PartitionResult | StateReadResult | StateSummary)


class Persister(Protocol):
    """Keeps the state of share partitions. Errors are in the results, as this module lists them."""

    async def initialize(self, group_id: str, states: Sequence[InitialState]) -> list[PartitionResult]:
        """Initialise the states of share partitions; a state_epoch below the current one is fenced."""
        ...

    async def read(self, group_id: str, reads: Sequence[StateRead]) -> list[StateReadResult]:
        """Return the states, and fence leaders of earlier epochs."""
        ...

    async def write(self, group_id: str, writes: Sequence[StateWrite]) -> list[PartitionResult]:
        """Write changes of the states; a successful write survives the loss of this broker."""
        ...

    async def delete(self, group_id: str, partitions: Sequence[TopicIdPartition]) -> list[PartitionResult]:
        """Delete the states. A share partition without a state counts as deleted."""
        ...

    async def read_summary(self, group_id: str, partitions: Sequence[TopicIdPartition]) -> list[StateSummary]:
        """Return the states without their batches; fences no leader."""
        ...
