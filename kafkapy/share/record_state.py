"""The delivery states of a record in a share partition, and how a client acknowledges one.

AVAILABLE      may be acquired by any member
ACQUIRED       delivered to one member, which has it until it acknowledges or its lock times out; never persisted
ACKNOWLEDGED   accepted: done
ARCHIVING      rejected or out of attempts, and being copied to the dead-letter topic (KIP-1191)
ARCHIVED       never delivered again: done

The enum values are those of the share coordinator's records (DeliveryState) and of WriteShareGroupState.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final


class RecordState(Enum):
    """The value is DeliveryState."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4

    __hash__ = object.__hash__  # Enum's calls Python code

    def __init__(self, value: int) -> None:
        self.is_done = self.name in ("ACKNOWLEDGED", "ARCHIVED")
        """Whether the record is never delivered again, so that the start offset may move over it."""


_AVAILABLE, _ACQUIRED, _ARCHIVING = RecordState.AVAILABLE, RecordState.ACQUIRED, RecordState.ARCHIVING
_ACKNOWLEDGED, _ARCHIVED = RecordState.ACKNOWLEDGED, RecordState.ARCHIVED

NEXT_STATES: Final[Mapping[RecordState, frozenset[RecordState]]] = {
    _AVAILABLE: frozenset({_ACQUIRED, _ARCHIVED}),
    _ACQUIRED: frozenset({_AVAILABLE, _ACKNOWLEDGED, _ARCHIVING, _ARCHIVED}),
    _ACKNOWLEDGED: frozenset(),
    _ARCHIVING: frozenset({_ARCHIVED}),
    _ARCHIVED: frozenset(),
}
"""The allowed transitions. Undoing a failed write is none: it restores what was before."""

ACK_GAP: Final = 0
"""There is no record at the offset: it was compacted away, or belongs to a control batch."""
ACK_ACCEPT: Final = 1
ACK_RELEASE: Final = 2
ACK_REJECT: Final = 3
ACK_RENEW: Final = 4
"""Start the acquisition lock again; the record stays acquired (KIP-1222)."""

ACKNOWLEDGED_STATES: Final[Mapping[int, RecordState]] = {
    ACK_GAP: _ARCHIVED,
    ACK_ACCEPT: _ACKNOWLEDGED,
    ACK_RELEASE: _AVAILABLE,
    ACK_REJECT: _ARCHIVED,
}
"""The state after each type that ends a delivery. A rejected record becomes ARCHIVING if the group has dead letters."""
