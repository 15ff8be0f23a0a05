"""The states of a transactional id, and the allowed transitions.

EMPTY                 has a producer id, and no transaction yet since InitProducerId
ONGOING               partitions have been added to a transaction
PREPARE_COMMIT        the decision to commit is in the log; markers are being written
PREPARE_ABORT         the decision to abort is in the log; markers are being written
COMPLETE_COMMIT       every partition has its marker
COMPLETE_ABORT        every partition has its marker
DEAD                  expired; Kafka shows it while the tombstone is written, here the id is removed at once
PREPARE_EPOCH_FENCE   never logged: in Kafka the moment between fencing a producer and PREPARE_ABORT

A transaction is decided once PREPARE_COMMIT or PREPARE_ABORT is committed; after that it can only complete. With
transaction.version 2 an abort is allowed without a transaction, because the client may not know whether the partitions
that it wrote to were added (KIP-890). The enum values are those in the log, the names those in ListTransactions.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final


class TransactionState(Enum):
    """The value is TransactionLogValue.TransactionStatus."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    __hash__ = object.__hash__  # Enum's calls Python code, and a transaction asks the tables of states 15 times

    def __init__(self, value: int) -> None:
        self.is_prepared = self.name in ("PREPARE_COMMIT", "PREPARE_ABORT")
        """Whether the transaction is decided and its markers are being written. Read seven times a transaction."""

    @property
    def shown_name(self) -> str:
        """The name that clients are shown and filter by: "CompleteCommit"."""
        return _SHOWN_NAMES[self]

    @property
    def is_expirable(self) -> bool:
        """Whether the transactional id may be removed once it has not been used for long enough."""
        return self in EXPIRABLE_STATES


_EMPTY, _ONGOING, _DEAD = TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.DEAD
_PREPARE_COMMIT, _PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
_COMPLETE_COMMIT, _COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT

COMPLETE_STATES: Final = frozenset({_COMPLETE_COMMIT, _COMPLETE_ABORT})
EXPIRABLE_STATES: Final = COMPLETE_STATES | {_EMPTY}

NEXT_STATES: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    _EMPTY: frozenset({_EMPTY, _ONGOING, _PREPARE_ABORT, _DEAD}),
    _ONGOING: frozenset({_ONGOING, _PREPARE_COMMIT, _PREPARE_ABORT}),
    _PREPARE_COMMIT: frozenset({_COMPLETE_COMMIT}),
    _PREPARE_ABORT: frozenset({_COMPLETE_ABORT}),
    _COMPLETE_COMMIT: frozenset({_EMPTY, _ONGOING, _PREPARE_ABORT, _DEAD}),
    _COMPLETE_ABORT: frozenset({_EMPTY, _ONGOING, _PREPARE_ABORT, _DEAD}),
    _DEAD: frozenset(),
    TransactionState.PREPARE_EPOCH_FENCE: frozenset({_PREPARE_ABORT}),
}
"""Kafka's table, except that nothing leads to PREPARE_EPOCH_FENCE: a fenced transaction is aborted in one step."""

_SHOWN_NAMES: Final[Mapping[TransactionState, str]] = {
    state: "".join(word.capitalize() for word in state.name.split("_")) for state in TransactionState
}
STATE_BY_SHOWN_NAME: Final[Mapping[str, TransactionState]] = {name: state for state, name in _SHOWN_NAMES.items()}
