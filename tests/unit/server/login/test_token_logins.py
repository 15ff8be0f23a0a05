"""SCRAM logins with a delegation token: whose session it is, and until when."""

import base64
from copy import copy

import pytest

from kafkapy.config.definitions import Password
from kafkapy.metadata.delegation_tokens import token_hmac
from kafkapy.metadata.image import EMPTY_IMAGE, MetadataImage
from kafkapy.metadata.scram_types import MECHANISMS
from kafkapy.protocol.messages.delegation_token_record import DelegationTokenRecord
from kafkapy.security.sasl import SaslError
from kafkapy.security.scram import ScramClient, ScramServer
from kafkapy.server.login.token_logins import TokenLogins

NOW_MS = 1_000
TOKEN = DelegationTokenRecord(token_id="id", owner="User:alice", expiration_timestamp=NOW_MS, max_timestamp=2_000)
WITH_TOKEN = MetadataImage(delegation_tokens={"id": TOKEN})
HMAC = token_hmac(b"secret", "id")
KEY = Password("secret")
SECRET = b"of this broker"


def owned_by(owner: str) -> MetadataImage:
    """Return a token that would make a user of who is none: a login's principal has the type User."""
    token = copy(TOKEN)
    token.owner = owner
    return MetadataImage(delegation_tokens={"id": token})


def server(mechanism, *, image=WITH_TOKEN, key: Password | None = KEY) -> ScramServer:
    tokens = TokenLogins(lambda: image, key, SECRET)
    return ScramServer(
        mechanism,
        lambda name: None,
        nonce="server",
        secret=SECRET,
        tokens=lambda token_id: tokens.find(mechanism, token_id),
    )


def log_in(machine: ScramServer, mechanism, name: str = "id", *, hmac: bytes = HMAC, now_ms: int = NOW_MS) -> None:
    client = ScramClient(mechanism, name, base64.b64encode(hmac).decode(), nonce="client", is_token=True)
    final = client.evaluate(machine.evaluate(client.evaluate(b""), now_ms))
    client.evaluate(machine.evaluate(final, now_ms))
    assert client.is_complete


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=str)
def test_who_knows_the_hmac_is_the_owner_until_the_token_ends(mechanism) -> None:
    machine = server(mechanism)
    log_in(machine, mechanism)
    assert (machine.authorization_id, machine.is_by_token, machine.expires_at_ms) == ("alice", True, NOW_MS)


@pytest.mark.parametrize(
    ("how", "login"),
    [
        ({}, {"hmac": b"x" * 64}),
        ({}, {"name": "alice"}),
        ({}, {"now_ms": NOW_MS + 1}),
        ({"image": EMPTY_IMAGE}, {}),
        ({"image": owned_by("Robot:alice")}, {}),
        ({"image": owned_by("User:")}, {}),
        ({"key": None}, {}),
        ({"key": Password("")}, {}),
        ({"key": Password("another")}, {}),
    ],
)
def test_anything_else_fails_at_the_step_of_a_wrong_password(how, login) -> None:
    mechanism = MECHANISMS["SCRAM-SHA-256"]
    machine = server(mechanism, **how)
    with pytest.raises(SaslError, match=r"^Invalid client credentials$"):
        log_in(machine, mechanism, **login)
    assert not machine.is_complete


@pytest.mark.parametrize("key", [None, Password("")])
def test_without_a_key_no_token_is_found(key) -> None:
    logins = TokenLogins(lambda: WITH_TOKEN, key, SECRET)
    assert logins.find(MECHANISMS["SCRAM-SHA-256"], "id") is None


def test_the_salt_does_not_reveal_whether_there_is_a_token() -> None:
    mechanism = MECHANISMS["SCRAM-SHA-256"]
    first = ScramClient(mechanism, "id", "", nonce="client", is_token=True).evaluate(b"")
    challenges = {server(mechanism, image=image).evaluate(first, NOW_MS) for image in (WITH_TOKEN, EMPTY_IMAGE)}
    assert len(challenges) == 1


@pytest.mark.parametrize("extension", ["tokenauth=false", "other=true", "other=tokenauth=true", "Tokenauth=true"])
def test_other_extensions_make_it_no_token(extension) -> None:
    machine = server(MECHANISMS["SCRAM-SHA-256"])
    machine.evaluate(f"n,,n=id,r=abc,{extension}".encode(), NOW_MS)
    assert not machine.is_by_token


def test_the_client_may_send_it_among_other_extensions() -> None:
    machine = server(MECHANISMS["SCRAM-SHA-256"])
    machine.evaluate(b"n,,n=id,r=abc,other=x,tokenauth=TRUE,more=y", NOW_MS)
    assert machine.is_by_token
