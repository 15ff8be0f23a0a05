"""The local replica's view of a partition: leader and epochs, the ISR, and the progress of each replica.

Pure: it reads and moves offsets of the log that it is given and does no IO. The high watermark is the smallest log end
offset of the in-sync replicas, the leader included; if the leader alone is in the ISR, it is the log end offset. It
does not advance while the ISR is smaller than min.insync.replicas (capped at the number of replicas).

The leader changes the ISR by a request to the controller (AlterPartition, KIP-497). Until the response, the replicas in
the old or the new ISR count: the *maximal* ISR. If an error leaves open which ISR the controller has, the maximal ISR
counts until metadata decides it. The high watermark also waits for a follower outside the ISR that may join and has
caught up within replica.lag.time.max.ms, or that follower could never catch up. The controller's response may come
before the same change in the metadata log: metadata of an older partition epoch is ignored. Source: Kafka's replication
protocol, KIP-101, KIP-320 (fencing), KIP-903 (broker epochs), KIP-966 (high watermark below min ISR). Driven by
`handlers/data/` and `runtime/broker/isr_updates.py`.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final, Generic, Protocol, TypeVar

from kafkapy.dataclass import dataclass
from kafkapy.metadata.registrations import NO_LEADER, PartitionRegistration
from kafkapy.metrics.traffic import TopicTraffic
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.record.batch import NO_LEADER_EPOCH
from kafkapy.replication.brokers import UNKNOWN_BROKER_EPOCH, ReplicaBrokers
from kafkapy.replication.follower_state import FollowerState, SessionTimes
from kafkapy.replication.partition_read import UNKNOWN_OFFSET
from kafkapy.types import TopicPartition, Uuid

NONE: Final = int(ErrorCode.NONE)
FENCED_LEADER_EPOCH: Final = int(ErrorCode.FENCED_LEADER_EPOCH)
UNKNOWN_LEADER_EPOCH: Final = int(ErrorCode.UNKNOWN_LEADER_EPOCH)
UNKNOWN_TOPIC_OR_PARTITION: Final = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
NOT_LEADER_OR_FOLLOWER: Final = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
NOT_ENOUGH_REPLICAS_AFTER_APPEND: Final = int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
KAFKA_STORAGE_ERROR: Final = int(ErrorCode.KAFKA_STORAGE_ERROR)


class Role(Enum):
    """The role of the local replica. LEGAL_ROLES has the legal transitions."""

    NEW = "not assigned a role by metadata yet"
    LEADER = "leads"
    RESIGNED = "led until the controller elected another replica, which no metadata here names yet"
    FOLLOWER = "follows"
    OFFLINE = "its log directory has failed"
    GONE = "is not hosted here any more"


LEGAL_ROLES: Final[dict[Role, frozenset[Role]]] = {
    Role.NEW: frozenset({Role.LEADER, Role.FOLLOWER, Role.OFFLINE, Role.GONE}),
    Role.LEADER: frozenset({Role.LEADER, Role.RESIGNED, Role.FOLLOWER, Role.OFFLINE, Role.GONE}),
    Role.RESIGNED: frozenset({Role.LEADER, Role.FOLLOWER, Role.OFFLINE, Role.GONE}),
    Role.FOLLOWER: frozenset({Role.LEADER, Role.FOLLOWER, Role.OFFLINE, Role.GONE}),
    Role.OFFLINE: frozenset({Role.OFFLINE, Role.GONE}),  # until the process starts again
    Role.GONE: frozenset(),
}


class TopicSettings(Protocol):
    """The topic configs that a Partition needs."""

    @property
    def min_insync_replicas(self) -> int: ...


class ReplicaLog(Protocol):
    """The part of a log that a Partition needs."""

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


@dataclass(slots=True, eq=False)
class PendingIsr:
    """An ISR requested from the controller. Compared by identity: a response applies only to its own change.

    broker_epochs: one for each replica in `isr`, -1 if unknown, taken when the change was decided. A broker that
    restarts before the request is sent must not join with the progress of its earlier incarnation. added_count: the
    number of replicas that it adds, negative if it removes some.
    """

    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]
    added_count: int


class Partition(Generic[LogT]):
    """The local replica's view of its partition, as leader or as follower.

    Hashed by identity: a topic that is deleted and created again has other Partition objects.
    """

    __slots__ = (
        "_brokers",
        "_directories",
        "_local_id",
        "follow_count",
        "followers",
        "is_alone",
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
        "traffic",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        log: LogT | None,
        *,
        local_id: int,
        brokers: ReplicaBrokers,
    ) -> None:
        """`log` is None if the log directory is offline."""
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.role = Role.NEW if log is not None else Role.OFFLINE
        self._directories: tuple[Uuid, ...] = ()
        """The directories of the replicas, in their order."""
        self.leader_id = NO_LEADER
        self.leader_epoch = NO_LEADER_EPOCH
        self.leader_epoch_start_offset = UNKNOWN_OFFSET
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.pending_isr: PendingIsr | None = None
        """The ISR requested from the controller, until its response or newer metadata decides it."""
        self.followers: dict[int, FollowerState] = {}
        self.follow_count = 0
        """How often this replica resigned or became a follower: what it had appended may have been truncated then."""
        self.traffic: TopicTraffic | None = None
        """The counts of the topic; None unless topics are counted. Set once, by the partition's owner."""
        self._local_id = local_id
        self._brokers = brokers
        self.is_alone = False
        """Whether this replica is the leader and the partition has no other replica. Not a property: hot paths ask."""

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    # -- role changes ---------------------------------------------------------------------------------------------

    def become_leader(self, registration: PartitionRegistration, now_ms: int) -> bool:
        """Become leader, unless the registration is outdated; return whether this is a new leader epoch.

        A new epoch starts at the log end offset. Followers in the ISR get replica.lag.time.max.ms from now to fetch. If
        leader epochs were skipped (metadata may be applied in larger steps), another leader may have been active and
        followers may have truncated to its log, so their progress is reset. Deviation: Apache Kafka keeps it. Here it
        is not kept, because records that no other replica has could be acknowledged.

        If the partition epoch is already known from the controller's response, an ISR change requested since then stays
        pending: the controller may have made it. Deviation: Apache Kafka drops it. Here it stays, because until the
        broker learns of that change it would acknowledge records without a replica that can be elected.
        """
        assert self.log is not None, "an offline partition does not lead"
        assert registration.leader == self._local_id
        if registration.partition_epoch < self.partition_epoch:
            return False
        if self.role is Role.RESIGNED and registration.leader_epoch == self.leader_epoch:
            return False  # decided before the controller elected another leader, which began a new epoch
        is_new_epoch, was_leader = registration.leader_epoch > self.leader_epoch, self.role is Role.LEADER
        is_known = was_leader and registration.partition_epoch == self.partition_epoch
        # an epoch that was skipped may have been another leader's
        has_led_since = was_leader and registration.leader_epoch <= self.leader_epoch + 1
        pending_isr = self.pending_isr if is_known else None
        self._become(Role.LEADER, registration)
        assert self._local_id in self.replicas, f"{self.topic_partition} has no replica here to lead"
        self.pending_isr = pending_isr
        followers = self.followers if has_led_since else {}
        self.followers = {
            replica_id: followers.get(replica_id) or FollowerState()
            for replica_id in self.replicas
            if replica_id != self._local_id
        }
        if is_new_epoch:
            self.leader_epoch_start_offset = self.log.log_end_offset
            for replica_id, follower in self.followers.items():
                follower.begin_leader_epoch(now_ms, self.log.log_end_offset, is_in_sync=replica_id in self.isr)
        self.is_alone = self.replicas == (self._local_id,)
        return is_new_epoch

    def become_follower(self, registration: PartitionRegistration) -> bool:
        """Follow the leader that the registration names, if any; return whether this is a new leader epoch."""
        if registration.partition_epoch < self.partition_epoch:
            return False
        assert registration.leader != self._local_id, f"{self.topic_partition} would follow itself"
        is_new_epoch = registration.leader_epoch > self.leader_epoch
        self._become(Role.FOLLOWER, registration)
        self.leader_epoch_start_offset = UNKNOWN_OFFSET
        self.followers = {}
        self.follow_count += 1
        return is_new_epoch

    def resign(self, leader_epoch: int) -> bool:
        """Stop leading in leader_epoch, because the controller has elected another leader; return whether it led in it.

        Metadata may not say so for long, if there is no room for it. Until it does, this replica appends, serves and
        acknowledges nothing: what the new leader lacks is truncated once this one follows it.
        """
        if self.role is not Role.LEADER or self.leader_epoch != leader_epoch:
            return False
        self._move_to(Role.RESIGNED)
        self.followers = {}
        self.follow_count += 1
        return True

    def leave_isr(self, leader_epoch: int) -> None:
        """Take this follower out of the ISR, as the controller has done; metadata may not say so for long."""
        if self.role is Role.FOLLOWER and self.leader_epoch == leader_epoch:
            self.isr = tuple(replica_id for replica_id in self.isr if replica_id != self._local_id)

    def go_offline(self) -> None:
        """Take the replica offline: its log directory failed, or an invariant of this partition broke."""
        self._move_to(Role.OFFLINE)

    def leave(self) -> None:
        """Set the role to GONE: the topic was deleted, or the replica moved to another broker.

        Requests that still hold this object then get UNKNOWN_TOPIC_OR_PARTITION.
        """
        self._move_to(Role.GONE)

    def replace_log(self, log: LogT) -> None:
        """Replace the log by its copy: the replica has moved to another log directory."""
        assert self.log is not None, "a partition without a log has nothing to move"
        assert log.log_end_offset == self.log.log_end_offset, f"{log} is not a complete copy of {self.log}"
        self.log = log

    def _become(self, role: Role, registration: PartitionRegistration) -> None:
        assert registration.leader_epoch >= self.leader_epoch, "leader epochs never go back"
        self._move_to(role)
        self.replicas = registration.replicas
        self._directories = registration.directories
        self.leader_id = registration.leader
        self.leader_epoch = registration.leader_epoch
        self.partition_epoch = registration.partition_epoch
        self.isr = registration.isr

    def _move_to(self, role: Role) -> None:
        """Change the role. Whether the replica is alone, and which ISR it requested, belongs to the role before."""
        assert role in LEGAL_ROLES[self.role], f"{self.topic_partition}: from {self.role.name} to {role.name}"
        self.role = role
        self.is_alone = False
        self.pending_isr = None

    # -- leadership checks ----------------------------------------------------------------------------------------

    def check_leader(self, current_leader_epoch: int = NO_LEADER_EPOCH) -> int:
        """Return the error code for a request to the leader of current_leader_epoch, NONE if it can be served.

        A negative epoch is not compared, as in Apache Kafka.
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

    def check_readable(self, current_leader_epoch: int = NO_LEADER_EPOCH) -> int:
        """Like check_leader, for a consumer that may also read from a follower (KIP-392)."""
        code = self.check_leader(current_leader_epoch)
        return NONE if code == NOT_LEADER_OR_FOLLOWER and self.role is Role.FOLLOWER else code

    # -- in-sync replicas and the high watermark ------------------------------------------------------------------

    @property
    def effective_min_isr(self) -> int:
        """min.insync.replicas, capped at the number of replicas."""
        assert self.log is not None
        return min(self.log.config.min_insync_replicas, max(len(self.replicas), 1))

    @property
    def _maximal_isr_size(self) -> int:
        return len(self.isr) if self.pending_isr is None else len({*self.isr, *self.pending_isr.isr})

    @property
    def is_under_min_isr(self) -> bool:
        return not self.is_alone and len(self.isr) < self.effective_min_isr

    def maybe_advance_high_watermark(self, now_ms: int) -> bool:
        """Advance the high watermark to what all in-sync replicas have; return whether it moved. Leader only."""
        log = self.log
        assert log is not None
        assert self.role is Role.LEADER, "only the leader moves the high watermark"
        high_watermark = log.log_end_offset if self.is_alone else self._smallest_in_sync_end_offset(log, now_ms)
        if high_watermark <= log.high_watermark:
            return False
        log.update_high_watermark(high_watermark)
        return True

    @property
    def is_log_start_changed(self) -> bool:
        """Whether the log start offset has risen, by retention for example, and a follower does not know it yet."""
        log = self.log
        assert log is not None
        return any(follower.log_start_offset < log.log_start_offset for follower in self.followers.values())

    def _smallest_in_sync_end_offset(self, log: LogT, now_ms: int) -> int:
        if self.is_under_min_isr:
            return UNKNOWN_OFFSET
        smallest = leader_end_offset = log.log_end_offset
        for replica_id, follower in self.followers.items():
            if follower.log_end_offset < smallest and (
                self._is_in_maximal_isr(replica_id)
                or (
                    follower.is_caught_up(leader_end_offset, now_ms, self._brokers.max_lag_ms)
                    and self._may_join(replica_id, follower)
                )
            ):
                smallest = follower.log_end_offset
        return smallest

    def _is_in_maximal_isr(self, replica_id: int) -> bool:
        return replica_id in self.isr or (self.pending_isr is not None and replica_id in self.pending_isr.isr)

    def _may_join(self, replica_id: int, follower: FollowerState) -> bool:
        """Whether a follower has fetched, and its broker (of that epoch) is eligible for an ISR, its directory online.

        Deviation: Apache Kafka does not look at the directory. Here it counts, because after one has failed, or is full
        (runtime/logs/full_directories.py), leaders would wait replica.lag.time.max.ms for a replica that cannot follow.
        """
        return (
            follower.broker_epoch is not None
            and self._brokers.is_eligible(replica_id, follower.broker_epoch)
            and self._brokers.has_online_directory(replica_id, self._directories[self.replicas.index(replica_id)])
        )

    def record_follower_fetch(
        self,
        replica_id: int,
        *,
        fetch_offset: int,
        log_start_offset: int,
        now_ms: int,
        leader_end_offset: int | None = None,
        broker_epoch: int = UNKNOWN_BROKER_EPOCH,
        session: SessionTimes | None = None,
    ) -> bool:
        """Record that a follower has everything below `fetch_offset`; return whether the high watermark moved.

        If the follower can join the ISR, this sets `pending_isr`, which the caller has to send.
        leader_end_offset: the log end offset when the fetch was read; by default the current one.
        session: an incremental session, which omits the partition from requests while it has the whole log.
        """
        assert self.log is not None
        assert not self._brokers.is_stale(replica_id, broker_epoch), "the caller refuses earlier incarnations"
        follower = self.followers[replica_id]
        if leader_end_offset is None:
            leader_end_offset = self.log.log_end_offset
        if follower.session is not None:  # the request names the partition itself: its session no longer speaks for it
            follower.leave_session(follower.session)
        follower.record_fetch(fetch_offset=fetch_offset, leader_end_offset=leader_end_offset, now_ms=now_ms)
        if session is not None and fetch_offset == self.log.log_end_offset:
            follower.join_session(session)
        follower.log_start_offset = log_start_offset
        follower.broker_epoch = broker_epoch
        if self._is_to_join(replica_id, follower):
            self.begin_isr_change((*self.isr, replica_id))
        return self.maybe_advance_high_watermark(now_ms)

    # -- ISR changes ----------------------------------------------------------------------------------------------

    def _is_to_join(self, replica_id: int, follower: FollowerState) -> bool:
        """Whether a follower outside the ISR has reached the high watermark and the start of this leader epoch."""
        if replica_id in self.isr or self.pending_isr is not None or self.role is not Role.LEADER:
            return False
        assert self.log is not None
        has_caught_up = follower.log_end_offset >= max(self.log.high_watermark, self.leader_epoch_start_offset)
        return has_caught_up and self._may_join(replica_id, follower)

    def isr_without_stragglers(self, now_ms: int) -> tuple[int, ...] | None:
        """Return the ISR without the followers that lag beyond replica.lag.time.max.ms, None if there are none."""
        if self.role is not Role.LEADER or self.is_alone or self.pending_isr is not None or self.log is None:
            return None
        end_offset, max_lag_ms = self.log.log_end_offset, self._brokers.max_lag_ms
        in_sync = tuple(
            replica_id
            for replica_id in self.isr
            if replica_id == self._local_id
            or (
                (follower := self.followers.get(replica_id)) is not None
                and follower.is_caught_up(end_offset, now_ms, max_lag_ms)
            )
        )
        return in_sync if len(in_sync) < len(self.isr) else None

    def begin_isr_change(self, isr: tuple[int, ...]) -> PendingIsr:
        """Start an ISR change; the caller sends it to the controller."""
        assert self.role is Role.LEADER
        assert self.pending_isr is None, "one change at a time"
        broker_epochs = tuple(self._broker_epoch_of(replica_id) for replica_id in isr)
        self.pending_isr = PendingIsr(isr, broker_epochs, len(isr) - len(self.isr))
        return self.pending_isr

    def _broker_epoch_of(self, replica_id: int) -> int:
        """Return the broker epoch of a follower's last fetch, -1 without one and for the local replica."""
        follower = self.followers.get(replica_id)
        return UNKNOWN_BROKER_EPOCH if follower is None or follower.broker_epoch is None else follower.broker_epoch

    def end_isr_change(self, isr: Sequence[int], *, leader_epoch: int, partition_epoch: int, now_ms: int) -> bool:
        """Apply the controller's response, unless it is outdated; return whether the high watermark moved."""
        if self.role is not Role.LEADER or leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
            return False
        self.isr = tuple(isr)
        self.partition_epoch = partition_epoch
        self.pending_isr = None
        return self.maybe_advance_high_watermark(now_ms)

    def reject_isr_change(self) -> None:
        """Drop the pending change: the controller refused it and confirmed the partition epoch.

        A follower that it was to add is tried again by its next fetch.

        Not for other errors: an earlier attempt may have succeeded, so the maximal ISR has to count until metadata
        decides it.
        """
        assert self.pending_isr is not None
        self.pending_isr = None

    def acknowledgement(self, required_offset: int, follow_count: int) -> tuple[bool, int]:
        """Return (whether an append that ends at required_offset can be answered, its error code).

        follow_count: its value at the append. If this replica was a follower since, its records there may be others.
        """
        log = self.log
        if log is None or self.role is not Role.LEADER or self.follow_count != follow_count:
            return True, self.check_leader() or NOT_LEADER_OR_FOLLOWER
        if log.high_watermark < required_offset or (
            required_offset <= log.flush_required_to and not log.is_committed(required_offset)
        ):
            return False, NONE
        is_enough = self.is_alone or self._maximal_isr_size >= self.effective_min_isr
        return True, NONE if is_enough else NOT_ENOUGH_REPLICAS_AFTER_APPEND

    @property
    def low_watermark(self) -> int:
        """The smallest log start offset of the live replicas, which DeleteRecords waits for. Leader only.

        Deviation: Apache Kafka waits for a copy that is being made in another log directory, too. Here it does not
        count, because it may take hours.
        """
        assert self.log is not None
        assert self.role is Role.LEADER
        starts = [
            follower.log_start_offset
            for replica_id, follower in self.followers.items()
            if self._brokers.is_alive(replica_id)
        ]
        return min([self.log.log_start_offset, *starts])

    def __repr__(self) -> str:
        return f"Partition({self.topic_partition}, {self.role.name}, leader_epoch={self.leader_epoch}, isr={self.isr})"
