"""No log shows a secret: not at the lowest level of every logger, nor in the request log. CVE-2026-33558.

What SaslAuthenticate, SCRAM, token and config requests carry is sent, right and wrong, and looked for in all that was
written, as text, base64 and hexadecimal.
"""

import base64
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkapy import Broker
from kafkapy.protocol.messages.alter_configs_request import AlterableConfig as LegacyConfig
from kafkapy.protocol.messages.alter_configs_request import AlterConfigsRequest
from kafkapy.protocol.messages.alter_configs_request import AlterConfigsResource as LegacyResource
from kafkapy.protocol.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from kafkapy.protocol.messages.create_delegation_token_request import CreateDelegationTokenRequest
from kafkapy.protocol.messages.describe_delegation_token_request import DescribeDelegationTokenRequest
from kafkapy.protocol.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from kafkapy.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkapy.protocol.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from kafkapy.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from kafkapy.serving.request_logger import request_logger
from tests.support.bearer_tokens import SigningKey, bearer, write_jwks
from tests.support.logins import MODULES, jaas_keys, log_in, sasl_client, shake_hands
from tests.support.wire import WireClient

pytestmark = pytest.mark.ours

LISTENER = "SASL_PLAINTEXT"
USERS = {"alice": "wonderful-secret"}
BROKER = 4
WRONG, CUT, CONFIG, LEGACY, SALT, SALTED = (
    f"{name}-secret" for name in ("wrong", "cut", "config", "legacy", "salt", "salted-password")
)
TOKEN_KEY = "token-key-secret"


@pytest.fixture
def written(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """All that is logged, at every level, by every logger there is."""
    loggers = [each for each in logging.Logger.manager.loggerDict.values() if isinstance(each, logging.Logger)]
    before = [(each, each.level) for each in loggers if each.name.startswith(("kafka", "kafkapy"))]
    caplog.set_level(1)
    for logger, _ in before:
        logger.setLevel(1)
    request_logger.setLevel(logging.DEBUG)
    yield caplog
    for logger, level in before:
        logger.setLevel(level)
    request_logger.setLevel(logging.NOTSET)


@pytest.fixture
def key(tmp_path: Path) -> SigningKey:
    return SigningKey("one")


@pytest.fixture
def address(written: pytest.LogCaptureFixture, tmp_path: Path, key: SigningKey) -> Iterator[str]:
    mechanisms = ("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER")
    url = write_jwks(tmp_path / "keys.json", key)
    properties = {
        "listeners": f"{LISTENER}://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": ",".join(mechanisms),
        "delegation.token.secret.key": TOKEN_KEY,
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.allow.unverified.issuer": "true",
        "kafkapy.sasl.oauthbearer.allowed.urls": url,
        **jaas_keys(LISTENER, mechanisms=mechanisms[:2], users=USERS),
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": (
            f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;"
        ),
    }
    with Broker(properties=properties) as broker:
        yield broker.bootstrap_servers


def shows(text: str, secret: bytes) -> bool:
    forms = (secret.decode("latin-1"), base64.b64encode(secret).decode().rstrip("="), secret.hex())
    return any(form in text for form in forms)


def alice(address: str) -> WireClient:
    client = WireClient(address)
    assert log_in(client, sasl_client("PLAIN", "alice", USERS["alice"])).error_code == 0
    return client


def test_logins(address: str, written: pytest.LogCaptureFixture, key: SigningKey) -> None:
    now_ms = int(time.time() * 1000)
    right, wrong = key.token(now_ms=now_ms), SigningKey("one").token(now_ms=now_ms)
    alice(address).close()
    for mechanism in ("PLAIN", "SCRAM-SHA-256"):
        with WireClient(address) as client:
            assert log_in(client, sasl_client(mechanism, "alice", WRONG)).error_code
    with WireClient(address) as client:
        shake_hands(client, "PLAIN", 0)
        client.send_frame(f"\0alice\0{CUT}\0\0".encode())
        assert client.is_closed()
    for token in (right, wrong, f"{right}.{CUT}"):
        with WireClient(address) as client:
            shake_hands(client, "OAUTHBEARER")
            client.call(SaslAuthenticateRequest(auth_bytes=bearer(token)), 2)
    assert "Failed authentication" in written.text
    assert "has authenticated as User:alice" in written.text
    signatures = [token.rpartition(".")[2] for token in (right, wrong)]
    for secret in (USERS["alice"], WRONG, CUT, TOKEN_KEY, *signatures):
        assert not shows(written.text, secret.encode()), secret


def test_scram_credentials(address: str, written: pytest.LogCaptureFixture) -> None:
    upsertion = ScramCredentialUpsertion(
        "bob", mechanism=1, iterations=4096, salt=SALT.encode(), salted_password=SALTED.encode()
    )
    with alice(address) as client:
        client.call(AlterUserScramCredentialsRequest([], upsertions=[upsertion]), 0)
        client.call(AlterUserScramCredentialsRequest([], upsertions=[upsertion, upsertion]), 0)
    assert "ALTER_USER_SCRAM_CREDENTIALS" in written.text
    for secret in (SALT, SALTED):
        assert not shows(written.text, secret.encode()), secret


def test_delegation_tokens(address: str, written: pytest.LogCaptureFixture) -> None:
    with alice(address) as client:
        token = client.call(CreateDelegationTokenRequest(max_lifetime_ms=-1), 3)
        assert token.error_code == 0
        hmac = bytes(token.hmac)
        assert client.call(DescribeDelegationTokenRequest(owners=None), 3).error_code == 0
        assert client.call(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=-1), 2).error_code == 0
        assert client.call(ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=-1), 2).error_code == 0
        assert client.call(ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=-1), 2).error_code
    assert "CREATE_DELEGATION_TOKEN" in written.text
    for secret in (hmac, TOKEN_KEY.encode()):
        assert not shows(written.text, secret)


SECRET_KEYS = (
    "listener.name.sasl_plaintext.ssl.key.password",
    "listener.name.sasl_plaintext.ssl.keystore.key",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config",
    "ssl.keystore.password",
    "nobodys.password",
)


@pytest.mark.parametrize("name", SECRET_KEYS)
def test_configs(address: str, written: pytest.LogCaptureFixture, name: str) -> None:
    """Accepted, refused and unknown ones."""
    config: Any = AlterableConfig(name, config_operation=0, value=CONFIG)
    legacy: Any = LegacyConfig(name, value=LEGACY)
    with alice(address) as client:
        client.call(
            IncrementalAlterConfigsRequest(
                resources=[AlterConfigsResource(BROKER, resource_name="1", configs=[config])]
            ),
            1,
        )
        client.call(AlterConfigsRequest(resources=[LegacyResource(BROKER, resource_name="1", configs=[legacy])]), 2)
    assert "ALTER_CONFIGS" in written.text
    for secret in (CONFIG, LEGACY):
        assert not shows(written.text, secret.encode())
