"""The messages between replicas, as the core sees them; kafkapy.raft.wire maps them to Kafka's requests and responses.

Requests: Vote (KIP-595, pre-vote KIP-996), BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot (KIP-630),
AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter (KIP-853). Every response carries the sender's epoch and leader, so that
a replica that lags learns them from any response. `error` is a code of kafkapy.protocol.error_code.
"""

from typing import Final, TypeAlias

from kafkapy.dataclass import dataclass
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.raft.voters import Endpoint, Voter, VoterSet
from kafkapy.types import INT64_MAX, OffsetAndEpoch, ReplicaKey

NO_HIGH_WATERMARK: Final = INT64_MAX
"""The high watermark of a replica that does not send it (before Fetch 18): never lower than the leader's."""
NONE: Final = ErrorCode.NONE.value
NOT_LEADER_OR_FOLLOWER: Final = ErrorCode.NOT_LEADER_OR_FOLLOWER.value
REQUEST_TIMED_OUT: Final = ErrorCode.REQUEST_TIMED_OUT.value
UNSUPPORTED_VERSION: Final = ErrorCode.UNSUPPORTED_VERSION.value
INVALID_REQUEST: Final = ErrorCode.INVALID_REQUEST.value
UNKNOWN_SERVER_ERROR: Final = ErrorCode.UNKNOWN_SERVER_ERROR.value
FENCED_LEADER_EPOCH: Final = ErrorCode.FENCED_LEADER_EPOCH.value
UNKNOWN_LEADER_EPOCH: Final = ErrorCode.UNKNOWN_LEADER_EPOCH.value
SNAPSHOT_NOT_FOUND: Final = ErrorCode.SNAPSHOT_NOT_FOUND.value
INVALID_VOTER_KEY: Final = ErrorCode.INVALID_VOTER_KEY.value
DUPLICATE_VOTER: Final = ErrorCode.DUPLICATE_VOTER.value
VOTER_NOT_FOUND: Final = ErrorCode.VOTER_NOT_FOUND.value


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """The record that opens an epoch."""

    leader_id: int
    voter_ids: tuple[int, ...]
    granting_voter_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KRaftVersion:
    """The record that sets kraft.version."""

    level: int


@dataclass(frozen=True, slots=True)
class Voters:
    """The record that sets the voters; takes effect when it is appended."""

    voters: VoterSet


Control: TypeAlias = LeaderChange | KRaftVersion | Voters


@dataclass(frozen=True, slots=True)
class LogBatch:
    """A batch as the core sees it: its offsets and epoch, and its control records (record i at base_offset + i)."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    controls: tuple[Control, ...] = ()
    data: object = None
    """The bytes; the core passes them through."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequest:
    """`is_pre_vote`: asks whether the voter would grant a vote in leader_epoch + 1, without committing it to that."""

    candidate: ReplicaKey
    leader_epoch: int
    end: OffsetAndEpoch
    is_pre_vote: bool
    voter: ReplicaKey | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginEpochRequest:
    """A new leader makes itself known to a voter."""

    leader_id: int
    leader_epoch: int
    leader_endpoints: tuple[Endpoint, ...] = ()
    voter: ReplicaKey | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndEpochRequest:
    """A leader resigns; the first of the preferred successors may start an election at once."""

    leader_id: int
    leader_epoch: int
    preferred_successors: tuple[ReplicaKey, ...]
    leader_endpoints: tuple[Endpoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest:
    """Everything below fetch_offset is durable at the replica."""

    replica: ReplicaKey
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    high_watermark: int
    max_wait_ms: int
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshotRequest:
    """A replica that lacks what the leader's log no longer has asks for a part of the snapshot, from `position` on."""

    replica: ReplicaKey
    leader_epoch: int
    snapshot_id: OffsetAndEpoch
    position: int
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AddVoterRequest:
    """The driver already has the new voter's supported versions (ApiVersions).

    `timeout_ms` is sent and not looked at: the leader answers within its own request timeout, as Apache Kafka's does.
    """

    voter: Voter
    timeout_ms: int
    acknowledges_when_committed: bool = True
    problem: str | None = None
    """Why the request names no voter that could be added; None if it does. The leader refuses it with this reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveVoterRequest:
    """Asks the leader to go on without a voter (KIP-853)."""

    voter: ReplicaKey
    problem: str | None = None
    """Why the request names no voter; None if it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateVoterRequest:
    """A voter tells the leader its endpoints and its versions."""

    voter: Voter
    leader_epoch: int
    problem: str | None = None
    """Why the request names no voter that could be updated; None if it does."""


Request: TypeAlias = (
    VoteRequest
    | BeginEpochRequest
    | EndEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | AddVoterRequest
    | RemoveVoterRequest
    | UpdateVoterRequest
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """The fields of every response: the sender's epoch, and the leader it knows (-1: none) with its endpoints."""

    error: int = NONE
    leader_epoch: int
    leader_id: int
    leader_endpoints: tuple[Endpoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteResponse(Response):
    is_granted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginEpochResponse(Response):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class EndEpochResponse(Response):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponse(Response):
    """At most one of diverging, snapshot_id and batches is set. high_watermark is -1 while unknown."""

    high_watermark: int = -1
    log_start_offset: int = -1
    diverging: OffsetAndEpoch | None = None
    snapshot_id: OffsetAndEpoch | None = None
    batches: tuple[LogBatch, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshotResponse(Response):
    """`data` is the part of the file from `position` on; size_bytes is the size of the whole file."""

    snapshot_id: OffsetAndEpoch | None = None
    size_bytes: int = 0
    position: int = 0
    data: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class VoterChangeResponse(Response):
    message: str | None = None
