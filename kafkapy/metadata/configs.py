"""The controller's table of dynamic configs, and the decisions that change it.

Values are validated by `ConfigRules`, which kafkapy.config implements. This module defines what a change is, which
resources exist, and what the ELR feature forbids. Sources: KIP-226, KIP-339, KIP-966.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from kafkapy.config.definitions import split_list
from kafkapy.errors import ApiError
from kafkapy.machine import Decision, Steps
from kafkapy.metadata.features import MV_4_3_IV0, FeatureControl
from kafkapy.metadata.image import (
    RESOURCE_BROKER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    ConfigResource,
    MetadataImage,
)
from kafkapy.metadata.limits import check_operation_size
from kafkapy.named_tuple import NamedTuple
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.config_record import ConfigRecord

if TYPE_CHECKING:
    from kafkapy.config.rules import EffectiveConfig
    from kafkapy.protocol.messages.clear_elr_record import ClearElrRecord

ChangeT = TypeVar("ChangeT")

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
CORDONED_LOG_DIRS: Final = "cordoned.log.dirs"
UNCLEAN_LEADER_ELECTION: Final = "unclean.leader.election.enable"
CLUSTER_DEFAULT: Final = ConfigResource(RESOURCE_BROKER, "")
MAX_VALUE_LENGTH: Final = 32767
"""The maximum length of a ConfigRecord's value (Kafka's own limit)."""


class ConfigOperationType(IntEnum):
    """The operations of an incremental change (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigOperation(NamedTuple):
    """One key's incremental change; value is None for DELETE."""

    name: str
    operation: ConfigOperationType
    value: str | None


class ConfigRules(Protocol):
    """The rules of config keys and values; implemented by kafkapy.config.rules.DynamicConfigRules."""

    def validate(self, resource: ConfigResource, configs: Mapping[str, str], existing: Mapping[str, str]) -> None:
        """Raise ApiError (INVALID_CONFIG, INVALID_REQUEST) if `configs`, all new configs of a resource, are invalid."""
        ...

    def is_list(self, resource_type: int, key: str) -> bool:
        """Whether the key's type is LIST, which APPEND and SUBTRACT require."""
        ...

    def default_value(self, resource_type: int, key: str) -> str | None:
        """Return Kafka's default of a key as text, None without one."""
        ...

    def effective_topic_configs(
        self, *, cluster: Mapping[str, str], node: Mapping[str, str], topic: Mapping[str, str]
    ) -> "Sequence[EffectiveConfig]":
        """Return every topic key with its effective value: the first of the topic's config, this node's and the
        cluster's dynamic broker configs, the static ones, and Kafka's default."""
        ...

    def effective_topic_config(
        self, key: str, *, cluster: Mapping[str, str], node: Mapping[str, str], topic: Mapping[str, str]
    ) -> str | None:
        """Return the effective value of one topic key, as in effective_topic_configs."""
        ...


class ConfigControl:
    """Dynamic configs of all resources; only `replay` changes the table, `decide_*` methods do not."""

    def __init__(self, rules: ConfigRules, features: FeatureControl, node_id: int) -> None:
        self.rules = rules
        self._features = features
        self._node = ConfigResource(RESOURCE_BROKER, str(node_id))
        self._configs: dict[ConfigResource, dict[str, str]] = {}
        self.check_exists: Callable[[ConfigResource], None] = _exists
        """Raises ApiError if a resource does not exist; set by the Controller, which knows topics and brokers."""

    def load(self, image: MetadataImage) -> None:
        self._configs = {resource: dict(configs) for resource, configs in image.configs.by_resource.items()}

    def of(self, resource: ConfigResource) -> Mapping[str, str]:
        """Return the dynamic configs of one resource, including uncommitted ones."""
        return self._configs.get(resource, {})

    def replay(self, record: ConfigRecord) -> None:
        resource = ConfigResource(record.resource_type, record.resource_name)
        configs = self._configs.setdefault(resource, {})
        if record.value is None:
            configs.pop(record.name, None)
        else:
            configs[record.name] = record.value
        if not configs:
            del self._configs[resource]

    def forget_topic(self, name: str) -> None:
        """Drop a deleted topic's configs (part of replaying its removal)."""
        self._configs.pop(ConfigResource(RESOURCE_TOPIC, name), None)

    def decide_incremental_alter(
        self,
        changes: Mapping[ConfigResource, Sequence[ConfigOperation]],
        *,
        validate_only: bool = False,
        is_direct: bool = False,
    ) -> Steps[Any, dict[ConfigResource, ApiError | None]]:
        """Decide IncrementalAlterConfigs: each resource's operations succeed or fail together; None is success.

        `is_direct`: the client sent it to the controllers' listener, so no broker has checked its own configs.
        Raises ApiError POLICY_VIOLATION for too many records.
        """
        return self._decide_each(changes, partial(self._incremental_records, is_direct=is_direct), validate_only)

    def decide_legacy_alter(
        self,
        changes: Mapping[ConfigResource, Mapping[str, str | None]],
        *,
        validate_only: bool = False,
        is_direct: bool = False,
    ) -> Steps[Any, dict[ConfigResource, ApiError | None]]:
        """Decide AlterConfigs: the given configs replace all configs of a resource; None is success.

        `is_direct` as above. Raises ApiError POLICY_VIOLATION for too many records.
        """
        return self._decide_each(changes, partial(self._legacy_records, is_direct=is_direct), validate_only)

    def _decide_each(
        self,
        changes: Mapping[ConfigResource, ChangeT],
        records_of: Callable[[ConfigResource, ChangeT], list[ConfigRecord]],
        validate_only: bool,
    ) -> Steps[Any, dict[ConfigResource, ApiError | None]]:
        """Decide the changes of each resource on their own, a step each."""
        records: list[ConfigRecord] = []
        results: dict[ConfigResource, ApiError | None] = {}
        for resource, change in changes.items():
            try:
                records += records_of(resource, change)
                results[resource] = None
            except ApiError as error:
                results[resource] = error
            check_operation_size(len(records))
            yield []
        assert results.keys() == changes.keys(), "a resource without an outcome would count as changed"
        return self._decision(records, results, validate_only)

    def records_for_new_topic(self, name: str, configs: Mapping[str, str | None]) -> list[ConfigRecord]:
        """Return the records that set a new topic's configs. Raises ApiError if they are invalid."""
        operations = [ConfigOperation(key, ConfigOperationType.SET, value) for key, value in configs.items()]
        resource = ConfigResource(RESOURCE_TOPIC, name)
        return self._incremental_records(resource, operations, is_new=True)

    def elr_safety_records(self) -> list[ConfigRecord]:
        """Return the records that make min.insync.replicas equal on all brokers, as ELR requires (KIP-966)."""
        records = []
        if MIN_INSYNC_REPLICAS not in self.of(CLUSTER_DEFAULT):
            value = self.rules.effective_topic_config(MIN_INSYNC_REPLICAS, cluster={}, node={}, topic={})
            records.append(_record(CLUSTER_DEFAULT, MIN_INSYNC_REPLICAS, value or "1"))
        for resource, configs in self._configs.items():
            is_broker = resource.resource_type == RESOURCE_BROKER and resource.name != ""
            if is_broker and MIN_INSYNC_REPLICAS in configs:
                records.append(_record(resource, MIN_INSYNC_REPLICAS, None))
        return records

    def effective_topic_configs(self, topic_configs: Mapping[str, str]) -> "Sequence[EffectiveConfig]":
        """Return the effective configs of a topic with these overrides, as in the response of CreateTopics 5+."""
        return self.rules.effective_topic_configs(
            cluster=self.of(CLUSTER_DEFAULT), node=self.of(self._node), topic=topic_configs
        )

    def topic_config(self, topic: str, key: str) -> str | None:
        """Return the effective value of a topic's config."""
        return self.rules.effective_topic_config(
            key,
            cluster=self.of(CLUSTER_DEFAULT),
            node=self.of(self._node),
            topic=self.of(ConfigResource(RESOURCE_TOPIC, topic)),
        )

    def is_unclean_election_enabled(self, topic: str) -> bool:
        return self.topic_config(topic, UNCLEAN_LEADER_ELECTION) == "true"

    def min_insync_replicas(self, topic: str) -> int:
        return int(self.topic_config(topic, MIN_INSYNC_REPLICAS) or 1)

    def _decision(
        self,
        configs: Sequence[ConfigRecord],
        results: dict[ConfigResource, ApiError | None],
        validate_only: bool,
    ) -> Decision[Any, dict[ConfigResource, ApiError | None]]:
        records = [*configs, *self._clear_elr_records(configs)]
        check_operation_size(len(records))
        return Decision(results) if validate_only else Decision(results, records, is_atomic=True)

    def _clear_elr_records(self, records: Iterable[ConfigRecord]) -> "list[ClearElrRecord]":
        """Return records that clear ELRs: a changed min.insync.replicas makes them invalid."""
        from kafkapy.protocol.messages.clear_elr_record import ClearElrRecord

        if not self._features.is_elr_enabled:
            return []
        changed = [record for record in records if record.name == MIN_INSYNC_REPLICAS]
        names = [record.resource_name if record.resource_type == RESOURCE_TOPIC else "" for record in changed]
        return [ClearElrRecord(topic_name=name) for name in names]

    def _incremental_records(
        self,
        resource: ConfigResource,
        operations: Sequence[ConfigOperation],
        *,
        is_new: bool = False,
        is_direct: bool = False,
    ) -> list[ConfigRecord]:
        current = self.of(resource)
        records = []
        for operation in operations:
            value = self._next_value(resource, operation, current.get(operation.name))
            if value != current.get(operation.name) or resource.resource_type == RESOURCE_BROKER:
                records.append(_record(resource, operation.name, value))
        self._validate(resource, records, is_new=is_new, is_direct=is_direct)
        return records

    def _next_value(self, resource: ConfigResource, operation: ConfigOperation, current: str | None) -> str | None:
        if operation.operation == ConfigOperationType.SET:
            return operation.value
        if operation.operation == ConfigOperationType.DELETE:
            return None
        if not self.rules.is_list(resource.resource_type, operation.name):
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"Can't {operation.operation.name} to key {operation.name} because its type is not LIST.",
            )
        if current is None:
            current = self.rules.default_value(resource.resource_type, operation.name)
        return changed_list(current, operation)

    def _legacy_records(
        self, resource: ConfigResource, configs: Mapping[str, str | None], *, is_direct: bool = False
    ) -> list[ConfigRecord]:
        current = self.of(resource)
        is_broker = resource.resource_type == RESOURCE_BROKER
        records = [
            _record(resource, name, value) for name, value in configs.items() if is_broker or current.get(name) != value
        ]
        records += [_record(resource, name, None) for name in current if name not in configs]
        self._validate(resource, records, is_new=False, is_direct=is_direct)
        return records

    def _validate(
        self, resource: ConfigResource, records: Iterable[ConfigRecord], *, is_new: bool, is_direct: bool
    ) -> None:
        existing = self.of(resource)
        configs = dict(existing)
        for record in records:
            self._check_allowed(resource, record)
            if resource.resource_type == RESOURCE_BROKER and record.name == CORDONED_LOG_DIRS:
                self._check_cordons(existing.get(record.name), record.value, is_direct=is_direct)
            if record.value is None:
                configs.pop(record.name, None)
            else:
                configs[record.name] = record.value
        self.rules.validate(resource, configs, existing)
        if not is_new:
            self.check_exists(resource)

    def _check_cordons(self, current: str | None, value: str | None, *, is_direct: bool) -> None:
        """Raise ApiError unless cordons may be set: at this level, and only fewer of them without the broker's word."""
        if self._features.metadata_version < MV_4_3_IV0:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                "The cordoned.log.dirs configuration value cannot be set because it requires metadata.version >= "
                "4.3-IV0",
            )
        if is_direct and not set(split_list(value or "")) <= set(split_list(current or "")):
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                "When updating cordoned.log.dirs via controllers,  the new value must be a subset of the current "
                "configuration value.",
            )

    def _check_allowed(self, resource: ConfigResource, record: ConfigRecord) -> None:
        if record.value is not None and len(record.value) > MAX_VALUE_LENGTH:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                "The configuration value cannot be added because it exceeds the maximum value size of "
                f"{MAX_VALUE_LENGTH} bytes.",
            )
        if resource.resource_type != RESOURCE_BROKER or record.name != MIN_INSYNC_REPLICAS:
            return
        if not self._features.is_elr_enabled:
            return
        if resource.name:
            raise ApiError(
                ErrorCode.INVALID_CONFIG, "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
            )
        if record.value is None:
            raise ApiError(
                ErrorCode.INVALID_CONFIG, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
            )


def _record(resource: ConfigResource, name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=resource.resource_type, resource_name=resource.name, name=name, value=value)


def changed_list(current: str | None, operation: ConfigOperation) -> str:
    """Return a comma-separated list after an APPEND of missing elements or a SUBTRACT of existing ones.

    A list that has an element several times loses one of them by each time that it is subtracted, as in Apache Kafka.
    """
    elements = [element for element in (current or "").split(",") if element]
    changed = (operation.value or "").split(",")
    if operation.operation == ConfigOperationType.APPEND:
        known = frozenset(elements)
        return ",".join([*elements, *(element for element in dict.fromkeys(changed) if element not in known)])
    to_remove = Counter(changed)
    kept = []
    for element in elements:
        if to_remove[element]:
            to_remove[element] -= 1
        else:
            kept.append(element)
    return ",".join(kept)


def _exists(resource: ConfigResource) -> None:
    """The default of `check_exists`: every resource exists."""


CONTROLLED_TYPES: Final = (RESOURCE_TOPIC, RESOURCE_BROKER, RESOURCE_CLIENT_METRICS, RESOURCE_GROUP)
"""The resource types whose configs are in the metadata log (those of BROKER_LOGGER are not)."""
