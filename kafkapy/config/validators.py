"""Validators of config values (ranges, words, lists), built from the notation of the facts tables.

Error messages are Apache Kafka's. A `ConfigRuleError` has a complete message that names key and value itself.
"""

import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from kafkapy.errors import ConfigError
from kafkapy.types import INT64_MAX

Validator: TypeAlias = Callable[[str, Any], None]

NON_EMPTY_LISTS: Final = frozenset(
    {
        "advertised.listeners",
        "controller.listener.names",
        "group.consumer.assignors",
        "group.coordinator.rebalance.protocols",
        "group.share.assignors",
        "group.streams.assignors",
        "listeners",
        "log.dir",
        "log.dirs",
        "process.roles",
    }
)
"""Lists that must not be empty (ConfigDef.ValidList without isEmptyAllowed)."""

FREE_LISTS: Final = frozenset(
    {
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
    }
)
"""Lists with special validators, which allow duplicates and empty items."""

_WHOLE: Final = r"([+-]?\d{1,40})"
"""More digits than a Java long has, and less than `int` takes."""
DURATION: Final = re.compile(
    rf"([+-])?P(?=.)(?:{_WHOLE}D)?(?:T(?=.)(?:{_WHOLE}H)?(?:{_WHOLE}M)?(?:{_WHOLE}(?:[.,](\d{{0,9}}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
ADDRESS: Final = r"(?:\[([0-9a-fA-F:.%]+)\]|([0-9a-zA-Z\-._]*)):([0-9]{1,5})"
HOST_AND_PORT: Final = re.compile(r"(?:[0-9a-zA-Z\-%._]*://)?\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]+)")


class ConfigRuleError(ConfigError):
    """A ConfigError whose message is complete without key and value."""

    def __str__(self) -> str:
        return self.message


def validator_for(key: str, valid_values: str, *, is_list: bool) -> Validator | None:
    """Return the validator for a facts table's notation, None if every value of the type is valid."""
    if is_list:
        return _list_validator(key, valid_values)
    if key == "compression.gzip.level":
        return _gzip_level
    if key == "share.auto.offset.reset":
        return _offset_reset
    if valid_values == "host:port":
        return _host_and_port
    if valid_values.startswith("(case insensitive) "):
        return _one_of_any_case(_words(valid_values.removeprefix("(case insensitive) ")))
    if valid_values == "non-empty string":
        return _non_empty
    if "..." in valid_values:
        return _range(valid_values)
    return _one_of(_words(valid_values)) if valid_values.startswith("[") else None


def _words(notation: str) -> list[str]:
    return notation.removeprefix("[").removesuffix("]").split(", ")


def _range(notation: str) -> Validator:
    low_text, _, high_text = notation.strip("[]").partition("...")
    low = _bound(low_text.strip(","))
    high = _bound(high_text.strip(","))

    def check(key: str, value: Any) -> None:
        if value is None:
            raise ConfigError(key, None, "Value must be non-null")
        if low is not None and value < low:
            raise ConfigError(key, value, f"Value must be at least {low}")
        if high is not None and value > high:
            raise ConfigError(key, value, f"Value must be no more than {high}")

    return check


def _bound(text: str) -> int | float | None:
    if not text:
        return None
    return float(text) if "." in text else int(text)


def _one_of(words: list[str]) -> Validator:
    def check(key: str, value: Any) -> None:
        if value not in words:
            raise ConfigError(key, value, f"String must be one of: {', '.join(words)}")

    return check


def _one_of_any_case(words: list[str]) -> Validator:
    def check(key: str, value: Any) -> None:
        if value.upper() not in words:
            raise ConfigError(key, value, f"String must be one of (case insensitive): {', '.join(words)}")

    return check


def _non_empty(key: str, value: Any) -> None:
    if value == "":
        raise ConfigError(key, value, "String must be non-empty")


def _host_and_port(key: str, value: Any) -> None:
    matched = re.fullmatch(ADDRESS, value or ":0")
    if matched is None or int(matched[3]) > 65535:
        raise ConfigError(key, value, "It must read host:port, [IPv6 address]:port or :port for all addresses")


def _gzip_level(key: str, value: Any) -> None:
    if not 1 <= value <= 9 and value != -1:
        raise ConfigError(key, value, "Value must be between 1 and 9 or equal to -1")


def _offset_reset(key: str, value: Any) -> None:
    prefix, _, duration = value.rpartition(":")
    reset_ms = duration_ms(duration) if prefix == "by_duration" else None
    is_duration = reset_ms is not None and reset_ms >= 0
    if value not in ("latest", "earliest") and not is_duration:
        expected = "The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
        raise ConfigError(key, value, f"Invalid value `{value}` for configuration {key}. {expected}")


def duration_ms(text: str) -> int | None:
    """Return the milliseconds of a duration as java.time.Duration reads it (ISO-8601): PT1H30M, P1DT0.5S. Else None.

    Its seconds are a Java long.
    """
    match = DURATION.fullmatch(text)
    if match is None:
        return None
    sign, days, hours, minutes, seconds, fraction = match.groups()
    whole_s = ((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes or 0)) * 60 + int(seconds or 0)
    if abs(whole_s) > INT64_MAX:
        return None
    nanos = int((fraction or "0").ljust(9, "0"))
    total_ns = whole_s * 1_000_000_000 + (-nanos if (seconds or "").startswith("-") else nanos)
    return (-total_ns if sign == "-" else total_ns) // 1_000_000


def _list_validator(key: str, valid_values: str) -> Validator:
    if key.endswith(".replication.throttled.replicas"):
        return _throttled_replicas
    if key == "controller.quorum.voters":
        return _quorum_voters
    if key == "controller.quorum.bootstrap.servers":
        return _bootstrap_servers
    words = _words(valid_values) if valid_values.startswith("[") else []

    def check(key: str, value: Any) -> None:
        _check_list(key, value, words)

    return check


def _check_list(key: str, value: tuple[str, ...], words: list[str]) -> None:
    if not value and key in NON_EMPTY_LISTS:
        allowed = f"[{', '.join(words)}]" if words else "any non-empty value"
        raise ConfigRuleError(key, "", f"Configuration '{key}' must not be empty. Valid values include: {allowed}")
    for item in value:
        if not item:
            raise ConfigRuleError(key, ",".join(value), f"Configuration '{key}' values must not be empty.")
        if words and item not in words:
            raise ConfigError(key, item, f"String must be one of: {', '.join(words)}")


def _throttled_replicas(key: str, value: Any) -> None:
    if "".join(value) == "*" or all(re.fullmatch(r"([0-9]+:[0-9]+)?", item) for item in value):
        return
    notation = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    shown = f"[{', '.join(value)}]"
    raise ConfigError(
        key, shown, f"{key} must be the literal '*' or a list of replicas in the following format: {notation}"
    )


def _quorum_voters(key: str, value: Any) -> None:
    parse_quorum_voters(value)


def _bootstrap_servers(key: str, value: Any) -> None:
    for server in value:
        if HOST_AND_PORT.match(server) is None:
            expected = 'Each entry should be in the form "{host}:{port}"'
            message = f"Failed to parse host name from {server} for the configuration {key}. {expected}"
            raise ConfigRuleError(key, server, message)


def parse_quorum_voters(entries: tuple[str, ...]) -> dict[int, tuple[str, int]]:
    """Return voter id -> (host, port) from controller.quorum.voters. Raises ConfigError.

    An entry is `{id}@{host}:{port}`. Non-routable addresses (0.0.0.0:0) are allowed here, as in Kafka's check.
    """
    return dict(_parse_quorum_voter(entry) for entry in entries)


def _parse_quorum_voter(entry: str) -> tuple[int, tuple[str, int]]:
    key = "controller.quorum.voters"
    expected = "Each entry should be in the form `{id}@{host}:{port}`."
    voter_id, at, address = entry.partition("@")
    if not at or "@" in address:
        raise ConfigRuleError(key, entry, f"Invalid configuration value for {key}. {expected}")
    if not re.fullmatch(r"[+-]?\d+", voter_id) or len(voter_id) > 11:
        message = f"Failed to parse voter ID as an integer from {voter_id}"
        raise ConfigRuleError(key, entry, f"{message} for the configuration {key}. {expected}")
    matched = HOST_AND_PORT.match(address)
    if matched is None:
        raise ConfigRuleError(
            key, entry, f"Failed to parse host name from entry {entry} for the configuration {key}. {expected}"
        )
    return int(voter_id), (matched[1], int(matched[2]))
