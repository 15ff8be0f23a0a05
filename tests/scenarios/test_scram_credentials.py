"""SCRAM credentials through the admin's APIs: who may log in from then on, and what is refused for each user."""

from collections.abc import Iterator

import pytest

from kafkapy.metadata.scram_types import BY_CODE, MECHANISMS, salted_password
from kafkapy.protocol.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kafkapy.protocol.messages.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from tests.support.client_requests import until
from tests.support.logins import log_in, sasl_broker, sasl_client
from tests.support.wire import WireClient

SHA_256, SHA_512 = 1, 2
UNSUPPORTED_SASL_MECHANISM, DUPLICATE_RESOURCE, RESOURCE_NOT_FOUND, UNACCEPTABLE_CREDENTIAL = 33, 92, 91, 93
TWICE = "A user credential cannot be altered twice in the same request"


@pytest.fixture(scope="module")
def ports(tmp_path_factory) -> Iterator[dict[str, int]]:
    with sasl_broker(tmp_path_factory.mktemp("kafka"), ("SASL_PLAINTEXT",), {}, {}) as found:
        yield found


@pytest.fixture
def client(ports) -> Iterator[WireClient]:
    with WireClient(f"127.0.0.1:{ports['PLAINTEXT']}") as connected:
        yield connected


def upsertion(user: str, mechanism: int = SHA_256, *, password: str = "pw", iterations: int = 4096):
    salted = salted_password(BY_CODE.get(mechanism, BY_CODE[SHA_256]), password, b"salt", max(iterations, 1))
    return ScramCredentialUpsertion(user, mechanism, iterations, b"salt", salted)


def alter(client: WireClient, *changes) -> dict[str, tuple[int, str | None]]:
    deletions = [change for change in changes if isinstance(change, ScramCredentialDeletion)]
    upsertions = [change for change in changes if isinstance(change, ScramCredentialUpsertion)]
    response = client.call(AlterUserScramCredentialsRequest(deletions, upsertions), 0)
    return {each.user: (each.error_code, each.error_message) for each in response.results}


def describe(client: WireClient, *users: str):
    requested = [UserName(user) for user in users] if users else None
    response = client.call(DescribeUserScramCredentialsRequest(requested), 0)
    assert response.error_code == 0
    return {
        each.user: sorted((info.mechanism, info.iterations) for info in each.credential_infos)
        if each.error_code == 0
        else (each.error_code, each.error_message)
        for each in response.results
    }


def may_log_in(ports: dict[str, int], mechanism: str, user: str, password: str) -> bool:
    with WireClient(f"127.0.0.1:{ports['SASL_PLAINTEXT']}") as connected:
        return log_in(connected, sasl_client(mechanism, user, password)).error_code == 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_user_may_log_in_as_long_as_there_is_a_credential(client, ports, mechanism) -> None:
    user, code = f"alice-{mechanism}", MECHANISMS[mechanism].code
    assert not may_log_in(ports, mechanism, user, "first")
    assert alter(client, upsertion(user, code, password="first")) == {user: (0, None)}
    until(lambda: may_log_in(ports, mechanism, user, "first"))
    assert not may_log_in(ports, mechanism, user, "second")
    alter(client, upsertion(user, code, password="second", iterations=8192))
    until(lambda: may_log_in(ports, mechanism, user, "second"))
    assert not may_log_in(ports, mechanism, user, "first")
    assert describe(client, user) == {user: [(code, 8192)]}
    alter(client, ScramCredentialDeletion(user, code))
    until(lambda: not may_log_in(ports, mechanism, user, "second"))
    reported = f"Attempt to describe a user credential that does not exist: {user}"
    assert describe(client, user) == {user: (RESOURCE_NOT_FOUND, reported)}


def test_a_user_may_have_a_credential_for_each_mechanism(client, ports) -> None:
    for mechanism in (SHA_256, SHA_512):
        assert alter(client, upsertion("both", mechanism)) == {"both": (0, None)}
    until(lambda: describe(client, "both") == {"both": [(SHA_256, 4096), (SHA_512, 4096)]})
    assert describe(client)["both"] == [(SHA_256, 4096), (SHA_512, 4096)]
    assert alter(client, ScramCredentialDeletion("both", SHA_256)) == {"both": (0, None)}
    until(lambda: describe(client, "both") == {"both": [(SHA_512, 4096)]})


def test_what_cannot_be_is_refused_for_its_user_alone(client) -> None:
    absent = "Attempt to delete a user credential that does not exist"
    assert alter(
        client,
        upsertion("good"),
        upsertion("", SHA_256),
        upsertion("unknown", 0),
        upsertion("none", 9),
        upsertion("few", iterations=4095),
        upsertion("many", iterations=16385),
        ScramCredentialDeletion("absent", SHA_256),
        ScramCredentialDeletion("good-256", 7),
    ) == {
        "good": (0, None),
        "": (UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        "unknown": (UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        "none": (UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        "few": (UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        "many": (UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        "absent": (RESOURCE_NOT_FOUND, absent),
        "good-256": (UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
    }
    until(lambda: "good" in describe(client))
    assert not {"few", "many", "unknown"} & set(describe(client))


def test_a_user_is_altered_once_in_a_request(client) -> None:
    alter(client, upsertion("there"))
    until(lambda: "there" in describe(client))
    assert alter(
        client,
        ScramCredentialDeletion("there", SHA_256),
        upsertion("there", SHA_512),
        upsertion("new", SHA_256),
        upsertion("new", SHA_512),
        upsertion("other"),
    ) == {"there": (DUPLICATE_RESOURCE, TWICE), "new": (DUPLICATE_RESOURCE, TWICE), "other": (0, None)}
    until(lambda: "other" in describe(client))
    assert describe(client, "there") == {"there": [(SHA_256, 4096)]}
    assert "new" not in describe(client)


def test_a_user_is_described_once_in_a_request(client) -> None:
    reported = "Cannot describe SCRAM credentials for the same user twice in a single request: a"
    absent = "Attempt to describe a user credential that does not exist: b"
    assert describe(client, "a", "b", "a") == {"a": (DUPLICATE_RESOURCE, reported), "b": (RESOURCE_NOT_FOUND, absent)}
