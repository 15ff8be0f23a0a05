"""The bearer token by which a node logs in to the other nodes of a listener. KIP-768.

It is obtained by a worker, first when the node starts, and renewed by the first login after the time that the
sasl.login.refresh.* keys give; until then, and while the token endpoint fails, logins use the token that is held. After
a failure the next try waits for the back-off of sasl.login.retry.*.

Deviation: Apache Kafka's start fails if the token endpoint does. Here logins fail, and it is tried again, because the
endpoint may be started later. Deviation: Apache Kafka renews a token by a timer. Here a login does, because without one
no token is needed.
"""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from kafkapy.config.broker import BrokerConfig
from kafkapy.config.definitions import Password, broker_definitions
from kafkapy.errors import ConfigError, KafkapyError
from kafkapy.security.client_jwt import PERMILLE, HeldToken, RenewalSettings, read_token, renewal_ms
from kafkapy.security.oauthbearer import JwtError, OAuthBearerClient
from kafkapy.security.sasl import OAUTHBEARER
from kafkapy.security.unsigned_jwt import unsigned_token
from kafkapy.server.login.authentication import server_options
from kafkapy.server.login.bearer_tokens import ALLOWED_FILES_KEY, ALLOWED_KEY, UNSECURED_KEY, check_classes
from kafkapy.server.login.client_assertion import KEYS as ASSERTION_KEYS
from kafkapy.server.login.token_endpoint import ENCODE_KEY, URL_KEY, check_endpoint, retrieve_token

if TYPE_CHECKING:
    from kafkapy.seams import Clock, IoPool, Random

KEYS: Final = (
    *ASSERTION_KEYS,
    URL_KEY,
    ENCODE_KEY,
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.sub.claim.name",
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    "sasl.login.retry.backoff.ms",
    "sasl.login.retry.backoff.max.ms",
)
RETRY_AFTER_REFUSAL_MS: Final = 10_000
"""The pause after a refusal that a retry cannot change, such as a wrong secret: as in Apache Kafka."""

logger = logging.getLogger("kafkapy.server")


class NoTokenError(KafkapyError):
    """The node holds no valid token. The message contains no secret."""


class NodeToken:
    """Holds the token of one listener. Runs on the event loop, except for the requests."""

    def __init__(
        self, config: Callable[[], BrokerConfig], listener: str, *, io_pool: "IoPool", clock: "Clock", random: "Random"
    ) -> None:
        """Check the keys and begin to obtain the token. Raises ConfigError."""
        self._config = config
        self._listener = listener
        self._io_pool = io_pool
        self._clock = clock
        self._random = random
        self._held: HeldToken | None = None
        self._renew_at_ms = 0
        self._failures = 0
        self._not_before_ms = 0
        self._is_requesting = False
        _check(config(), listener)
        self._maybe_request(clock.wall_ms())

    def login(self) -> OAuthBearerClient:
        """Return the state machine of one login. Raises NoTokenError, KafkapyError."""
        now_ms = self._clock.wall_ms()
        if self._held is None or now_ms >= self._renew_at_ms:
            self._maybe_request(now_ms)
        held = self._held
        if held is None or now_ms >= held.expires_at_ms:
            raise NoTokenError("no valid bearer token is held yet")
        return OAuthBearerClient(held.text)

    def _maybe_request(self, now_ms: int) -> None:
        if self._is_requesting or now_ms < self._not_before_ms:
            return
        self._is_requesting = True
        config = self._config()
        properties = _properties(config, self._listener)
        options = server_options(config, self._listener, OAUTHBEARER)

        def done(text: str | None, error: BaseException | None) -> None:
            self._is_requesting = False
            self._on_read(text, error, properties)

        if _is_unsigned(config, self._listener):
            self._io_pool.submit(lambda: unsigned_token(options, now_ms), done)
        else:
            self._io_pool.submit(lambda: retrieve_token(properties, options), done)

    def _on_read(self, text: str | None, error: BaseException | None, properties: Mapping[str, str]) -> None:
        now_ms = self._clock.wall_ms()
        try:
            if text is None:
                raise error or JwtError("there is none")
            held = read_token(text, name_claim=properties.get("sasl.oauthbearer.sub.claim.name", "sub"))
            if now_ms >= held.expires_at_ms:
                raise JwtError("it has expired")
        except (KafkapyError, JwtError, OSError, RuntimeError) as refusal:
            self._fail(refusal, now_ms, properties)
            return
        self._held, self._failures = held, 0
        settings = _renewal_settings(self._config(), self._listener)
        jitter = self._random.randrange(0, PERMILLE)
        self._renew_at_ms = renewal_ms(held, now_ms, settings, jitter_permille=jitter)
        lifetime_ms = held.expires_at_ms - now_ms
        logger.info("Got a bearer token for %s, valid for %d ms", held.name, lifetime_ms)

    def _fail(self, refusal: BaseException, now_ms: int, properties: Mapping[str, str]) -> None:
        self._failures += 1
        first_ms, max_ms = (int(properties[f"sasl.login.retry.backoff.{name}"]) for name in ("ms", "max.ms"))
        backoff_ms = min(first_ms << min(self._failures - 1, 20), max_ms)
        if not getattr(refusal, "is_retriable", True):
            backoff_ms = max(backoff_ms, RETRY_AFTER_REFUSAL_MS)
        self._not_before_ms = now_ms + backoff_ms
        logger.warning("Cannot get a bearer token, next try in %d ms: %s", backoff_ms, refusal)


def _check(config: BrokerConfig, listener: str) -> None:
    """Raise ConfigError if the keys cannot give a token."""
    check_classes(config, listener)
    options = server_options(config, listener, OAUTHBEARER)
    if not _is_unsigned(config, listener):
        check_endpoint(_properties(config, listener), options)
        return
    try:
        unsigned_token(options, 0)
    except JwtError as error:
        raise ConfigError(UNSECURED_KEY, True, str(error)) from error
    logger.warning(
        "This node logs in to other nodes with unsigned tokens, which anyone can forge; unset %s", UNSECURED_KEY
    )


def _is_unsigned(config: BrokerConfig, listener: str) -> bool:
    url = config.listener_value(listener, URL_KEY, mechanism=OAUTHBEARER)
    return bool(config.value(UNSECURED_KEY)) and not url


def _properties(config: BrokerConfig, listener: str) -> dict[str, str]:
    """Return the keys of the token endpoint as text. The lists of what is allowed are never a listener's own."""
    found = {}
    for key in (ALLOWED_KEY, ALLOWED_FILES_KEY):
        allowed = config.value(key)
        assert isinstance(allowed, tuple)
        found[key] = ",".join(map(str, allowed))
    for key in KEYS:
        if key not in broker_definitions():
            continue  # of clients only
        value = config.listener_value(listener, key, mechanism=OAUTHBEARER)
        if isinstance(value, Password):
            found[key] = value.value
        elif value is not None:
            found[key] = str(value)
    return found


def _renewal_settings(config: BrokerConfig, listener: str) -> RenewalSettings:
    def number(name: str) -> float:
        return float(str(config.listener_value(listener, f"sasl.login.refresh.{name}", mechanism=OAUTHBEARER)))

    return RenewalSettings(
        window_factor=number("window.factor"),
        window_jitter=number("window.jitter"),
        min_period_seconds=int(number("min.period.seconds")),
        buffer_seconds=int(number("buffer.seconds")),
    )
