"""SASL configuration: mechanisms, users and limits of each listener. Raises ConfigError.

The users of PLAIN are options of the mechanism's login module: listener.name.<listener>.<mechanism>.sasl.jaas.config,
else the contexts <listener>.KafkaServer or KafkaServer of the file that -Djava.security.auth.login.config in KAFKA_OPTS
names. Those of SCRAM are in the metadata: each login looks in the newest image, so that a changed password counts from
the next login on. Login modules, classes and callback handlers are names in a table; an unknown name stops the start.
"""

import logging
import os
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache, cached_property, partial
from heapq import nsmallest
from typing import TYPE_CHECKING, Final
from zlib import crc32

from kafkapy.config.broker import BrokerConfig
from kafkapy.config.definitions import Password
from kafkapy.config.endpoints import Endpoint
from kafkapy.errors import ConfigError
from kafkapy.metadata.scram_types import BY_CODE, MECHANISMS, ScramMechanism
from kafkapy.seams import Random
from kafkapy.security.authentication import LoginSettings
from kafkapy.security.jaas import LOGIN_MODULES, JaasEntry, JaasError, check_module, expanded, parse_entry, parse_file
from kafkapy.security.plain import PlainServer, users_of
from kafkapy.security.sasl import GSSAPI, OAUTHBEARER, PLAIN, SaslServer

if TYPE_CHECKING:
    from kafkapy.metadata.image import MetadataImage
    from kafkapy.protocol.messages.user_scram_credential_record import UserScramCredentialRecord
    from kafkapy.protocol.serving import Coalesce, Route
    from kafkapy.seams import Clock, IoPool
    from kafkapy.security.scram import Iterations, ScramCredential, ScramServer, ScramToken
    from kafkapy.server.login.bearer_tokens import BearerTokens
    from kafkapy.server.login.token_logins import TokenLogins
    from kafkapy.serving.login_gate import GateSettings

JAAS_KEY: Final = "sasl.jaas.config"
JAAS_FILE_PROPERTY: Final = "java.security.auth.login.config"
ALLOWED_MODULES_PROPERTY: Final = "org.apache.kafka.allowed.login.modules"
CONTEXT: Final = "KafkaServer"
OAUTH_HANDLER: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
OAUTH_LOGIN_HANDLER: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
ALLOWED_MODULES_KEY: Final = "kafkapy.sasl.allowed.login.modules"
NAMED_CLASSES: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "sasl.server.callback.handler.class": ((OAUTHBEARER, OAUTH_HANDLER),),
    "sasl.client.callback.handler.class": (),
    "sasl.login.class": (),
    "sasl.login.callback.handler.class": ((OAUTHBEARER, OAUTH_LOGIN_HANDLER),),
}
"""Keys that name a class, with the supported mechanisms and names."""
NONCE_BITS: Final = 130
"""The number of random bits of a nonce, as in Apache Kafka."""

logger = logging.getLogger("kafkapy.server")


class Logins:
    """The login settings of all SASL listeners of one kind; rebuilt when the configuration changes at run time."""

    def __init__(
        self,
        config: BrokerConfig,
        endpoints: tuple[Endpoint, ...],
        *,
        image: "Callable[[], MetadataImage]",
        random: Random,
        io_pool: "IoPool",
        cluster_id: str,
        is_running: bool = False,
    ) -> None:
        """`is_running`: the broker serves requests already, so that no keys of bearer tokens may be read."""
        self._endpoints: list[Endpoint] = []
        self._failure_delay_ms: dict[str, int] = {}
        self._io_pool = io_pool
        self._mechanisms = _Mechanisms(image, random, io_pool, config.security.delegation_token_secret_key, cluster_id)
        self._settings: dict[str, LoginSettings] = {}
        self._timeout_ms = config.network.kafkapy_authentication_timeout_ms
        for each in endpoints:
            if each.security_protocol.uses_sasl:
                self.add(config, each, is_running=is_running)

    def start(self) -> None:
        """Begin to keep the keys of bearer tokens up to date; to be called on the event loop."""
        self._mechanisms.start()

    def close(self) -> None:
        self._mechanisms.close()

    def add(self, config: BrokerConfig, endpoint: Endpoint, *, is_running: bool) -> None:
        """Serve the logins of one more listener; `is_running` as for the class. Raises ConfigError."""
        name = endpoint.listener
        added = self._mechanisms.settings(config, name, may_read=not is_running)
        self._settings = {**self._settings, name: added}
        self._failure_delay_ms[name] = int(
            str(config.listener_value(name, "connection.failed.authentication.delay.ms"))
        )
        self._endpoints.append(endpoint)

    def remove(self, name: str) -> None:
        self._endpoints = [each for each in self._endpoints if each.listener != name]

    def check(self, config: BrokerConfig) -> None:
        """Raise ConfigError if `config` has no valid login settings."""
        self._read(config)

    def update(self, config: BrokerConfig) -> None:
        """Use other users and mechanisms for future logins; an invalid configuration is logged and changes nothing."""
        try:
            self._settings = self._read(config)
        except ConfigError as error:
            logger.error("Keeping the former login settings: %s", error)

    def settings(self, listener: str) -> LoginSettings:
        return self._settings[listener]

    def gate(self, route: "Route", coalesce: "Coalesce", clock: "Clock") -> "GateSettings":
        from kafkapy.runtime.pool import QueuedWork
        from kafkapy.serving.login_gate import GateSettings  # not needed by most brokers

        return GateSettings(
            settings=self.settings,
            route=route,
            coalesce=coalesce,
            clock=clock,
            failure_delay_ms=self._failure_delay_ms,
            timeout_ms=self._timeout_ms,
            work=QueuedWork(self._io_pool, at_once=1),
        )

    def _read(self, config: BrokerConfig) -> dict[str, LoginSettings]:
        """Return the settings of all listeners; those of one that `config` removes serve the logins under way."""
        kept = {each.listener for each in config.listeners} & {each.listener for each in self._endpoints}
        return {**self._settings, **{name: self._mechanisms.settings(config, name, may_read=False) for name in kept}}


class _Mechanisms:
    """Creates the server side of each mechanism's logins."""

    def __init__(
        self,
        image: "Callable[[], MetadataImage]",
        random: Random,
        io_pool: "IoPool",
        token_key: Password | None,
        cluster_id: str,
    ) -> None:
        self._image = image
        self._io_pool = io_pool
        self._bearer_tokens: BearerTokens | None = None
        self._random = random
        self._token_key = token_key
        self._cluster_id = cluster_id
        self._counted: object = None
        """The credentials of the image that `_iterations` was counted from."""
        self._iterations: dict[int, Counter[int]] = {}
        self._salted: tuple[object, bytes] = (None, b"")
        """The credentials of the image that `_secret` was made from, and that secret."""

    def start(self) -> None:
        if self._bearer_tokens is not None:
            self._bearer_tokens.start()

    def close(self) -> None:
        if self._bearer_tokens is not None:
            self._bearer_tokens.close()

    @property
    def _secret(self) -> bytes:
        scram = self._image().scram
        if self._salted[0] is not scram:
            self._salted = scram, salt_secret(self._cluster_id, self._token_key, scram)
        return self._salted[1]

    @cached_property
    def _tokens(self) -> "TokenLogins":
        from kafkapy.server.login.token_logins import TokenLogins

        return TokenLogins(self._image, self._token_key, salt_secret(self._cluster_id, self._token_key, {}))

    def settings(self, config: BrokerConfig, listener: str, *, may_read: bool) -> LoginSettings:
        """Return one listener's login settings. Raises ConfigError.

        may_read: whether keys of bearer tokens may be read. That blocks the loop: not while requests are served.
        """
        key = "sasl.enabled.mechanisms"
        enabled = config.listener_value(listener, key)
        assert isinstance(enabled, tuple)
        if not enabled:
            raise ConfigError(key, "", f"No SASL mechanisms are enabled for the listener {listener}")
        servers = {name: self._server(config, listener, name, may_read=may_read) for name in enabled}
        return LoginSettings(
            servers=servers,
            max_reauth_ms={name: _number(config, listener, "connections.max.reauth.ms", name) for name in enabled},
            max_receive_bytes=_number(config, listener, "sasl.server.max.receive.size"),
        )

    def _server(
        self, config: BrokerConfig, listener: str, mechanism: str, *, may_read: bool
    ) -> Callable[[], SaslServer]:
        _check_known(mechanism)
        for key, known in NAMED_CLASSES.items():
            named = config.listener_value(listener, key, mechanism=mechanism)
            if named is not None and (mechanism, named) not in known:
                raise ConfigError(key, named, "no class of that name is known here: leave the key out")
        options = server_options(config, listener, mechanism)
        if mechanism == OAUTHBEARER:
            return self._bearer(config, listener, options, may_read=may_read)
        if mechanism == PLAIN:
            return partial(PlainServer, users_of(options))
        return self._scram(MECHANISMS[mechanism])

    def _bearer(
        self, config: BrokerConfig, listener: str, options: Mapping[str, str], *, may_read: bool
    ) -> Callable[[], SaslServer]:
        from kafkapy.security.oauthbearer import OAuthBearerServer  # not needed by most brokers
        from kafkapy.server.login.bearer_tokens import BearerTokens

        if self._bearer_tokens is None:
            self._bearer_tokens = BearerTokens(self._io_pool)
        return partial(
            OAuthBearerServer,
            self._bearer_tokens.validator(config, listener, options, may_read=may_read),
            _log_refused,
        )

    def _scram(self, mechanism: ScramMechanism) -> Callable[[], SaslServer]:
        credentials = partial(self._credential, mechanism.code)
        tokens = partial(self._find_token, mechanism)
        stored_iterations = partial(self._stored_iterations, mechanism.code)

        def new_server() -> SaslServer:
            new, _ = _scram_types()
            return new(
                mechanism,
                credentials,
                nonce=new_nonce(self._random),
                secret=self._secret,
                tokens=tokens,
                stored_iterations=stored_iterations,
            )

        return new_server

    def _find_token(self, mechanism: ScramMechanism, token_id: str) -> "ScramToken | None":
        return self._tokens.find(mechanism, token_id)

    def _credential(self, code: int, name: str) -> "ScramCredential | None":
        record = self._image().scram.get((code, name))
        if record is None:
            return None
        _, new_credential = _scram_types()
        return new_credential(record.salt, record.stored_key, record.server_key, record.iterations)

    def _stored_iterations(self, code: int) -> "Iterations":
        scram = self._image().scram
        if self._counted is not scram:
            self._counted, self._iterations = scram, {code: Counter() for code in BY_CODE}
            for (each, _), record in scram.items():
                self._iterations[each][record.iterations] += 1
        return self._iterations[code]


@cache
def _scram_types() -> "tuple[type[ScramServer], type[ScramCredential]]":
    from kafkapy.security.scram import ScramCredential, ScramServer  # not needed before the first login

    return ScramServer, ScramCredential


def salt_secret(
    cluster_id: str, token_key: Password | None, scram: "Mapping[tuple[int, str], UserScramCredentialRecord]"
) -> bytes:
    """Return the secret from which salts of unknown SCRAM users derive: equal on all nodes and after restarts.

    A salt that differed would reveal that the user does not exist. The key is delegation.token.secret.key; without it,
    what only brokers have: the stored keys of two users, picked by a checksum of their names so that changes of others
    change nothing. Only both of them together could compute it.
    """
    import hmac  # at the first login: with OpenSSL's hashes it takes milliseconds

    if token_key is not None:
        key = token_key.value.encode()
    else:
        picked = nsmallest(2, scram, key=_checksum)
        key = b"".join(scram[name].stored_key + scram[name].server_key for name in picked)
    return hmac.digest(key, f"salts of unknown users of {cluster_id}".encode(), "sha256")


def _checksum(credential: tuple[int, str]) -> int:
    return crc32(credential[1].encode())


def _log_refused(reason: str) -> None:
    logger.warning("Refused a bearer token: %s", reason)


def new_nonce(random: Random) -> str:
    """Return a unique text of hexadecimal digits for a login."""
    return f"{random.randrange(0, 1 << NONCE_BITS):x}"


def server_options(config: BrokerConfig, listener: str, mechanism: str) -> Mapping[str, str]:
    """Return the options of a mechanism's login module. Raises ConfigError."""
    key = f"listener.name.{listener.lower()}.{mechanism.lower()}.{JAAS_KEY}"
    try:
        if key in config.originals:
            entry = parse_entry(config.originals[key])
            check_module(entry, mechanism)
        else:
            if JAAS_KEY in config.originals:
                logger.warning(
                    "Server config %s should be prefixed with SASL mechanism name, ignoring config", JAAS_KEY
                )
            entry = _entry_of_file(listener, mechanism)
        _check_allowed(config, entry)
        return entry.options
    except JaasError as error:
        raise ConfigError(key, Password(""), str(error)) from error


def _check_known(mechanism: str) -> None:
    if mechanism in LOGIN_MODULES:
        return
    key, known = "sasl.enabled.mechanisms", ", ".join(LOGIN_MODULES)
    if mechanism == GSSAPI:
        message = f"GSSAPI, which Apache Kafka enables unless the key is set, is not built: choose among {known}"
    else:
        message = f"no such mechanism is known: choose among {known}"
    raise ConfigError(key, mechanism, message)


def _check_allowed(config: BrokerConfig, entry: JaasEntry) -> None:
    """Raise JaasError if the operator has restricted the allowed login modules and this one is not among them."""
    given, own = java_property(ALLOWED_MODULES_PROPERTY), config.value(ALLOWED_MODULES_KEY)
    assert isinstance(own, tuple)
    if given is None and not own:
        return
    if entry.module not in {*own, *(each.strip() for each in (given or "").split(","))}:
        how = f"Update System property '{ALLOWED_MODULES_PROPERTY}' to allow {entry.module}"
        raise JaasError(f"{entry.module} is not allowed. {how}")


def _entry_of_file(listener: str, mechanism: str) -> JaasEntry:
    """Return the login module's entry in the JAAS file, the listener's own first. Raises JaasError."""
    path = jaas_file()
    own = f"{listener.lower()}.{CONTEXT}"
    contexts = {} if path is None else _read_file(path)
    entries = contexts.get(own, contexts.get(CONTEXT))
    if entries is None:
        shown = "not set" if path is None else path
        raise JaasError(
            f"Could not find a '{CONTEXT}' or '{own}' entry in the JAAS configuration. System property "
            f"'{JAAS_FILE_PROPERTY}' is {shown}"
        )
    return _of_mechanism(entries, mechanism)


def _of_mechanism(entries: list[JaasEntry], mechanism: str) -> JaasEntry:
    for entry in entries:
        try:
            check_module(entry, mechanism)
        except JaasError as error:
            refusal = error
        else:
            return entry
    raise refusal if entries else JaasError("Login module not specified in JAAS config")


def jaas_file() -> str | None:
    """Return the path in -Djava.security.auth.login.config of KAFKA_OPTS. Raises JaasError."""
    return java_property(JAAS_FILE_PROPERTY)


def java_property(name: str) -> str | None:
    """Return the value of -Dname=value in KAFKA_OPTS, the last one; None without it. Raises JaasError."""
    given = os.environ.get("KAFKA_OPTS")
    if not given:
        return None
    import shlex  # needed by few brokers

    prefix = f"-D{name}="
    try:
        options = shlex.split(given)
    except ValueError as error:
        raise JaasError(f"KAFKA_OPTS cannot be read: {error}") from error
    return next((each.removeprefix(prefix) for each in reversed(options) if each.startswith(prefix)), None)


def _read_file(path: str) -> dict[str, list[JaasEntry]]:
    try:
        with open(path, encoding="utf-8") as file:
            contexts = parse_file(file.read())
    except (OSError, UnicodeDecodeError) as error:
        raise JaasError(f"the JAAS file {path} cannot be read: {error}") from error
    return {name: [_expanded(entry) for entry in entries] for name, entries in contexts.items()}


def _expanded(entry: JaasEntry) -> JaasEntry:
    return JaasEntry(
        entry.module,
        {key: expanded(value, java_property) if "$" in value else value for key, value in entry.options.items()},
    )


def _number(config: BrokerConfig, listener: str, key: str, mechanism: str | None = None) -> int:
    value = config.listener_value(listener, key, mechanism=mechanism)
    assert isinstance(value, int)
    return value
