"""The registration of a partition, a broker and a controller in the metadata log, converted from and to records.

All are immutable and shared between images, deltas and the controller's tables.
Source: protocol_specs/metadata: PartitionRecord, PartitionChangeRecord, RegisterBrokerRecord,
BrokerRegistrationChangeRecord, RegisterControllerRecord.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from kafkapy.dataclass import dataclass
from kafkapy.named_tuple import NamedTuple
from kafkapy.protocol.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from kafkapy.protocol.messages.partition_change_record import PartitionChangeRecord
from kafkapy.protocol.messages.partition_record import PartitionRecord
from kafkapy.protocol.messages.register_broker_record import BrokerEndpoint, BrokerFeature, RegisterBrokerRecord
from kafkapy.protocol.messages.register_controller_record import (
    ControllerEndpoint,
    ControllerFeature,
    RegisterControllerRecord,
)
from kafkapy.types import ZERO_UUID, Uuid

NO_LEADER: Final = -1
NO_LEADER_CHANGE: Final = -2

RECOVERED: Final = 0
"""Leader recovery state: the leader was elected from the ISR or ELR."""
RECOVERING: Final = 1
"""Leader recovery state: the leader was elected uncleanly and has not yet reported its recovery (KIP-704)."""

DIRECTORY_MIGRATING: Final[Uuid] = ZERO_UUID
"""A replica created before replicas were assigned to directories (DirectoryId.MIGRATING)."""
DIRECTORY_UNASSIGNED: Final[Uuid] = bytes(15) + b"\x01"
"""A replica whose log directory the broker has not chosen yet (DirectoryId.UNASSIGNED)."""
DIRECTORY_LOST: Final[Uuid] = bytes(15) + b"\x02"
"""A replica in a directory that went offline (DirectoryId.LOST)."""

RESERVED_DIRECTORIES: Final = frozenset(bytes(15) + bytes([last]) for last in range(100))
"""The first hundred UUIDs, which are never ids of real directories (KIP-858)."""


class PartitionRegistration(NamedTuple):
    """A partition's replicas, leader and epochs. Tuples are in the order of the record."""

    replicas: tuple[int, ...]
    directories: tuple[Uuid, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    leader: int
    leader_recovery_state: int
    leader_epoch: int
    partition_epoch: int

    @classmethod
    def from_record(cls, record: PartitionRecord) -> "PartitionRegistration":
        replicas = tuple(record.replicas)
        isr = tuple(record.isr)
        assert record.leader < 0 or record.leader in replicas, f"leader {record.leader} is none of {replicas}"
        return cls(
            replicas=replicas,
            directories=_directories(record.directories, len(replicas)),
            isr=replicas if isr == replicas else isr,
            removing_replicas=tuple(record.removing_replicas),
            adding_replicas=tuple(record.adding_replicas),
            elr=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
            leader=record.leader,
            leader_recovery_state=record.leader_recovery_state,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
        )

    def merge(self, change: PartitionChangeRecord) -> "PartitionRegistration":
        """Return the partition after `change`: absent fields stay the same, the partition epoch increases by one.

        A leader in the record increases the leader epoch, even if it is the same leader.
        """
        (
            replicas, directories, isr, removing_replicas, adding_replicas, elr, last_known_elr,
            leader, leader_recovery_state, leader_epoch, partition_epoch,
        ) = self  # fmt: skip
        if change.replicas is not None or change.directories is not None:
            replicas = _changed(replicas, change.replicas)
            changed = directories if change.directories is None else change.directories
            directories = _directories(changed, len(replicas))
        if change.isr is not None:
            isr = tuple(change.isr)
        if change.leader != NO_LEADER_CHANGE:
            leader, leader_epoch = change.leader, leader_epoch + 1
        assert leader < 0 or leader in replicas, f"leader {leader} is none of the replicas {replicas}"
        if change.leader_recovery_state != -1:
            leader_recovery_state = change.leader_recovery_state
        return PartitionRegistration(
            replicas, directories, isr,
            _changed(removing_replicas, change.removing_replicas), _changed(adding_replicas, change.adding_replicas),
            _changed(elr, change.eligible_leader_replicas), _changed(last_known_elr, change.last_known_elr),
            leader, leader_recovery_state, leader_epoch, partition_epoch + 1,
        )  # fmt: skip

    def to_record(self, topic_id: Uuid, partition_id: int) -> PartitionRecord:
        """Return the record that creates the partition in this state, without directories if none are assigned."""
        assert self.leader < 0 or self.leader in self.replicas, f"leader {self.leader} is none of {self.replicas}"
        has_directories = self.directories.count(DIRECTORY_MIGRATING) < len(self.directories)
        return PartitionRecord(
            partition_id=partition_id,
            topic_id=topic_id,
            replicas=list(self.replicas),
            isr=list(self.isr),
            removing_replicas=list(self.removing_replicas),
            adding_replicas=list(self.adding_replicas),
            leader=self.leader,
            leader_recovery_state=self.leader_recovery_state,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            directories=list(self.directories) if has_directories else [],
            eligible_leader_replicas=list(self.elr) if self.elr else None,
            last_known_elr=list(self.last_known_elr) if self.last_known_elr else None,
        )

    @property
    def is_being_reassigned(self) -> bool:
        """Whether replicas are being added or removed (KIP-455)."""
        return bool(self.adding_replicas or self.removing_replicas)

    @property
    def has_preferred_leader(self) -> bool:
        """Whether the first replica is the leader."""
        return self.replicas[:1] == (self.leader,)

    def directory_of(self, broker_id: int) -> Uuid:
        """Return the directory of the replica on `broker_id`. Raises ValueError if the broker has no replica."""
        return self.directories[self.replicas.index(broker_id)]


def _changed(current: tuple[int, ...], change: Sequence[int] | None) -> tuple[int, ...]:
    return current if change is None else tuple(change)


def _directories(directories: Sequence[Uuid], replica_count: int) -> tuple[Uuid, ...]:
    """Return one directory per replica; MIGRATING for all if none is known (records before 3.7)."""
    if directories.count(DIRECTORY_MIGRATING) == len(directories):
        return (DIRECTORY_MIGRATING,) * replica_count
    assert len(directories) == replica_count, f"{len(directories)} directories for {replica_count} replicas"
    return tuple(directories)


class Endpoint(NamedTuple):
    """The address of a listener; security_protocol: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""

    host: str
    port: int
    security_protocol: int


class VersionRange(NamedTuple):
    """The feature levels that a node supports, both ends inclusive."""

    min_version: int
    max_version: int


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A registered broker. `epoch` is the offset of its registration record; `endpoints` by listener name."""

    id: int
    epoch: int
    incarnation_id: Uuid
    endpoints: Mapping[str, Endpoint]
    features: Mapping[str, VersionRange]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    is_migrating_zk_broker: bool
    directories: tuple[Uuid, ...]
    cordoned_directories: tuple[Uuid, ...] | None

    @classmethod
    def from_record(cls, record: RegisterBrokerRecord) -> "BrokerRegistration":
        return cls(
            id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints={
                point.name: Endpoint(point.host, point.port, point.security_protocol) for point in record.end_points
            },
            features={
                feature.name: VersionRange(feature.min_supported_version, feature.max_supported_version)
                for feature in record.features
            },
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            is_migrating_zk_broker=record.is_migrating_zk_broker,
            directories=tuple(sorted(record.log_dirs)),
            cordoned_directories=None if record.cordoned_log_dirs is None else tuple(sorted(record.cordoned_log_dirs)),
        )

    def merge(self, change: BrokerRegistrationChangeRecord) -> "BrokerRegistration":
        """Return the broker after `change` (fenced: 1 fence, -1 unfence; empty log_dirs: no change)."""
        assert change.fenced in (-1, 0, 1), f"unknown value {change.fenced} for fenced"
        assert change.in_controlled_shutdown in (0, 1), (
            f"unknown in_controlled_shutdown {change.in_controlled_shutdown}"
        )
        cordoned = change.cordoned_log_dirs
        return replace(
            self,
            fenced=self.fenced if change.fenced == 0 else change.fenced == 1,
            in_controlled_shutdown=self.in_controlled_shutdown or change.in_controlled_shutdown == 1,
            directories=tuple(sorted(change.log_dirs)) if change.log_dirs else self.directories,
            cordoned_directories=self.cordoned_directories if cordoned is None else tuple(sorted(cordoned)),
        )

    def with_fenced(self, fenced: bool) -> "BrokerRegistration":
        return replace(self, fenced=fenced)

    def to_record(self) -> RegisterBrokerRecord:
        return RegisterBrokerRecord(
            broker_id=self.id,
            is_migrating_zk_broker=self.is_migrating_zk_broker,
            incarnation_id=self.incarnation_id,
            broker_epoch=self.epoch,
            end_points=[BrokerEndpoint(name=name, **point._asdict()) for name, point in self.endpoints.items()],
            features=[
                BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in self.features.items()
            ],
            rack=self.rack,
            fenced=self.fenced,
            in_controlled_shutdown=self.in_controlled_shutdown,
            log_dirs=list(self.directories),
            cordoned_log_dirs=None if self.cordoned_directories is None else list(self.cordoned_directories),
        )

    @property
    def is_active(self) -> bool:
        """Whether the broker may lead and join an ISR: it is neither fenced nor shutting down."""
        return not (self.fenced or self.in_controlled_shutdown)

    def has_online_directory(self, directory: Uuid) -> bool:
        """Whether a replica in `directory` can be served; DIRECTORY_UNASSIGNED and _MIGRATING count as online.

        A broker before 3.7 registered without directories: all of its directories count as online.
        """
        if directory in (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING):
            return True
        return directory != DIRECTORY_LOST and (not self.directories or directory in self.directories)

    @property
    def has_uncordoned_directory(self) -> bool:
        """Whether the broker can get new replicas (KIP-1066)."""
        if not self.directories or not self.cordoned_directories:
            return True
        return any(directory not in self.cordoned_directories for directory in self.directories)


@dataclass(frozen=True, slots=True)
class ControllerRegistration:
    """A registered controller: its endpoints and the feature levels it supports."""

    id: int
    incarnation_id: Uuid
    zk_migration_ready: bool
    endpoints: Mapping[str, Endpoint]
    features: Mapping[str, VersionRange]

    @classmethod
    def from_record(cls, record: RegisterControllerRecord) -> "ControllerRegistration":
        return cls(
            id=record.controller_id,
            incarnation_id=record.incarnation_id,
            zk_migration_ready=record.zk_migration_ready,
            endpoints={
                point.name: Endpoint(point.host, point.port, point.security_protocol) for point in record.end_points
            },
            features={
                feature.name: VersionRange(feature.min_supported_version, feature.max_supported_version)
                for feature in record.features
            },
        )

    def to_record(self) -> RegisterControllerRecord:
        return RegisterControllerRecord(
            controller_id=self.id,
            incarnation_id=self.incarnation_id,
            zk_migration_ready=self.zk_migration_ready,
            end_points=[ControllerEndpoint(name=name, **point._asdict()) for name, point in self.endpoints.items()],
            features=[
                ControllerFeature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in self.features.items()
            ],
        )
