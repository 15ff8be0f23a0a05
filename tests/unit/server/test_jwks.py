"""The keys of bearer tokens: read at the start, again when they are old or one is missing, and kept if that fails."""

import logging

import pytest

from kafkapy.config.embedded import embedded_properties
from kafkapy.config.load import load
from kafkapy.errors import ConfigError
from kafkapy.metadata.image import EMPTY_IMAGE
from kafkapy.security.oauthbearer import INVALID_TOKEN, JwtError
from kafkapy.security.unsigned_jwt import unsigned_token
from kafkapy.server.authentication import Logins
from kafkapy.server.jwks import EXPEDITED_MS, MAX_BYTES, MISSING_KEY_IDS, JwksSource, read
from kafkapy.server.system_clock import SystemRandom
from tests.support.bearer_tokens import WALL_MS, ImmediatePool, SigningKey, bearer, write_jwks
from tests.support.certificates import client_context
from tests.support.https_server import give_keys, https_server
from tests.support.logins import MODULES

ONE, TWO = SigningKey("one"), SigningKey("two")


def source(url: str) -> JwksSource:
    pool = ImmediatePool()
    return JwksSource(url, io_pool=pool, refresh_ms=3_600_000, retry_backoff_ms=100, retry_backoff_max_ms=1000)


def ids(keys) -> list[str | None]:
    return [key.key_id for key in keys]


def test_old_keys_are_read_again(tmp_path) -> None:
    path = tmp_path / "keys.json"
    keys = source(write_jwks(path, ONE))
    assert ids(keys(None, WALL_MS)) == ["one"]
    write_jwks(path, TWO)
    assert ids(keys(None, WALL_MS + 3_599_999)) == ["one"]
    assert ids(keys(None, WALL_MS + 3_600_000)) == ["two"]


def test_a_key_that_is_missing_is_looked_for_once_a_minute(tmp_path) -> None:
    path = tmp_path / "keys.json"
    keys = source(write_jwks(path, ONE))
    assert ids(keys("two", WALL_MS)) == []
    write_jwks(path, ONE, TWO)
    assert ids(keys("two", WALL_MS + 1)) == []
    assert ids(keys("three", WALL_MS + 2)) == []
    assert ids(keys("two", WALL_MS + 3)) == ["two"]


def test_made_up_key_ids_bring_about_few_readings(tmp_path) -> None:
    """16 in a minute, however many there are; a key that is new is found in the next one."""
    with https_server(tmp_path) as server:
        server.routes["/keys"] = give_keys(ONE)
        url, context = server.url("/keys"), client_context(server.authority)
        pool = ImmediatePool()
        keys = JwksSource(
            url, io_pool=pool, refresh_ms=3_600_000, retry_backoff_ms=100, retry_backoff_max_ms=1000, context=context
        )
        for number in range(100):
            assert ids(keys(f"made-up-{number}", WALL_MS + number)) == []
        assert server.count("/keys") == 1 + MISSING_KEY_IDS
        server.routes["/keys"] = give_keys(ONE, TWO)
        keys("two", WALL_MS + EXPEDITED_MS + 100)
        assert ids(keys("two", WALL_MS + EXPEDITED_MS + 100)) == ["two"]


def test_a_refusing_endpoint_is_retried_with_growing_intervals(tmp_path) -> None:
    with https_server(tmp_path) as server:
        server.routes["/keys"] = give_keys(ONE)
        url, context = server.url("/keys"), client_context(server.authority)
        keys = JwksSource(
            url, io_pool=ImmediatePool(), refresh_ms=1, retry_backoff_ms=100, retry_backoff_max_ms=1000, context=context
        )
        keys(None, WALL_MS)
        server.routes.clear()
        for later_ms in range(10, 3010, 10):
            assert ids(keys("one", WALL_MS + later_ms)) == ["one"]
        retried_at = [10, 110, 310, 710, 1510, 2510]
        assert server.count("/keys") == 1 + len(retried_at)


def test_keys_stay_when_they_cannot_be_read(tmp_path) -> None:
    path = tmp_path / "keys.json"
    keys = source(write_jwks(path, ONE))
    keys(None, WALL_MS)
    path.write_text("no keys")
    later_ms = WALL_MS + 4_000_000
    assert ids(keys(None, later_ms)) == ["one"]
    write_jwks(path, TWO)
    assert ids(keys(None, later_ms + 99)) == ["one"]
    keys(None, later_ms + 100)
    assert ids(keys(None, later_ms + 100)) == ["two"]


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/keys", "ftp://x/y", "keys.json", ""])
def test_only_https_and_files_are_read(url) -> None:
    with pytest.raises(JwtError, match="only https and file"):
        read(url)


def test_a_large_file_is_not_read(tmp_path) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(b" " * (MAX_BYTES + 1))
    with pytest.raises(JwtError, match="more than"):
        read(path.as_uri())


def logins(url: str, **keys: str) -> Logins:
    properties = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": (
            f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;"
        ),
        **({"sasl.oauthbearer.jwks.endpoint.url": url} if url else {}),
        "sasl.oauthbearer.expected.audience": "kafka",
        **keys,
    }
    config, _ = load(embedded_properties("/nowhere", overrides=properties))
    return Logins(
        config,
        config.broker_listeners,
        image=lambda: EMPTY_IMAGE,
        random=SystemRandom(),
        io_pool=ImmediatePool(),
        cluster_id="c",
    )


def test_a_listener_takes_tokens_that_an_allowed_key_set_has_signed(tmp_path, monkeypatch) -> None:
    url = write_jwks(tmp_path / "keys.json", ONE)
    for made in (logins(url, **{"kafkapy.sasl.oauthbearer.allowed.urls": f"https://a,{url}"}),):
        server = made.settings("SASL_PLAINTEXT").servers["OAUTHBEARER"]()
        assert server.evaluate(bearer(ONE.token()), WALL_MS) == b""
    monkeypatch.setenv("KAFKA_OPTS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url}")
    logins(url)


def test_without_an_allowed_key_set_the_start_fails(tmp_path) -> None:
    url = write_jwks(tmp_path / "keys.json", ONE)
    with pytest.raises(ConfigError, match="the URL is not allowed"):
        logins(url)
    with pytest.raises(ConfigError, match=r"this broker only if kafkapy\.sasl\.oauthbearer\.unsecured\.enable says so"):
        logins("")
    missing = (tmp_path / "none.json").as_uri()
    with pytest.raises(ConfigError, match="the keys cannot be read"):
        logins(missing, **{"kafkapy.sasl.oauthbearer.allowed.urls": missing})


def test_unsigned_tokens_are_taken_only_if_a_key_says_so_and_with_a_warning(tmp_path, caplog) -> None:
    """Where there is a key set, tokens must be signed in spite of the key."""
    unsecured = {"kafkapy.sasl.oauthbearer.unsecured.enable": "true"}
    token = bearer(unsigned_token({"unsecuredLoginStringClaim_sub": "alice"}, WALL_MS))
    with caplog.at_level(logging.WARNING, "kafkapy.server"):
        server = logins("", **unsecured).settings("SASL_PLAINTEXT").servers["OAUTHBEARER"]()
    assert "anyone can log in" in caplog.text
    assert server.evaluate(token, WALL_MS) == b""
    assert server.authorization_id == "alice"
    url = write_jwks(tmp_path / "keys.json", ONE)
    strict = logins(url, **unsecured, **{"kafkapy.sasl.oauthbearer.allowed.urls": url})
    refusing = strict.settings("SASL_PLAINTEXT").servers["OAUTHBEARER"]()
    assert refusing.evaluate(token, WALL_MS) == INVALID_TOKEN.encode()
