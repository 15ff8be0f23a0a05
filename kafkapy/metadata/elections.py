"""Leader election, and the record of a partition's change, after its ISR, its replicas or its brokers changed.

The caller sets the targets of a `PartitionChange`; `build` then returns the PartitionChangeRecord that reaches them, or
None if nothing changes. Pure; works on one PartitionRegistration. The caller decides which replicas may lead.
Sources: KIP-631 (leader, ISR), KIP-704 (leader recovery), KIP-966 (eligible leader replicas), KIP-455 (reassignment).
"""

from collections.abc import Callable, Collection
from dataclasses import field
from enum import Enum, auto

from kafkapy.dataclass import dataclass
from kafkapy.metadata.features import MV_3_6_IV0, MV_3_7_IV2
from kafkapy.metadata.registrations import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    RECOVERING,
    PartitionRegistration,
)
from kafkapy.protocol.messages.partition_change_record import PartitionChangeRecord
from kafkapy.types import Uuid


class Election(Enum):
    """The kind of election. ONLINE elects from ISR or ELR. PREFERRED tries the preferred replica first.

    UNCLEAN may elect any replica that is alive, if no clean leader is found.
    """

    PREFERRED = auto()
    ONLINE = auto()
    UNCLEAN = auto()


@dataclass(slots=True)
class PartitionChange:
    """A change to one partition, being built. The targets are initialized with the partition's current values."""

    partition: PartitionRegistration
    topic_id: Uuid
    partition_id: int
    metadata_version: int
    min_insync_replicas: int
    is_elr_enabled: bool
    is_acceptable_leader: Callable[[int], bool]
    default_directory: Callable[[int], Uuid]
    election: Election = Election.ONLINE
    unclean_shutdown_replicas: Collection[int] = ()
    isr: list[int] = field(init=False)
    replicas: list[int] = field(init=False)
    removing_replicas: list[int] = field(init=False)
    adding_replicas: list[int] = field(init=False)
    elr: list[int] = field(init=False)
    directories: dict[int, Uuid] = field(init=False)
    leader_recovery_state: int = field(init=False)

    def __post_init__(self) -> None:
        partition = self.partition
        self.isr = list(partition.isr)
        self.replicas = list(partition.replicas)
        self.removing_replicas = list(partition.removing_replicas)
        self.adding_replicas = list(partition.adding_replicas)
        self.elr = list(partition.elr)
        self.directories = dict(zip(partition.replicas, partition.directories, strict=True))
        self.leader_recovery_state = partition.leader_recovery_state

    def build(self) -> PartitionChangeRecord | None:
        """Return the record that changes the partition to the targets, None if it needs no change."""
        record = PartitionChangeRecord(topic_id=self.topic_id, partition_id=self.partition_id)
        self._complete_reassignment()
        self._find_eligible_leaders()
        self._elect(record)
        self._bump_epoch_for_lost_replicas(record)
        self._set_elr(record)
        if record.isr is None and (self.isr or self.is_elr_enabled) and self.isr != list(self.partition.isr):
            record.isr = self.isr
        self._bump_epoch_for_isr_shrink(record)
        self._set_last_known_leader(record)
        self._set_assignment(record)
        if self.leader_recovery_state != self.partition.leader_recovery_state:
            record.leader_recovery_state = self.leader_recovery_state
        return None if _is_no_op(record) else record

    def _complete_reassignment(self) -> None:
        """Remove the replicas to be removed if all added ones, and enough of the others, are in the ISR."""
        if not self.adding_replicas and not self.removing_replicas:
            return
        replicas = [replica for replica in self.replicas if replica not in self.removing_replicas]
        isr = [replica for replica in self.isr if replica not in self.removing_replicas]
        if not isr or not replicas or not set(isr).issuperset(self.adding_replicas):
            return
        if len(self.adding_replicas) < len(self.removing_replicas) and not set(isr).issuperset(replicas):
            return
        self.replicas, self.isr = replicas, isr
        self.removing_replicas, self.adding_replicas = [], []

    def _find_eligible_leaders(self) -> None:
        """Compute the ELR: replicas that left an ISR below min.insync.replicas have all acknowledged records.

        A deviation: a broker that is no longer a replica is removed from the ELR. Apache Kafka keeps it; if the ISR
        then becomes empty, the partition waits for that broker forever, even after its last leader has returned.
        """
        if not self.is_elr_enabled:
            return
        if len(self.isr) >= self.min_insync_replicas:
            self.elr = []
            return
        candidates = {*self.elr, *self.partition.isr}
        self.elr = [
            replica
            for replica in sorted(candidates)  # as Apache Kafka's hash set has small ids
            if replica in self.replicas and replica not in self.isr and replica not in self.unclean_shutdown_replicas
        ]

    def _elect(self, record: PartitionChangeRecord) -> None:
        leader, is_unclean = self._choose_leader()
        if leader == self.partition.leader:
            return
        record.leader = leader
        if leader in self.elr:
            self.isr = [leader]
            self.elr = [replica for replica in self.elr if replica != leader]
        if is_unclean:
            record.isr = [leader]
            if self.partition.leader_recovery_state != RECOVERING:
                record.leader_recovery_state = RECOVERING

    def _choose_leader(self) -> tuple[int, bool]:
        """Return (new leader, whether the election is unclean); NO_LEADER if no replica may lead."""
        preferred = self.replicas[:1] if self.election is Election.PREFERRED else []
        for candidate in (*preferred, self.partition.leader, *self.replicas):
            if self._is_clean_leader(candidate):
                return candidate, False
        last_known = self._last_known_leader()
        if last_known is not None:
            return last_known, True
        if self.election is Election.UNCLEAN:
            for candidate in self.replicas:
                if self.is_acceptable_leader(candidate):
                    return candidate, True
        return NO_LEADER, False

    def _is_clean_leader(self, replica: int) -> bool:
        is_candidate = replica in self.isr or (not self.isr and replica in self.elr)
        return is_candidate and self.is_acceptable_leader(replica)

    def _last_known_leader(self) -> int | None:
        if not self.is_elr_enabled or self.isr or self.elr or len(self.partition.last_known_elr) != 1:
            return None
        last_known = self.partition.last_known_elr[0]
        return last_known if self.is_acceptable_leader(last_known) else None

    def _bump_epoch_for_lost_replicas(self, record: PartitionChangeRecord) -> None:
        """If a replica was removed, raise the leader epoch by naming the leader again, so that it stops fetching."""
        has_lost = any(replica not in self.replicas for replica in self.partition.replicas)
        if record.leader == NO_LEADER_CHANGE and has_lost:
            record.leader = self.partition.leader

    def _bump_epoch_for_isr_shrink(self, record: PartitionChangeRecord) -> None:
        if self.metadata_version >= MV_3_6_IV0 or record.leader != NO_LEADER_CHANGE or record.isr is None:
            return
        if any(replica not in record.isr for replica in self.partition.isr):
            record.leader = self.partition.leader

    def _set_elr(self, record: PartitionChangeRecord) -> None:
        if record.isr is not None or not self.is_elr_enabled:
            self.elr = []
        if self.elr != list(self.partition.elr):
            record.eligible_leader_replicas = self.elr

    def _set_last_known_leader(self, record: PartitionChangeRecord) -> None:
        if not self.is_elr_enabled:
            return
        if record.leader == NO_LEADER and not self.partition.last_known_elr:
            record.last_known_elr = [self.partition.leader]
        elif record.leader >= 0 and self.partition.last_known_elr:
            record.last_known_elr = []

    def _set_assignment(self, record: PartitionChangeRecord) -> None:
        partition = self.partition
        if self.replicas and self.metadata_version >= MV_3_7_IV2:
            directories = [
                self.directories[replica] if replica in self.directories else self.default_directory(replica)
                for replica in self.replicas
            ]
            if directories != list(partition.directories):
                record.directories = directories
        if self.replicas and self.replicas != list(partition.replicas):
            record.replicas = self.replicas
        if self.removing_replicas != list(partition.removing_replicas):
            record.removing_replicas = self.removing_replicas
        if self.adding_replicas != list(partition.adding_replicas):
            record.adding_replicas = self.adding_replicas


def _is_no_op(record: PartitionChangeRecord) -> bool:
    changes = (record.isr, record.replicas, record.removing_replicas, record.adding_replicas, record.directories)
    elr_changes = (record.eligible_leader_replicas, record.last_known_elr)
    has_change = any(change is not None for change in (*changes, *elr_changes))
    return not has_change and record.leader == NO_LEADER_CHANGE and record.leader_recovery_state == -1
