"""The TLS settings of a node's listeners, and their changes at run time (KIP-226).

The keys of RELOADED can change at run time under a listener's prefix. After each change of a broker config, also one to
the same value, files that have changed are read again. New connections use the new context, existing ones continue.
Another value is tested before it is written: an invalid one is refused. A broken file under the same value is logged,
and the former context stays. Names in the certificates must stay the same, unless ssl.allow.dn.changes and
ssl.allow.san.changes permit otherwise.

A dynamic config of any other ssl.* key is accepted and has no effect, also after a restart, as in Apache Kafka: who may
alter configs cannot turn off the checks of names, or those of clients' certificates. A warning tells of it.
"""

import logging
import os
import ssl
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Final

from kafkapy.config.broker import BrokerConfig
from kafkapy.config.endpoints import Endpoint
from kafkapy.config.tls import TlsConfig
from kafkapy.config.validators import ConfigRuleError
from kafkapy.dataclass import dataclass
from kafkapy.errors import ConfigError
from kafkapy.reactor.tls_admission import ServerTls
from kafkapy.security.certificate import Certificate, subject_of
from kafkapy.server.tls.contexts import certified_context, check_trusts, client_context, node_context

ANONYMOUS: Final = "User:ANONYMOUS"
RELOADED: Final = frozenset(
    {
        "ssl_keystore_type",
        "ssl_keystore_location",
        "ssl_keystore_password",
        "ssl_key_password",
        "ssl_keystore_certificate_chain",
        "ssl_keystore_key",
        "ssl_truststore_type",
        "ssl_truststore_location",
        "ssl_truststore_password",
        "ssl_truststore_certificates",
    }
)
CLIENT_AUTH: Final = "ssl.client.auth"
MAX_PRINCIPALS: Final = 256
"""Certificates of clients whose principals are remembered. OpenSSL has verified them; one has some 1,000 bytes."""

logger = logging.getLogger("kafkapy.server")


@dataclass(slots=True)
class _Served:
    """One listener: the keys of its context, when their files were written, and its certificates."""

    tls: TlsConfig
    written_ns: tuple[int, ...]
    certificates: tuple[Certificate, ...]
    context: ssl.SSLContext
    node_context: ssl.SSLContext | None
    """For a listener between nodes: the context with which such a node connects to another."""


class TlsListeners:
    """The TLS listeners of one node."""

    def __init__(self, static: BrokerConfig) -> None:
        """`static`: the configuration without dynamic changes."""
        self._static = static
        self._added: dict[str, BrokerConfig] = {}
        """By listener that was added at run time: the configuration at that time, in place of the static one."""
        self._secured: dict[str, tuple[_Served, ServerTls]] = {}
        self._ignored: set[str] = set()
        """Keys of dynamic configs without effect for which a warning was logged."""

    def secure(self, config: BrokerConfig, endpoint: Endpoint) -> ServerTls:
        """Return the TLS settings of a listener's handshakes. Raises ConfigError."""
        fixed = self._fixed(endpoint.listener)
        tls = effective_tls(fixed, config, endpoint.listener)
        served = _serve(config, endpoint.listener, tls)
        if tls.ssl_client_auth == "none" != fixed.listener_value(endpoint.listener, CLIENT_AUTH):
            own = f"listener.name.{endpoint.listener.lower()}.{CLIENT_AUTH}"
            logger.warning("%s counts only on SSL listeners: %s has no %s", CLIENT_AUTH, endpoint.listener, own)
        principal_of = None if endpoint.security_protocol.uses_sasl else principals(tls)
        secured = ServerTls(served.context, principal_of)
        self._secured[endpoint.listener] = (served, secured)
        return secured

    def add(self, config: BrokerConfig, endpoint: Endpoint) -> ServerTls:
        """Return the TLS settings of a listener that is added at run time, all from `config`. Raises ConfigError."""
        self._added[endpoint.listener] = config
        return self.secure(config, endpoint)

    def remove(self, name: str) -> None:
        self._secured.pop(name, None)
        self._added.pop(name, None)

    def check(self, config: BrokerConfig) -> None:
        """Raise ConfigError if `config` changes the TLS settings of a listener to invalid ones.

        Files of unchanged settings are not read, as in Apache Kafka: a broken one refuses no other change of a config.
        """
        for name, (served, _) in self._kept(config):
            if effective_tls(self._fixed(name), config, name) != served.tls:
                self._renewed(config, name)

    def update(self, config: BrokerConfig) -> None:
        """Use the TLS settings of `config` for new connections; an invalid one is logged, and changes nothing."""
        for name, (_, secured) in self._kept(config):
            self._warn_of_ignored(config, name)
            try:
                served = self._renewed(config, name)
            except ConfigError as error:
                logger.error("Listener %s keeps its former certificates: %s", name, error)
                continue
            if served is not None:
                secured.context = served.context
                self._secured[name] = (served, secured)
                logger.info("Listener %s has new certificates", name)

    def _kept(self, config: BrokerConfig) -> list[tuple[str, tuple[_Served, ServerTls]]]:
        """Return the listeners that `config` does not remove.

        Deviation: Apache Kafka refuses to remove the key store of a listener that was removed, until the restart. Here
        the keys of such a listener change freely, because nothing uses them.
        """
        return [
            (each.listener, self._secured[each.listener]) for each in config.listeners if each.listener in self._secured
        ]

    def _fixed(self, name: str) -> BrokerConfig:
        """Return the configuration that has a listener's keys which do not change at run time."""
        return self._added.get(name, self._static)

    def _warn_of_ignored(self, config: BrokerConfig, name: str) -> None:
        prefix = f"listener.name.{name.lower()}."
        fixed = {f"{prefix}{key}" for key, field in TlsConfig.keys().items() if field not in RELOADED}
        before = self._fixed(name).originals
        found = {key for key in fixed if config.originals.get(key) != before.get(key)}
        for key in sorted(found - self._ignored):
            logger.warning("The dynamic config %s has no effect: the key cannot change at run time", key)
        self._ignored = self._ignored - fixed | found

    def _renewed(self, config: BrokerConfig, name: str) -> _Served | None:
        """Return a listener's new context, None if nothing has changed. Raises ConfigError."""
        before, _ = self._secured[name]
        tls = effective_tls(self._fixed(name), config, name)
        if tls == before.tls and _written_ns(tls) == before.written_ns:
            return None
        try:
            if before.tls.ssl_truststore_location is None and before.tls.ssl_truststore_certificates is None:
                _check_no_trust_store(tls)
            served = _serve(config, name, tls)
            _check_names(tls, before.certificates, served.certificates)
            _check_others_trust(before, served)
        except ConfigError as error:
            message = f"Validation of dynamic config update of SSLFactory failed: {error}"
            raise ConfigRuleError(error.key, None, message) from error
        return served


class ClientContexts:
    """The client contexts for a listener of other nodes, from this node's keys for the listener of that name."""

    def __init__(self, listener: str, static: BrokerConfig, current: Callable[[], BrokerConfig]) -> None:
        self._listener = listener
        self._static = static
        self._current = current
        self._made: tuple[TlsConfig, tuple[int, ...], ssl.SSLContext] | None = None

    def current(self) -> ssl.SSLContext:
        """Return the context, rebuilt if keys or files have changed. Raises ConfigError."""
        tls = effective_tls(self._static, self._current(), self._listener)
        written_ns = _written_ns(tls)
        if self._made is None or self._made[:2] != (tls, written_ns):
            self._made = (tls, written_ns, client_context(tls))
        return self._made[2]


def effective_tls(static: BrokerConfig, current: BrokerConfig, listener: str) -> TlsConfig:
    """Return the ssl.* keys of a listener that are in force: of those in RELOADED the current values."""
    fixed, changed = static.listener_tls(listener), current.listener_tls(listener)
    return replace(fixed, **{field: getattr(changed, field) for field in RELOADED})


def _serve(config: BrokerConfig, name: str, tls: TlsConfig) -> _Served:
    """Return a listener's contexts. A key store of a listener between nodes must be verified by its own trust store.

    Deviation: Apache Kafka checks the inter-broker listener alone. Here a controllers' listener is checked, too,
    because a quorum's nodes connect to each other by these keys.
    """
    written_ns = _written_ns(tls)
    context, certificates = certified_context(tls)
    client = None
    if name in (config.inter_broker_listener_name, *config.controller_listener_names):
        client = node_context(tls)
        check_trusts(context, client, tls.ssl_truststore_location)
    return _Served(tls, written_ns, certificates, context, client)


def _check_others_trust(before: _Served, after: _Served) -> None:
    """Refuse a change after which nodes with the settings of before could not connect to this one, or it to them."""
    if before.node_context is not None and after.node_context is not None:
        check_trusts(before.context, after.node_context, after.tls.ssl_truststore_location)
        check_trusts(after.context, before.node_context, before.tls.ssl_truststore_location)


def _written_ns(tls: TlsConfig) -> tuple[int, ...]:
    """Return the modification times of a listener's files in ns, 0 for none."""
    return tuple(_file_written_ns(path) for path in (tls.ssl_keystore_location, tls.ssl_truststore_location))


def _file_written_ns(path: str | None) -> int:
    try:
        return 0 if path is None else os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _check_no_trust_store(after: TlsConfig) -> None:
    if after.ssl_truststore_location is not None or after.ssl_truststore_certificates is not None:
        message = "Cannot add SSL truststore to an existing listener for which no truststore was configured."
        raise ConfigRuleError("ssl.truststore.location", None, message)


def _check_names(tls: TlsConfig, before: tuple[Certificate, ...], after: tuple[Certificate, ...]) -> None:
    """Refuse certificates with other names, so that clients do not meet a different server than before.

    Deviation: Apache Kafka counts trusted certificates of a key store, too, and normalizes white space in names. Here
    only entries with a key are compared, of which there must be as many as before, because a refusal is the safe side.
    """
    if tls.ssl_allow_dn_changes and tls.ssl_allow_san_changes:
        return
    key = "ssl.keystore.location"
    if len(before) != len(after):
        message = (
            f"Keystore entries do not match, existing store contains {len(before)} entries, new store contains "
            f"{len(after)} entries"
        )
        raise ConfigRuleError(key, None, message)
    for old, new in zip(before, after, strict=True):
        if not tls.ssl_allow_dn_changes and old.subject.lower() != new.subject.lower():
            message = f"Keystore DistinguishedName does not match: existing={old.subject}, new={new.subject}"
            raise ConfigRuleError(key, None, message)
        if not tls.ssl_allow_san_changes and not new.alternative_names >= old.alternative_names:
            raise ConfigRuleError(key, None, f"Keystore SubjectAltNames do not match: those of {old.subject}")


def principals(tls: TlsConfig) -> Callable[[bytes | None], str]:
    """Return a function from a certificate (DER) to its principal, which may raise ValueError. Raises ConfigError."""
    from kafkapy.security.principal_mapping import MappingRuleError, PrincipalMapper

    try:
        mapper = PrincipalMapper(tls.ssl_principal_mapping_rules)
    except MappingRuleError as error:
        raise ConfigError("ssl.principal.mapping.rules", tls.ssl_principal_mapping_rules, str(error)) from error

    @lru_cache(MAX_PRINCIPALS)
    def principal_of(certificate: bytes | None) -> str:
        return ANONYMOUS if certificate is None else f"User:{mapper.name_of(subject_of(certificate))}"

    return principal_of
