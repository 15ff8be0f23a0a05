"""The core's events. Each carries the time, so deadlines are checked on every event; TimePassed does only that."""

from kafkapy.dataclass import dataclass
from kafkapy.machine import Event
from kafkapy.raft.messages import Request, Response
from kafkapy.raft.voters import VoterSet
from kafkapy.types import OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class Started(Event):
    """The driver is ready to carry out effects. The first event, exactly once."""


@dataclass(frozen=True, slots=True)
class TimePassed(Event):
    """deadline_ms() was reached."""


@dataclass(frozen=True, slots=True)
class RequestReceived(Event):
    """A peer sent a request. The core answers, now or later, with a SendResponse that has the same respond_to."""

    respond_to: object
    request: Request


@dataclass(frozen=True, slots=True)
class ResponseReceived(Event):
    node_id: int
    request_id: int
    response: Response


@dataclass(frozen=True, slots=True)
class RequestFailed(Event):
    """The connection failed: no response will come. (The core keeps track of timeouts itself.)"""

    node_id: int
    request_id: int


@dataclass(frozen=True, slots=True)
class AppendRequested(Event):
    """The leader's state machine appends a batch. Only step this on the leader of that epoch."""

    leader_epoch: int
    record_count: int
    data: object
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class KraftUpgradeRequested(Event):
    """Raise kraft.version from 0 to 1. Only step this on a leader whose kraft_upgrade_refusal() is None."""


@dataclass(frozen=True, slots=True)
class LogFlushed(Event):
    """The fsync requested by FlushLog(end_offset, generation), or a later one, has ended."""

    end_offset: int
    generation: int


@dataclass(frozen=True, slots=True)
class SnapshotInstalled(Event):
    """A downloaded snapshot was checked and is durable under its name; it holds these voters and kraft.version."""

    snapshot_id: OffsetAndEpoch
    voters: VoterSet | None
    kraft_version: int


@dataclass(frozen=True, slots=True)
class SnapshotRefused(Event):
    """A downloaded snapshot was corrupt and must be fetched again."""

    snapshot_id: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class SnapshotTaken(Event):
    """The state machine's own snapshot is durable under its name."""

    snapshot_id: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class LogPrefixDeleted(Event):
    """The log now starts at `start_offset`, the end of a snapshot; older snapshots are gone."""

    start_offset: int


@dataclass(frozen=True, slots=True)
class ResignRequested(Event):
    """Resign if leader of this epoch (at shutdown, or after a failure of the controller)."""

    leader_epoch: int
