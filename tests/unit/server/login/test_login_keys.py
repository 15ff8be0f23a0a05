"""Each number and name that the keys of logins and quotas give reaches the code that it is for."""

import asyncio
import logging
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.config.embedded import embedded_properties
from kafkapy.config.load import load
from kafkapy.errors import ConfigError
from kafkapy.metadata.image import EMPTY_IMAGE
from kafkapy.server.client_quotas import apply_quotas
from kafkapy.server.login.authentication import Logins
from kafkapy.server.login.bearer_tokens import BearerTokens, check_file_allowed, endpoint_context
from kafkapy.server.login.node_token import NodeToken, NoTokenError
from kafkapy.server.login.web_request import TIMEOUT_S
from kafkapy.server.process.system_clock import SystemRandom
from tests.simulator.loop import SimLoop
from tests.support.bearer_tokens import WALL_MS, ImmediatePool, SigningKey, bearer, evaluate, write_jwks
from tests.support.https_server import give_keys, https_server
from tests.support.logins import MODULES, PLAIN_MODULE

KEY = SigningKey("one")
LISTENER = "SASL_PLAINTEXT"
OAUTH_MODULE = f"{MODULES}.oauthbearer.OAuthBearerLoginModule required"
PREFIX = "listener.name.sasl_plaintext."


def config_of(**keys: str) -> Any:
    listeners = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"}
    return load(embedded_properties("/nowhere", overrides=listeners | keys))


def logins(**keys: str) -> Logins:
    config, _ = config_of(**keys)
    pool, random = ImmediatePool(), SystemRandom()
    endpoints = config.broker_listeners
    return Logins(config, endpoints, image=lambda: EMPTY_IMAGE, random=random, io_pool=pool, cluster_id="c")


def bearers(url: str, **keys: str) -> Logins:
    given = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{PREFIX}oauthbearer.sasl.jaas.config": f"{OAUTH_MODULE};",
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "kafkapy.sasl.oauthbearer.allowed.urls": url,
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.allow.unverified.issuer": "true",
    }
    return logins(**given | keys)


def user_of(made: Logins, token: str, now_ms: int = WALL_MS) -> str | None:
    """Return who a token logs in, None for nobody."""
    server = made.settings(LISTENER).servers["OAUTHBEARER"]()
    return server.authorization_id if evaluate(server, bearer(token), now_ms) == b"" else None


@pytest.mark.parametrize("prefix", ["", PREFIX, f"{PREFIX}oauthbearer."])
def test_keys_of_bearer_tokens_reach_the_validator(tmp_path: Path, prefix: str) -> None:
    url = write_jwks(tmp_path / "keys.json", KEY)

    def accepted(name: str, value: str, now_ms: int = WALL_MS, **claims: Any) -> str | None:
        made = bearers(url, **{f"{prefix}sasl.oauthbearer.{name}": value})
        return user_of(made, KEY.token(**claims), now_ms)

    assert accepted("expected.audience", "us,them", aud="them") == "alice"
    assert accepted("expected.audience", "us,them") is None
    assert accepted("expected.issuer", "us") == "alice"
    assert accepted("expected.issuer", "others") is None
    assert accepted("sub.claim.name", "login", login="bob") == "bob"
    assert accepted("scope.claim.name", "scp", scp=["a"]) == "alice"
    assert accepted("scope.claim.name", "scp", scp=[1]) is None
    assert accepted("clock.skew.seconds", "5", WALL_MS + 64_999) == "alice"
    assert accepted("clock.skew.seconds", "5", WALL_MS + 65_000) is None


async def test_keys_are_read_again_as_often_as_the_keys_say(tmp_path: Path, loop: SimLoop) -> None:
    name = "sasl.oauthbearer.jwks.endpoint"
    intervals = {f"{name}.refresh.ms": "1000", f"{name}.retry.backoff.ms": "50", f"{name}.retry.backoff.max.ms": "70"}
    with https_server(tmp_path) as server:
        server.routes["/keys"] = give_keys(KEY)
        trust = f'ssl.truststore.type="PEM" ssl.truststore.location="{server.ca_file}"'
        jaas = {f"{PREFIX}oauthbearer.sasl.jaas.config": f"{OAUTH_MODULE} {trust};"}
        made = bearers(server.url("/keys"), **intervals, **jaas)
        made.start()
        server.routes.clear()
        for at_ms, count in ((999, 1), (1001, 2), (1049, 2), (1051, 3), (1119, 3), (1121, 4)):
            await asyncio.sleep(at_ms / 1000 - loop.time())
            assert server.count("/keys") == count
        made.close()
        await asyncio.sleep(10)
        assert server.count("/keys") == 4


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("jwks.endpoint.refresh.ms", "0"),
        ("jwks.endpoint.retry.backoff.ms", "-1"),
        ("jwks.endpoint.retry.backoff.max.ms", "-1"),
        ("scope.claim.name", " "),
        ("sub.claim.name", ""),
    ],
)
def test_a_key_of_bearer_tokens_that_cannot_be_stops_the_start(name: str, value: str) -> None:
    """As in Apache Kafka, which at negative back-offs fails only when it refreshes the keys, and then for ever."""
    with pytest.raises(ConfigError, match=name):
        bearers("https://localhost:1/keys", **{f"sasl.oauthbearer.{name}": value})


def test_the_name_of_a_key_endpoint_is_checked_whatever_the_options_say() -> None:
    """As by Java's HttpsURLConnection."""
    assert endpoint_context({"ssl.endpoint.identification.algorithm": ""}).check_hostname


def test_listeners_with_the_same_keys_and_trust_read_them_once(tmp_path: Path) -> None:
    with https_server(tmp_path) as server:
        server.routes["/keys"] = give_keys(KEY)
        url, pool = server.url("/keys"), ImmediatePool()
        given = {"sasl.oauthbearer.jwks.endpoint.url": url, "kafkapy.sasl.oauthbearer.allowed.urls": url}
        given |= {f"sasl.oauthbearer.allow.unverified.{each}": "true" for each in ("audience", "issuer")}
        config, _ = config_of(**given)
        tokens, trust = (
            BearerTokens(pool),
            {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(server.ca_file)},
        )
        for options in (trust, trust, {**trust, "clientId": "a"}):
            tokens.validator(config, LISTENER, options, may_read=True)
        assert server.count("/keys") == 1
        tokens.validator(config, LISTENER, {**trust, "ssl.protocol": "TLSv1.2"}, may_read=True)
        assert server.count("/keys") == 2


def test_the_least_intervals_are_taken(tmp_path: Path) -> None:
    least = {"refresh.ms": "1", "retry.backoff.ms": "0", "retry.backoff.max.ms": "0"}
    with https_server(tmp_path) as server:
        server.routes["/keys"] = give_keys(KEY)
        trust = f'ssl.truststore.type="PEM" ssl.truststore.location="{server.ca_file}"'
        keys = {f"sasl.oauthbearer.jwks.endpoint.{name}": value for name, value in least.items()}
        bearers(server.url("/keys"), **keys, **{f"{PREFIX}oauthbearer.sasl.jaas.config": f"{OAUTH_MODULE} {trust};"})
        assert server.count("/keys") == 1


def test_a_validator_that_is_not_built_stops_the_start(tmp_path: Path) -> None:
    url = write_jwks(tmp_path / "keys.json", KEY)
    with pytest.raises(ConfigError, match="only these are built"):
        bearers(url, **{"sasl.oauthbearer.jwt.validator.class": "a.B"})


def test_bearer_tokens_are_not_enabled_while_a_node_runs(tmp_path: Path) -> None:
    """That would read the keys on the loop."""
    given = {"sasl.enabled.mechanisms": "PLAIN", f"{PREFIX}plain.sasl.jaas.config": f"{PLAIN_MODULE};"}
    url = write_jwks(tmp_path / "keys.json", KEY)
    config, _ = config_of(**bearer_keys(url))
    with pytest.raises(ConfigError, match="restart to enable OAUTHBEARER"):
        logins(**given).check(config)


def test_a_listener_that_was_added_takes_bearer_tokens_after_a_restart(tmp_path: Path) -> None:
    given = {"sasl.enabled.mechanisms": "PLAIN", f"{PREFIX}plain.sasl.jaas.config": f"{PLAIN_MODULE};"}
    config, _ = config_of(**bearer_keys(write_jwks(tmp_path / "keys.json", KEY)))
    made, endpoint = logins(**given), config.broker_listeners[0]
    with pytest.raises(ConfigError, match="restart to enable OAUTHBEARER"):
        made.add(config, endpoint, is_running=True)
    made.add(config, endpoint, is_running=False)
    assert "OAUTHBEARER" in made.settings(LISTENER).servers


def bearer_keys(url: str) -> dict[str, str]:
    return {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{PREFIX}oauthbearer.sasl.jaas.config": f"{OAUTH_MODULE};",
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "kafkapy.sasl.oauthbearer.allowed.urls": url,
        "sasl.oauthbearer.allow.unverified.audience": "true",
        "sasl.oauthbearer.allow.unverified.issuer": "true",
    }


def test_without_issuer_or_audience_a_warning_names_the_key(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    url = write_jwks(tmp_path / "keys.json", KEY)
    bearers(url, **{"sasl.oauthbearer.expected.issuer": "us"})
    assert "is not set" not in caplog.text
    allowed = {"sasl.oauthbearer.allow.unverified.audience": "true"}
    bearers(url, **{"sasl.oauthbearer.expected.audience": "", **allowed})
    for key in ("issuer", "audience"):
        assert f"sasl.oauthbearer.expected.{key} is not set" in caplog.text


@pytest.mark.parametrize("claimed", ["audience", "issuer"])
def test_without_issuer_or_audience_the_start_stops_unless_any_is_allowed(tmp_path: Path, claimed: str) -> None:
    url = write_jwks(tmp_path / "keys.json", KEY)
    without = {
        "sasl.oauthbearer.expected.issuer": "us",
        f"sasl.oauthbearer.expected.{claimed}": "",
        "sasl.oauthbearer.allow.unverified.issuer": "false",
    }
    with pytest.raises(ConfigError, match=f"allow.unverified.{claimed}=true"):
        bearers(url, **without)
    bearers(url, **without, **{f"{PREFIX}oauthbearer.sasl.oauthbearer.allow.unverified.{claimed}": "true"})


def test_a_clock_skew_of_unsigned_tokens_that_is_none_stops_the_start() -> None:
    options = f'{OAUTH_MODULE} unsecuredValidatorAllowableClockSkewMs="-1";'
    with pytest.raises(ConfigError, match="must not be negative"):
        logins(
            **{
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "kafkapy.sasl.oauthbearer.unsecured.enable": "true",
                f"{PREFIX}oauthbearer.sasl.jaas.config": options,
            }
        )


def test_a_blank_issuer_is_none(tmp_path: Path) -> None:
    made = bearers(write_jwks(tmp_path / "keys.json", KEY), **{"sasl.oauthbearer.expected.issuer": " "})
    assert user_of(made, KEY.token(iss="any")) == "alice"


def test_a_listener_bounds_tokens_by_its_own_key() -> None:
    given = {"sasl.enabled.mechanisms": "PLAIN", f"{PREFIX}plain.sasl.jaas.config": f"{PLAIN_MODULE};"}
    key = "sasl.server.max.receive.size"
    assert logins(**given).settings(LISTENER).max_receive_bytes == 524_288
    assert logins(**given, **{key: "100"}).settings(LISTENER).max_receive_bytes == 100
    assert logins(**given, **{key: "100", f"{PREFIX}{key}": "50"}).settings(LISTENER).max_receive_bytes == 50


def test_a_key_of_a_listener_and_a_mechanism_is_known_and_checked() -> None:
    _, warnings = config_of(**{f"{PREFIX}oauthbearer.sasl.oauthbearer.clock.skew.seconds": "5"})
    assert warnings == []
    with pytest.raises(ConfigError, match="Not a number of type INT"):
        config_of(**{f"{PREFIX}oauthbearer.sasl.oauthbearer.clock.skew.seconds": "five"})
    _, warnings = config_of(**{f"{PREFIX}oauthbearer.nonsense": "5"})
    assert warnings == [f"Unknown configuration key {PREFIX}oauthbearer.nonsense is ignored"]


def test_a_jaas_config_without_its_mechanism_is_ignored_with_kafkas_warning(caplog: pytest.LogCaptureFixture) -> None:
    given = {"sasl.enabled.mechanisms": "PLAIN", "sasl.jaas.config": f'{PLAIN_MODULE} user_alice="s3cret";'}
    with caplog.at_level(logging.WARNING), pytest.raises(ConfigError, match="Could not find a 'KafkaServer'"):
        logins(**given)
    assert "Server config sasl.jaas.config should be prefixed with SASL mechanism name" in caplog.text
    assert "s3cret" not in caplog.text


def test_a_file_is_allowed_by_the_key_or_by_javas_property(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "sasl.oauthbearer.assertion.file"
    check_file_allowed(key, "/a/../a/b", ("/x", "/a/b"))
    monkeypatch.setenv("KAFKA_OPTS", "-Xmx1g '-Dorg.apache.kafka.sasl.oauthbearer.allowed.files=/c, /d'")
    check_file_allowed(key, "/d", ())
    for refused in ("/a/b", "/d/e", "/"):
        with pytest.raises(ConfigError, match="the file is not allowed"):
            check_file_allowed(key, refused, ())


@pytest.mark.parametrize("options", ["-Dorg.apache.kafka.sasl.oauthbearer.allowed.files=", "'unbalanced"])
def test_options_that_name_no_file_allow_none(monkeypatch: pytest.MonkeyPatch, options: str) -> None:
    monkeypatch.setenv("KAFKA_OPTS", options)
    with pytest.raises(ConfigError, match="the file is not allowed"):
        check_file_allowed("sasl.oauthbearer.assertion.file", str(Path.cwd()), ())


def test_security_providers_stop_the_start() -> None:
    with pytest.raises(ConfigError, match=r"security\.providers names classes, which cannot be loaded here"):
        config_of(**{"security.providers": "a.B"})


class Clock:
    now_ms = WALL_MS

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def monotonic_ns(self) -> int:
        return self.now_ms * 1_000_000


def node_token(url: str, clock: Clock, options: str = "", **keys: str) -> NodeToken:
    given = {
        f"{PREFIX}oauthbearer.sasl.jaas.config": f"{OAUTH_MODULE} {options};",
        "sasl.oauthbearer.token.endpoint.url": url,
        "kafkapy.sasl.oauthbearer.allowed.urls": url,
        "sasl.login.refresh.window.jitter": "0",
    }
    config, _ = config_of(**given | keys)
    return NodeToken(lambda: config, LISTENER, io_pool=ImmediatePool(), clock=clock, random=SystemRandom())


@pytest.mark.parametrize(
    ("keys", "renewed_s"),
    [
        ({}, 800),
        ({"window.factor": "0.5"}, 500),
        ({"window.factor": "0.9", "buffer.seconds": "200"}, 800),
        ({"window.factor": "0.5", "min.period.seconds": "600"}, 600),
    ],
)
@pytest.mark.parametrize("prefix", ["", PREFIX])
def test_a_node_renews_its_token_when_the_keys_say(
    tmp_path: Path, prefix: str, keys: dict[str, str], renewed_s: int
) -> None:
    clock, path = Clock(), tmp_path / "token"
    path.write_text(KEY.token(exp=WALL_MS // 1000 + 1000))
    given = {"buffer.seconds": "10", **keys}
    token = node_token(
        path.as_uri(), clock, **{f"{prefix}sasl.login.refresh.{name}": each for name, each in given.items()}
    )
    first = token.login().evaluate(b"")
    path.write_text(KEY.token(exp=WALL_MS // 1000 + 2000))
    clock.now_ms = WALL_MS + renewed_s * 1000 - 1
    assert token.login().evaluate(b"") == first
    clock.now_ms += 1
    assert token.login().evaluate(b"") != first


def test_a_node_waits_for_its_token_endpoint_as_long_as_the_key_says(tmp_path: Path) -> None:
    """The bound without the key is TIMEOUT_S, 10 s."""
    over = threading.Event()
    with https_server(tmp_path) as server:
        server.routes["/tokens"] = lambda _: (200, {}, str(over.wait(20)).encode())
        options = f'clientId="a" clientSecret="b" ssl.truststore.type="PEM" ssl.truststore.location="{server.ca_file}"'
        started = time.monotonic()
        token = node_token(server.url("/tokens"), Clock(), options, **{"sasl.login.read.timeout.ms": "200"})
        assert time.monotonic() - started < TIMEOUT_S
        over.set()
        with pytest.raises(NoTokenError):
            token.login()


def test_windows_of_quotas_are_those_of_the_keys() -> None:
    entity = (("client-id", "c"),)
    rates = {"consumer_byte_rate": 10.0, "controller_mutation_rate": 1.0}
    image: Any = SimpleNamespace(client_quotas={entity: rates})

    def quotas(**keys: str) -> Any:
        config, _ = config_of(**keys)
        services: Any = SimpleNamespace(client_quotas=None, config=config)
        list(apply_quotas([services], image, [entity]))
        return services.client_quotas

    own = quotas(**{"quota.window.num": "3", "quota.window.size.seconds": "2"})
    assert (own.fetch.max_in_windows("", "c"), own.mutation.charge("", "c", 11, 0)) == (10 * (3 - 1) * 2, 0)
    own = quotas(**{"controller.quota.window.num": "3", "controller.quota.window.size.seconds": "2"})
    assert own.fetch.max_in_windows("", "c") == 10 * (11 - 1) * 1
    assert own.mutation.charge("", "c", 3 * 2, 0) == 0
    assert own.mutation.charge("", "c", 1, 0) > 0
