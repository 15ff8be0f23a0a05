"""The controller's rules for dynamic configs: validation of changes, and the effective configs of a topic.

Implements kafkapy.metadata.configs.ConfigRules. Errors are ApiError INVALID_CONFIG or INVALID_REQUEST with Kafka's
messages. Source: KIP-226, KIP-714, KIP-848, KIP-932.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from kafkapy.config.broker import BrokerConfig
from kafkapy.config.definitions import (
    ConfigType,
    Definition,
    Value,
    broker_definitions,
    client_metrics_definitions,
    dynamic_only_definitions,
    group_definitions,
    split_list,
    topic_definitions,
)
from kafkapy.config.dynamic import DynamicConfig
from kafkapy.config.topic import HOUR_MS, MINUTE_MS, inherited_values
from kafkapy.errors import ApiError, ConfigError
from kafkapy.named_tuple import NamedTuple

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32

INVALID_CONFIG: Final = 40
INVALID_REQUEST: Final = 42
"""Two codes of kafkapy.protocol.error_code, which this layer must not import."""

SOURCE_TOPIC: Final = 1
SOURCE_BROKER: Final = 2
SOURCE_CLUSTER: Final = 3
SOURCE_STATIC: Final = 4
SOURCE_DEFAULT: Final = 5
SOURCE_BROKER_LOGGER: Final = 6
SOURCE_CLIENT_METRICS: Final = 7
SOURCE_GROUP: Final = 8
"""The source of a value, as in DescribeConfigs and CreateTopics."""

BROKER_SYNONYMS: Final[Mapping[str, tuple[tuple[str, int], ...]]] = {
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", HOUR_MS)),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOUR_MS)),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", MINUTE_MS),
        ("log.retention.hours", HOUR_MS),
    ),
}
"""Topic keys whose default comes from several broker keys, the first that is set wins; with the unit in ms."""

GROUP_SYNONYMS: Final[Mapping[str, str]] = {
    key: f"group.{key}"
    for key in (
        "consumer.session.timeout.ms",
        "consumer.heartbeat.interval.ms",
        "consumer.assignment.interval.ms",
        "consumer.assignor.offload.enable",
        "share.session.timeout.ms",
        "share.heartbeat.interval.ms",
        "share.record.lock.duration.ms",
        "share.delivery.count.limit",
        "share.partition.max.record.locks",
        "share.assignment.interval.ms",
        "share.assignor.offload.enable",
        "streams.session.timeout.ms",
        "streams.heartbeat.interval.ms",
        "streams.num.standby.replicas",
        "streams.initial.rebalance.delay.ms",
        "streams.assignment.interval.ms",
        "streams.assignor.offload.enable",
        "streams.task.offset.interval.ms",
        "streams.num.warmup.replicas",
        "streams.rack.aware.assignment.tags",
        "streams.acceptable.recovery.lag",
    )
}
"""The broker key from which a group key inherits its default; streams.assignor.name inherits from STREAMS_ASSIGNORS."""
STREAMS_ASSIGNOR: Final = "streams.assignor.name"
STREAMS_ASSIGNORS: Final = "group.streams.assignors"
RACK_TAGS: Final = "streams.rack.aware.assignment.tags"
DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"

MATCH_KEYS: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)

MAX_MATCHES: Final = 4 * len(MATCH_KEYS)
"""Deviation: Apache Kafka has no bound, though of patterns with one selector only the last counts. Here more are
refused, because each is matched with every client."""


class Resource(Protocol):
    """A resource that has configs, such as kafkapy.metadata.image.ConfigResource."""

    @property
    def resource_type(self) -> int: ...

    @property
    def name(self) -> str: ...


class EffectiveConfig(NamedTuple):
    """The effective value of a topic config; `source` as in DescribeConfigs (SOURCE_*)."""

    name: str
    value: str | None
    source: int
    is_read_only: bool
    is_sensitive: bool


class DynamicConfigRules:
    """The rules of a cluster, according to the current configuration of the node that decides (the controller)."""

    def __init__(self, config: DynamicConfig) -> None:
        self._config = config

    @property
    def _broker(self) -> BrokerConfig:
        return self._config.current

    def validate(self, resource: Resource, configs: Mapping[str, str], existing: Mapping[str, str]) -> None:
        """Raise ApiError if `configs`, all new configs of a resource, are invalid."""
        try:
            self._validate(resource, configs, existing)
        except ConfigError as error:
            raise ApiError(INVALID_CONFIG, str(error)) from error

    def is_list(self, resource_type: int, key: str) -> bool:
        """Whether APPEND and SUBTRACT are allowed: the key is a LIST of a topic or broker, as in Kafka's schema."""
        if resource_type not in (TOPIC, BROKER):
            return False
        definition = definitions_of(resource_type).get(key)
        return definition is not None and definition.type is ConfigType.LIST

    def default_value(self, resource_type: int, key: str) -> str | None:
        """Return Kafka's default of a key as text, None without one."""
        definition = definitions_of(resource_type).get(key)
        return None if definition is None else definition.default_text

    def effective_topic_configs(
        self, *, cluster: Mapping[str, str], node: Mapping[str, str], topic: Mapping[str, str]
    ) -> list[EffectiveConfig]:
        """Return every topic key with its effective value; internal keys only if they are set."""
        return [
            self._effective(definition, cluster, node, topic)
            for key, definition in topic_definitions().items()
            if not definition.is_internal or key in topic
        ]

    def effective_topic_config(
        self, key: str, *, cluster: Mapping[str, str], node: Mapping[str, str], topic: Mapping[str, str]
    ) -> str | None:
        """Return the effective value of one topic key, as in effective_topic_configs."""
        return self._effective(topic_definitions()[key], cluster, node, topic).value

    def _effective(
        self, definition: Definition, cluster: Mapping[str, str], node: Mapping[str, str], topic: Mapping[str, str]
    ) -> EffectiveConfig:
        """Return the first value of: topic, this node's and the cluster's dynamic configs, static configs, default."""
        if definition.key in topic:
            return EffectiveConfig(definition.key, topic[definition.key], SOURCE_TOPIC, False, False)
        layers = ((node, SOURCE_BROKER), (cluster, SOURCE_CLUSTER), (self._config.static.originals, SOURCE_STATIC))
        for layer, source in layers:
            for key, factor_ms in broker_synonyms_of(definition):
                if key in layer:
                    value = layer[key] if factor_ms == 1 else str(int(layer[key]) * factor_ms)
                    return EffectiveConfig(definition.key, value, source, False, False)
        return EffectiveConfig(definition.key, definition.default_text, SOURCE_DEFAULT, False, False)

    def _validate(self, resource: Resource, configs: Mapping[str, str], existing: Mapping[str, str]) -> None:
        nulls = [key for key, value in configs.items() if value is None]
        if nulls:
            kind = {TOPIC: "topic", GROUP: "group", CLIENT_METRICS: "client metrics"}.get(resource.resource_type)
            raise ApiError(INVALID_CONFIG, f"Null value not supported for {kind} configs: {','.join(nulls)}")
        if resource.resource_type == TOPIC:
            self._validate_topic(resource.name, configs, existing)
        elif resource.resource_type == BROKER:
            _validate_broker_name(resource.name)
        elif resource.resource_type == CLIENT_METRICS:
            _validate_client_metrics(resource.name, configs)
        elif resource.resource_type == GROUP:
            self._validate_group(resource.name, configs)
        else:
            raise ApiError(INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")

    def _validate_topic(self, name: str, configs: Mapping[str, str], existing: Mapping[str, str]) -> None:
        if not name:
            raise ApiError(INVALID_REQUEST, "Default topic resources are not allowed.")
        values = inherited_values(self._broker) | _parse_known(configs, topic_definitions(), "topic")
        validate_log_values(values)
        if values["remote.storage.enable"]:
            # Deviation: Apache Kafka has tiered storage with remote.log.storage.system.enable. Here it is refused,
            # because it is not supported.
            raise ApiError(
                INVALID_CONFIG,
                "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log "
                "storage.",
            )
        was_remote = existing.get("remote.storage.enable", "").strip().lower() == "true"
        if was_remote and not values["remote.log.delete.on.disable"]:
            raise ApiError(
                INVALID_CONFIG,
                "It is invalid to disable remote storage without deleting remote data. If you want to keep the remote "
                "data and turn to read only, please set `remote.storage.enable=true,remote.log.copy.disable=true`. If "
                "you want to disable remote storage and delete all remote data, please set "
                "`remote.storage.enable=false,remote.log.delete.on.disable=true`.",
            )

    def _validate_group(self, name: str, configs: Mapping[str, str]) -> None:
        if not name:
            raise ApiError(INVALID_REQUEST, "Default group resources are not allowed.")
        _check_rack_tags(configs)
        own = _parse_known(configs, group_definitions(), "group")
        for key in GROUP_SYNONYMS:
            if key in own:
                self._check_group_bounds(key, own[key])
        self._check_streams_assignor(own)
        for kind in ("consumer", "share", "streams"):
            timeout, interval = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
            timeout_ms, interval_ms = (
                _number(own[key] if key in own else self._broker.value(GROUP_SYNONYMS[key]))
                for key in (timeout, interval)
            )
            if (timeout in own or interval in own) and timeout_ms <= interval_ms:
                raise ApiError(INVALID_CONFIG, f"{timeout} must be greater than {interval}")
        if str(own.get(DEAD_LETTER_TOPIC, "")).startswith("__"):
            raise ApiError(INVALID_CONFIG, f"{DEAD_LETTER_TOPIC}: DLQ topic name must not start with '__'")

    def _check_group_bounds(self, key: str, value: Value) -> None:
        """Raise ApiError if a group's value is out of the bounds that this broker has for it now."""
        known = broker_definitions()
        low, high = (
            _number(self._broker.value(each)) if each in known else None
            for each in (_bound_key(key, "min"), _bound_key(key, "max"))
        )
        if low is not None and high is not None:
            if not low <= _number(value) <= high:
                raise ApiError(INVALID_CONFIG, f"{key} must be in the range {low} to {high} inclusive.")
        elif low is not None and _number(value) < low:
            raise ApiError(INVALID_CONFIG, f"{key} must be greater than or equal to {low}")
        elif high is not None and _number(value) > high:
            raise ApiError(INVALID_CONFIG, f"{key} must be less than or equal to {high}")

    def _check_streams_assignor(self, own: Mapping[str, Value]) -> None:
        registered = self._broker.value(STREAMS_ASSIGNORS)
        assert isinstance(registered, tuple)
        name = own.get(STREAMS_ASSIGNOR)
        if name is not None and name not in registered:
            raise ApiError(
                INVALID_CONFIG,
                f"{STREAMS_ASSIGNOR} '{name}' is not a registered task assignor. Registered assignors are: "
                f"[{', '.join(registered)}].",
            )


def _check_rack_tags(configs: Mapping[str, str]) -> None:
    tags = split_list(configs.get(RACK_TAGS, ""))
    if len(set(tags)) < len(tags):
        raise ApiError(INVALID_CONFIG, f"{RACK_TAGS} must not contain duplicate tag keys.")


def _bound_key(key: str, bound: str) -> str:
    """Return the broker key that bounds a group key: share.session.timeout.ms -> group.share.min.session.timeout.ms."""
    kind, _, rest = key.partition(".")
    return f"group.{kind}.{bound}.{rest.removeprefix('num.')}"


def definitions_of(resource_type: int) -> Mapping[str, Definition]:
    """Return the keys of a resource type; for brokers, those of server.properties and the dynamic-only ones."""
    if resource_type == BROKER:
        return {**broker_definitions(), **dynamic_only_definitions()}
    tables = {TOPIC: topic_definitions, CLIENT_METRICS: client_metrics_definitions, GROUP: group_definitions}
    return tables[resource_type]() if resource_type in tables else {}


def broker_synonyms_of(definition: Definition) -> tuple[tuple[str, int], ...]:
    """Return the broker keys that give a topic key's default, first wins, each with its unit in ms (1 for none)."""
    if definition.key in BROKER_SYNONYMS:
        return BROKER_SYNONYMS[definition.key]
    return ((definition.broker_key, 1),) if definition.broker_key is not None else ()


def validate_log_values(values: Mapping[str, Value]) -> None:
    """Check the rules between a topic's keys. Raises ApiError."""
    low, high = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    if _number(low) > _number(high):
        raise ApiError(
            INVALID_CONFIG,
            f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high})",
        )


def _parse_known(configs: Mapping[str, str], known: Mapping[str, Definition], kind: str) -> dict[str, Value]:
    for key in configs:
        if key not in known:
            raise ApiError(INVALID_CONFIG, f"Unknown {kind} config name: {key}")
    return {key: known[key].parse(text) for key, text in configs.items()}


def _validate_broker_name(name: str) -> None:
    if not name:
        return
    if not re.fullmatch(r"[+-]?\d{1,10}", name):
        raise ApiError(INVALID_REQUEST, "Unable to parse broker name as a base 10 number.")
    if int(name) < 0:
        raise ApiError(INVALID_REQUEST, "Invalid negative broker ID.")


def _validate_client_metrics(name: str, configs: Mapping[str, str]) -> None:
    if not name:
        raise ApiError(INVALID_REQUEST, "Subscription name can't be empty")
    known = client_metrics_definitions()
    for key in configs:
        if key not in known:
            raise ApiError(INVALID_REQUEST, f"Unknown client metrics configuration: {key}")
    values: dict[str, Any] = {key: known[key].parse(text) for key, text in configs.items()}
    interval_ms = values.get("interval.ms", 300_000)
    if not 100 <= interval_ms <= 3_600_000:
        message = f"Invalid value {interval_ms} for interval.ms, interval must be between 100 and 3600000 (1 hour)"
        raise ApiError(INVALID_REQUEST, message)
    patterns = values.get("match", ())
    if len(patterns) > MAX_MATCHES:
        raise ApiError(INVALID_CONFIG, f"Illegal client matching patterns: {len(patterns)} of them")
    _validate_matches(patterns)


def _validate_matches(entries: Sequence[str]) -> None:
    """Raise INVALID_CONFIG for what is no selector and pattern.

    Deviation: Apache Kafka's patterns are Java's. Here they are RE2's, because its time is linear: one that only Java
    can compile (a lookahead, a back reference) is refused.
    """
    from kafkapy.config.patterns import PatternError, check, check_sizes, selector_and_pattern

    found = [(entry, selector_and_pattern(entry)) for entry in entries]
    try:
        check_sizes(*(parts[1] for _, parts in found if parts is not None))
    except PatternError as error:
        raise ApiError(INVALID_CONFIG, f"Illegal client matching patterns: {error}") from error
    for entry, parts in found:
        try:
            if parts is None or parts[0] not in MATCH_KEYS:
                raise PatternError("no selector")
            check(parts[1])
        except PatternError as error:
            raise ApiError(INVALID_CONFIG, f"Illegal client matching pattern: {entry}") from error


def _number(value: Value) -> int | float:
    assert isinstance(value, int | float)
    return value
