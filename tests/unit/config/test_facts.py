"""The tables and the typed models beside what was read off Apache Kafka 4.4.0 (tests/golden/*_configs.tsv)."""

import csv
import importlib
from pathlib import Path
from typing import get_type_hints

import pytest
from pydantic import TypeAdapter, ValidationError

from kafkapy.config.broker import BrokerConfig
from kafkapy.config.definitions import (
    ConfigType,
    Password,
    broker_definitions,
    dynamic_only_definitions,
    group_definitions,
    topic_definitions,
)
from kafkapy.config.dynamic import cluster_wide_keys, per_broker_keys
from kafkapy.config.log import LogConfig
from kafkapy.config.section import Section
from kafkapy.config.topic import inherited_values

SECTIONS = {
    "node": "NodeConfig",
    "network": "NetworkConfig",
    "log_defaults": "LogDefaults",
    "replication": "ReplicationConfig",
    "quorum": "QuorumConfig",
    "group": "GroupCoordinatorConfig",
    "share": "ShareConfig",
    "transaction": "TransactionConfig",
    "security": "SecurityConfig",
    "tls": "TlsConfig",
    "quota": "QuotaConfig",
    "remote": "RemoteStorageConfig",
    "metrics": "MetricsConfig",
}


def rows(name: str) -> list[dict[str, str]]:
    with Path(f"tests/golden/{name}_configs.tsv").open() as file:
        return [row for row in csv.DictReader(file, delimiter="\t") if "<" not in row["name"]]


def section_type(module: str) -> type[Section]:
    found = getattr(importlib.import_module(f"kafkapy.config.{module}"), SECTIONS[module])
    assert issubclass(found, Section)
    return found


TABLES = [("broker", broker_definitions), ("topic", topic_definitions), ("group", group_definitions)]


@pytest.mark.parametrize(("name", "definitions"), TABLES, ids=[name for name, _ in TABLES])
def test_every_key_has_kafkas_type_default_and_valid_values(name, definitions) -> None:
    expected = {row["name"]: row for row in rows(name)}
    known = {
        key: definition
        for key, definition in definitions().items()
        if not (key.startswith("kafkapy.") or definition.is_of_authorizer)
    }
    assert known.keys() == expected.keys()
    for key, row in expected.items():
        definition = known[key]
        assert definition.type.name == row["type"], key
        assert definition.valid_values == row["valid_values"].strip(), key
        assert definition.importance == row["importance"], key
        assert definition.is_internal == (row["internal"] == "true"), key
        assert _shown_default(definition) == row["default"].removeprefix("class "), key
        assert (definition.broker_key or "") == row.get("broker_synonym", ""), key


def _shown_default(definition) -> str:
    if definition.is_required:
        return "<required>"
    if definition.type is ConfigType.LIST and definition.default is not None:
        return f"[{', '.join(definition.default)}]"
    return "null" if definition.default_text is None else definition.default_text


def test_379_keys_and_what_the_authorizer_adds() -> None:
    kafkas = [
        key for key, each in broker_definitions().items() if not (each.is_of_authorizer or key.startswith("kafkapy."))
    ]
    assert len(kafkas) == 379


def test_dynamic_keys_are_kafkas() -> None:
    modes = {row["name"]: row["update_mode"] for row in rows("dynamic_broker")}
    assert cluster_wide_keys() == {key for key, mode in modes.items() if mode == "cluster-wide"}
    assert per_broker_keys() == {key for key, mode in modes.items() if mode == "per-broker"}
    assert modes.keys() - broker_definitions().keys() == dynamic_only_definitions().keys()


def test_every_broker_key_lies_in_exactly_one_section() -> None:
    keys = [key for module in SECTIONS for key in section_type(module).keys()]  # noqa: SIM118
    assert sorted(keys) == sorted(broker_definitions())


@pytest.mark.parametrize("module", SECTIONS)
def test_sections_have_kafkas_defaults_and_types(module) -> None:
    section = section_type(module)
    required = {"node_id": 1, "process_roles": ("broker",), "controller_listener_names": ("C",)}
    fields = section.keys().values()
    built = section(**{name: value for name, value in required.items() if name in fields})
    types = {ConfigType.BOOLEAN: bool, ConfigType.DOUBLE: float, ConfigType.LIST: tuple[str, ...]}
    types |= dict.fromkeys((ConfigType.INT, ConfigType.LONG, ConfigType.SHORT), int)
    types |= {ConfigType.STRING: str, ConfigType.CLASS: str, ConfigType.PASSWORD: Password}
    for key, field in section.keys().items():
        definition = broker_definitions()[key]
        if not definition.is_required:
            assert getattr(built, field) == definition.default, key
        expected = types[definition.type]
        nullable = definition.default is None and not definition.is_required
        assert get_type_hints(section)[field] == (expected | None if nullable else expected), key


@pytest.mark.parametrize("module", SECTIONS)
def test_pydantic_finds_nothing_wrong_with_a_section(module, config) -> None:
    built = section_type(module).from_values({key: config.value(key) for key in broker_definitions()})
    assert TypeAdapter(type(built)).validate_python(built, strict=True) == built


def test_pydantic_would_find_a_wrong_type() -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(LogConfig).validate_python(LogConfig(segment_bytes="7"), strict=True)  # type: ignore[arg-type]


def test_log_config_is_what_a_broker_without_settings_gives(config) -> None:
    assert config.log_config == LogConfig()
    assert LogConfig.from_values(inherited_values(config)) == LogConfig()


def test_properties_of_the_config_give_each_section(config: BrokerConfig) -> None:
    built = [
        *(config.node, config.network, config.log, config.replication, config.quorum, config.group, config.share),
        *(config.transaction, config.security, config.tls, config.quota, config.remote, config.metrics),
    ]
    assert [type(section).__name__ for section in built] == list(SECTIONS.values())
