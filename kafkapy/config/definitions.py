"""The definition of every configuration key (type, default, valid values), and parsing a text by it.

Texts are parsed and printed as by Kafka's ConfigDef: trimmed, booleans in any case, lists split at commas, numbers as
by Java's parsers. Error messages are Kafka's, because tools and tests compare them.
"""

import math
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cache
from typing import Final, TypeAlias

from kafkapy.config import facts
from kafkapy.config.validators import FREE_LISTS, ConfigRuleError, Validator, validator_for
from kafkapy.dataclass import dataclass
from kafkapy.errors import ConfigError

__all__ = ["ConfigRuleError", "ConfigType", "Definition", "Password", "Value"]


class ConfigType(Enum):
    """Kafka's types of a key; the value is the code in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Password:
    """A secret: only `value` returns it; repr and str show [hidden]."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and other.value == self.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return "[hidden]"


Value: TypeAlias = bool | int | float | str | tuple[str, ...] | Password | None

_TYPES: Final = dict(ConfigType.__members__)
INTEGER_BITS: Final = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}


@dataclass(frozen=True, slots=True)
class Definition:
    """One key. `default` is None if it is "null" or if there is none (`is_required`)."""

    key: str
    type: ConfigType
    default: Value
    is_required: bool
    valid_values: str
    importance: str
    is_internal: bool
    broker_key: str | None

    @property
    def is_sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    @property
    def is_of_authorizer(self) -> bool:
        """Whether the key is not in Kafka's broker definition: its authorizer reads it from the raw properties."""
        return self.key in ("super.users", "allow.everyone.if.no.acl.found")

    @property
    def default_text(self) -> str | None:
        return to_text(self.default)

    def parse(self, text: str) -> Value:
        """Return the typed and checked value of `text`. Raises ConfigError."""
        value = parse_as(self.type, self.key, text)
        if isinstance(value, tuple) and self.key not in FREE_LISTS:
            value = tuple(dict.fromkeys(value))  # as in Kafka 4, duplicates are removed
        check = _validator(self.key, self.valid_values, self.type is ConfigType.LIST)
        if check is not None:
            check(self.key, value)
        return value


@cache
def _validator(key: str, valid_values: str, is_list: bool) -> Validator | None:
    """Return the validator of a key; most keys are never parsed, and a start does without theirs."""
    return validator_for(key, valid_values, is_list=is_list)


def parse_as(config_type: ConfigType, key: str, text: str) -> Value:
    """Return `text` as a value of the type, without checking the key's valid values. Raises ConfigError."""
    trimmed = text.strip()
    if config_type in INTEGER_BITS:
        return _parse_integer(config_type, key, text)
    match config_type:
        case ConfigType.BOOLEAN:
            return _parse_boolean(key, text)
        case ConfigType.DOUBLE:
            return _parse_double(key, text)
        case ConfigType.LIST:
            return split_list(trimmed)
        case ConfigType.PASSWORD:
            return Password(trimmed)
        case _:
            return trimmed


def split_list(text: str) -> tuple[str, ...]:
    """Split at commas as ConfigDef does: items are trimmed, empty items are kept (validators refuse them)."""
    trimmed = text.strip()
    return tuple(item.strip() for item in trimmed.split(",")) if trimmed else ()


def _parse_boolean(key: str, text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise ConfigError(key, text, "Expected value to be either true or false")
    return lowered == "true"


def _parse_integer(config_type: ConfigType, key: str, text: str) -> int:
    trimmed = text.strip()
    digits = trimmed[1:] if trimmed[:1] in ("+", "-") else trimmed
    bound = 1 << (INTEGER_BITS[config_type] - 1)
    # int() also accepts underscores, which Java's parsers do not; isdecimal() allows only digits.
    if not digits.isdecimal() or len(digits) > 400 or not -bound <= int(trimmed) < bound:
        raise ConfigError(key, text, f"Not a number of type {config_type.name}")
    return int(trimmed)


def _parse_double(key: str, text: str) -> float:
    trimmed = text.strip()
    try:
        if "_" in trimmed:
            raise ValueError(trimmed)
        return float(trimmed.rstrip("dDfF") if trimmed[-1:] in "dDfF" else trimmed)
    except ValueError as error:
        raise ConfigError(key, text, "Not a number of type DOUBLE") from error


def to_text(value: Value) -> str | None:
    """Return a value as Kafka prints it: lists joined by commas, doubles as by Java's Double.toString."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case float():
            return _java_double(value)
        case tuple():
            return ",".join(value)
        case Password():
            return value.value
        case _:
            return str(value)


def _java_double(value: float) -> str:
    from decimal import Decimal  # takes 4 ms to import; only extreme values need it

    text = repr(value)
    if value == 0 or 1e-3 <= abs(value) < 1e7 or not math.isfinite(value):
        return text.replace("inf", "Infinity").replace("nan", "NaN")
    sign, digits, exponent = Decimal(text).normalize().as_tuple()
    assert isinstance(exponent, int)
    fraction = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{fraction}E{exponent + len(digits) - 1}"


@cache
def broker_definitions() -> Mapping[str, Definition]:
    """Return the keys of a broker's server.properties, with the two of Kafka's authorizer and kafkapy's own."""
    return _parse_table(facts.BROKER) | _parse_table(facts.OWN)


@cache
def topic_definitions() -> Mapping[str, Definition]:
    return _parse_table(facts.TOPIC)


@cache
def group_definitions() -> Mapping[str, Definition]:
    return _parse_table(facts.GROUP)


@cache
def client_metrics_definitions() -> Mapping[str, Definition]:
    return _parse_table(facts.CLIENT_METRICS)


@cache
def dynamic_only_definitions() -> Mapping[str, Definition]:
    """Return the broker keys that can only be set dynamically: replication throttles, in bytes per second."""
    return _parse_table(facts.DYNAMIC_ONLY)


def _parse_table(table: str) -> dict[str, Definition]:
    return {definition.key: definition for definition in map(_parse_row, _rows(table))}


def _rows(table: str) -> Iterable[list[str]]:
    return (line.removesuffix(" |").split(" | ") for line in table.strip().splitlines())


def _parse_row(columns: list[str]) -> Definition:
    key, type_name, default, valid_values, importance, is_internal, *rest = columns
    config_type = _TYPES[type_name]
    return Definition(
        key=key,
        type=config_type,
        default=_parse_default(type_name, default),
        is_required=default == "<required>",
        valid_values=valid_values,
        importance=importance,
        is_internal=is_internal == "true",
        broker_key=rest[0] if rest else None,
    )


@cache
def _parse_default(type_name: str, default: str) -> Value:
    """Return a default, which many keys of a type share."""
    if default in ("null", "<required>"):
        return None
    if type_name == "LIST":
        default = default.removeprefix("[").removesuffix("]")
    return parse_as(_TYPES[type_name], "default", default.removeprefix("class "))
