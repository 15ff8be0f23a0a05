"""The keys of bearer tokens: read at the start, again when they are old or one is missing, and kept if that fails."""

import asyncio
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkapy.config.embedded import embedded_properties
from kafkapy.config.load import load
from kafkapy.errors import ConfigError
from kafkapy.metadata.image import EMPTY_IMAGE
from kafkapy.seams import IoPool
from kafkapy.security.oauthbearer import INVALID_TOKEN, JwtError
from kafkapy.security.unsigned_jwt import unsigned_token
from kafkapy.server.login.authentication import Logins
from kafkapy.server.login.jwks import EXPEDITED_MS, MAX_BYTES, MISSING_KEY_IDS, JwksEndpoint, JwksFile, read
from kafkapy.server.process.system_clock import SystemRandom
from tests.simulator.loop import SimLoop
from tests.support.bearer_tokens import WALL_MS, ImmediatePool, SigningKey, bearer, evaluate, jwks, write_jwks
from tests.support.certificates import client_context
from tests.support.https_server import HttpsServer, give_keys, https_server
from tests.support.logins import MODULES

ONE, TWO = SigningKey("one"), SigningKey("two")


REFRESH_MS = 600_000


def ids(keys) -> list[str | None]:
    return [key.key_id for key in keys]


def replace_jwks(path: Path, *keys: SigningKey) -> None:
    """Write another file in the place of `path`: its inode differs, also if its time and size do not."""
    write_jwks(path.with_suffix(".new"), *keys)
    path.with_suffix(".new").replace(path)


def test_a_file_is_read_again_as_soon_as_it_has_changed(tmp_path) -> None:
    """A withdrawn key is refused at the next login, even if nobody has logged in for a long time."""
    path = tmp_path / "keys.json"
    keys = JwksFile(write_jwks(path, ONE))
    assert ids(keys(None, WALL_MS)) == ["one"]
    replace_jwks(path, TWO)
    assert ids(keys("one", WALL_MS)) == []
    assert ids(keys("two", WALL_MS)) == ["two"]


def test_a_file_is_told_by_its_time_and_its_size(tmp_path) -> None:
    path = tmp_path / "keys.json"
    keys = JwksFile(write_jwks(path, ONE))
    status = path.stat()
    path.write_bytes(jwks(TWO))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert ids(keys(None, WALL_MS)) == ["two"]
    path.write_bytes(jwks(ONE, TWO))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert ids(keys(None, WALL_MS)) == ["one", "two"]


def test_the_keys_of_a_file_stay_while_it_cannot_be_read_and_that_is_logged_once(tmp_path, caplog) -> None:
    path = tmp_path / "keys.json"
    keys = JwksFile(write_jwks(path, ONE))
    path.write_text("no keys")
    for _ in range(3):
        assert ids(keys(None, WALL_MS)) == ["one"]
    assert caplog.text.count("keeping the former ones") == 1
    path.unlink()
    assert ids(keys(None, WALL_MS)) == ["one"]
    assert caplog.text.count("keeping the former ones") == 2
    write_jwks(path, TWO)
    assert ids(keys(None, WALL_MS)) == ["two"]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[HttpsServer]:
    with https_server(tmp_path) as server:
        server.routes["/keys"] = give_keys(ONE)
        yield server


def endpoint(served: HttpsServer, pool: IoPool | None = None) -> JwksEndpoint:
    return JwksEndpoint(
        served.url("/keys"),
        io_pool=pool or ImmediatePool(),
        refresh_ms=REFRESH_MS,
        retry_backoff_ms=100,
        retry_backoff_max_ms=1000,
        context=client_context(served.authority),
    )


async def after(loop: SimLoop, at_ms: int) -> None:
    """Let the timers until then run; the time of the loop is that since its start."""
    await asyncio.sleep(at_ms / 1000 - loop.time())


async def test_keys_of_an_endpoint_are_refreshed_without_any_login(served: HttpsServer, loop: SimLoop) -> None:
    """A withdrawn key is refused, even if nobody has logged in for a long time."""
    keys = endpoint(served)
    keys.start()
    served.routes["/keys"] = give_keys(TWO)
    await after(loop, REFRESH_MS - 1)
    assert ids(keys(None, WALL_MS)) == ["one"]
    await after(loop, REFRESH_MS + 1)
    assert ids(keys(None, WALL_MS)) == ["two"]
    served.routes["/keys"] = give_keys(ONE)
    await after(loop, 2 * REFRESH_MS + 1)
    assert ids(keys(None, WALL_MS)) == ["one"]
    assert served.count("/keys") == 3
    keys.close()


async def test_an_endpoint_that_was_closed_is_not_asked_again(served: HttpsServer, loop: SimLoop) -> None:
    keys = endpoint(served)
    keys.start()
    keys.close()
    await after(loop, 2 * REFRESH_MS)
    assert ids(keys("two", WALL_MS)) == []
    assert served.count("/keys") == 1


class HeldPool(ImmediatePool):
    """Holds what it is given until `release`."""

    def __init__(self) -> None:
        self.held: list[tuple[Any, Any]] = []

    def submit(self, call, on_done) -> None:
        self.held.append((call, on_done))

    def release(self) -> None:
        (held,) = self.held
        self.held.clear()
        super().submit(*held)


async def test_one_read_is_made_at_a_time_and_its_result_is_dropped_after_a_stop(
    served: HttpsServer, loop: SimLoop
) -> None:
    pool = HeldPool()
    keys = endpoint(served, pool)
    keys.start()
    served.routes["/keys"] = give_keys(TWO)
    for key_id in ("two", "three"):
        keys(key_id, WALL_MS)
    pool.release()
    assert ids(keys(None, WALL_MS)) == ["two"]
    keys("three", WALL_MS)  # was not asked for while the other read was made
    served.routes["/keys"] = give_keys(ONE)
    keys.close()
    pool.release()
    assert ids(keys(None, WALL_MS)) == ["two"]
    await after(loop, 2 * REFRESH_MS)
    assert pool.held == []


async def test_a_key_that_is_missing_is_looked_for_once_a_minute(served: HttpsServer, loop: SimLoop) -> None:
    keys = endpoint(served)
    keys.start()
    assert ids(keys("two", WALL_MS)) == []
    served.routes["/keys"] = give_keys(ONE, TWO)
    assert ids(keys("two", WALL_MS + EXPEDITED_MS - 1)) == []
    assert served.count("/keys") == 2
    assert ids(keys("two", WALL_MS + EXPEDITED_MS)) == []
    assert ids(keys("two", WALL_MS + EXPEDITED_MS)) == ["two"]
    keys.close()


async def test_a_key_that_is_missing_puts_the_next_refresh_off(served: HttpsServer, loop: SimLoop) -> None:
    keys = endpoint(served)
    keys.start()
    await after(loop, REFRESH_MS - 1000)
    keys("two", WALL_MS)
    await after(loop, 2 * REFRESH_MS - 2000)
    assert served.count("/keys") == 2
    keys.close()


async def test_made_up_key_ids_bring_about_few_readings(served: HttpsServer, loop: SimLoop) -> None:
    """16 in a minute, however many there are; a key that is new is found in the next one."""
    keys = endpoint(served)
    keys.start()
    for number in range(100):
        assert ids(keys(f"made-up-{number}", WALL_MS + number)) == []
    assert served.count("/keys") == 1 + MISSING_KEY_IDS
    served.routes["/keys"] = give_keys(ONE, TWO)
    keys("two", WALL_MS + EXPEDITED_MS + 100)
    assert ids(keys("two", WALL_MS + EXPEDITED_MS + 100)) == ["two"]
    keys.close()


async def test_a_refusing_endpoint_is_retried_with_growing_intervals(served: HttpsServer, loop: SimLoop) -> None:
    """Not more often if tokens name unknown keys; once it answers, as often as before."""
    keys = endpoint(served)
    keys.start()
    served.routes.clear()
    retried_at = [0, 100, 300, 700, 1500, 2500]
    for number, at_ms in enumerate(retried_at):
        await after(loop, REFRESH_MS + at_ms - 1)
        assert served.count("/keys") == 1 + number
        if number:
            assert ids(keys("unknown", WALL_MS + number * EXPEDITED_MS)) == []
        assert ids(keys("one", WALL_MS)) == ["one"]
        await after(loop, REFRESH_MS + at_ms + 1)
        assert served.count("/keys") == 2 + number
    served.routes["/keys"] = give_keys(TWO)
    await after(loop, REFRESH_MS + 3501)
    assert ids(keys(None, WALL_MS)) == ["two"]
    served.routes.clear()
    await after(loop, 2 * REFRESH_MS + 3501 + 101)
    assert served.count("/keys") == 2 + len(retried_at) + 2
    keys.close()


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
        "sasl.oauthbearer.allow.unverified.issuer": "true",
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
        assert evaluate(server, bearer(ONE.token()), WALL_MS) == b""
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
    assert evaluate(server, token, WALL_MS) == b""
    assert server.authorization_id == "alice"
    url = write_jwks(tmp_path / "keys.json", ONE)
    strict = logins(url, **unsecured, **{"kafkapy.sasl.oauthbearer.allowed.urls": url})
    refusing = strict.settings("SASL_PLAINTEXT").servers["OAUTHBEARER"]()
    assert evaluate(refusing, token, WALL_MS) == INVALID_TOKEN.encode()
