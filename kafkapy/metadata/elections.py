"""Leader election, and the record of a partition's change, after its ISR, its replicas or its brokers changed.

The caller sets the targets of a `PartitionChange`; `build` then returns the PartitionChangeRecord that reaches them, or
None if nothing changes. Pure; works on one PartitionRegistration. The caller decides which replicas may lead.
Sources: KIP-631 (leader, ISR), KIP-704 (leader recovery), KIP-966 (eligible leader replicas), KIP-455 (reassignment).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
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


@dataclass(frozen=True, slots=True)
class ElectionRules:
    """The rules for electing leaders of a topic's partitions; the changes of one decision share them."""

    metadata_version: int
    is_elr_enabled: bool
    min_insync_replicas: int
    """No more than the topic's replicas."""
    may_lead: Callable[[int, Uuid], bool]
    """Whether a replica in a directory may lead: its broker is alive, the directory online."""
    default_directory: Callable[[int], Uuid]
    """Returns the directory of a new replica of a broker."""
    election: Election = Election.ONLINE


@dataclass(slots=True)
class PartitionChange:
    """A change to one partition, being built. The targets are initialized with the partition's current values."""

    topic_id: Uuid
    partition_id: int
    partition: PartitionRegistration
    rules: ElectionRules
    unclean_shutdown_replicas: Collection[int] = ()
    directories: Mapping[int, Uuid] | None = None
    """The new directories of replicas, by broker id."""
    isr: Sequence[int] = field(init=False)
    replicas: Sequence[int] = field(init=False)
    removing_replicas: Sequence[int] = field(init=False)
    adding_replicas: Sequence[int] = field(init=False)
    elr: Sequence[int] = field(init=False)
    leader_recovery_state: int = field(init=False)

    def __post_init__(self) -> None:
        partition = self.partition
        self.isr = partition.isr
        self.replicas = partition.replicas
        self.removing_replicas = partition.removing_replicas
        self.adding_replicas = partition.adding_replicas
        self.elr = partition.elr
        self.leader_recovery_state = partition.leader_recovery_state

    def build(self) -> PartitionChangeRecord | None:
        """Return the record that changes the partition to the targets, None if it needs no change."""
        record = PartitionChangeRecord(topic_id=self.topic_id, partition_id=self.partition_id)
        if self.adding_replicas or self.removing_replicas:
            self._complete_reassignment()
        if self.rules.is_elr_enabled:
            self._find_eligible_leaders()
        self._elect(record)
        if self.replicas is not self.partition.replicas:
            self._bump_epoch_for_lost_replicas(record)
        self._set_elr(record)
        if record.isr is None and (self.isr or self.rules.is_elr_enabled) and tuple(self.isr) != self.partition.isr:
            record.isr = list(self.isr)
        self._bump_epoch_for_isr_shrink(record)
        if self.rules.is_elr_enabled:
            self._set_last_known_leader(record)
        self._set_assignment(record)
        if self.leader_recovery_state != self.partition.leader_recovery_state:
            record.leader_recovery_state = self.leader_recovery_state
        self._check(record)
        return None if _is_no_op(record) else record

    def _check(self, record: PartitionChangeRecord) -> None:
        """Assert before the disk what `PartitionRegistration.merge` relies on after it."""
        isr = self.isr if record.isr is None else record.isr
        assert set(isr).issubset(self.replicas), f"the ISR {isr} is not among the replicas {self.replicas}"
        assert record.leader < 0 or record.leader in isr, f"leader {record.leader} may lack records: the ISR is {isr}"
        assert not set(self.elr).intersection(isr), f"the ELR {self.elr} repeats the ISR {isr}"
        assert set(self.adding_replicas).issubset(self.replicas), f"{self.adding_replicas} would never be added"
        assert set(self.removing_replicas).issubset(self.replicas), f"{self.removing_replicas} would never be removed"

    def _complete_reassignment(self) -> None:
        """Remove the replicas to be removed if all added ones, and enough of the others, are in the ISR."""
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

        Deviation: Apache Kafka keeps a broker that is no longer a replica in the ELR. Here it is removed, because once
        the ISR is empty the partition would wait for that broker for ever, even after its last leader has returned.
        """
        if len(self.isr) >= self.rules.min_insync_replicas:
            self.elr = ()
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
        if self.rules.election is Election.PREFERRED and self.replicas and self._is_clean_leader(self.replicas[0]):
            return self.replicas[0], False
        if self._is_clean_leader(self.partition.leader):
            return self.partition.leader, False
        for candidate in self.replicas:
            if self._is_clean_leader(candidate):
                return candidate, False
        last_known = self._last_known_leader()
        if last_known is not None:
            return last_known, True
        if self.rules.election is Election.UNCLEAN:
            for candidate in self.replicas:
                if self._may_lead(candidate):
                    return candidate, True
        return NO_LEADER, False

    def _is_clean_leader(self, replica: int) -> bool:
        is_candidate = replica in self.isr or (not self.isr and replica in self.elr)
        return is_candidate and self._may_lead(replica)

    def _may_lead(self, replica: int) -> bool:
        """Whether a replica may lead; one that the partition is only getting has no records and may not.

        Deviation: Apache Kafka's replica that was assigned to no online directory, as that of a disk that had failed,
        and is assigned to one when it comes back, leads a partition without a leader only at the next event that
        elects. Here a directory that the change assigns counts already, because that event may be 300 s away.
        """
        partition = self.partition
        if replica not in partition.replicas:
            return False
        assigned = self.directories.get(replica) if self.directories is not None else None
        return self.rules.may_lead(replica, partition.directory_of(replica) if assigned is None else assigned)

    def _last_known_leader(self) -> int | None:
        if not self.rules.is_elr_enabled or self.isr or self.elr or len(self.partition.last_known_elr) != 1:
            return None
        last_known = self.partition.last_known_elr[0]
        return last_known if self._may_lead(last_known) else None

    def _bump_epoch_for_lost_replicas(self, record: PartitionChangeRecord) -> None:
        """If a replica was removed, raise the leader epoch by naming the leader again, so that it stops fetching."""
        has_lost = any(replica not in self.replicas for replica in self.partition.replicas)
        if record.leader == NO_LEADER_CHANGE and has_lost:
            record.leader = self.partition.leader

    def _bump_epoch_for_isr_shrink(self, record: PartitionChangeRecord) -> None:
        if self.rules.metadata_version >= MV_3_6_IV0 or record.leader != NO_LEADER_CHANGE or record.isr is None:
            return
        if any(replica not in record.isr for replica in self.partition.isr):
            record.leader = self.partition.leader

    def _set_elr(self, record: PartitionChangeRecord) -> None:
        if record.isr is not None or not self.rules.is_elr_enabled:
            self.elr = ()
        if tuple(self.elr) != self.partition.elr:
            record.eligible_leader_replicas = list(self.elr)

    def _set_last_known_leader(self, record: PartitionChangeRecord) -> None:
        if record.leader == NO_LEADER and not self.partition.last_known_elr:
            record.last_known_elr = [self.partition.leader]
        elif record.leader >= 0 and self.partition.last_known_elr:
            record.last_known_elr = []

    def _set_assignment(self, record: PartitionChangeRecord) -> None:
        partition = self.partition
        if self.replicas:
            if self.rules.metadata_version >= MV_3_7_IV2:
                self._set_directories(record)
            if tuple(self.replicas) != partition.replicas:
                record.replicas = list(self.replicas)
        if tuple(self.removing_replicas) != partition.removing_replicas:
            record.removing_replicas = list(self.removing_replicas)
        if tuple(self.adding_replicas) != partition.adding_replicas:
            record.adding_replicas = list(self.adding_replicas)

    def _set_directories(self, record: PartitionChangeRecord) -> None:
        partition = self.partition
        if self.directories is None and self.replicas is partition.replicas:
            return
        known = {**dict(zip(partition.replicas, partition.directories, strict=True)), **(self.directories or {})}
        directories = [
            known[replica] if replica in known else self.rules.default_directory(replica) for replica in self.replicas
        ]
        if tuple(directories) != partition.directories:
            record.directories = directories


def _is_no_op(record: PartitionChangeRecord) -> bool:
    return (
        record.leader == NO_LEADER_CHANGE
        and record.isr is None
        and record.replicas is None
        and record.removing_replicas is None
        and record.adding_replicas is None
        and record.leader_recovery_state == -1
        and record.directories is None
        and record.eligible_leader_replicas is None
        and record.last_known_elr is None
    )
