"""OAUTHBEARER configuration: builds a validator from a listener's sasl.oauthbearer.* keys. Raises ConfigError."""

import logging
import os
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kafkapy.config.broker import BrokerConfig
from kafkapy.config.definitions import Value, broker_definitions
from kafkapy.config.tls import TlsConfig
from kafkapy.errors import ConfigError
from kafkapy.seams import IoPool
from kafkapy.security.jwt_validator import JwtValidator, Keys
from kafkapy.security.oauthbearer import JwtError, Validate
from kafkapy.security.sasl import OAUTHBEARER
from kafkapy.server.login.jwks import JwksEndpoint, JwksFile

if TYPE_CHECKING:
    from ssl import SSLContext

PREFIX: Final = "sasl.oauthbearer."
URL_KEY: Final = "sasl.oauthbearer.jwks.endpoint.url"
ALLOWED_KEY: Final = "kafkapy.sasl.oauthbearer.allowed.urls"
ALLOWED_FILES_KEY: Final = "kafkapy.sasl.oauthbearer.allowed.files"
RETRIEVER_KEY: Final = "sasl.oauthbearer.jwt.retriever.class"
UNSECURED_KEY: Final = "kafkapy.sasl.oauthbearer.unsecured.enable"
OAUTH: Final = "org.apache.kafka.common.security.oauthbearer"
KNOWN_CLASSES: Final = {
    RETRIEVER_KEY: (
        f"{OAUTH}.DefaultJwtRetriever",
        f"{OAUTH}.ClientCredentialsJwtRetriever",
        f"{OAUTH}.FileJwtRetriever",
        f"{OAUTH}.JwtBearerJwtRetriever",
    ),
    "sasl.oauthbearer.jwt.validator.class": (f"{OAUTH}.DefaultJwtValidator", f"{OAUTH}.BrokerJwtValidator"),
}
"""Keys that name a class, with the names of what is built; no class is loaded."""
ASSERTION_PREFIX: Final = "sasl.oauthbearer.assertion."
ALLOWED_PROPERTY: Final = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls="
ALLOWED_FILES_PROPERTY: Final = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.files="

logger = logging.getLogger("kafkapy.server")


class BearerTokens:
    """Makes the validators of listeners; those with the same JWKS share its keys."""

    def __init__(self, io_pool: IoPool) -> None:
        self._io_pool = io_pool
        self._sources: dict[tuple[str, frozenset[tuple[str, str]]], JwksEndpoint | JwksFile] = {}

    def start(self) -> None:
        """Begin to refresh the keys that come from https URLs; to be called on the event loop."""
        for endpoint in self._endpoints:
            endpoint.start()

    def close(self) -> None:
        """Stop refreshing the keys."""
        for endpoint in self._endpoints:
            endpoint.close()

    @property
    def _endpoints(self) -> list[JwksEndpoint]:
        return [each for each in self._sources.values() if isinstance(each, JwksEndpoint)]

    def validator(self, config: BrokerConfig, listener: str, options: Mapping[str, str], *, may_read: bool) -> Validate:
        """Return the token validator of a listener; reads its JWKS unless it is cached.

        `options`: those of the login module, including ssl.* for the JWKS endpoint. Raises ConfigError.
        """
        check_classes(config, listener)
        url = config.listener_value(listener, URL_KEY, mechanism=OAUTHBEARER)
        if config.value(UNSECURED_KEY) and not url:
            return _unsigned_validator(listener, options)
        _check_installed()

        def value(name: str) -> Value:
            return config.listener_value(listener, PREFIX + name, mechanism=OAUTHBEARER)

        def claim(name: str) -> str:
            given = str(value(name)).strip()
            if not given:
                raise ConfigError(PREFIX + name, given, "a value is required")
            return given

        issuer, audiences = str(value("expected.issuer") or "").strip(), value("expected.audience")
        assert isinstance(audiences, tuple)
        # a key set of an identity provider signs tokens for others, too: who issued one, and for whom, must be said
        for claimed, given in (("issuer", issuer), ("audience", audiences)):
            if url and not given:
                _check_may_be_unverified(claimed, is_allowed=value(f"allow.unverified.{claimed}") is True)
        scope_claim, name_claim = claim("scope.claim.name"), claim("sub.claim.name")
        return JwtValidator(
            self._source(config, listener, options, may_read=may_read),
            issuer=issuer or None,
            audiences=audiences,
            clock_skew_seconds=int(str(value("clock.skew.seconds"))),
            scope_claim=scope_claim,
            name_claim=name_claim,
        )

    def _source(self, config: BrokerConfig, listener: str, options: Mapping[str, str], *, may_read: bool) -> Keys:
        url = config.listener_value(listener, URL_KEY, mechanism=OAUTHBEARER)
        if not isinstance(url, str) or not url:
            message = (
                "OAUTHBEARER needs it: Apache Kafka takes unsigned tokens without it, this broker only if "
                f"{UNSECURED_KEY} says so"
            )
            raise ConfigError(URL_KEY, url, message)
        check_allowed(URL_KEY, url, config.value(ALLOWED_KEY))
        tls = {key: value for key, value in options.items() if key.startswith("ssl.")}
        named = (url, frozenset(tls.items()))
        if named not in self._sources:
            if not may_read:
                raise ConfigError(URL_KEY, url, "its keys are read at the start: restart to enable OAUTHBEARER")
            self._sources[named] = self._read(config, listener, url, tls)
        return self._sources[named]

    def _read(self, config: BrokerConfig, listener: str, url: str, tls: Mapping[str, str]) -> JwksEndpoint | JwksFile:
        def milliseconds(name: str, least: int) -> int:
            key = f"{PREFIX}jwks.endpoint.{name}.ms"
            value = int(str(config.listener_value(listener, key, mechanism=OAUTHBEARER)))
            if value < least:
                raise ConfigError(key, value, f"Value must be at least {least}")
            return value

        try:
            if not url.startswith("https:"):
                return JwksFile(url)
            return JwksEndpoint(
                url,
                io_pool=self._io_pool,
                refresh_ms=milliseconds("refresh", 1),
                retry_backoff_ms=milliseconds("retry.backoff", 0),
                retry_backoff_max_ms=milliseconds("retry.backoff.max", 0),
                context=endpoint_context(tls),
            )
        except (JwtError, OSError) as error:
            raise ConfigError(URL_KEY, url, f"the keys cannot be read: {error}") from error


def check_classes(config: BrokerConfig, listener: str) -> None:
    """Raise ConfigError if the keys of a listener need a class that is not built."""
    for key, known in KNOWN_CLASSES.items():
        named = config.listener_value(listener, key, mechanism=OAUTHBEARER)
        if named not in known:
            raise ConfigError(key, named, f"only these are built: {', '.join(known)}")


def _check_may_be_unverified(claimed: str, *, is_allowed: bool) -> None:
    """Warn that tokens are accepted whatever their issuer or audience is. Raises ConfigError if that is not allowed."""
    key, allowing = f"{PREFIX}expected.{claimed}", f"{PREFIX}allow.unverified.{claimed}"
    if not is_allowed:
        message = f"it must be set, so that the {claimed} of a token can be checked; or {allowing}=true accepts any"
        raise ConfigError(key, None, message)
    logger.warning("%s is not set: tokens issued for other services may be accepted", key)


def _unsigned_validator(listener: str, options: Mapping[str, str]) -> Validate:
    from kafkapy.security.unsigned_jwt import UnsignedJwtValidator

    logger.warning("%s is set: anyone can log in on %s as any user, with an unsigned token", UNSECURED_KEY, listener)
    try:
        return UnsignedJwtValidator(options)
    except ValueError as error:
        raise ConfigError(
            f"listener.name.{listener.lower()}.oauthbearer.sasl.jaas.config", "[hidden]", str(error)
        ) from error


def endpoint_context(options: Mapping[str, str]) -> "SSLContext":
    """Return the SSL context for an endpoint, from the ssl.* options of a login module. Raises ConfigError.

    Without a trust store, the system's is used. Host names are always checked, as by Java's HttpsURLConnection.
    """
    from kafkapy.server.tls.contexts import client_context

    definitions = broker_definitions()
    values = {key: definition.default for key in [*TlsConfig.keys()] if (definition := definitions.get(key))}
    values |= {key: definitions[key].parse(text) for key, text in options.items() if key in values}
    values["ssl.endpoint.identification.algorithm"] = "https"
    return client_context(TlsConfig.from_values(values))


def check_allowed(key: str, url: str, named: Value) -> None:
    """Raise ConfigError unless a URL is allowed: by `named`, or by a Java property in KAFKA_OPTS."""
    assert isinstance(named, tuple)
    if url not in {*named, *_named_in_options(ALLOWED_PROPERTY)}:
        message = f"the URL is not allowed: name it in {ALLOWED_KEY}, or by {ALLOWED_PROPERTY}... in KAFKA_OPTS"
        raise ConfigError(key, url, message)


def check_file_allowed(key: str, path: str, named: tuple[str, ...]) -> None:
    """Raise ConfigError unless a file is allowed: by `named`, or by a Java property in KAFKA_OPTS."""
    allowed = {*named, *_named_in_options(ALLOWED_FILES_PROPERTY)}
    if os.path.abspath(path) not in {os.path.abspath(each) for each in allowed if each}:
        how = f"name it in {ALLOWED_FILES_KEY}, or by {ALLOWED_FILES_PROPERTY}... in KAFKA_OPTS"
        raise ConfigError(key, path, f"the file is not allowed: {how}")


def _named_in_options(property_option: str) -> set[str]:
    """Return the entries of a list that KAFKA_OPTS gives as -Dname=entry,entry."""
    try:
        options = shlex.split(os.environ.get("KAFKA_OPTS", ""))
    except ValueError:
        return set()
    given = [each.removeprefix(property_option) for each in options if each.startswith(property_option)]
    return {each.strip() for text in given for each in text.split(",")}


def _check_installed() -> None:
    try:
        import jwt  # noqa: F401
    except ImportError as error:
        message = "OAUTHBEARER needs PyJWT: pip install 'kafkapy-broker[oauth]'"
        raise ConfigError("sasl.enabled.mechanisms", OAUTHBEARER, message) from error
