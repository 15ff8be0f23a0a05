"""What the driver must do, in the order given. PersistElection is done (durable) before anything after it starts."""

from kafkapy.dataclass import dataclass
from kafkapy.machine import Effect
from kafkapy.raft.messages import LogBatch, Request, Response
from kafkapy.raft.voters import Endpoint
from kafkapy.types import OffsetAndEpoch, ReplicaKey


@dataclass(frozen=True, slots=True)
class ElectionState:
    """What quorum-state remembers: never two votes, never two leaders in one epoch."""

    leader_epoch: int = 0
    leader_id: int = -1
    voted: ReplicaKey | None = None


@dataclass(frozen=True, slots=True)
class PersistElection(Effect):
    """voter_ids are written by version 0 of the file only, which goes with kraft.version 0."""

    state: ElectionState
    kraft_version: int
    voter_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AppendBatch(Effect):
    """Write one batch at the end of the log. As leader: made of data or controls; as follower: data as it came."""

    batch: LogBatch
    is_leader: bool


@dataclass(frozen=True, slots=True)
class FlushLog(Effect):
    """fsync; then LogFlushed. While one fsync runs, only the latest of those asked for meanwhile need follow."""

    end_offset: int
    generation: int


@dataclass(frozen=True, slots=True)
class TruncateLog(Effect):
    end_offset: int


@dataclass(frozen=True, slots=True)
class ResetLogToSnapshot(Effect):
    """Empty the log and let it start at the snapshot's end; load the snapshot into the listeners."""

    snapshot_id: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class SendRequest(Effect):
    """To a voter's node id, to the leader (endpoints given), or to a bootstrap server (its negative id)."""

    node_id: int
    request_id: int
    request: Request
    endpoints: tuple[Endpoint, ...]


@dataclass(frozen=True, slots=True)
class Reply(Effect):
    reply_to: object
    response: Response


@dataclass(frozen=True, slots=True)
class ReplyWithRecords(Effect):
    """Answer a Fetch with log bytes from fetch_offset on: whole batches, at least one, up to max_bytes."""

    reply_to: object
    response: Response
    fetch_offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class ReplyWithSnapshot(Effect):
    """Answer a FetchSnapshot with a slice of the file; POSITION_OUT_OF_RANGE where there is none."""

    reply_to: object
    response: Response
    snapshot_id: OffsetAndEpoch
    position: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class WriteSnapshotPart(Effect):
    """Write to the .part file of a snapshot being downloaded; position 0 starts it anew."""

    snapshot_id: OffsetAndEpoch
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class InstallSnapshot(Effect):
    """The download is complete: check it, sync, rename; then SnapshotInstalled or SnapshotRefused."""

    snapshot_id: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class HighWatermarkAdvanced(Effect):
    high_watermark: int


@dataclass(frozen=True, slots=True)
class LeaderChanged(Effect):
    """leader_id is -1 where none is known. For ourselves: tell listeners once they have seen all below start_offset."""

    leader_id: int
    leader_epoch: int
    start_offset: int = 0
