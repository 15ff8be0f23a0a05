"""Delegation tokens: who may make, renew, end and see them, and logging in with one. KIP-48, KIP-373."""

import base64
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kafkapy.metadata.scram_types import MECHANISMS
from kafkapy.protocol.messages.create_delegation_token_request import CreatableRenewers, CreateDelegationTokenRequest
from kafkapy.protocol.messages.describe_delegation_token_request import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from kafkapy.protocol.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from kafkapy.protocol.messages.metadata_request import MetadataRequest
from kafkapy.protocol.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from kafkapy.security.scram import ScramClient
from tests.support.client_requests import until
from tests.support.logins import log_in, sasl_broker, sasl_client
from tests.support.wire import ConnectionClosed, WireClient

DISABLED, NOT_FOUND, OWNER_MISMATCH, NOT_ALLOWED, AUTHORIZATION_FAILED, EXPIRED = 61, 62, 63, 64, 65, 66
INVALID_PRINCIPAL_TYPE, SASL_AUTHENTICATION_FAILED = 67, 58
USERS = {"alice": "a", "bob": "b", "carol": "c", "admin": "d"}
DAY_MS = 86_400_000
PROPERTIES = {
    "delegation.token.secret.key": "the secret of all nodes",
    "delegation.token.max.lifetime.ms": str(2 * DAY_MS),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
}


@pytest.fixture(scope="module")
def ports(tmp_path_factory) -> Iterator[dict[str, int]]:
    with sasl_broker(tmp_path_factory.mktemp("kafka"), ("SASL_PLAINTEXT",), USERS, PROPERTIES) as found:
        yield found


@contextmanager
def logged_in(ports: dict[str, int], user: str) -> Iterator[WireClient]:
    with WireClient(f"127.0.0.1:{ports['SASL_PLAINTEXT']}") as client:
        assert log_in(client, sasl_client("PLAIN", user, USERS[user])).error_code == 0
        yield client


@pytest.fixture
def alice(ports) -> Iterator[WireClient]:
    with logged_in(ports, "alice") as client:
        yield client


@pytest.fixture
def bob(ports) -> Iterator[WireClient]:
    with logged_in(ports, "bob") as client:
        yield client


def create(client, *renewers: str, owner: str | None = None, max_lifetime_ms: int = -1, version: int = 3):
    named = [CreatableRenewers("User", name) for name in renewers]
    kind: str | None = None if owner is None else "User"
    if version < 3:
        kind = owner = ""
    return client.call(CreateDelegationTokenRequest(kind, owner, named, max_lifetime_ms), version)


def renew(client, token, period_ms: int = -1):
    return client.call(RenewDelegationTokenRequest(token.hmac, period_ms), 2)


def expire(client, token, period_ms: int = -1):
    return client.call(ExpireDelegationTokenRequest(token.hmac, period_ms), 2)


def describe(client, *owners: str, version: int = 3):
    requested = [DescribeDelegationTokenOwner("User", name) for name in owners] or None
    response = client.call(DescribeDelegationTokenRequest(requested), version)
    assert response.error_code == 0
    return {each.token_id: each for each in response.tokens}


def token_client(token, mechanism: str = "SCRAM-SHA-256", *, hmac: bytes | None = None) -> ScramClient:
    password = base64.b64encode(hmac if hmac is not None else token.hmac).decode()
    return ScramClient(MECHANISMS[mechanism], token.token_id, password, nonce="abc", is_token=True)


def settled(client, token):
    until(lambda: token.token_id in describe(client))
    return token


def test_a_token_is_its_requesters_for_a_day_and_says_so(alice) -> None:
    token = settled(alice, create(alice, "bob"))
    assert (token.error_code, len(token.hmac)) == (0, 64)
    assert (token.principal_type, token.principal_name) == ("User", "alice")
    assert (token.token_requester_principal_type, token.token_requester_principal_name) == ("User", "alice")
    assert token.expiry_timestamp_ms - token.issue_timestamp_ms == DAY_MS
    assert token.max_timestamp_ms - token.issue_timestamp_ms == 2 * DAY_MS
    found = describe(alice)[token.token_id]
    assert (found.hmac, found.principal_name, found.token_requester_principal_name) == (token.hmac, "alice", "alice")
    assert [(each.principal_type, each.principal_name) for each in found.renewers] == [("User", "bob")]
    times = (found.issue_timestamp, found.expiry_timestamp, found.max_timestamp)
    assert times == (token.issue_timestamp_ms, token.expiry_timestamp_ms, token.max_timestamp_ms)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_token_logs_in_as_its_owner_until_it_ends(alice, ports, mechanism) -> None:
    token = settled(alice, create(alice, max_lifetime_ms=3_600_000))
    with WireClient(f"127.0.0.1:{ports['SASL_PLAINTEXT']}") as client:
        answer = log_in(client, token_client(token, mechanism))
        assert answer.error_code == 0
        assert 3_500_000 < answer.session_lifetime_ms <= 3_600_000
        assert create(client).error_code == NOT_ALLOWED
        assert renew(client, token).error_code == NOT_ALLOWED
        assert expire(client, token).error_code == NOT_ALLOWED
        assert client.call(DescribeDelegationTokenRequest(None), 3).error_code == NOT_ALLOWED
    with WireClient(f"127.0.0.1:{ports['SASL_PLAINTEXT']}") as client:
        assert log_in(client, token_client(token, hmac=b"x" * 64)).error_code == SASL_AUTHENTICATION_FAILED


def test_a_session_ends_with_its_token(alice, ports) -> None:
    token = settled(alice, create(alice))
    until_ms = expire(alice, token, 5_000).expiry_timestamp_ms
    until(lambda: describe(alice)[token.token_id].expiry_timestamp == until_ms)
    with WireClient(f"127.0.0.1:{ports['SASL_PLAINTEXT']}") as client:
        assert 0 < log_in(client, token_client(token)).session_lifetime_ms <= 5_000

        def is_closed() -> bool:
            try:
                client.call(MetadataRequest(topics=[]), 12)
            except ConnectionClosed:
                return True
            return False

        until(is_closed)
    until(lambda: time.time() * 1000 > until_ms + 1)  # the session ended with the last millisecond of the token
    assert renew(alice, token).error_code == EXPIRED
    assert expire(alice, token, 1_000).error_code == EXPIRED
    assert expire(alice, token).error_code == 0


def test_an_ended_token_logs_nobody_in(alice, ports) -> None:
    token = settled(alice, create(alice))
    assert expire(alice, token).error_code == 0
    until(lambda: token.token_id not in describe(alice))
    with WireClient(f"127.0.0.1:{ports['SASL_PLAINTEXT']}") as client:
        assert log_in(client, token_client(token)).error_code == SASL_AUTHENTICATION_FAILED
    assert renew(alice, token).error_code == NOT_FOUND
    assert expire(alice, token).error_code == NOT_FOUND


def test_a_token_is_no_user_and_a_user_no_token(alice, ports) -> None:
    token = settled(alice, create(alice))
    password = base64.b64encode(token.hmac).decode()
    for sasl in (
        ScramClient(MECHANISMS["SCRAM-SHA-256"], token.token_id, password, nonce="abc"),
        ScramClient(MECHANISMS["SCRAM-SHA-256"], "alice", "a", nonce="abc", is_token=True),
    ):
        with WireClient(f"127.0.0.1:{ports['SASL_PLAINTEXT']}") as client:
            assert log_in(client, sasl).error_code == SASL_AUTHENTICATION_FAILED


def test_owners_and_renewers_renew_within_the_longest_life(alice, bob, ports) -> None:
    token = settled(alice, create(alice, "bob", max_lifetime_ms=DAY_MS // 2))
    assert token.expiry_timestamp_ms == token.max_timestamp_ms
    assert renew(alice, token, 60_000).expiry_timestamp_ms < token.expiry_timestamp_ms
    assert renew(bob, token).expiry_timestamp_ms == token.max_timestamp_ms
    with logged_in(ports, "carol") as carol:
        assert renew(carol, token).error_code == OWNER_MISMATCH
        assert expire(carol, token).error_code == OWNER_MISMATCH
        assert expire(carol, create_none()).error_code == NOT_FOUND
    assert expire(bob, token).error_code == 0


def create_none():
    """Return a token that is nobody's."""
    return RenewDelegationTokenRequest(b"no token")


def test_others_tokens_need_rights(alice, bob, ports) -> None:
    token = settled(alice, create(alice))
    assert token.token_id not in describe(bob)
    assert token.token_id not in describe(bob, "alice")
    with logged_in(ports, "admin") as admin:
        assert token.token_id in describe(admin)
        assert token.token_id in describe(admin, "alice")
        assert token.token_id not in describe(admin, "bob")
        for_alice = settled(admin, create(admin, owner="alice"))
        assert (for_alice.principal_name, for_alice.token_requester_principal_name) == ("alice", "admin")
    assert for_alice.token_id in describe(alice)
    refused = create(bob, owner="alice")
    assert refused.error_code == AUTHORIZATION_FAILED
    assert (refused.principal_name, refused.token_requester_principal_name) == ("alice", "bob")
    assert (refused.issue_timestamp_ms, refused.token_id, bytes(refused.hmac)) == (-1, "", b"")


def test_what_cannot_be_is_refused(alice, ports) -> None:
    renewers = [CreatableRenewers("Group", "bob")]
    refused = alice.call(CreateDelegationTokenRequest(None, None, renewers, -1), 3)
    assert (refused.error_code, refused.max_timestamp_ms) == (INVALID_PRINCIPAL_TYPE, -1)
    assert alice.call(DescribeDelegationTokenRequest([]), 3).tokens == []
    assert create(alice, version=1).error_code == create(alice, version=2).error_code == 0
    with WireClient(f"127.0.0.1:{ports['PLAINTEXT']}") as stranger:
        refused = create(stranger)
        assert (refused.error_code, refused.principal_name) == (NOT_ALLOWED, "ANONYMOUS")
        renewed = renew(stranger, create_none())
        assert (renewed.error_code, renewed.expiry_timestamp_ms) == (NOT_ALLOWED, -1)
        expired = expire(stranger, create_none())
        assert (expired.error_code, expired.expiry_timestamp_ms) == (NOT_ALLOWED, -1)
        assert stranger.call(DescribeDelegationTokenRequest(None), 3).error_code == NOT_ALLOWED


def test_without_a_key_there_are_no_tokens(tmp_path) -> None:
    with sasl_broker(tmp_path, ("SASL_PLAINTEXT",), USERS, {}) as ports, logged_in(ports, "alice") as alice:
        refused = create(alice)
        assert (refused.error_code, refused.principal_name, refused.issue_timestamp_ms) == (DISABLED, "alice", 0)
        renewed = renew(alice, create_none())
        assert (renewed.error_code, renewed.expiry_timestamp_ms) == (DISABLED, 0)
        expired = expire(alice, create_none())
        assert (expired.error_code, expired.expiry_timestamp_ms) == (DISABLED, 0)
        assert alice.call(DescribeDelegationTokenRequest(None), 3).error_code == DISABLED
