"""Client assertions: what is signed, from which files, and how a token endpoint is asked with them."""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)

from kafkapy.cli.command_config import CommandConfig, CommandConfigError
from kafkapy.errors import ConfigError
from kafkapy.server.login.bearer_tokens import ALLOWED_FILES_KEY, ALLOWED_KEY, OAUTH, RETRIEVER_KEY
from kafkapy.server.login.client_assertion import KEYS, new_assertion
from kafkapy.server.login.token_endpoint import URL_KEY, check_endpoint, retrieve_token
from tests.support.bearer_tokens import WALL_MS, SigningKey
from tests.support.https_server import HttpsServer, give, https_server

PREFIX = "sasl.oauthbearer.assertion."
RSA, EC = SigningKey("one", "RS256"), SigningKey("two")
NOW_S = WALL_MS // 1000
TIMES = {"iat": NOW_S, "exp": NOW_S + 300, "nbf": NOW_S - 60}


def write_key(path: Path, key: SigningKey, passphrase: bytes | None = None) -> dict[str, str]:
    """Return the keys of the configuration."""
    encryption: KeySerializationEncryption = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
    path.write_bytes(key.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    return {
        f"{PREFIX}private.key.file": str(path),
        f"{PREFIX}algorithm": key.algorithm,
        f"{PREFIX}claim.iss": "kafka-app",
        ALLOWED_FILES_KEY: str(path),
    }


def made(properties: dict[str, str]) -> str:
    return new_assertion(properties, WALL_MS, lambda: "an-id")


def claims_of(text: str, key: SigningKey) -> dict[str, object]:
    checked = {"verify_exp": False, "verify_nbf": False, "verify_iat": False, "verify_aud": False}
    return jwt.decode(text, key.private.public_key(), algorithms=[key.algorithm], options=checked)


@pytest.mark.parametrize("key", [RSA, EC], ids=["RS256", "ES256"])
@pytest.mark.parametrize("passphrase", [None, b"open, sesame"])
def test_it_is_signed_by_the_key_of_a_file(tmp_path: Path, key: SigningKey, passphrase: bytes | None) -> None:
    properties = write_key(tmp_path / "key.pem", key, passphrase)
    if passphrase is not None:
        properties[f"{PREFIX}private.key.passphrase"] = passphrase.decode()
    text = made(properties)
    assert claims_of(text, key) == {"iss": "kafka-app", **TIMES}
    assert jwt.get_unverified_header(text) == {"alg": key.algorithm, "typ": "JWT"}


def test_claims_come_from_keys_then_a_template_then_the_clock(tmp_path: Path) -> None:
    template = tmp_path / "template.json"
    template.write_text(
        '{"header": {"kid": "7", "alg": "none"}, "payload": {"sub": "of template", "iat": 1, "x": [2]}}'
    )
    properties = write_key(tmp_path / "key.pem", EC) | {
        f"{PREFIX}claim.aud": "provider",
        f"{PREFIX}claim.sub": "of key",
        f"{PREFIX}claim.jti.include": "true",
        f"{PREFIX}claim.exp.seconds": "60",
        f"{PREFIX}claim.nbf.seconds": "0",
        f"{PREFIX}template.file": str(template),
    }
    properties[ALLOWED_FILES_KEY] += f", {template}"
    text = made(properties)
    fixed = {"aud": "provider", "iss": "kafka-app", "sub": "of template", "x": [2], "jti": "an-id"}
    assert claims_of(text, EC) == {**fixed, "iat": NOW_S, "exp": NOW_S + 60, "nbf": NOW_S}
    assert jwt.get_unverified_header(text) == {"kid": "7", "alg": "ES256", "typ": "JWT"}


def test_a_file_holds_the_whole_assertion_and_is_read_each_time(tmp_path: Path) -> None:
    path = tmp_path / "assertion"
    properties = {f"{PREFIX}file": str(path), f"{PREFIX}claim.iss": "ignored", ALLOWED_FILES_KEY: str(path)}
    for name in ("first", "second"):
        path.write_text(f"{EC.token(sub=name)}\n")
        assert claims_of(made(properties), EC)["sub"] == name


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({ALLOWED_FILES_KEY: "/other"}, "the file is not allowed"),
        ({f"{PREFIX}private.key.file": ""}, "is needed to sign"),
        ({f"{PREFIX}algorithm": "ES256"}, "of another kind"),
        ({f"{PREFIX}algorithm": "HS256"}, "of another kind"),
        ({f"{PREFIX}private.key.passphrase": "secret"}, "cannot be read with this passphrase"),
        ({f"{PREFIX}claim.exp.seconds": "soon"}, "a number of seconds"),
        ({f"{PREFIX}template.file": "/nowhere", ALLOWED_FILES_KEY: "/nowhere"}, "cannot be read"),
        ({f"{PREFIX}file": "{key}"}, "holds no assertion"),
        ({f"{PREFIX}template.file": "{key}"}, "it is no JSON"),
    ],
)
def test_impossible_values_are_reported_without_secrets(tmp_path: Path, changed: dict[str, str], reason: str) -> None:
    properties = write_key(tmp_path / "key.pem", RSA)
    properties |= {key: value.replace("{key}", str(tmp_path / "key.pem")) for key, value in changed.items()}
    with pytest.raises(ConfigError, match=reason) as error:
        made(properties)
    assert "secret" not in str(error.value)
    assert "PRIVATE KEY" not in str(error.value)


def test_another_curve_than_es256s_is_refused(tmp_path: Path) -> None:
    key = SigningKey("three")
    key.private = ec.generate_private_key(ec.SECP384R1())
    with pytest.raises(ConfigError, match="of another kind"):
        made(write_key(tmp_path / "key.pem", key))


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[HttpsServer]:
    with https_server(tmp_path / "provider") as server:
        server.routes["/tokens"] = give(json.dumps({"access_token": EC.token()}).encode())
        yield server


def form_sent_with(provider: HttpsServer, properties: dict[str, str]) -> tuple[dict[str, list[str]], str | None]:
    """Return the form that the endpoint got, and its Authorization header."""
    url = provider.url("/tokens")
    options = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(provider.ca_file)}
    given = {**properties, URL_KEY: url, ALLOWED_KEY: url}
    check_endpoint(given, options)
    assert retrieve_token(given, options)
    _, requested = provider.requested[-1]
    return parse_qs(requested.body.decode(), strict_parsing=True), requested.headers.get("Authorization")


def test_an_endpoint_gets_the_assertion_instead_of_a_secret(provider: HttpsServer, tmp_path: Path) -> None:
    properties = write_key(tmp_path / "key.pem", RSA) | {
        "sasl.oauthbearer.client.credentials.client.id": "app/1",
        "sasl.oauthbearer.scope": "read write",
    }
    form, authorization = form_sent_with(provider, properties)
    assert authorization is None
    assert claims_of(form.pop("client_assertion")[0], RSA)["iss"] == "kafka-app"
    assert form == {
        "client_assertion_type": ["urn:ietf:params:oauth:client-assertion-type:jwt-bearer"],
        "grant_type": ["client_credentials"],
        "client_id": ["app/1"],
        "scope": ["read write"],
    }


def test_the_assertion_is_the_grant_of_the_jwt_bearer_retriever(provider: HttpsServer, tmp_path: Path) -> None:
    properties = write_key(tmp_path / "key.pem", EC) | {RETRIEVER_KEY: f"{OAUTH}.JwtBearerJwtRetriever"}
    form, authorization = form_sent_with(provider, properties)
    assert authorization is None
    assert claims_of(form.pop("assertion")[0], EC)["iss"] == "kafka-app"
    assert form == {"grant_type": ["urn:ietf:params:oauth:grant-type:jwt-bearer"]}


def test_the_keys_are_those_of_apache_kafka() -> None:
    from kafkapy.config.definitions import broker_definitions

    assert {key for key in broker_definitions() if key.startswith(PREFIX)} | {RETRIEVER_KEY} == {*KEYS}


def test_commands_with_a_client_of_their_own_that_sends_none_say_so() -> None:
    properties = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{OAUTH}.OAuthBearerLoginModule required;",
        f"{PREFIX}claim.iss": "kafka-app",
    }
    with pytest.raises(CommandConfigError, match="sends no assertions"):
        CommandConfig(properties).librdkafka()
