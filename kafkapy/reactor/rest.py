"""The states of a link between two turns."""

from enum import Enum, auto


class Rest(Enum):
    """Why a link does not read.

        state      entered when                                              ended by
        READING    nothing more has arrived, or BYTES_PER_TURN have          the loop, when bytes arrive: on_readable
        QUEUED     FRAMES_PER_TURN requests have been started, or the pass   its place in the processor's queue
                   has taken PASS_SECONDS before the link's turn
        RESPONSES  the machine can start no request: too many are not        a response that completes or is sent,
                   answered, a handler holds the connection, it is muted     the end of the throttle
        ROOM       the account of queued requests has no room for it         Processor.wake_waiting

    Any state may follow any other, by a turn: `resume` of a link that still cannot go on leaves it as it is.
    """

    READING = auto()
    QUEUED = auto()
    RESPONSES = auto()
    ROOM = auto()
