"""Delegation tokens: who may make, renew, end and see them, and logging in with one. KIP-48, KIP-373."""

import base64
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from kafkapy.metadata.acl_types import AclOperation, PermissionType, ResourceType
from kafkapy.metadata.scram_types import MECHANISMS
from kafkapy.protocol.messages.create_delegation_token_request import CreatableRenewers, CreateDelegationTokenRequest
from kafkapy.protocol.messages.describe_delegation_token_request import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from kafkapy.protocol.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from kafkapy.protocol.messages.metadata_request import MetadataRequest
from kafkapy.protocol.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from kafkapy.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from kafkapy.security.scram import ScramClient
from tests.support.authorization_script import acl, request
from tests.support.certificates import Authority
from tests.support.client_requests import until
from tests.support.logins import log_in, sasl_broker, sasl_client, shake_hands
from tests.support.scram_users import add_user
from tests.support.wire import ConnectionClosed, WireClient

DISABLED, NOT_FOUND, OWNER_MISMATCH, NOT_ALLOWED, AUTHORIZATION_FAILED, EXPIRED = 61, 62, 63, 64, 65, 66
INVALID_PRINCIPAL_TYPE, SASL_AUTHENTICATION_FAILED, UNKNOWN_SERVER_ERROR = 67, 58, -1
USERS = {"alice": "a", "bob": "b", "carol": "c", "dave": "e", "admin": "d"}
DAY_MS = 86_400_000
PROPERTIES = {
    "delegation.token.secret.key": "the secret of all nodes",
    "delegation.token.max.lifetime.ms": str(2 * DAY_MS),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
}


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def ports(tmp_path_factory, authority) -> Iterator[dict[str, int]]:
    """A broker that also has a TLS listener, on which clients may have certificates."""
    directory = tmp_path_factory.mktemp("kafka")
    (directory / "ca.pem").write_text(authority.certificate_pem)
    protocols = {"PLAINTEXT": "PLAINTEXT", "SASL_PLAINTEXT": "SASL_PLAINTEXT", "SSL": "SSL", "CONTROLLER": "PLAINTEXT"}
    tls = {
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "ssl.client.auth": "requested",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue("broker").write(directory, "broker")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
    }
    with sasl_broker(directory, ("SASL_PLAINTEXT", "SSL"), USERS, {**PROPERTIES, **tls}) as found:
        yield found


@contextmanager
def tls_client(ports: dict[str, int], authority: Authority, name: str | None = None) -> Iterator[WireClient]:
    """Connect by TLS, with a certificate of that name."""
    context = ssl.create_default_context(cadata=authority.certificate_pem)
    if name is not None:
        with TemporaryDirectory() as directory:
            context.load_cert_chain(authority.issue(name).write(Path(directory), name))
    with WireClient(f"localhost:{ports['SSL']}", tls=context) as client:
        yield client


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
    named = [CreatableRenewers("User", principal_name=name) for name in renewers]
    kind: str | None = None if owner is None else "User"
    if version < 3:
        kind = owner = ""
    return client.call(
        CreateDelegationTokenRequest(kind, owner_principal_name=owner, renewers=named, max_lifetime_ms=max_lifetime_ms),
        version,
    )


def renew(client, token, period_ms: int = -1):
    return client.call(RenewDelegationTokenRequest(token.hmac, renew_period_ms=period_ms), 2)


def expire(client, token, period_ms: int = -1):
    return client.call(ExpireDelegationTokenRequest(token.hmac, expiry_time_period_ms=period_ms), 2)


def describe(client, *owners: str, version: int = 3):
    requested = [DescribeDelegationTokenOwner("User", principal_name=name) for name in owners] or None
    response = client.call(DescribeDelegationTokenRequest(requested), version)
    assert response.error_code == 0
    return {each.token_id: each for each in response.tokens}


def token_client(token, mechanism: str = "SCRAM-SHA-256", *, hmac: bytes | None = None) -> ScramClient:
    password = base64.b64encode(hmac if hmac is not None else token.hmac).decode()
    return ScramClient(MECHANISMS[mechanism], token.token_id, password, nonce="abc", is_token=True)


def replicated(client, token):
    until(lambda: token.token_id in describe(client))
    return token


def test_a_token_is_its_requesters_for_a_day_and_says_so(alice) -> None:
    token = replicated(alice, create(alice, "bob"))
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
    token = replicated(alice, create(alice, max_lifetime_ms=3_600_000))
    with WireClient(f"127.0.0.1:{ports['SASL_PLAINTEXT']}") as client:
        response = log_in(client, token_client(token, mechanism))
        assert response.error_code == 0
        assert 3_500_000 < response.session_lifetime_ms <= 3_600_000
        assert create(client).error_code == NOT_ALLOWED
        assert renew(client, token).error_code == NOT_ALLOWED
        assert expire(client, token).error_code == NOT_ALLOWED
        assert client.call(DescribeDelegationTokenRequest(None), 3).error_code == NOT_ALLOWED
    with WireClient(f"127.0.0.1:{ports['SASL_PLAINTEXT']}") as client:
        assert log_in(client, token_client(token, hmac=b"x" * 64)).error_code == SASL_AUTHENTICATION_FAILED


def test_a_session_ends_with_its_token(alice, ports) -> None:
    token = replicated(alice, create(alice))
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
    token = replicated(alice, create(alice))
    assert expire(alice, token).error_code == 0
    until(lambda: token.token_id not in describe(alice))
    with WireClient(f"127.0.0.1:{ports['SASL_PLAINTEXT']}") as client:
        assert log_in(client, token_client(token)).error_code == SASL_AUTHENTICATION_FAILED
    assert renew(alice, token).error_code == NOT_FOUND
    assert expire(alice, token).error_code == NOT_FOUND


def test_a_token_is_no_user_and_a_user_no_token(alice, ports) -> None:
    token = replicated(alice, create(alice))
    password = base64.b64encode(token.hmac).decode()
    for sasl in (
        ScramClient(MECHANISMS["SCRAM-SHA-256"], token.token_id, password, nonce="abc"),
        ScramClient(MECHANISMS["SCRAM-SHA-256"], "alice", "a", nonce="abc", is_token=True),
    ):
        with WireClient(f"127.0.0.1:{ports['SASL_PLAINTEXT']}") as client:
            assert log_in(client, sasl).error_code == SASL_AUTHENTICATION_FAILED


def test_owners_and_renewers_renew_within_the_longest_life(alice, bob, ports) -> None:
    token = replicated(alice, create(alice, "bob", max_lifetime_ms=DAY_MS // 2))
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


@pytest.mark.parametrize(
    ("requested_ms", "valid_ms", "longest_ms"),
    [
        (-1, DAY_MS, 2 * DAY_MS),
        (-(1 << 63), DAY_MS, 2 * DAY_MS),
        (0, DAY_MS, 2 * DAY_MS),
        (1, 1, 1),
        (DAY_MS, DAY_MS, DAY_MS),
        (DAY_MS + 1, DAY_MS, DAY_MS + 1),
        (3 * DAY_MS, DAY_MS, 2 * DAY_MS),
        ((1 << 63) - 1, DAY_MS, 2 * DAY_MS),
    ],
)
def test_a_lifetime_is_what_was_requested_within_bounds(alice, requested_ms, valid_ms, longest_ms) -> None:
    token = create(alice, max_lifetime_ms=requested_ms)
    times = (token.issue_timestamp_ms, token.expiry_timestamp_ms, token.max_timestamp_ms)
    assert [each - times[0] for each in times] == [0, valid_ms, longest_ms]


@pytest.mark.parametrize("period_ms", [-(1 << 63), -1, 0, 1, 60_000, (1 << 63) - 1])
def test_a_renewal_is_from_now_on(alice, period_ms) -> None:
    token = replicated(alice, create(alice))
    before_ms = time.time() * 1000
    renewed = renew(alice, token, period_ms)
    longest_ms = period_ms if 0 < period_ms < DAY_MS else DAY_MS
    assert renewed.error_code == 0
    assert renewed.expiry_timestamp_ms == pytest.approx(before_ms + longest_ms, abs=20_000)
    assert renewed.expiry_timestamp_ms <= time.time() * 1000 + longest_ms


@pytest.mark.parametrize(
    ("period_ms", "valid_ms"), [(0, 0), (1, 1), (60_000, 60_000), (3 * DAY_MS, 2 * DAY_MS), ((1 << 63) - 1, 2 * DAY_MS)]
)
def test_an_end_may_be_set_within_the_longest_life(alice, period_ms, valid_ms) -> None:
    token = replicated(alice, create(alice))
    before_ms = time.time() * 1000
    expired = expire(alice, token, period_ms)
    assert expired.error_code == 0
    assert expired.expiry_timestamp_ms == pytest.approx(before_ms + valid_ms, abs=20_000)
    assert expired.expiry_timestamp_ms <= token.max_timestamp_ms


@pytest.mark.parametrize("period_ms", [-1, -2, -(1 << 63)])
def test_any_negative_period_ends_a_token_at_once(alice, period_ms) -> None:
    token = replicated(alice, create(alice))
    assert expire(alice, token, period_ms).error_code == 0
    until(lambda: token.token_id not in describe(alice))
    assert expire(alice, token, period_ms).error_code == NOT_FOUND


def test_a_token_is_found_by_its_whole_hmac_alone(alice) -> None:
    token = replicated(alice, create(alice))
    whole = bytes(token.hmac)
    for hmac in (b"", whole[:-1], whole + b"x", token.token_id.encode(), base64.b64encode(whole)):
        assert renew(alice, RenewDelegationTokenRequest(hmac)).error_code == NOT_FOUND
        assert expire(alice, RenewDelegationTokenRequest(hmac)).error_code == NOT_FOUND
    for version in (1, 2):
        assert alice.call(RenewDelegationTokenRequest(whole, renew_period_ms=-1), version).error_code == 0
        assert alice.call(ExpireDelegationTokenRequest(whole, expiry_time_period_ms=60_000), version).error_code == 0


def test_who_requested_a_token_for_another_may_not_change_it(alice, ports) -> None:
    with logged_in(ports, "admin") as admin:
        token = replicated(admin, create(admin, owner="alice"))
        assert renew(admin, token).error_code == expire(admin, token).error_code == OWNER_MISMATCH
    assert renew(alice, token).error_code == expire(alice, token).error_code == 0


@pytest.mark.parametrize(("kind", "name"), [(None, None), ("", ""), ("Robot", ""), (None, ""), ("User", "alice")])
def test_a_token_is_ones_own_if_nobody_else_is_named(alice, kind, name) -> None:
    token = alice.call(
        CreateDelegationTokenRequest(kind, owner_principal_name=name, renewers=[], max_lifetime_ms=-1), 3
    )
    assert (token.error_code, token.principal_type, token.principal_name) == (0, "User", "alice")


@pytest.mark.parametrize("kind", ["", "Robot"])
def test_an_owner_of_another_type_is_another_owner(alice, ports, kind) -> None:
    refused = alice.call(
        CreateDelegationTokenRequest(kind, owner_principal_name="alice", renewers=[], max_lifetime_ms=-1), 3
    )
    assert (refused.error_code, refused.principal_type, refused.principal_name) == (AUTHORIZATION_FAILED, kind, "alice")
    with logged_in(ports, "admin") as admin:
        token = admin.call(
            CreateDelegationTokenRequest(kind, owner_principal_name="alice", renewers=[], max_lifetime_ms=-1), 3
        )
        assert (token.error_code, token.principal_type, token.principal_name) == (0, kind, "alice")
        until(lambda: token.token_id in describe(admin))
        requested = DescribeDelegationTokenRequest([DescribeDelegationTokenOwner(kind, principal_name="alice")])
        assert [each.token_id for each in admin.call(requested, 3).tokens] == [token.token_id]
    assert token.token_id not in describe(alice)


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "PLAINTEXT"])
def test_an_owner_without_a_type_is_refused_before_anything_else(ports, listener) -> None:
    with WireClient(f"127.0.0.1:{ports[listener]}") as client:
        if listener == "SASL_PLAINTEXT":
            log_in(client, sasl_client("PLAIN", "admin", USERS["admin"]))
        refused = client.call(
            CreateDelegationTokenRequest(
                None,
                owner_principal_name="bob",
                renewers=[CreatableRenewers("Group", principal_name="x")],
                max_lifetime_ms=-1,
            ),
            3,
        )
    assert (refused.error_code, refused.token_id, bytes(refused.hmac)) == (UNKNOWN_SERVER_ERROR, "", b"")
    assert (refused.principal_type, refused.principal_name) == ("User", "ANONYMOUS")
    assert (refused.token_requester_principal_type, refused.token_requester_principal_name) == ("User", "ANONYMOUS")
    assert (refused.issue_timestamp_ms, refused.expiry_timestamp_ms, refused.max_timestamp_ms) == (-1, -1, -1)


@pytest.mark.parametrize("kind", ["", "user", "Group"])
def test_renewers_are_users(alice, kind) -> None:
    refused = alice.call(
        CreateDelegationTokenRequest(
            None,
            owner_principal_name=None,
            renewers=[CreatableRenewers("User", principal_name="bob"), CreatableRenewers(kind, principal_name="x")],
            max_lifetime_ms=-1,
        ),
        3,
    )
    assert (refused.error_code, refused.principal_name, refused.token_id) == (INVALID_PRINCIPAL_TYPE, "alice", "")


def test_renewers_are_kept_as_they_are_named_and_see_the_token(alice, bob) -> None:
    token = replicated(alice, create(alice, "bob", "bob", "alice", "", "a:b"))
    found = describe(bob)[token.token_id]
    renewers = [(each.principal_type, each.principal_name) for each in found.renewers]
    assert renewers == [("User", name) for name in ("bob", "bob", "alice", "", "a:b")]
    for owner in ("alice", "bob", "", "a:b"):
        assert token.token_id in describe(bob, owner)
    assert token.token_id not in describe(bob, "carol")
    assert list(describe(alice, "bob", "alice", "bob")).count(token.token_id) == 1


def test_a_token_may_be_described_until_it_is_removed(alice) -> None:
    token = replicated(alice, create(alice))
    ends_ms = expire(alice, token, 0).expiry_timestamp_ms
    until(lambda: describe(alice)[token.token_id].expiry_timestamp == ends_ms)
    until(lambda: time.time() * 1000 > ends_ms + 1)
    assert renew(alice, token).error_code == expire(alice, token, 0).error_code == EXPIRED
    assert token.token_id in describe(alice)


def test_a_client_may_name_the_tokens_id_as_its_authorization_id_and_not_the_owner(alice, ports) -> None:
    token = replicated(alice, create(alice))

    def first(authorization_id: str) -> int:
        with WireClient(f"127.0.0.1:{ports['SASL_PLAINTEXT']}") as client:
            shake_hands(client, "SCRAM-SHA-256")
            message = f"n,a={authorization_id},n={token.token_id},r=abc,tokenauth=true"
            return client.call(SaslAuthenticateRequest(auth_bytes=message.encode()), 2).error_code

    assert first(token.token_id) == 0
    assert first("alice") == SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize("listener", ["SSL", "PLAINTEXT"])
def test_a_client_without_a_certificate_may_not_ask_for_tokens(ports, authority, listener) -> None:
    with tls_client(ports, authority) if listener == "SSL" else WireClient(f"127.0.0.1:{ports[listener]}") as stranger:
        refused = create(stranger)
        assert (refused.error_code, refused.principal_name, refused.max_timestamp_ms) == (NOT_ALLOWED, "ANONYMOUS", -1)
        renewed, expired = renew(stranger, create_none()), expire(stranger, create_none())
        assert (renewed.error_code, renewed.expiry_timestamp_ms) == (NOT_ALLOWED, -1)
        assert (expired.error_code, expired.expiry_timestamp_ms) == (NOT_ALLOWED, -1)
        assert stranger.call(DescribeDelegationTokenRequest(None), 3).error_code == NOT_ALLOWED


def test_a_client_with_a_certificate_makes_a_token_that_logs_in_without_it(ports, authority) -> None:
    with tls_client(ports, authority, "erin") as erin:
        token = replicated(erin, create(erin))
        assert (token.error_code, token.principal_name) == (0, "CN=erin")
        assert renew(erin, token).error_code == 0
    with WireClient(f"127.0.0.1:{ports['SASL_PLAINTEXT']}") as client:
        assert log_in(client, token_client(token)).error_code == 0
        assert create(client).error_code == NOT_ALLOWED


def test_others_tokens_need_rights(alice, bob, ports) -> None:
    token = replicated(alice, create(alice))
    assert token.token_id not in describe(bob)
    assert token.token_id not in describe(bob, "alice")
    with logged_in(ports, "admin") as admin:
        assert token.token_id in describe(admin)
        assert token.token_id in describe(admin, "alice")
        assert token.token_id not in describe(admin, "bob")
        for_alice = replicated(admin, create(admin, owner="alice"))
        assert (for_alice.principal_name, for_alice.token_requester_principal_name) == ("alice", "admin")
    assert for_alice.token_id in describe(alice)
    refused = create(bob, owner="alice")
    assert refused.error_code == AUTHORIZATION_FAILED
    assert (refused.principal_name, refused.token_requester_principal_name) == ("alice", "bob")
    assert (refused.issue_timestamp_ms, refused.token_id, bytes(refused.hmac)) == (-1, "", b"")


def allow(ports, user: str, operation: AclOperation, name: str, kind: ResourceType = ResourceType.USER) -> None:
    """Give a user a right to the tokens of an owner, or to a token; return once the broker knows."""
    creation = acl(kind, name, "*", PermissionType.ALLOW, user=user, operation=operation)
    with logged_in(ports, "admin") as admin:
        (result,) = admin.call(request("CreateAcls", {"creations": [creation]}), 3).results
    assert result.error_code == 0


def test_who_requested_a_token_for_another_sees_it_without_any_other_right(alice, bob, ports) -> None:
    allow(ports, "carol", AclOperation.CREATE_TOKENS, "User:alice")
    with logged_in(ports, "carol") as carol:
        token = create(carol, owner="alice")
        assert token.error_code == 0
        until(lambda: token.token_id in describe(carol))
        assert token.token_id in describe(carol, "alice")
        assert token.token_id in describe(carol, "carol")
        assert token.token_id in describe(alice, "carol")
        assert token.token_id not in describe(carol, "bob")
        assert token.token_id not in describe(bob, "carol")
        assert renew(carol, token).error_code == OWNER_MISMATCH


def test_a_token_is_seen_with_a_right_to_it_or_to_its_owners(alice, bob, ports) -> None:
    one, other, bobs = (replicated(client, create(client)).token_id for client in (alice, alice, bob))
    with logged_in(ports, "dave") as dave:
        assert not describe(dave)
        allow(ports, "dave", AclOperation.DESCRIBE, one, ResourceType.DELEGATION_TOKEN)
        until(lambda: set(describe(dave)) == {one})
        allow(ports, "dave", AclOperation.CREATE_TOKENS, "User:bob")
        assert set(describe(dave)) == {one}, "to create is not to describe"
        allow(ports, "dave", AclOperation.DESCRIBE_TOKENS, "User:alice")
        until(lambda: {one, other} <= set(describe(dave)))
        assert bobs not in describe(dave)
        assert create(dave, owner="alice").error_code == AUTHORIZATION_FAILED, "to describe is not to create"


def test_a_type_with_a_colon_is_no_others_principal(ports) -> None:
    """y of type User:x and x:y of type User print alike. Only the second is the client itself."""
    add_user(f"127.0.0.1:{ports['PLAINTEXT']}", "x:y", "secret")
    odd, plain = ("User:x", "y"), ("User", "x:y")
    with WireClient(f"127.0.0.1:{ports['SASL_PLAINTEXT']}") as client:
        until(lambda: log_in(client, sasl_client("SCRAM-SHA-256", "x:y", "secret")).error_code == 0)
        for kind, name in (odd, plain):
            token = client.call(
                CreateDelegationTokenRequest(kind, owner_principal_name=name, renewers=[], max_lifetime_ms=-1), 3
            )
            assert token.error_code == (AUTHORIZATION_FAILED if (kind, name) == odd else 0)
            assert (token.principal_type, token.principal_name) == (kind, name)
            assert (token.token_requester_principal_type, token.token_requester_principal_name) == plain
        until(lambda: describe(client))
        (found,) = describe(client, "x:y").values()
        assert (found.principal_type, found.principal_name) == plain
        requested = DescribeDelegationTokenRequest([DescribeDelegationTokenOwner(odd[0], principal_name=odd[1])])
        assert client.call(requested, 3).tokens == []


def test_what_cannot_be_is_refused(alice, ports) -> None:
    renewers = [CreatableRenewers("Group", principal_name="bob")]
    refused = alice.call(
        CreateDelegationTokenRequest(None, owner_principal_name=None, renewers=renewers, max_lifetime_ms=-1), 3
    )
    assert (refused.error_code, refused.max_timestamp_ms) == (INVALID_PRINCIPAL_TYPE, -1)
    assert alice.call(DescribeDelegationTokenRequest([]), 3).tokens == []
    assert create(alice, version=1).error_code == create(alice, version=2).error_code == 0


def test_without_a_key_there_are_no_tokens(tmp_path) -> None:
    with sasl_broker(tmp_path, ("SASL_PLAINTEXT",), USERS, {}) as ports, logged_in(ports, "alice") as alice:
        refused = create(alice)
        assert (refused.error_code, refused.principal_name, refused.issue_timestamp_ms) == (DISABLED, "alice", 0)
        renewed = renew(alice, create_none())
        assert (renewed.error_code, renewed.expiry_timestamp_ms) == (DISABLED, 0)
        expired = expire(alice, create_none())
        assert (expired.error_code, expired.expiry_timestamp_ms) == (DISABLED, 0)
        assert alice.call(DescribeDelegationTokenRequest(None), 3).error_code == DISABLED
