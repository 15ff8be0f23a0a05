"""A topic's log configuration: its overrides, the broker keys that it inherits, and Kafka's defaults."""

from collections.abc import Mapping
from typing import Final, Protocol

from kafkapy.config.definitions import Value, topic_definitions
from kafkapy.config.log import LogConfig

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000


class BrokerValues(Protocol):
    """The broker's values that topics inherit: BrokerConfig, which is built on this module."""

    def value(self, key: str) -> Value:
        """Return the typed value of a broker's key."""


def log_config(overrides: Mapping[str, str], broker: BrokerValues) -> LogConfig:
    """Return the configuration of a topic with these overrides, which were validated before.

    Stored overrides that this version does not know are ignored. internal.segment.bytes overrides segment.bytes.
    """
    values = inherited_values(broker)
    values.update(parse_overrides(overrides))
    if values.get("internal.segment.bytes") is not None:
        values["segment.bytes"] = values["internal.segment.bytes"]
    return LogConfig.from_values(values)


def parse_overrides(overrides: Mapping[str, str]) -> dict[str, Value]:
    """Return the typed values of the known overrides. Raises ConfigError."""
    definitions = topic_definitions()
    return {key: definitions[key].parse(text) for key, text in overrides.items() if key in definitions}


def inherited_values(broker: BrokerValues) -> dict[str, Value]:
    """Return every topic key's typed value for a topic without overrides on a broker."""
    values = {key: definition.default for key, definition in topic_definitions().items()}
    for key, definition in topic_definitions().items():
        if definition.broker_key is not None:
            values[key] = broker.value(definition.broker_key)
    values["segment.ms"] = roll_ms(broker)
    values["segment.jitter.ms"] = roll_jitter_ms(broker)
    values["retention.ms"] = retention_ms(broker)
    values["flush.ms"] = flush_interval_ms(broker)
    return values


def roll_ms(broker: BrokerValues) -> int:
    """log.roll.ms, else log.roll.hours."""
    return _first_set(broker, ("log.roll.ms", 1), ("log.roll.hours", HOUR_MS))


def roll_jitter_ms(broker: BrokerValues) -> int:
    """log.roll.jitter.ms, else log.roll.jitter.hours."""
    return _first_set(broker, ("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOUR_MS))


def retention_ms(broker: BrokerValues) -> int:
    """log.retention.ms, else .minutes, else .hours; -1 (unlimited) for any negative number."""
    keys = (("log.retention.ms", 1), ("log.retention.minutes", MINUTE_MS), ("log.retention.hours", HOUR_MS))
    return max(_first_set(broker, *keys), -1)


def flush_interval_ms(broker: BrokerValues) -> int:
    """log.flush.interval.ms, else log.flush.scheduler.interval.ms."""
    return _first_set(broker, ("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1))


def _first_set(broker: BrokerValues, *keys: tuple[str, int]) -> int:
    for key, factor_ms in keys:
        value = broker.value(key)
        if value is not None:
            assert isinstance(value, int)
            return value * factor_ms
    raise AssertionError(f"none of {keys} has a default")
