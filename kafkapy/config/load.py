"""Properties -> BrokerConfig: parses and checks every key, then the rules between keys (checks.py)."""

import re
from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Final, TypeAlias

from kafkapy.config.broker import BrokerConfig
from kafkapy.config.checks import check
from kafkapy.config.definitions import Value, broker_definitions
from kafkapy.config.validators import ConfigRuleError
from kafkapy.errors import ConfigError

LISTENER_KEY: Final = re.compile(r"listener\.name\.[^.]*\.(.*)")
LISTENER_NAME: Final = re.compile(r"listener\.name\.([^.]*)\.")
MECHANISM_KEYS: Final = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
"""Keys that may be set per SASL mechanism of a listener: listener.name.<listener>.<mechanism>.<key>."""

FREE_PREFIXES: Final = ("config.providers.", "rsm.config.", "rlmm.config.")
"""Prefixes of keys for plugins. kafkapy has no such plugins, but the keys are valid in a server.properties."""


Listeners: TypeAlias = Callable[[], Collection[str]]


def load(properties: Mapping[str, str]) -> tuple[BrokerConfig, list[str]]:
    """Return the configuration, and a warning for each unknown or questionable key. Raises ConfigError."""
    for key in ("node.id", "broker.id"):
        if key in properties:  # parsed before one is copied to the other, so that errors name the key that was given
            broker_definitions()[key].parse(properties[key])
    originals = _with_node_id(properties)
    config = BrokerConfig(originals, _values(originals))
    return config, [*warnings_of_keys(originals, lambda: _listeners_of(config)), *check(config)]


def warnings_of_keys(properties: Mapping[str, str], listeners: Listeners | None = None) -> list[str]:
    """Return a warning for each unknown key. Raises ConfigError for an invalid value of a listener-prefixed key.

    listeners: returns the names, in lower case, of those that the node uses. Values for others are ignored, as in
    Apache Kafka, with a warning if they are invalid. None: all are checked.
    """
    known = broker_definitions()
    return [
        warning for key in properties if key not in known and (warning := _check_other_key(properties, key, listeners))
    ]


def _listeners_of(config: BrokerConfig) -> frozenset[str]:
    """Return the names of the listeners that the node has or connects to, in lower case."""
    names = [endpoint.listener for endpoint in config.listeners]
    return frozenset(map(str.lower, (*names, *config.controller_listener_names, config.inter_broker_listener_name)))


def base_key(key: str) -> str:
    """Return a key without its listener prefix: the key that it overrides."""
    matched = LISTENER_KEY.fullmatch(key)
    if matched is None:
        return key
    return next((name for name in MECHANISM_KEYS if matched[1].endswith(f".{name}")), matched[1])


def _with_node_id(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties with both node.id and broker.id, if one is set: they have the same meaning."""
    originals = dict(properties)
    if "node.id" in originals:
        originals.setdefault("broker.id", originals["node.id"])
    elif "broker.id" in originals:
        originals["node.id"] = originals["broker.id"]
    return originals


def _values(originals: Mapping[str, str]) -> dict[str, Value]:
    """Return the typed value of every known key."""
    defaults, required = _defaults()
    definitions = broker_definitions()
    values = dict(defaults)
    for key, definition in definitions.items():  # of several wrong keys, the error names the first in this order
        if key in originals:
            values[key] = definition.parse(originals[key])
        elif key in required:
            message = f'Missing required configuration "{key}" which has no default value.'
            raise ConfigRuleError(key, None, message)
    return values


@cache
def _defaults() -> tuple[dict[str, Value], frozenset[str]]:
    """Return the default of every known key, and the keys that have none and must be set."""
    definitions = broker_definitions()
    required = frozenset(key for key, definition in definitions.items() if definition.is_required)
    return {key: definition.default for key, definition in definitions.items()}, required


def _check_other_key(originals: Mapping[str, str], key: str, listeners: Listeners | None) -> str | None:
    """Check a key that is not in the table: with a listener prefix, of a plugin, or unknown (returns a warning)."""
    base = base_key(key)
    if base not in broker_definitions() and base != key:
        base = base.partition(".")[2]  # as Apache Kafka: any key of a listener may name a mechanism
    if base in broker_definitions():
        try:
            broker_definitions()[base].parse(originals[key])
        except ConfigError as error:
            name = LISTENER_NAME.match(key)
            if listeners is None or name is None or name[1].lower() in listeners():
                raise
            return f"Configuration key {key} is ignored, as this node has no listener {name[1].upper()}: {error}"
        return None
    if key.startswith(FREE_PREFIXES):
        return None
    return f"Unknown configuration key {key} is ignored{_suggestion(key)}"


def _suggestion(key: str) -> str:
    from difflib import get_close_matches  # imported only for unknown keys

    matches = get_close_matches(key, broker_definitions(), n=1, cutoff=0.8)
    return f" (did you mean {matches[0]}?)" if matches else ""
