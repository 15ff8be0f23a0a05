"""The core's effects: the driver carries them out in order. PersistElection is durable before the next one starts."""

from kafkapy.dataclass import dataclass
from kafkapy.machine import Effect
from kafkapy.raft.messages import LogBatch, Request, Response
from kafkapy.raft.voters import Endpoint
from kafkapy.types import OffsetAndEpoch, ReplicaKey


@dataclass(frozen=True, slots=True)
class ElectionState:
    """The content of the quorum-state file. It prevents two votes or two leaders in one epoch."""

    leader_epoch: int = 0
    leader_id: int = -1
    voted: ReplicaKey | None = None


@dataclass(frozen=True, slots=True)
class PersistElection(Effect):
    """voter_ids are written only in version 0 of the file, which is used with kraft.version 0."""

    state: ElectionState
    kraft_version: int
    voter_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AppendBatch(Effect):
    """Append one batch to the log. As leader: build it from data or controls; as follower: write data as received."""

    batch: LogBatch
    is_leader: bool


@dataclass(frozen=True, slots=True)
class FlushLog(Effect):
    """Fsync the log, then step LogFlushed. Of the requests made while an fsync runs, only the latest need be done."""

    end_offset: int
    generation: int


@dataclass(frozen=True, slots=True)
class TruncateLog(Effect):
    end_offset: int


@dataclass(frozen=True, slots=True)
class ResetLogToSnapshot(Effect):
    """Empty the log, start it at the snapshot's end, and load the snapshot into the listeners."""

    snapshot_id: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class SendRequest(Effect):
    """Send to a voter (node id), to the leader (with its endpoints), or to a bootstrap server (negative id)."""

    node_id: int
    request_id: int
    request: Request
    endpoints: tuple[Endpoint, ...]


@dataclass(frozen=True, slots=True)
class SendResponse(Effect):
    respond_to: object
    response: Response


@dataclass(frozen=True, slots=True)
class SendResponseWithRecords(Effect):
    """Answer a Fetch with log bytes from fetch_offset on: whole batches, at least one, up to max_bytes."""

    respond_to: object
    response: Response
    fetch_offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class SendResponseWithSnapshot(Effect):
    """Answer a FetchSnapshot with a slice of the file, POSITION_OUT_OF_RANGE if position is beyond its end."""

    respond_to: object
    response: Response
    snapshot_id: OffsetAndEpoch
    position: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class WriteSnapshotPart(Effect):
    """Write to the .part file of a snapshot being downloaded; position 0 starts the file over."""

    snapshot_id: OffsetAndEpoch
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class InstallSnapshot(Effect):
    """The download is complete: check, fsync and rename it, then step SnapshotInstalled or SnapshotRefused."""

    snapshot_id: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class HighWatermarkAdvanced(Effect):
    high_watermark: int


@dataclass(frozen=True, slots=True)
class LeaderChanged(Effect):
    """leader_id is -1 if unknown. If it is this node, notify listeners after they have read all below start_offset."""

    leader_id: int
    leader_epoch: int
    start_offset: int = 0
