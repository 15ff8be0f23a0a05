"""The cluster's metadata at one offset of the metadata log: immutable, sharing structure with the previous image.

An image is made by `MetadataDelta.apply` and never changed, so any part of it may be held across awaits, encoded in
slices (snapshot.py) or compared. Maps are PersistentMaps (thousands of entries) or plain dicts that are never modified.
ACLs, SCRAM credentials and delegation tokens are kept as decoded records.
"""

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Final

from kafkapy.dataclass import dataclass
from kafkapy.metadata.persistent import PersistentMap
from kafkapy.metadata.registrations import BrokerRegistration, ControllerRegistration, PartitionRegistration
from kafkapy.named_tuple import NamedTuple
from kafkapy.types import Uuid

if TYPE_CHECKING:
    from kafkapy.protocol.messages.access_control_entry_record import AccessControlEntryRecord
    from kafkapy.protocol.messages.delegation_token_record import DelegationTokenRecord
    from kafkapy.protocol.messages.user_scram_credential_record import UserScramCredentialRecord

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
GROUP_VERSION: Final = "group.version"
TRANSACTION_VERSION: Final = "transaction.version"
SHARE_VERSION: Final = "share.version"
STREAMS_VERSION: Final = "streams.version"
ELIGIBLE_LEADER_REPLICAS_VERSION: Final = "eligible.leader.replicas.version"

RESOURCE_TOPIC: Final = 2
RESOURCE_BROKER: Final = 4
RESOURCE_BROKER_LOGGER: Final = 8
RESOURCE_CLIENT_METRICS: Final = 16
RESOURCE_GROUP: Final = 32

QuotaEntity = tuple[tuple[str, str | None], ...]
"""(entity type, entity name or None for the default), sorted by type."""


class Provenance(NamedTuple):
    """The last offset that an image contains, with that record's leader epoch and append time."""

    last_offset: int
    leader_epoch: int
    timestamp_ms: int

    @property
    def offset(self) -> int:
        """Same as last_offset: the finalized features epoch of ApiVersions."""
        return self.last_offset


EMPTY_PROVENANCE: Final = Provenance(-1, -1, -1)


class ConfigResource(NamedTuple):
    """A resource that has configs: resource_type as in DescribeConfigs (RESOURCE_*), name "" for a type's defaults."""

    resource_type: int
    name: str


@dataclass(frozen=True, slots=True)
class FeaturesImage:
    """Finalized feature levels by name, including metadata.version. Features at level 0 are absent."""

    levels: Mapping[str, int] = field(default_factory=dict)

    @property
    def metadata_version(self) -> int | None:
        """The level of metadata.version, None before the first FeatureLevelRecord (an empty log)."""
        return self.levels.get(METADATA_VERSION)

    @property
    def is_elr_enabled(self) -> bool:
        """Whether eligible leader replicas are enabled (KIP-966)."""
        return self.levels.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) >= 1

    @property
    def share_version(self) -> int:
        """1: there are share groups (KIP-932); 2: their records may go to dead-letter topics, too (KIP-1191)."""
        return self.levels.get(SHARE_VERSION, 0)

    @property
    def has_share_groups(self) -> bool:
        return self.share_version >= 1

    @property
    def has_streams_groups(self) -> bool:
        return self.levels.get(STREAMS_VERSION, 0) >= 1


@dataclass(frozen=True, slots=True)
class ClusterImage:
    brokers: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    controllers: Mapping[int, ControllerRegistration] = field(default_factory=dict)

    def alive_broker_ids(self, listener_name: str) -> list[int]:
        """Return the unfenced brokers with a listener named `listener_name`, which clients can connect to."""
        return [
            broker.id for broker in self.brokers.values() if not broker.fenced and listener_name in broker.endpoints
        ]


@dataclass(frozen=True, slots=True)
class TopicImage:
    name: str
    topic_id: Uuid
    partitions: Mapping[int, PartitionRegistration]


@dataclass(frozen=True, slots=True)
class TopicsImage:
    """All topics, by name and by id; both maps hold the same TopicImage objects."""

    by_name: PersistentMap[str, TopicImage] = field(default_factory=PersistentMap)
    by_id: PersistentMap[Uuid, TopicImage] = field(default_factory=PersistentMap)

    def partition(self, topic: str, partition: int) -> PartitionRegistration | None:
        image = self.by_name.get(topic)
        return None if image is None else image.partitions.get(partition)


@dataclass(frozen=True, slots=True)
class ConfigsImage:
    """Dynamic configs by resource; a resource without any is absent."""

    by_resource: PersistentMap[ConfigResource, Mapping[str, str]] = field(default_factory=PersistentMap)

    def of(self, resource_type: int, name: str) -> Mapping[str, str]:
        """Return the configs set on one resource, empty when there are none."""
        return self.by_resource.get(ConfigResource(resource_type, name)) or {}


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """All metadata up to `provenance.last_offset` of the metadata log."""

    provenance: Provenance = EMPTY_PROVENANCE
    features: FeaturesImage = field(default_factory=FeaturesImage)
    cluster: ClusterImage = field(default_factory=ClusterImage)
    topics: TopicsImage = field(default_factory=TopicsImage)
    configs: ConfigsImage = field(default_factory=ConfigsImage)
    client_quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    next_producer_id: int = -1
    acls: "Mapping[Uuid, AccessControlEntryRecord]" = field(default_factory=dict)
    scram: "Mapping[tuple[int, str], UserScramCredentialRecord]" = field(default_factory=dict)
    """By (mechanism, user name)."""
    delegation_tokens: "Mapping[str, DelegationTokenRecord]" = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether the image has no content: the log is empty, or has control records only."""
        return self.has_same_content(EMPTY_IMAGE)

    def has_same_content(self, other: "MetadataImage") -> bool:
        """Whether both images have the same metadata, ignoring provenance."""
        return all(mine == theirs for mine, theirs in zip(self._parts(), other._parts(), strict=True))

    def _parts(self) -> Iterator[object]:
        yield from (self.features, self.cluster, self.topics, self.configs, self.client_quotas)
        yield from (self.next_producer_id, self.acls, self.scram, self.delegation_tokens)


EMPTY_IMAGE: Final = MetadataImage()
