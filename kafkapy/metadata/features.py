"""Feature levels: those of Apache Kafka 4.4.0, those supported here, and the record versions they imply.

Every level that Kafka 4.4.0 knows is accepted in the log and kept in the image. The levels in ApiVersions are capped to
those supported here, because clients act on them: with transaction.version 2 a client skips AddPartitionsToTxn.
Source: KIP-584.
"""

from collections.abc import Mapping
from typing import Any, Final

from kafkapy.dataclass import dataclass
from kafkapy.metadata.image import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    GROUP_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    SHARE_VERSION,
    STREAMS_VERSION,
    TRANSACTION_VERSION,
    MetadataImage,
)
from kafkapy.metadata.registrations import VersionRange
from kafkapy.protocol.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from kafkapy.protocol.messages.feature_level_record import FeatureLevelRecord
from kafkapy.protocol.messages.partition_change_record import PartitionChangeRecord
from kafkapy.protocol.messages.partition_record import PartitionRecord
from kafkapy.protocol.messages.register_broker_record import RegisterBrokerRecord

MV_3_3_IV3: Final = 7
"""The oldest level that Kafka 4 supports."""
MV_3_4_IV0: Final = 8
MV_3_5_IV2: Final = 11
"""Since this level records have SCRAM credentials (KIP-900)."""
MV_3_6_IV0: Final = 12
"""Since this level shrinking an ISR does not raise the leader epoch."""
MV_3_6_IV1: Final = 13
"""Since this level metadata transactions exist (KIP-868)."""
MV_3_7_IV0: Final = 15
"""Since this level controllers register (KIP-919)."""
MV_3_7_IV2: Final = 17
"""Since this level replicas are assigned to log directories (KIP-858)."""
MV_4_0_IV1: Final = 23
"""Since this level records have eligible leader replicas (KIP-966)."""
MV_4_3_IV0: Final = 30
"""Since this level log directories can be cordoned (KIP-1066). The highest of Apache Kafka 4.3.1."""
MV_4_4_IV1: Final = 32
"""Since this level the host of an ACL can be a range of addresses."""
MV_4_4_IV2: Final = 33
"""Since this level controllers can be unregistered. New directories are formatted with it."""

MAX_FEATURE_LEVELS: Final[Mapping[str, int]] = {
    METADATA_VERSION: MV_4_4_IV2,
    KRAFT_VERSION: 1,
    TRANSACTION_VERSION: 2,
    GROUP_VERSION: 1,
    ELIGIBLE_LEADER_REPLICAS_VERSION: 1,
    SHARE_VERSION: 2,
    STREAMS_VERSION: 1,
}
"""The highest production level of each feature of Kafka 4.4.0. New directories are formatted with these."""

KNOWN_FEATURES: Final[Mapping[str, VersionRange]] = {
    name: VersionRange(MV_3_3_IV3 if name == METADATA_VERSION else 0, level)
    for name, level in MAX_FEATURE_LEVELS.items()
}
"""All levels that can be replayed: those allowed in the log, and those with which controllers register."""

WORKING_FEATURES: Final[Mapping[str, VersionRange]] = {
    METADATA_VERSION: VersionRange(MV_3_3_IV3, MV_4_4_IV2),
    KRAFT_VERSION: VersionRange(0, 1),
    ELIGIBLE_LEADER_REPLICAS_VERSION: VersionRange(0, 1),
    GROUP_VERSION: VersionRange(0, 1),
    TRANSACTION_VERSION: VersionRange(0, 2),
    SHARE_VERSION: VersionRange(0, 2),
    STREAMS_VERSION: VersionRange(0, 1),
}
"""The levels supported here: those in ApiVersions, and with which brokers register."""


@dataclass(frozen=True, slots=True)
class ShownFeatures:
    """The features in ApiVersions; `hidden` has the finalized levels that are capped or left out there."""

    supported: Mapping[str, VersionRange]
    finalized: Mapping[str, int]
    hidden: Mapping[str, int]


def shown_features(image: MetadataImage, kraft_version: int = 0) -> ShownFeatures:
    """Return the features to show for an image; the level of kraft.version is in the Raft log, not in the image."""
    levels = {**image.features.levels, KRAFT_VERSION: kraft_version}
    finalized = {
        name: min(level, WORKING_FEATURES[name].max_version)
        for name, level in levels.items()
        if name in WORKING_FEATURES
    }
    return ShownFeatures(
        supported=WORKING_FEATURES,
        finalized={name: level for name, level in finalized.items() if level > 0},
        hidden={name: level for name, level in levels.items() if level > finalized.get(name, 0)},
    )


def unserved_levels(levels: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Return the finalized features above the levels that a broker supports: (level, highest supported level)."""
    highest = {name: WORKING_FEATURES[name].max_version if name in WORKING_FEATURES else 0 for name in levels}
    return {name: (level, highest[name]) for name, level in levels.items() if level > highest[name]}


class FeatureControl:
    """The controller's table of finalized levels, including uncommitted ones."""

    def __init__(self) -> None:
        self._levels: dict[str, int] = {}

    def load(self, image: MetadataImage) -> None:
        self._levels = dict(image.features.levels)

    def replay(self, record: FeatureLevelRecord) -> None:
        """Set a feature level. Ignores kraft.version, which old controllers wrote by mistake (KAFKA-18979)."""
        known = KNOWN_FEATURES.get(record.name, VersionRange(0, 0))
        assert known.min_version <= record.feature_level <= known.max_version, (
            f"feature {record.name} at level {record.feature_level}: this controller knows levels "
            f"{known.min_version} to {known.max_version}"
        )
        if record.name == KRAFT_VERSION:
            return
        if record.feature_level == 0:
            self._levels.pop(record.name, None)
        else:
            self._levels[record.name] = record.feature_level

    @property
    def levels(self) -> Mapping[str, int]:
        return self._levels

    @property
    def metadata_version(self) -> int:
        """The level of metadata.version. Only defined after the bootstrap records were replayed."""
        level = self._levels.get(METADATA_VERSION)
        assert level is not None, "no metadata.version yet: the log is empty"
        return level

    @property
    def is_empty(self) -> bool:
        """Whether there is no metadata.version yet: the bootstrap records have not been written."""
        return METADATA_VERSION not in self._levels

    @property
    def is_elr_enabled(self) -> bool:
        return self._levels.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) >= 1

    @property
    def has_directory_assignment(self) -> bool:
        return self.metadata_version >= MV_3_7_IV2


def record_version(record: Any, metadata_version: int) -> int:
    """Return the version at which a record is written at a level of metadata.version."""
    if isinstance(record, PartitionRecord | PartitionChangeRecord):
        if metadata_version >= MV_4_0_IV1:
            return 2
        return 1 if metadata_version >= MV_3_7_IV2 else 0
    if isinstance(record, RegisterBrokerRecord):
        return _register_broker_version(metadata_version)
    if isinstance(record, BrokerRegistrationChangeRecord):
        return _registration_change_version(record)
    return 0


def _register_broker_version(metadata_version: int) -> int:
    if metadata_version >= MV_4_3_IV0:
        return 4
    if metadata_version >= MV_3_7_IV2:
        return 3
    return 2 if metadata_version >= MV_3_4_IV0 else 1


def _registration_change_version(record: BrokerRegistrationChangeRecord) -> int:
    if record.cordoned_log_dirs is not None:
        return 3
    if record.log_dirs:
        return 2
    return 1 if record.in_controlled_shutdown else 0
