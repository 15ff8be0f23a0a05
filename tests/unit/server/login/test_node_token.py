"""The token by which a node logs in to others: obtained, kept, renewed; what it needs, and what it survives."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkapy.config.embedded import embedded_properties
from kafkapy.config.load import load
from kafkapy.errors import ConfigError
from kafkapy.server.login.node_token import NodeToken, NoTokenError
from kafkapy.server.login.token_endpoint import TokenError, retrieve_with_retries
from kafkapy.server.process.system_clock import SystemRandom
from tests.support.bearer_tokens import WALL_MS, ImmediatePool, SigningKey
from tests.support.https_server import HttpsServer, give, https_server
from tests.support.logins import MODULES

KEY = SigningKey("one")
LISTENER = "SASL_PLAINTEXT"
JAAS_KEY = "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config"
URL_KEY, ALLOWED_KEY = "sasl.oauthbearer.token.endpoint.url", "kafkapy.sasl.oauthbearer.allowed.urls"
OTHER = "https://localhost/other"
UNSECURED_KEY = "kafkapy.sasl.oauthbearer.unsecured.enable"
LOGIN_HANDLER = f"{MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler"


class Clock:
    def __init__(self) -> None:
        self.now_ms = WALL_MS

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def monotonic_ns(self) -> int:
        return self.now_ms * 1_000_000


def node_token(clock: Clock, url: str, options: str = "", **keys: str) -> NodeToken:
    properties = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        JAAS_KEY: f"{MODULES}.oauthbearer.OAuthBearerLoginModule required {options};",
        **({URL_KEY: url, ALLOWED_KEY: url} if url else {}),
        **keys,
    }
    config, _ = load(embedded_properties("/nowhere", overrides=properties))
    return NodeToken(lambda: config, LISTENER, io_pool=ImmediatePool(), clock=clock, random=SystemRandom())


def sent(token: NodeToken) -> str:
    """Return the token that a login sends."""
    return token.login().evaluate(b"").decode().split("Bearer ")[1].strip("\x01")


def test_a_file_has_the_token_and_is_read_again_before_it_expires(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "token"
    first = KEY.token(exp=WALL_MS // 1000 + 100)
    path.write_text(f"{first}\n")
    token = node_token(clock, path.as_uri())
    assert sent(token) == first
    second = KEY.token(exp=WALL_MS // 1000 + 200)
    path.write_text(second)
    clock.now_ms += 79_000
    assert sent(token) == first
    clock.now_ms += 7_000
    assert sent(token) == second


def test_the_old_token_serves_until_it_expires_and_then_none_does(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, path = Clock(), tmp_path / "token"
    first = KEY.token(exp=WALL_MS // 1000 + 100)
    path.write_text(first)
    token = node_token(clock, path.as_uri())
    path.write_text("secret that is no token")
    clock.now_ms += 99_999
    with caplog.at_level(logging.INFO, "kafkapy.server"):
        assert sent(token) == first
    clock.now_ms += 1
    with pytest.raises(NoTokenError):
        token.login()
    assert "next try in" in caplog.text
    assert first not in caplog.text
    assert "secret" not in caplog.text
    path.write_text(KEY.token(exp=WALL_MS // 1000 + 300))
    clock.now_ms += 10_000
    assert sent(token)


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[HttpsServer]:
    with https_server(tmp_path) as server:
        yield server


def credentials(provider: HttpsServer) -> str:
    trust = f'ssl.truststore.type="PEM" ssl.truststore.location="{provider.ca_file}"'
    return f'clientId="alice" clientSecret="s3cret" {trust}'


def test_a_failing_endpoint_is_retried_with_growing_intervals(
    provider: HttpsServer, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    provider.routes["/tokens"] = lambda _: (503, {}, b"busy")
    token = node_token(clock, provider.url("/tokens"), credentials(provider))
    for _ in range(310):
        clock.now_ms += 10
        with pytest.raises(NoTokenError):
            token.login()
    assert provider.count("/tokens") == len([0, 100, 300, 700, 1500, 3100])
    assert "s3cret" not in caplog.text


def test_a_wrong_secret_is_not_tried_again_soon(provider: HttpsServer) -> None:
    clock = Clock()
    provider.routes["/tokens"] = lambda _: (401, {}, b"{}")
    token = node_token(clock, provider.url("/tokens"), credentials(provider))
    clock.now_ms += 9_999
    with pytest.raises(NoTokenError):
        token.login()
    assert provider.count("/tokens") == 1
    provider.routes["/tokens"] = give(b'{"access_token": "%s"}' % KEY.token().encode())
    clock.now_ms += 1
    assert sent(token)


def test_unsigned_tokens_need_a_key_that_says_so(caplog: pytest.LogCaptureFixture) -> None:
    options = 'unsecuredLoginStringClaim_sub="broker"'
    with pytest.raises(ConfigError, match=URL_KEY):
        node_token(Clock(), "", options)
    with caplog.at_level(logging.WARNING, "kafkapy.server"):
        token = node_token(Clock(), "", options, **{UNSECURED_KEY: "true"})
    assert sent(token).endswith(".")
    assert "which anyone can forge" in caplog.text
    with pytest.raises(ConfigError, match="unsecuredLoginStringClaim_sub"):
        node_token(Clock(), "", **{UNSECURED_KEY: "true"})


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({URL_KEY: "https://localhost/tokens"}, "is not allowed"),
        ({URL_KEY: "http://localhost/tokens"}, "must be an https or a file URL"),
        (
            {
                URL_KEY: "https://localhost/tokens",
                f"listener.name.sasl_plaintext.{ALLOWED_KEY}": "https://localhost/tokens",
            },
            "is not allowed",
        ),
        ({URL_KEY: OTHER, "sasl.oauthbearer.assertion.file": "/etc/key"}, "the file is not allowed"),
        (
            {URL_KEY: OTHER, "listener.name.sasl_plaintext.oauthbearer.sasl.oauthbearer.assertion.claim.iss": "a"},
            r"assertion\.private\.key\.file",
        ),
        ({"sasl.oauthbearer.jwt.retriever.class": "a.B"}, "only these are built"),
        ({"sasl.oauthbearer.jwt.validator.class": f"{MODULES}.oauthbearer.ClientJwtValidator"}, "only these are built"),
        ({"kafkapy.sasl.allowed.login.modules": f"{MODULES}.plain.PlainLoginModule"}, "is not allowed"),
    ],
)
def test_what_cannot_give_a_token_stops_the_start(keys: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        node_token(Clock(), OTHER, 'clientId="a" clientSecret="b"', **keys)


def test_an_endpoint_needs_credentials() -> None:
    with pytest.raises(ConfigError, match=r"client\.credentials\.client\.id"):
        node_token(Clock(), "https://localhost/tokens")


def test_commands_retry_for_a_time(provider: HttpsServer) -> None:
    """sasl.login.retry.backoff.ms doubles, and all ends after .max.ms; a wrong secret is not retried."""
    url, clock, slept = provider.url("/tokens"), Clock(), []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.now_ms += int(seconds * 1000)

    properties = {URL_KEY: url, ALLOWED_KEY: url, "sasl.login.retry.backoff.max.ms": "1000"}
    options = {
        "clientId": "alice",
        "clientSecret": "s3cret",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(provider.ca_file),
    }

    def send_request() -> str:
        return retrieve_with_retries(properties, options, monotonic_ms=clock.monotonic_ms, sleep=sleep)

    provider.routes["/tokens"] = lambda _: (503, {}, b"")
    with pytest.raises(TokenError, match="503"):
        send_request()
    assert slept == [0.1, 0.2, 0.4, 0.3]
    provider.routes["/tokens"] = lambda _: (403, {}, b"")
    with pytest.raises(TokenError, match="403"):
        send_request()
    assert len(slept) == 4
