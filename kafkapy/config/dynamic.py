"""A running broker's configuration: the static one, overridden by dynamic configs of the cluster and of this broker.

`DynamicConfig.current` is the BrokerConfig in effect. `update` builds a new one from the committed metadata and calls
the listeners; `validate` checks a change before it is written. Source: KIP-226.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Final

from kafkapy.config import facts
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.definitions import ConfigType, Definition, broker_definitions, dynamic_only_definitions
from kafkapy.config.load import LISTENER_KEY, base_key, load
from kafkapy.config.log import LogConfig
from kafkapy.config.topic import log_config, retention_ms
from kafkapy.config.validators import ConfigRuleError
from kafkapy.errors import ConfigError

ChangeListener = Callable[[BrokerConfig, BrokerConfig], None]
"""Called with the configuration before and after a change, when the new one is already in effect."""

SYNONYMS: Final = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
"""Keys with the same meaning in several units, first wins; a dynamic config of any of them replaces all."""

FLUSH_KEYS: Final = ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")
"""The second is the default of the first, but also a key with its own meaning."""

LISTENER_ONLY: Final = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
"""Keys that can be changed dynamically only for a single listener, with its prefix."""

CLUSTER_LISTENER_KEYS: Final = frozenset({"max.connections", "max.connection.creation.rate", "num.network.threads"})
"""Listener keys that may be set for the whole cluster; all others only per broker."""

LISTENERS_KEYS: Final = ("listeners", "listener.security.protocol.map")

LOCAL_RETENTION_KEYS: Final = (
    ("log.retention.ms", "log.local.retention.ms"),
    ("log.retention.bytes", "log.local.retention.bytes"),
)

FIXED_OF_LISTENERS: Final = re.compile(r"(?:^|\.)(?:sasl\.oauthbearer|sasl\.login|kafkapy)\.")
"""Keys that cannot change dynamically with a listener's prefix, either: they name URLs, or what is allowed.

Deviation: Apache Kafka stores any key with a listener's prefix, and does not use these. Here they are refused, because
an operator who sets them expects an effect.
"""

KNOWN_CLASSES: Final = frozenset(
    {
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    }
)
"""Class names allowed in dynamic configs of a listener; no class is loaded."""

THREAD_KEYS: Final = (
    "background.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)
"""Thread counts, which a change may at most double or halve."""


class DynamicConfig:
    """One broker's configuration with its dynamic changes."""

    def __init__(self, static: BrokerConfig) -> None:
        self.static = static
        self.current = static
        self.cluster: Mapping[str, str] = {}
        """The dynamic configs of the cluster (for all brokers) that this broker has accepted."""
        self.broker: Mapping[str, str] = {}
        """The dynamic configs of this broker that it has accepted."""
        self._listeners: list[ChangeListener] = []
        self._checks: list[Callable[[BrokerConfig], None]] = []
        self._readers: list[Callable[[BrokerConfig], None]] = []

    def add_check(self, check: Callable[[BrokerConfig], None]) -> None:
        """Add a check that `validate` calls with the changed configuration; it raises ConfigError to refuse it."""
        self._checks.append(check)

    def add_reader(self, reader: Callable[[BrokerConfig], None]) -> None:
        """Call `reader` after each update, even without changed values: a file that a value names may have changed."""
        self._readers.append(reader)

    def add_listener(self, listener: ChangeListener) -> None:
        self._listeners.append(listener)

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """Return the configuration of a topic with these overrides."""
        return log_config(overrides, self.current) if overrides else self.current.log_config  # made once: 52 calls

    def update(self, *, cluster: Mapping[str, str], broker: Mapping[str, str]) -> list[str]:
        """Apply the committed configs of the cluster and of this broker; return a warning for each ignored one.

        Committed configs were valid when they were written, but may be invalid for this broker, which then ignores
        them.
        """
        warnings: list[str] = []
        accepted_cluster = _without_invalid(cluster, warnings, is_per_broker=False)
        accepted_broker = _without_invalid(broker, warnings, is_per_broker=True)
        try:
            changed = self._loaded(self._merged(accepted_cluster, accepted_broker))
        except ConfigError as error:
            return [*warnings, f"Dynamic configs could not be applied: {error}"]
        before = self.current
        self.cluster, self.broker, self.current = accepted_cluster, accepted_broker, changed
        if changed != before:
            for listener in self._listeners:
                listener(before, changed)
        for reader in self._readers:
            reader(changed)
        return warnings

    def validate(self, configs: Mapping[str, str], *, is_per_broker: bool) -> None:
        """Raise ConfigError if `configs` are invalid as all dynamic configs of this broker, or of the cluster."""
        _check_may_change(configs, is_per_broker=is_per_broker)
        merged = self._merged(self.cluster, configs) if is_per_broker else self._merged(configs, self.broker)
        changed, _ = load(merged)
        _check_change(self.current, changed)
        for check in self._checks:
            check(changed)

    def _loaded(self, properties: dict[str, str]) -> BrokerConfig:
        """Return their configuration: the current one if nothing differs, as in each start without dynamic configs."""
        return self.current if properties == self.current.originals else load(properties)[0]

    def _merged(self, cluster: Mapping[str, str], broker: Mapping[str, str]) -> dict[str, str]:
        merged = dict(self.static.originals)
        for layer in (cluster, broker):
            for key, value in layer.items():
                for synonym in synonyms_of(key):
                    merged.pop(synonym, None)
                merged[key] = value
        return merged


def synonyms_of(key: str, *, with_base_key: bool = False) -> tuple[str, ...]:
    """Return the keys by which a key's value may be set, first wins; with_base_key: also without listener prefix."""
    for names in SYNONYMS:
        if key in names:
            return names
    if key == FLUSH_KEYS[0]:
        return FLUSH_KEYS
    base = base_key(key)
    return (key, base) if with_base_key and base != key else (key,)


def is_dynamic(key: str) -> bool:
    """Whether a broker key (without a listener prefix) can be changed dynamically."""
    return key in cluster_wide_keys() or key in per_broker_keys()


@cache
def cluster_wide_keys() -> frozenset[str]:
    return frozenset(facts.CLUSTER_WIDE_DYNAMIC.split())


@cache
def per_broker_keys() -> frozenset[str]:
    return frozenset(facts.PER_BROKER_DYNAMIC.split())


def broker_definition(key: str) -> Definition | None:
    """Return the definition of a broker key, ignoring a listener prefix; None for an unknown key."""
    known = broker_definitions().get(key) or dynamic_only_definitions().get(key)
    return known or broker_definitions().get(base_key(key))


def _check_may_change(configs: Mapping[str, str], *, is_per_broker: bool) -> None:
    _refuse(configs, _is_fixed, "Cannot update these configs dynamically")
    _refuse(
        configs,
        LISTENER_ONLY.__contains__,
        "These security configs can be dynamically updated only per-listener using the listener prefix",
    )
    for key, text in configs.items():
        definition = broker_definition(key)
        if definition is not None:
            definition.parse(text)
            _check_class(key, definition, text)
    if not is_per_broker:
        message = "Cannot update these configs at default cluster level, broker id must be specified"
        _refuse(configs, _is_per_broker, message)


def _check_class(key: str, definition: Definition, text: str) -> None:
    """Refuse an unknown class name in a listener's config, even for a mechanism that is not enabled.

    Apache Kafka looks up the class and refuses a missing one. Raises ConfigRuleError.
    """
    if definition.type is ConfigType.CLASS and LISTENER_KEY.fullmatch(key) and text not in KNOWN_CLASSES:
        message = f"Invalid value {text} for configuration {key}: Class {text} could not be found."
        raise ConfigRuleError(key, text, message)


def _refuse(configs: Mapping[str, str], is_wrong: Callable[[str], bool], message: str) -> None:
    wrong = sorted(filter(is_wrong, configs))
    if wrong:
        raise ConfigRuleError(wrong[0], None, f"{message}: [{', '.join(wrong)}]")


def _is_fixed(key: str) -> bool:
    matched = LISTENER_KEY.fullmatch(key)
    if matched is not None:
        return FIXED_OF_LISTENERS.search(matched[1]) is not None
    return key in broker_definitions() and not is_dynamic(key) and not broker_definitions()[key].is_of_authorizer


def _is_per_broker(key: str) -> bool:
    matched = LISTENER_KEY.fullmatch(key)
    return key in per_broker_keys() or (matched is not None and matched[1] not in CLUSTER_LISTENER_KEYS)


def _check_change(before: BrokerConfig, after: BrokerConfig) -> None:
    """Check for changes that a running broker cannot make. Raises ConfigRuleError."""
    for key in THREAD_KEYS:
        _check_thread_count(before, after, key, f"Dynamic thread count update validation failed for {key}=")
    _check_thread_count(before, after, "log.cleaner.threads", "Log cleaner threads=")
    for key, local_key in LOCAL_RETENTION_KEYS:
        retention = retention_ms(after) if key == "log.retention.ms" else after.value(key)
        _check_local_retention(after, local_key, key, retention)
    for endpoint in after.broker_listeners:
        for key in ("max.connections", "max.connection.creation.rate"):
            value = after.listener_value(endpoint.listener, key)
            assert isinstance(value, int)
            if value <= 0:
                raise _invalid(key, after, f"Invalid {key} {value}")
    _check_listeners(before, after)


def _check_listeners(before: BrokerConfig, after: BrokerConfig) -> None:
    """Check that advertised listeners stay, and that the those that are bound do not change. Raises ConfigRuleError."""
    if all(before.value(key) == after.value(key) for key in LISTENERS_KEYS):
        return
    advertised = [each.listener for each in before.advertised_listeners]
    wanted = [each.listener for each in after.listeners]
    if not set(advertised) <= set(wanted):
        message = f"Advertised listeners '{_names(advertised)}' must be a subset of listeners '{_names(wanted)}'"
        raise _invalid(LISTENERS_KEYS[0], after, message)
    bound = {each.listener for each in before.listeners}
    for endpoint in after.listeners:
        name = endpoint.listener
        if name not in bound:
            continue
        if _fixed_of(before, name) != _fixed_of(after, name):
            message = (
                f"Configs cannot be updated dynamically for existing listener ListenerName({name}), restart broker or "
                "create a new listener for update"
            )
            raise _invalid(LISTENERS_KEYS[0], after, message)
        if before.listener_protocols.get(name) is not endpoint.security_protocol:
            message = f"Security protocol cannot be updated for existing listener ListenerName({name})"
            raise _invalid(LISTENERS_KEYS[1], after, message)


def _fixed_of(config: BrokerConfig, listener: str) -> dict[str, str]:
    """Return the configs of a listener, by its prefix, that do not change while it is bound."""
    prefix = f"listener.name.{listener.lower()}."
    own = {key.removeprefix(prefix): value for key, value in config.originals.items() if key.startswith(prefix)}
    return {key: value for key, value in own.items() if key not in LISTENER_ONLY | CLUSTER_LISTENER_KEYS}


def _names(listeners: Iterable[str]) -> str:
    """Return listeners as Apache Kafka's messages name them."""
    return f"Set({', '.join(f'ListenerName({each})' for each in listeners)})"


def _check_local_retention(config: BrokerConfig, local_key: str, key: str, retention: object) -> None:
    """Check that local retention does not exceed retention. local_key: -2 means the same as key, -1 unlimited."""
    local = config.value(local_key)
    assert isinstance(local, int)
    assert isinstance(retention, int)
    if retention < 0 or local == -2:
        return
    if local == -1:
        raise _invalid(local_key, config, f"Value must not be -1 as {key} value is set as {retention}.")
    if local > retention:
        raise _invalid(local_key, config, f"Value must not be more than {key} property value: {retention}")


def _check_thread_count(before: BrokerConfig, after: BrokerConfig, key: str, failed: str) -> None:
    old, new = before.value(key), after.value(key)
    assert isinstance(old, int)
    assert isinstance(new, int)
    if new == old:
        return
    if new <= 0:
        raise _invalid(key, after, f"{failed}{new}, value should be at least 1")
    if new < old // 2:
        raise _invalid(key, after, f"{failed}{new}, value should be at least half the current value {old}")
    if new > old * 2:
        raise _invalid(key, after, f"{failed}{new}, value should not be greater than double the current value {old}")


def _invalid(key: str, config: BrokerConfig, reason: str) -> ConfigRuleError:
    """Return the error: Kafka's message, extended by a reason."""
    return ConfigRuleError(key, config.originals.get(key), f"Invalid dynamic configuration: {reason}")


def _without_invalid(configs: Mapping[str, str], warnings: list[str], *, is_per_broker: bool) -> dict[str, str]:
    accepted = {}
    for key, text in configs.items():
        try:
            _check_may_change({key: text}, is_per_broker=is_per_broker)
            accepted[key] = text
        except ConfigError as error:
            warnings.append(f"Dynamic config {key} is ignored: {error}")
    return accepted
