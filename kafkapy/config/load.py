"""Properties -> BrokerConfig: every key typed and checked, then what the keys must be to each other (checks.py)."""

import re
from collections.abc import Mapping
from typing import Final

from kafkapy.config.broker import BrokerConfig
from kafkapy.config.checks import check
from kafkapy.config.definitions import Definition, Value, broker_definitions
from kafkapy.config.validators import ConfigRuleError

LISTENER_KEY: Final = re.compile(r"listener\.name\.[^.]*\.(.*)")
MECHANISM_KEYS: Final = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
"""Keys that a listener may have once for each SASL mechanism: listener.name.<listener>.<mechanism>.<key>."""

FREE_PREFIXES: Final = ("config.providers.", "rsm.config.", "rlmm.config.")
"""Keys of plugins that this broker does not have, but which belong into a server.properties all the same."""


def load(properties: Mapping[str, str]) -> tuple[BrokerConfig, list[str]]:
    """Return the configuration and warnings, one for each key that is unknown or questionable. Raises ConfigError."""
    for key in ("node.id", "broker.id"):
        if key in properties:  # parsed before one is copied to the other, so that the one that was given is blamed
            broker_definitions()[key].parse(properties[key])
    originals = _with_node_id(properties)
    values = {key: _value(definition, originals) for key, definition in broker_definitions().items()}
    config = BrokerConfig(originals, values)
    return config, [*warnings_of_keys(originals), *check(config)]


def warnings_of_keys(properties: Mapping[str, str]) -> list[str]:
    """Return a warning for each key that is unknown. Raises ConfigError for a listener's own key of a bad value."""
    known = broker_definitions()
    return [warning for key in properties if key not in known and (warning := _check_other_key(properties, key))]


def base_key(key: str) -> str:
    """Return the key that a listener's key overrides, or the key itself."""
    matched = LISTENER_KEY.fullmatch(key)
    if matched is None:
        return key
    return next((name for name in MECHANISM_KEYS if matched[1].endswith(f".{name}")), matched[1])


def _with_node_id(properties: Mapping[str, str]) -> dict[str, str]:
    """broker.id and node.id are two names of one thing: either stands for both."""
    originals = dict(properties)
    if "node.id" in originals:
        originals.setdefault("broker.id", originals["node.id"])
    elif "broker.id" in originals:
        originals["node.id"] = originals["broker.id"]
    return originals


def _value(definition: Definition, originals: Mapping[str, str]) -> Value:
    text = originals.get(definition.key)
    if text is not None:
        return definition.parse(text)
    if definition.is_required:
        message = f'Missing required configuration "{definition.key}" which has no default value.'
        raise ConfigRuleError(definition.key, None, message)
    return definition.default


def _check_other_key(originals: Mapping[str, str], key: str) -> str | None:
    """Check a key that is not in the table: a listener's own, a plugin's, or an unknown one."""
    base = base_key(key)
    if base in broker_definitions():
        broker_definitions()[base].parse(originals[key])
        return None
    if key.startswith(FREE_PREFIXES):
        return None
    return f"Unknown configuration key {key} is ignored{_suggestion(key)}"


def _suggestion(key: str) -> str:
    from difflib import get_close_matches  # only mistakes pay for it

    matches = get_close_matches(key, broker_definitions(), n=1, cutoff=0.8)
    return f" (did you mean {matches[0]}?)" if matches else ""
