"""A partition as its replica here knows it: who leads, at which epoch, who is in sync, how far all of them have got.

Pure: it reads and moves offsets of the log that it is given and does no IO. The high watermark is the smallest log end
offset of the in-sync replicas, this one included; with nobody else in the ISR it is the log's end, at once. It does not
move while the ISR is smaller than min.insync.replicas, which counts as at most the number of replicas.
Source: Kafka's replication protocol, KIP-101, KIP-320 (fencing), KIP-966 (high watermark below min ISR).
"""

from enum import Enum
from typing import Final, Generic, Protocol, TypeVar

from kafkapy.dataclass import dataclass
from kafkapy.metadata.registrations import NO_LEADER, PartitionRegistration
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.types import TopicPartition, Uuid

NO_LEADER_EPOCH: Final = -1
"""A client that names no leader epoch, because its version cannot or because it knows none."""
UNKNOWN_OFFSET: Final = -1

NONE: Final = int(ErrorCode.NONE)
FENCED_LEADER_EPOCH: Final = int(ErrorCode.FENCED_LEADER_EPOCH)
UNKNOWN_LEADER_EPOCH: Final = int(ErrorCode.UNKNOWN_LEADER_EPOCH)
UNKNOWN_TOPIC_OR_PARTITION: Final = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
NOT_LEADER_OR_FOLLOWER: Final = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
NOT_ENOUGH_REPLICAS_AFTER_APPEND: Final = int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
KAFKA_STORAGE_ERROR: Final = int(ErrorCode.KAFKA_STORAGE_ERROR)


class Role(Enum):
    """What the replica here does. Which one may follow which stands in LEGAL_ROLES."""

    NEW = "has not heard from the controller"
    LEADER = "leads"
    FOLLOWER = "follows"
    OFFLINE = "its log directory has failed"
    GONE = "is not hosted here any more"


LEGAL_ROLES: Final[dict[Role, frozenset[Role]]] = {
    Role.NEW: frozenset({Role.LEADER, Role.FOLLOWER, Role.OFFLINE, Role.GONE}),
    Role.LEADER: frozenset({Role.LEADER, Role.FOLLOWER, Role.OFFLINE, Role.GONE}),
    Role.FOLLOWER: frozenset({Role.LEADER, Role.FOLLOWER, Role.OFFLINE, Role.GONE}),
    Role.OFFLINE: frozenset({Role.OFFLINE, Role.GONE}),  # until the process starts again
    Role.GONE: frozenset(),
}


class TopicSettings(Protocol):
    """What of a topic's configuration counts here."""

    @property
    def min_insync_replicas(self) -> int: ...


class ReplicaLog(Protocol):
    """What of a log counts here."""

    @property
    def config(self) -> TopicSettings: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def flush_required_to(self) -> int: ...
    def update_high_watermark(self, offset: int) -> object: ...
    def is_committed(self, end_offset: int) -> bool: ...


LogT = TypeVar("LogT", bound=ReplicaLog)


@dataclass(slots=True)
class FollowerState:
    """How far another replica has told us that it has got; nothing is known until its first fetch."""

    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    last_fetch_ms: int = -1


class Partition(Generic[LogT]):
    """See the module's text. Hashed by identity: a topic created again under its name has other partitions."""

    __slots__ = (
        "_is_alone",
        "_local_id",
        "followers",
        "isr",
        "leader_epoch",
        "leader_epoch_start_offset",
        "leader_id",
        "log",
        "partition_epoch",
        "replicas",
        "role",
        "topic_id",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition, topic_id: Uuid, log: LogT | None, *, local_id: int) -> None:
        """`log` is None where the directory that holds it is offline."""
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.role = Role.NEW if log is not None else Role.OFFLINE
        self.leader_id = NO_LEADER
        self.leader_epoch = NO_LEADER_EPOCH
        self.leader_epoch_start_offset = UNKNOWN_OFFSET
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.followers: dict[int, FollowerState] = {}
        self._local_id = local_id
        self._is_alone = False

    @property
    def is_alone(self) -> bool:
        """Whether this is the leader and there is no other replica."""
        return self._is_alone

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    # -- what the controller says ---------------------------------------------------------------------------------

    def lead(self, registration: PartitionRegistration) -> bool:
        """Lead, as the registration says; return whether this is a new leader epoch.

        A new epoch begins at the log's end, and nothing is known of the followers yet.
        """
        assert self.log is not None, "an offline partition does not lead"
        assert registration.leader == self._local_id
        is_new_epoch = registration.leader_epoch > self.leader_epoch
        self._become(Role.LEADER, registration)
        if is_new_epoch:
            self.leader_epoch_start_offset = self.log.log_end_offset
            self.followers = {}
        for replica_id in self.replicas:
            if replica_id != self._local_id:
                self.followers.setdefault(replica_id, FollowerState())
        for replica_id in set(self.followers).difference(self.replicas):
            del self.followers[replica_id]
        self._is_alone = self.replicas == (self._local_id,)
        return is_new_epoch

    def follow(self, registration: PartitionRegistration) -> None:
        """Follow the leader that the registration names, if any."""
        self._become(Role.FOLLOWER, registration)
        self.leader_epoch_start_offset = UNKNOWN_OFFSET
        self.followers = {}

    def take_offline(self) -> None:
        """The log directory has failed, or an invariant of this partition broke."""
        self._move_to(Role.OFFLINE)
        self._is_alone = False

    def leave(self) -> None:
        """The topic was deleted, or the replica moved to another broker. Who still holds the object finds it gone."""
        self._move_to(Role.GONE)
        self._is_alone = False

    def replace_log(self, log: LogT) -> None:
        """Go on with a copy of the log: the replica has moved to another directory."""
        assert self.log is not None, "a partition without a log has nothing to move"
        assert log.log_end_offset == self.log.log_end_offset, f"{log} is no whole copy of {self.log}"
        self.log = log

    def _become(self, role: Role, registration: PartitionRegistration) -> None:
        assert registration.leader_epoch >= self.leader_epoch, "leader epochs never go back"
        self._move_to(role)
        self.leader_id = registration.leader
        self.leader_epoch = registration.leader_epoch
        self.partition_epoch = registration.partition_epoch
        self.replicas = registration.replicas
        self.isr = registration.isr
        self._is_alone = False

    def _move_to(self, role: Role) -> None:
        assert role in LEGAL_ROLES[self.role], f"{self.topic_partition}: from {self.role.name} to {role.name}"
        self.role = role

    # -- may this request be served here? -------------------------------------------------------------------------

    def check_leader(self, current_leader_epoch: int = NO_LEADER_EPOCH) -> int:
        """Return the error code of a request that needs the leader at the epoch it names, NONE when this is it.

        A negative epoch names none, as in Apache Kafka.
        """
        if self.role is Role.OFFLINE:
            return KAFKA_STORAGE_ERROR
        if self.role is Role.GONE:
            return UNKNOWN_TOPIC_OR_PARTITION
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            return FENCED_LEADER_EPOCH if current_leader_epoch < self.leader_epoch else UNKNOWN_LEADER_EPOCH
        if self.role is not Role.LEADER:
            return NOT_LEADER_OR_FOLLOWER
        return NONE

    # -- in-sync replicas and the high watermark ------------------------------------------------------------------

    @property
    def effective_min_isr(self) -> int:
        """min.insync.replicas, but never more than there are replicas."""
        assert self.log is not None
        return min(self.log.config.min_insync_replicas, max(len(self.replicas), 1))

    @property
    def is_under_min_isr(self) -> bool:
        return not self._is_alone and len(self.isr) < self.effective_min_isr

    def maybe_advance_high_watermark(self) -> bool:
        """Move the high watermark to where all in-sync replicas have got; return whether it moved. Leader only."""
        log = self.log
        assert log is not None
        assert self.role is Role.LEADER, "only the leader moves the high watermark"
        high_watermark = log.log_end_offset if self._is_alone else self._smallest_in_sync_end_offset()
        if high_watermark <= log.high_watermark:
            return False
        log.update_high_watermark(high_watermark)
        return True

    def _smallest_in_sync_end_offset(self) -> int:
        assert self.log is not None
        if self.is_under_min_isr:
            return UNKNOWN_OFFSET
        end_offset = self.log.log_end_offset
        for replica_id, follower in self.followers.items():
            if replica_id in self.isr:
                end_offset = min(end_offset, follower.log_end_offset)
        return end_offset

    def note_follower_fetch(self, replica_id: int, *, fetch_offset: int, log_start_offset: int, now_ms: int) -> bool:
        """A follower asked for `fetch_offset`: it has all before that. Return whether the high watermark moved."""
        follower = self.followers[replica_id]
        follower.log_end_offset = fetch_offset
        follower.log_start_offset = log_start_offset
        follower.last_fetch_ms = now_ms
        return self.maybe_advance_high_watermark()

    def acknowledgement(self, required_offset: int) -> tuple[bool, int]:
        """Return (whether an append that ends at required_offset need not wait any more, its error code)."""
        log = self.log
        if log is None or self.role is not Role.LEADER:
            return True, self.check_leader() or NOT_LEADER_OR_FOLLOWER
        if log.high_watermark < required_offset or (
            required_offset <= log.flush_required_to and not log.is_committed(required_offset)
        ):
            return False, NONE
        return True, NOT_ENOUGH_REPLICAS_AFTER_APPEND if self.is_under_min_isr else NONE

    @property
    def low_watermark(self) -> int:
        """The smallest log start offset of the replicas: what DeleteRecords waits for. Leader only."""
        assert self.log is not None
        assert self.role is Role.LEADER
        starts = [follower.log_start_offset for follower in self.followers.values()]
        return min([self.log.log_start_offset, *starts])

    def __repr__(self) -> str:
        return f"Partition({self.topic_partition}, {self.role.name}, leader_epoch={self.leader_epoch}, isr={self.isr})"
