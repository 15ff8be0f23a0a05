"""What the core is told. Every event also lets time pass: TimePassed alone says that nothing else happened."""

from kafkapy.dataclass import dataclass
from kafkapy.machine import Event
from kafkapy.raft.messages import Request, Response
from kafkapy.raft.voters import VoterSet
from kafkapy.types import OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class Started(Event):
    """The driver is ready to carry out effects; comes first, once."""


@dataclass(frozen=True, slots=True)
class TimePassed(Event):
    """deadline_ms() was reached."""


@dataclass(frozen=True, slots=True)
class RequestReceived(Event):
    """A peer asks; the core answers now or later with a Reply that carries reply_to back."""

    reply_to: object
    request: Request


@dataclass(frozen=True, slots=True)
class ResponseReceived(Event):
    node_id: int
    request_id: int
    response: Response


@dataclass(frozen=True, slots=True)
class RequestFailed(Event):
    """No answer will come: the connection failed. (Time-outs the core counts itself.)"""

    node_id: int
    request_id: int


@dataclass(frozen=True, slots=True)
class AppendRequested(Event):
    """The leader's state machine wants a batch on the log. Only step this on the leader of that epoch."""

    leader_epoch: int
    record_count: int
    data: object


@dataclass(frozen=True, slots=True)
class KraftUpgradeRequested(Event):
    """Raise kraft.version from 0 to 1. Only step this on a leader whose core has no kraft_upgrade_refusal."""


@dataclass(frozen=True, slots=True)
class LogFlushed(Event):
    """The fsync asked for by FlushLog(end_offset, generation) or a later one has ended."""

    end_offset: int
    generation: int


@dataclass(frozen=True, slots=True)
class SnapshotInstalled(Event):
    """A downloaded snapshot was checked, is durable under its name, and says this of voters and kraft.version."""

    snapshot_id: OffsetAndEpoch
    voters: VoterSet | None
    kraft_version: int


@dataclass(frozen=True, slots=True)
class SnapshotRefused(Event):
    """A downloaded snapshot was damaged: fetch again."""

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
    """Step down if leader of this epoch (shutdown, or the controller met its own failure)."""

    leader_epoch: int
