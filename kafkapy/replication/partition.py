"""A partition as its replica here knows it: who leads, at which epoch, who is in sync, how far all of them have got.

Pure: it reads and moves offsets of the log that it is given and does no IO. The high watermark is the smallest log end
offset of the in-sync replicas, this one included; with nobody else in the ISR it is the log's end, at once. It does not
move while the ISR is smaller than min.insync.replicas, which counts as at most the number of replicas.

The leader asks the controller for another ISR (AlterPartition, KIP-497) and counts, until it is answered, whoever is in
either: the *maximal* ISR. A follower that is caught up and about to join is waited for, too, or the high watermark
would run away from it. The controller's answer may come before the metadata log tells the same: what the log tells of
an older partition epoch is ignored.
Source: Kafka's replication protocol, KIP-101, KIP-320 (fencing), KIP-903 (broker epochs), KIP-966 (high watermark below
min ISR).
"""

from collections.abc import Sequence
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
    leader_end_offset: int = UNKNOWN_OFFSET
    """The leader's log end offset at the last fetch."""
    caught_up_ms: int = -1
    """When it last had all that the leader had at the fetch before, or has at this one."""
    broker_epoch: int = -1
    """As its last fetch says; -1 where it says none (before Fetch 15)."""
    is_ineligible: bool = False
    """Whether it is not to join the ISR, and so not waited for, before its next fetch says otherwise."""

    def note_fetch(self, *, fetch_offset: int, leader_end_offset: int, now_ms: int) -> None:
        """A fetch from fetch_offset came while the leader's log ended at leader_end_offset."""
        if fetch_offset >= leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif 0 <= self.leader_end_offset <= fetch_offset:
            self.caught_up_ms = max(self.caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = fetch_offset
        self.leader_end_offset = leader_end_offset
        self.last_fetch_ms = now_ms


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
        "pending_isr",
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
        self.pending_isr: tuple[int, ...] | None = None
        """What the controller has been asked for and has not answered."""
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
        self._expect_fetches()
        self._is_alone = self.replicas == (self._local_id,)
        return is_new_epoch

    def _expect_fetches(self) -> None:
        """Do not wait for replicas outside the ISR until they fetch again: they may stand still, caught up or not."""
        for replica_id, follower in self.followers.items():
            if replica_id not in self.isr:
                follower.is_ineligible = True

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
        self.replicas = registration.replicas
        self._is_alone = False
        is_older = registration.partition_epoch < self.partition_epoch
        if is_older and registration.leader_epoch == self.leader_epoch:
            return
        self.leader_id = registration.leader
        self.leader_epoch = registration.leader_epoch
        self.partition_epoch = registration.partition_epoch
        self.isr = registration.isr
        self.pending_isr = None

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
            if self._is_waited_for(replica_id, follower):
                end_offset = min(end_offset, follower.log_end_offset)
        return end_offset

    def _is_waited_for(self, replica_id: int, follower: FollowerState) -> bool:
        """Whether the high watermark may not pass a follower: it is in the maximal ISR, or about to join."""
        if replica_id in self.isr or (self.pending_isr is not None and replica_id in self.pending_isr):
            return True
        assert self.log is not None
        return not follower.is_ineligible and self._has_caught_up(follower)

    def _has_caught_up(self, follower: FollowerState) -> bool:
        """Whether a follower has all that is committed, and all from before this leader epoch."""
        assert self.log is not None
        return follower.log_end_offset >= max(self.log.high_watermark, self.leader_epoch_start_offset, 0)

    def note_follower_fetch(
        self,
        replica_id: int,
        *,
        fetch_offset: int,
        log_start_offset: int,
        now_ms: int,
        leader_end_offset: int | None = None,
        broker_epoch: int = -1,
        is_eligible: bool = True,
    ) -> bool:
        """A follower asked for `fetch_offset`: it has all before that. Return whether the high watermark moved.

        leader_end_offset: the end of the log here before the fetch was read; as a rule the end as it is now.
        is_eligible: whether its broker may be in an ISR: unfenced, not shutting down, of that epoch (KIP-903).
        """
        assert self.log is not None
        follower = self.followers[replica_id]
        if leader_end_offset is None:
            leader_end_offset = self.log.log_end_offset
        follower.note_fetch(fetch_offset=fetch_offset, leader_end_offset=leader_end_offset, now_ms=now_ms)
        follower.log_start_offset = log_start_offset
        follower.broker_epoch = broker_epoch
        follower.is_ineligible = not is_eligible
        return self.maybe_advance_high_watermark()

    # -- another ISR ----------------------------------------------------------------------------------------------

    def isr_with(self, replica_id: int) -> tuple[int, ...] | None:
        """Return the ISR with a follower that has caught up, None where it is not to join now."""
        follower = self.followers.get(replica_id)
        if follower is None or replica_id in self.isr or self.pending_isr is not None or self.role is not Role.LEADER:
            return None
        if follower.is_ineligible or not self._has_caught_up(follower):
            return None
        return (*self.isr, replica_id)

    def isr_without_stragglers(self, now_ms: int, max_lag_ms: int) -> tuple[int, ...] | None:
        """Return the ISR without the followers that have not caught up for max_lag_ms, None where all have."""
        if self.role is not Role.LEADER or self._is_alone or self.pending_isr is not None or self.log is None:
            return None
        end_offset = self.log.log_end_offset
        in_sync = tuple(
            replica_id
            for replica_id in self.isr
            if replica_id == self._local_id
            or (follower := self.followers.get(replica_id)) is None
            or follower.log_end_offset >= end_offset
            or now_ms - follower.caught_up_ms <= max_lag_ms
        )
        return in_sync if len(in_sync) < len(self.isr) else None

    def begin_isr_change(self, isr: tuple[int, ...]) -> None:
        """The controller is asked for another ISR."""
        assert self.role is Role.LEADER
        assert self.pending_isr is None, "one change at a time"
        self.pending_isr = isr

    def end_isr_change(self, isr: Sequence[int], *, leader_epoch: int, partition_epoch: int) -> bool:
        """Take over the controller's answer, unless newer is known; return whether the high watermark moved."""
        if self.role is not Role.LEADER or leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
            return False
        self.isr = tuple(isr)
        self.partition_epoch = partition_epoch
        self.pending_isr = None
        self._expect_fetches()
        return self.maybe_advance_high_watermark()

    def give_up_isr_change(self, *, ineligible: bool = False) -> None:
        """The controller refused. ineligible: because of those who were to join; their next fetch asks again."""
        pending, self.pending_isr = self.pending_isr, None
        for replica_id in set(pending or ()).difference(self.isr):
            if ineligible and replica_id in self.followers:
                self.followers[replica_id].is_ineligible = True

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
