"""Every key has a text, and every text a key."""

import re

import pytest

from kafkapy.config import definitions, documentation, rules

KEYS = {
    rules.BROKER: {*definitions.broker_definitions(), *definitions.dynamic_only_definitions()},
    rules.TOPIC: {*definitions.topic_definitions()},
    rules.GROUP: {*definitions.group_definitions()},
    rules.CLIENT_METRICS: {*definitions.client_metrics_definitions()},
}
TABLES = {rules.BROKER: documentation._BROKER, **documentation._TABLES}
LINE = re.compile(r"[a-z0-9.]+\*?: \S.*[.]")


@pytest.mark.parametrize("resource_type", KEYS)
def test_each_key_is_documented(resource_type: int) -> None:
    missing = [key for key in KEYS[resource_type] if not documentation.documentation_of(resource_type, key)]
    assert missing == []
    assert documentation.documentation_of(resource_type, "no.such.key") is None


@pytest.mark.parametrize("resource_type", TABLES)
def test_each_line_is_of_a_key_or_a_family_of_keys(resource_type: int) -> None:
    lines = TABLES[resource_type].strip().splitlines()
    assert [line for line in lines if not LINE.fullmatch(line)] == []
    names = [line.partition(":")[0] for line in lines]
    assert len(set(names)) == len(names)
    keys = KEYS[resource_type]
    unknown = [name for name in names if name not in keys and not (name.endswith("*") and _begins(name[:-1], keys))]
    assert unknown == []


def _begins(prefix: str, keys: set[str]) -> bool:
    return any(key.startswith(prefix) for key in keys)


def test_a_default_of_topics_says_so_and_a_listeners_key_is_that_of_all_listeners() -> None:
    of_topics = documentation.documentation_of(rules.TOPIC, "retention.ms")
    of_brokers = documentation.documentation_of(rules.BROKER, "log.retention.ms")
    assert of_topics is not None
    assert of_brokers == f"What topics have that do not set retention.ms themselves. {of_topics}"
    own = documentation.documentation_of(rules.BROKER, "listener.name.outside.ssl.keystore.location")
    assert own == documentation.documentation_of(rules.BROKER, "ssl.keystore.location")
