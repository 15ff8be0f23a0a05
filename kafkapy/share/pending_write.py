"""A change of a share partition's state that the persister has to write, and the steps after the write."""

from enum import Enum
from typing import Final

from kafkapy.dataclass import dataclass
from kafkapy.named_tuple import NamedTuple
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.share.persister import StateBatch
from kafkapy.share.record_state import RecordState


class DeadLetterCause(Enum):
    """Why records go to the dead-letter topic: the value is the text in the record's header (KIP-1191)."""

    CLIENT_REJECT = "Offset rejected by client."
    DELIVERY_COUNT_EXCEEDED = "Offset delivery count exceeded the threshold."


@dataclass(slots=True, frozen=True)
class DeadLetter:
    """Records to be copied to the dead-letter topic. Afterwards, or if that failed, the share partition is notified."""

    first_offset: int
    last_offset: int
    delivery_count: int
    cause: DeadLetterCause

    @property
    def record_count(self) -> int:
        return self.last_offset - self.first_offset + 1


class PendingWrite:
    """State batches to write, with the fields of the write that are read when it begins.

    `is_undoable`: the acknowledgement is answered with the write's outcome, and undone if the write fails. Changes by
    the time-out of a lock remain, even if they cannot be written: a crash would release the records, too.
    """

    __slots__ = ("causes", "delivery_complete_count", "is_undoable", "start_offset", "state_batches")

    def __init__(self, *, is_undoable: bool) -> None:
        self.is_undoable = is_undoable
        self.state_batches: list[StateBatch] = []
        self.causes: list[DeadLetterCause | None] = []
        """The cause of each batch that becomes ARCHIVING."""
        self.start_offset = 0
        self.delivery_complete_count = 0

    def add(self, batch: StateBatch, cause: DeadLetterCause | None = None) -> None:
        is_archiving = batch.delivery_state == RecordState.ARCHIVING.value
        assert is_archiving == (cause is not None), f"{batch} with the cause {cause}"
        self.state_batches.append(batch)
        self.causes.append(cause)


class Refusal(NamedTuple):
    """Why an acknowledgement or a load failed: the error code and message for the client."""

    error_code: ErrorCode
    message: str | None


_ANSWERED: Final = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
_HIDDEN: Final = frozenset({ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.UNSUPPORTED_VERSION})


def persister_refusal(error_code: int, message: str | None) -> Refusal:
    """Return the error for the client after the persister has failed with error_code."""
    code = ErrorCode(error_code)
    if code in _HIDDEN:
        return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "Unable to complete operation due to server error.")
    return Refusal(_ANSWERED.get(code, ErrorCode.UNKNOWN_SERVER_ERROR), message)
