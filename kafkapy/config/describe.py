"""The entries of DescribeConfigs: each key's value, its source, and its synonyms.

As by Apache Kafka's ConfigHelper, including its quirks: a broker key's synonyms begin with the key itself, or it has
none (log.retention.ms unset, log.retention.hours set: no synonyms, source DEFAULT_CONFIG); an undefined key is treated
as sensitive. The documentation of keys is in documentation.py.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import cache

from kafkapy.config.definitions import (
    Definition,
    Value,
    broker_definitions,
    client_metrics_definitions,
    group_definitions,
    to_text,
    topic_definitions,
)
from kafkapy.config.dynamic import DynamicConfig, broker_definition, is_dynamic, synonyms_of
from kafkapy.config.rules import (
    GROUP_SYNONYMS,
    SOURCE_BROKER,
    SOURCE_CLIENT_METRICS,
    SOURCE_CLUSTER,
    SOURCE_DEFAULT,
    SOURCE_GROUP,
    SOURCE_STATIC,
    SOURCE_TOPIC,
    STREAMS_ASSIGNOR,
    STREAMS_ASSIGNORS,
)
from kafkapy.config.topic import inherited_values, parse_overrides
from kafkapy.dataclass import dataclass
from kafkapy.named_tuple import NamedTuple

UNKNOWN_TYPE = 0


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: int


@dataclass(slots=True)
class ConfigEntry:
    """One key of a resource. `type_code` is ConfigType's value, 0 for an undefined key."""

    name: str
    value: str | None
    source: int
    is_read_only: bool = False
    is_sensitive: bool = False
    type_code: int = UNKNOWN_TYPE
    synonyms: list[Synonym] = field(default_factory=list)


def describe_broker(dynamic: DynamicConfig) -> list[ConfigEntry]:
    """Return all of this broker's keys; internal and unknown keys only if they are set."""
    config = dynamic.current
    shown: dict[str, str | None] = {
        key: to_text(config.value(key))
        for key, definition in broker_definitions().items()
        if not definition.is_internal and not definition.is_of_authorizer
    }
    shown = {**{key: text for key, text in config.originals.items() if key not in shown}, **shown}
    return [_broker_entry(dynamic, key, text) for key, text in shown.items()]


def describe_cluster_default(dynamic: DynamicConfig) -> list[ConfigEntry]:
    """Return the dynamic configs of the cluster (the broker resource with an empty name)."""
    entries = [_broker_entry(dynamic, key, text) for key, text in dynamic.cluster.items()]
    for entry in entries:
        entry.synonyms = [synonym for synonym in entry.synonyms if synonym.source == SOURCE_CLUSTER]
        entry.source = SOURCE_CLUSTER if entry.synonyms else SOURCE_DEFAULT
    return entries


def describe_topic(dynamic: DynamicConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Return all keys of a topic with these overrides; internal keys only if they are set."""
    values = inherited_values(dynamic.current) | parse_overrides(overrides)
    return [
        _inheriting_entry(dynamic, definition, values[key], definition.broker_key, overrides, SOURCE_TOPIC)
        for key, definition in topic_definitions().items()
        if not definition.is_internal or key in overrides
    ]


def describe_group(dynamic: DynamicConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Return all keys of a group with these overrides; internal keys only if they, or their broker keys, are set."""
    synonyms = {**GROUP_SYNONYMS, STREAMS_ASSIGNOR: STREAMS_ASSIGNORS}
    config, known = dynamic.current, group_definitions()
    values: dict[str, Value] = {key: definition.default for key, definition in known.items()}
    values.update({key: config.value(broker_key) for key, broker_key in GROUP_SYNONYMS.items()})
    values[STREAMS_ASSIGNOR] = config.group.group_streams_assignors[0]
    values.update({key: known[key].parse(text) for key, text in overrides.items() if key in known})
    return [
        _inheriting_entry(dynamic, definition, values[key], synonyms.get(key), overrides, SOURCE_GROUP)
        for key, definition in known.items()
        if not definition.is_internal or key in overrides or synonyms.get(key) in config.originals
    ]


def describe_client_metrics(overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Return all keys of a client metrics subscription with these overrides."""
    entries = []
    for key, definition in client_metrics_definitions().items():
        text = to_text(definition.parse(overrides[key])) if key in overrides else definition.default_text
        synonyms = [Synonym(key, text, SOURCE_CLIENT_METRICS)] if key in overrides else []
        source = SOURCE_CLIENT_METRICS if key in overrides else SOURCE_DEFAULT
        entries.append(ConfigEntry(key, text, source, type_code=definition.type.value, synonyms=synonyms))
    return entries


def _broker_entry(dynamic: DynamicConfig, key: str, text: str | None) -> ConfigEntry:
    definition = broker_definition(key)
    if definition is not None and definition.is_of_authorizer:
        definition = None
    is_sensitive = definition is None or definition.is_sensitive
    synonyms = _broker_synonyms(dynamic, key, is_sensitive=is_sensitive)
    return ConfigEntry(
        name=key,
        value=None if is_sensitive else text,
        source=synonyms[0].source if synonyms else SOURCE_DEFAULT,
        is_read_only=not is_dynamic(key),
        is_sensitive=is_sensitive,
        type_code=definition.type.value if definition is not None else UNKNOWN_TYPE,
        synonyms=synonyms,
    )


def _inheriting_entry(
    dynamic: DynamicConfig,
    definition: Definition,
    value: Value,
    broker_key: str | None,
    overrides: Mapping[str, str],
    own_source: int,
) -> ConfigEntry:
    """Return the entry of a topic or group key, which may inherit from a broker key."""
    text = to_text(value)
    if broker_key is not None:
        synonyms = _broker_synonyms(dynamic, broker_key, is_sensitive=False)
    elif own_source == SOURCE_GROUP:
        synonyms = [Synonym(definition.key, definition.default_text, SOURCE_DEFAULT)]
    else:
        synonyms = []
    if definition.key in overrides:
        synonyms.insert(0, Synonym(definition.key, text, own_source))
    return ConfigEntry(
        name=definition.key,
        value=text,
        source=synonyms[0].source if synonyms else SOURCE_DEFAULT,
        type_code=definition.type.value,
        synonyms=synonyms,
    )


def _broker_synonyms(dynamic: DynamicConfig, key: str, *, is_sensitive: bool) -> list[Synonym]:
    found = list(_all_synonyms(dynamic, synonyms_of(key, with_base_key=True), is_sensitive=is_sensitive))
    first = next((index for index, synonym in enumerate(found) if synonym.name == key), len(found))
    return found[first:]


def _all_synonyms(dynamic: DynamicConfig, names: Iterable[str], *, is_sensitive: bool) -> Iterable[Synonym]:
    layers: tuple[tuple[Mapping[str, str], int], ...] = (
        (dynamic.broker, SOURCE_BROKER),
        (dynamic.cluster, SOURCE_CLUSTER),
        (dynamic.static.originals, SOURCE_STATIC),
        (_default_texts(), SOURCE_DEFAULT),
    )
    for layer, source in layers:
        for name in names:
            if name in layer:
                yield Synonym(name, None if is_sensitive else layer[name], source)


@cache
def _default_texts() -> Mapping[str, str]:
    """Return the broker keys' defaults as texts; a key without a default is absent."""
    texts = {key: each.default_text for key, each in broker_definitions().items() if not each.is_of_authorizer}
    return {key: text for key, text in texts.items() if text is not None}
