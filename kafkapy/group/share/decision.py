"""The result of a request to a share group: records, a response, and effects on the states of its share partitions.

The states are kept by the share coordinator, so the shard only says what is to be done to them. The runtime does it
once the records are committed, and reports the outcome to the shard (share_requests.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar

from kafkapy.dataclass import dataclass
from kafkapy.group.records import CoordinatorRecord
from kafkapy.protocol.messages.share_group_metadata_key import ShareGroupMetadataKey
from kafkapy.types import Uuid


@dataclass(frozen=True, slots=True)
class InitializeStates:
    """Create the states of these share partitions: by topic id and partition the start offset, -1 for the group's rule.

    On success the caller runs the shard's `states_initialized`, on any failure `states_failed`.
    """

    group_id: str
    state_epoch: int
    start_offsets: Mapping[Uuid, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class DeleteStates:
    """Delete the states of these share partitions, and go on with what waits for that."""

    group_id: str
    partitions: Mapping[Uuid, frozenset[int]]


@dataclass(slots=True)
class ShareDecision:
    """Like GroupDecision, with the effects of share groups. `effects` are carried out once the records are committed.

    `initialize`, `delete`: what the request itself waits for, once its records are committed.
    """

    response: Any = None
    records: list[CoordinatorRecord] = field(default_factory=list)
    effects: Sequence[InitializeStates] = ()
    initialize: InitializeStates | None = None
    delete: DeleteStates | None = None
    parked_responses: ClassVar[tuple[()]] = ()
    on_failed: ClassVar[None] = None
    is_atomic: ClassVar[bool] = True

    @property
    def begins_group_epoch(self) -> bool:
        """Whether the group rebalances: its members are about to get other partitions."""
        return any(type(record.key) is ShareGroupMetadataKey for record in self.records)
