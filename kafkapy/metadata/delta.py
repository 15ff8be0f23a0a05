"""The changes that metadata records make to an image: replay the records, then `apply` to get the next image.

Parts that no record touched are shared with the previous image. `topics_changed` and `config_changes` give listeners
what changed; without changes they are None and empty.
A record that is inconsistent with the image means a broken log: replay raises AssertionError.
"""

from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from kafkapy.machine import end_of
from kafkapy.metadata.image import (
    EMPTY_IMAGE,
    KRAFT_VERSION,
    METADATA_VERSION,
    RESOURCE_TOPIC,
    ClusterImage,
    ConfigResource,
    ConfigsImage,
    FeaturesImage,
    MetadataImage,
    Provenance,
    QuotaEntity,
    TopicsImage,
)
from kafkapy.metadata.registrations import BrokerRegistration, ControllerRegistration, PartitionRegistration
from kafkapy.metadata.topics_delta import LocalPartition, TopicsDelta
from kafkapy.protocol.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from kafkapy.protocol.messages.config_record import ConfigRecord
from kafkapy.protocol.messages.feature_level_record import FeatureLevelRecord
from kafkapy.protocol.messages.partition_change_record import PartitionChangeRecord
from kafkapy.protocol.messages.partition_record import PartitionRecord
from kafkapy.protocol.messages.register_broker_record import RegisterBrokerRecord
from kafkapy.protocol.messages.register_controller_record import RegisterControllerRecord
from kafkapy.protocol.messages.topic_record import TopicRecord
from kafkapy.types import Uuid

if TYPE_CHECKING:
    from kafkapy.protocol.messages.access_control_entry_record import AccessControlEntryRecord
    from kafkapy.protocol.messages.clear_elr_record import ClearElrRecord
    from kafkapy.protocol.messages.client_quota_record import ClientQuotaRecord
    from kafkapy.protocol.messages.delegation_token_record import DelegationTokenRecord
    from kafkapy.protocol.messages.fence_broker_record import FenceBrokerRecord
    from kafkapy.protocol.messages.producer_ids_record import ProducerIdsRecord
    from kafkapy.protocol.messages.remove_access_control_entry_record import RemoveAccessControlEntryRecord
    from kafkapy.protocol.messages.remove_delegation_token_record import RemoveDelegationTokenRecord
    from kafkapy.protocol.messages.remove_topic_record import RemoveTopicRecord
    from kafkapy.protocol.messages.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
    from kafkapy.protocol.messages.unfence_broker_record import UnfenceBrokerRecord
    from kafkapy.protocol.messages.unregister_broker_record import UnregisterBrokerRecord
    from kafkapy.protocol.messages.unregister_controller_record import UnregisterControllerRecord
    from kafkapy.protocol.messages.user_scram_credential_record import UserScramCredentialRecord

__all__ = ["LocalPartition", "MetadataDelta", "delta_to", "difference"]

ENTRIES_PER_STEP: Final = 200
"""Replaying a record takes about 5 us."""
DeltaSteps: TypeAlias = "Generator[None, None, MetadataDelta]"
ImageSteps: TypeAlias = Generator[None, None, MetadataImage]
T = TypeVar("T")
MIN_METADATA_VERSION: Final = 7
"""3.3-IV3: the oldest level that Kafka 4 replays."""


class MetadataDelta:
    """The changes to one image. Must not be used after `apply`."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.topics = TopicsDelta(image.topics)
        self.feature_changes: dict[str, int] = {}
        self.broker_changes: dict[int, BrokerRegistration | None] = {}
        self.controller_changes: dict[int, ControllerRegistration | None] = {}
        self.config_changes: dict[ConfigResource, dict[str, str]] = {}
        """All new configs of each changed resource, not only the changed keys; empty if none are left."""
        self.quota_changes: dict[QuotaEntity, dict[str, float]] = {}
        self.acl_changes: dict[Uuid, AccessControlEntryRecord | None] = {}
        self.scram_changes: dict[tuple[int, str], UserScramCredentialRecord | None] = {}
        self.token_changes: dict[str, DelegationTokenRecord | None] = {}
        self.next_producer_id: int | None = None

    @property
    def topics_changed(self) -> TopicsDelta | None:
        """The created, changed and deleted topics, None if there are none."""
        return self.topics if self.topics.changed or self.topics.deleted else None

    def replay(self, record: Any) -> None:
        """Apply one metadata record to the delta. Raises AssertionError if it is inconsistent with the image."""
        replay = _REPLAY.get(type(record).__name__)
        assert replay is not None, f"{type(record).__name__} is no metadata record"
        replay(self, record)

    def apply(self, provenance: Provenance) -> MetadataImage:
        """Return the image after the records; unchanged parts are shared."""
        return end_of(self.apply_steps(provenance))

    def apply_steps(self, provenance: Provenance) -> ImageSteps:
        """Like `apply`, in steps."""
        image = self.image
        topics = yield from self.topics.apply()
        if self._has_only_topics:  # as most deltas
            return replace(image, provenance=provenance, topics=topics)
        return MetadataImage(
            provenance=provenance,
            features=self._apply_features(),
            cluster=self._apply_cluster(),
            topics=topics,
            configs=self._apply_configs(),
            client_quotas=_merged(
                image.client_quotas, {key: quotas or None for key, quotas in self.quota_changes.items()}
            ),
            next_producer_id=image.next_producer_id if self.next_producer_id is None else self.next_producer_id,
            acls=_merged(image.acls, self.acl_changes),
            scram=_merged(image.scram, self.scram_changes),
            delegation_tokens=_merged(image.delegation_tokens, self.token_changes),
        )

    @property
    def _has_only_topics(self) -> bool:
        brokers, controllers, configs = self.broker_changes, self.controller_changes, self.config_changes
        users = self.quota_changes or self.acl_changes or self.scram_changes or self.token_changes
        is_changed = self.feature_changes or brokers or controllers or configs or users
        return not is_changed and self.next_producer_id is None

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        """Return a broker's registration after the records replayed so far."""
        if broker_id in self.broker_changes:
            return self.broker_changes[broker_id]
        return self.image.cluster.brokers.get(broker_id)

    def _apply_features(self) -> FeaturesImage:
        if not self.feature_changes:
            return self.image.features
        return FeaturesImage(
            _merged(self.image.features.levels, {k: v or None for k, v in self.feature_changes.items()})
        )

    def _apply_cluster(self) -> ClusterImage:
        if not self.broker_changes and not self.controller_changes:
            return self.image.cluster
        cluster = self.image.cluster
        return ClusterImage(
            _merged(cluster.brokers, self.broker_changes), _merged(cluster.controllers, self.controller_changes)
        )

    def _apply_configs(self) -> ConfigsImage:
        if not self.config_changes:
            return self.image.configs
        changes = {resource: configs or None for resource, configs in self.config_changes.items()}
        return ConfigsImage(self.image.configs.by_resource.updated(changes))

    def _replay_feature_level(self, record: FeatureLevelRecord) -> None:
        """Set a feature level. Ignores kraft.version, which old controllers wrote by mistake (KAFKA-18979)."""
        if record.name == KRAFT_VERSION:
            return
        if record.name == METADATA_VERSION:
            assert record.feature_level >= MIN_METADATA_VERSION, (
                f"metadata.version level {record.feature_level} is older than 3.3-IV3, the oldest that can be read: "
                "raise it with the software version that wrote it"
            )
        self.feature_changes[record.name] = record.feature_level

    def _replay_register_broker(self, record: RegisterBrokerRecord) -> None:
        before = self.broker(record.broker_id)
        assert before is None or record.broker_epoch >= before.epoch, f"an older incarnation of {before}"
        self.broker_changes[record.broker_id] = BrokerRegistration.from_record(record)

    def _replay_unregister_broker(self, record: "UnregisterBrokerRecord") -> None:
        self._broker_at_epoch(record.broker_id, record.broker_epoch)
        self.broker_changes[record.broker_id] = None

    def _replay_fence_broker(self, record: "FenceBrokerRecord") -> None:
        self.broker_changes[record.id] = self._broker_at_epoch(record.id, record.epoch).with_fenced(True)

    def _replay_unfence_broker(self, record: "UnfenceBrokerRecord") -> None:
        self.broker_changes[record.id] = self._broker_at_epoch(record.id, record.epoch).with_fenced(False)

    def _replay_broker_registration_change(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._broker_at_epoch(record.broker_id, record.broker_epoch)
        self.broker_changes[record.broker_id] = broker.merge(record)

    def _broker_at_epoch(self, broker_id: int, broker_epoch: int) -> BrokerRegistration:
        broker = self.broker(broker_id)
        assert broker is not None, f"broker {broker_id} is not registered"
        assert broker.epoch == broker_epoch, f"broker {broker_id} has epoch {broker.epoch}, not {broker_epoch}"
        return broker

    def _replay_register_controller(self, record: RegisterControllerRecord) -> None:
        self.controller_changes[record.controller_id] = ControllerRegistration.from_record(record)

    def _replay_unregister_controller(self, record: "UnregisterControllerRecord") -> None:
        is_known = _is_there(record.controller_id, self.controller_changes, self.image.cluster.controllers)
        assert is_known, f"controller {record.controller_id} is not registered"
        self.controller_changes[record.controller_id] = None

    def _replay_topic(self, record: TopicRecord) -> None:
        self.topics.create(record.name, record.topic_id)

    def _replay_partition(self, record: PartitionRecord) -> None:
        self.topics.set_partition(record.topic_id, record.partition_id, PartitionRegistration.from_record(record))

    def _replay_partition_change(self, record: PartitionChangeRecord) -> None:
        self.topics.change_partition(record)

    def _replay_clear_elr(self, record: "ClearElrRecord") -> None:
        self.topics.clear_elr(record.topic_name)

    def _replay_remove_topic(self, record: "RemoveTopicRecord") -> None:
        """Remove a topic and, like Kafka's brokers, its configs: the log has no records that remove them."""
        name = self.topics.remove(record.topic_id)
        resource = ConfigResource(RESOURCE_TOPIC, name)
        if resource in self.config_changes or resource in self.image.configs.by_resource:
            self.config_changes[resource] = {}

    def _replay_config(self, record: ConfigRecord) -> None:
        resource = ConfigResource(record.resource_type, record.resource_name)
        configs = self.config_changes.get(resource)
        if configs is None:
            configs = self.config_changes[resource] = dict(self.image.configs.of(*resource))
        if record.value is None:
            configs.pop(record.name, None)
        else:
            configs[record.name] = record.value

    def _replay_client_quota(self, record: "ClientQuotaRecord") -> None:
        entity = tuple(sorted((part.entity_type, part.entity_name) for part in record.entity))
        quotas = self.quota_changes.get(entity)
        if quotas is None:
            quotas = self.quota_changes[entity] = dict(self.image.client_quotas.get(entity, {}))
        if record.remove:
            quotas.pop(record.key, None)
        else:
            quotas[record.key] = record.value

    def _replay_producer_ids(self, record: "ProducerIdsRecord") -> None:
        before = self.image.next_producer_id if self.next_producer_id is None else self.next_producer_id
        assert record.next_producer_id >= before, f"producer ids from {record.next_producer_id} on are given out again"
        self.next_producer_id = record.next_producer_id

    def _replay_acl(self, record: "AccessControlEntryRecord") -> None:
        self.acl_changes[record.id] = record

    def _replay_remove_acl(self, record: "RemoveAccessControlEntryRecord") -> None:
        is_known = _is_there(record.id, self.acl_changes, self.image.acls)
        assert is_known, "an ACL is removed that does not exist"
        self.acl_changes[record.id] = None

    def _replay_scram(self, record: "UserScramCredentialRecord") -> None:
        self.scram_changes[record.mechanism, record.name] = record

    def _replay_remove_scram(self, record: "RemoveUserScramCredentialRecord") -> None:
        key = (record.mechanism, record.name)
        is_known = _is_there(key, self.scram_changes, self.image.scram)
        assert is_known, "a SCRAM credential is removed that does not exist"
        self.scram_changes[key] = None

    def _replay_token(self, record: "DelegationTokenRecord") -> None:
        self.token_changes[record.token_id] = record

    def _replay_remove_token(self, record: "RemoveDelegationTokenRecord") -> None:
        self.token_changes[record.token_id] = None

    def _replay_nothing(self, record: Any) -> None:
        """NoOp, transaction markers (handled by the loader) and ZooKeeper's state do not change the image."""


_REPLAY: Final[dict[str, Callable[[MetadataDelta, Any], None]]] = {
    "RegisterBrokerRecord": MetadataDelta._replay_register_broker,
    "UnregisterBrokerRecord": MetadataDelta._replay_unregister_broker,
    "TopicRecord": MetadataDelta._replay_topic,
    "PartitionRecord": MetadataDelta._replay_partition,
    "ConfigRecord": MetadataDelta._replay_config,
    "PartitionChangeRecord": MetadataDelta._replay_partition_change,
    "FenceBrokerRecord": MetadataDelta._replay_fence_broker,
    "UnfenceBrokerRecord": MetadataDelta._replay_unfence_broker,
    "RemoveTopicRecord": MetadataDelta._replay_remove_topic,
    "DelegationTokenRecord": MetadataDelta._replay_token,
    "UserScramCredentialRecord": MetadataDelta._replay_scram,
    "FeatureLevelRecord": MetadataDelta._replay_feature_level,
    "ClientQuotaRecord": MetadataDelta._replay_client_quota,
    "ProducerIdsRecord": MetadataDelta._replay_producer_ids,
    "BrokerRegistrationChangeRecord": MetadataDelta._replay_broker_registration_change,
    "AccessControlEntryRecord": MetadataDelta._replay_acl,
    "RemoveAccessControlEntryRecord": MetadataDelta._replay_remove_acl,
    "NoOpRecord": MetadataDelta._replay_nothing,
    "ZkMigrationStateRecord": MetadataDelta._replay_nothing,
    "RemoveUserScramCredentialRecord": MetadataDelta._replay_remove_scram,
    "BeginTransactionRecord": MetadataDelta._replay_nothing,
    "EndTransactionRecord": MetadataDelta._replay_nothing,
    "AbortTransactionRecord": MetadataDelta._replay_nothing,
    "RemoveDelegationTokenRecord": MetadataDelta._replay_remove_token,
    "RegisterControllerRecord": MetadataDelta._replay_register_controller,
    "ClearElrRecord": MetadataDelta._replay_clear_elr,
    "UnregisterControllerRecord": MetadataDelta._replay_unregister_controller,
}


def _is_there(key: Any, changes: Mapping[Any, object], before: Container[Any]) -> bool:
    """Whether there is a value after these changes, None being a removal."""
    return changes[key] is not None if key in changes else key in before


def delta_to(image: MetadataImage, records: Iterable[Any]) -> MetadataDelta:
    """Return the delta from an older `image` to the image that a complete snapshot's records describe.

    Everything that the snapshot does not contain is deleted.
    """
    return end_of(delta_steps(image, records))


def delta_steps(image: MetadataImage, records: Iterable[Any]) -> DeltaSteps:
    """Like `delta_to`, in steps.

    A partition that is in the image as the snapshot has it is dropped at once: 100,000 of them, kept until the end and
    freed together, would hold the loop for 60 ms.
    """
    delta = MetadataDelta(image)
    topics, others = _SnapshotTopics(delta.topics), MetadataDelta(EMPTY_IMAGE)
    for count, record in enumerate(records, 1):
        if not topics.maybe_replay(record):
            others.replay(record)
        if count % ENTRIES_PER_STEP == 0:
            yield
    yield from topics.remove_missing()
    wanted = yield from others.apply_steps(image.provenance)
    yield from _add_difference(delta, wanted)
    return delta


class _SnapshotTopics:
    """Finds the changes from an image's topics to those of a complete snapshot, record by record."""

    def __init__(self, delta: TopicsDelta) -> None:
        self._delta = delta
        self._partition_counts: dict[Uuid, int] = {}
        """The number of partitions of each topic of the snapshot so far."""

    def maybe_replay(self, record: Any) -> bool:
        """Replay a record of a topic or partition; return False for any other."""
        if isinstance(record, PartitionRecord):
            self._replay_partition(record)
        elif isinstance(record, TopicRecord):
            self._replay_topic(record)
        else:
            return False
        return True

    def remove_missing(self) -> Iterator[None]:
        """Remove the image's topics that the snapshot does not have, in steps."""
        by_id = self._delta.image.by_id
        for count, topic_id in enumerate(by_id, 1):
            partition_count = self._partition_counts.get(topic_id)
            if partition_count is None:
                if topic_id not in self._delta.deleted:
                    self._delta.remove(topic_id)
            elif len(by_id[topic_id].partitions) > partition_count:
                raise AssertionError(f"topic {by_id[topic_id].name} has lost partitions")
            if count % ENTRIES_PER_STEP == 0:
                yield

    def _replay_topic(self, record: TopicRecord) -> None:
        topic_id, image = record.topic_id, self._delta.image
        assert topic_id not in self._partition_counts, f"topic {record.name} is created twice"
        self._partition_counts[topic_id] = 0
        if topic_id in image.by_id:
            return
        previous = image.by_name.get(record.name)
        if previous is not None and previous.topic_id not in self._partition_counts:
            self._delta.remove(previous.topic_id)
        self._delta.create(record.name, topic_id)

    def _replay_partition(self, record: PartitionRecord) -> None:
        topic_id = record.topic_id
        assert topic_id in self._partition_counts, "a partition's topic does not exist"
        self._partition_counts[topic_id] += 1
        registration = PartitionRegistration.from_record(record)
        before = self._delta.image.by_id.get(topic_id)
        if before is None or before.partitions.get(record.partition_id) != registration:
            self._delta.set_partition(topic_id, record.partition_id, registration)


def difference(before: MetadataImage, after: MetadataImage) -> MetadataDelta:
    """Return the delta from one image to any other."""
    return end_of(difference_steps(before, after))


def difference_steps(before: MetadataImage, after: MetadataImage) -> DeltaSteps:
    """Like `difference`, in steps."""
    delta = MetadataDelta(before)
    yield from _difference_of_topics(delta.topics, after.topics)
    yield from _add_difference(delta, after)
    return delta


def _add_difference(delta: MetadataDelta, after: MetadataImage) -> Iterator[None]:
    """Add the changes of all but topics to `delta`, in steps."""
    before = delta.image
    delta.feature_changes = {k: v or 0 for k, v in _changes(before.features.levels, after.features.levels).items()}
    delta.broker_changes = _changes(before.cluster.brokers, after.cluster.brokers)
    delta.controller_changes = _changes(before.cluster.controllers, after.cluster.controllers)
    configs = yield from _changes_steps(before.configs.by_resource, after.configs.by_resource)
    delta.config_changes = {resource: dict(changed or {}) for resource, changed in configs.items()}
    quotas = _changes(before.client_quotas, after.client_quotas)
    delta.quota_changes = {entity: dict(changed or {}) for entity, changed in quotas.items()}
    delta.acl_changes = yield from _changes_steps(before.acls, after.acls)
    delta.scram_changes = yield from _changes_steps(before.scram, after.scram)
    delta.token_changes = yield from _changes_steps(before.delegation_tokens, after.delegation_tokens)
    delta.next_producer_id = after.next_producer_id


def _difference_of_topics(delta: TopicsDelta, after: TopicsImage) -> Iterator[None]:
    for count, (topic_id, topic) in enumerate(delta.image.by_id.items(), 1):
        if topic_id not in after.by_id:
            delta.remove(topic_id)
        elif len(topic.partitions) > len(after.by_id[topic_id].partitions):
            raise AssertionError(f"topic {topic.name} has lost partitions")
        if count % ENTRIES_PER_STEP == 0:
            yield
    count = 0
    for topic_id, topic in after.by_id.items():
        before = delta.image.by_id.get(topic_id)
        if before is None:
            delta.create(topic.name, topic_id)
        for partition_id, partition in topic.partitions.items():
            if before is None or before.partitions.get(partition_id) != partition:
                delta.set_partition(topic_id, partition_id, partition)
        count += len(topic.partitions)
        if count >= ENTRIES_PER_STEP:
            count = 0
            yield


def _merged(entries: Mapping[Any, Any], changes: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Return the entries with the changes applied; None removes an entry. Without changes, the same mapping."""
    if not changes:
        return entries
    merged = {**entries, **changes}
    return {key: value for key, value in merged.items() if value is not None}


def _changes(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the changes from `before` to `after`: new values by key, None for removed keys."""
    return end_of(_changes_steps(before, after))


def _changes_steps(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> Generator[None, None, dict[Any, Any]]:
    """Like `_changes`, in steps."""
    changes: dict[Any, Any] = {}
    for count, key in enumerate(before, 1):
        if key not in after:
            changes[key] = None
        if count % ENTRIES_PER_STEP == 0:
            yield
    for count, (key, value) in enumerate(after.items(), 1):
        if before.get(key) != value:
            changes[key] = value
        if count % ENTRIES_PER_STEP == 0:
            yield
    return changes
