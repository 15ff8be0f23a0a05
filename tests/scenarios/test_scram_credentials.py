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
UNKNOWN_SERVER_ERROR, CLUSTER_AUTHORIZATION_FAILED, POLICY_VIOLATION = -1, 31, 44
TWICE = "A user credential cannot be altered twice in the same request"
ABSENT = "Attempt to delete a user credential that does not exist"
UNKNOWN = (UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def ports(tmp_path_factory) -> Iterator[dict[str, int]]:
    with sasl_broker(tmp_path_factory.mktemp("kafka"), ("SASL_PLAINTEXT",), {"nobody": "pw"}, PROPERTIES) as found:
        yield found


@pytest.fixture
def client(ports) -> Iterator[WireClient]:
    with WireClient(f"127.0.0.1:{ports['PLAINTEXT']}") as connected:
        yield connected


@pytest.fixture
def unauthorized(ports) -> Iterator[WireClient]:
    with WireClient(f"127.0.0.1:{ports['SASL_PLAINTEXT']}") as connected:
        assert log_in(connected, sasl_client("PLAIN", "nobody", "pw")).error_code == 0
        yield connected


def upsertion(user: str, mechanism: int = SHA_256, *, password: str = "pw", iterations: int = 4096):
    salted = salted_password(BY_CODE.get(mechanism, BY_CODE[SHA_256]), password, b"salt", max(iterations, 1))
    return ScramCredentialUpsertion(
        user, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=salted
    )


def alter(client: WireClient, *changes) -> dict[str, tuple[int, str | None]]:
    deletions = [change for change in changes if isinstance(change, ScramCredentialDeletion)]
    upsertions = [change for change in changes if isinstance(change, ScramCredentialUpsertion)]
    response = client.call(AlterUserScramCredentialsRequest(deletions, upsertions=upsertions), 0)
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
    alter(client, ScramCredentialDeletion(user, mechanism=code))
    until(lambda: not may_log_in(ports, mechanism, user, "second"))
    reported = f"Attempt to describe a user credential that does not exist: {user}"
    assert describe(client, user) == {user: (RESOURCE_NOT_FOUND, reported)}


def test_a_user_may_have_a_credential_for_each_mechanism(client, ports) -> None:
    for mechanism in (SHA_256, SHA_512):
        assert alter(client, upsertion("both", mechanism)) == {"both": (0, None)}
    until(lambda: describe(client, "both") == {"both": [(SHA_256, 4096), (SHA_512, 4096)]})
    assert describe(client)["both"] == [(SHA_256, 4096), (SHA_512, 4096)]
    assert alter(client, ScramCredentialDeletion("both", mechanism=SHA_256)) == {"both": (0, None)}
    until(lambda: describe(client, "both") == {"both": [(SHA_512, 4096)]})


def test_what_cannot_be_is_refused_for_its_user_alone(client) -> None:
    assert alter(
        client,
        upsertion("good"),
        upsertion("", SHA_256),
        upsertion("unknown", 0),
        upsertion("none", 9),
        upsertion("few", iterations=4095),
        upsertion("many", iterations=16385),
        ScramCredentialDeletion("absent", mechanism=SHA_256),
        ScramCredentialDeletion("good-256", mechanism=7),
    ) == {
        "good": (0, None),
        "": (UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        "unknown": UNKNOWN,
        "none": UNKNOWN,
        "few": (UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        "many": (UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        "absent": (RESOURCE_NOT_FOUND, ABSENT),
        "good-256": UNKNOWN,
    }
    until(lambda: "good" in describe(client))
    assert not {"few", "many", "unknown"} & set(describe(client))


def test_a_user_is_altered_once_in_a_request(client) -> None:
    alter(client, upsertion("there"))
    until(lambda: "there" in describe(client))
    assert alter(
        client,
        ScramCredentialDeletion("there", mechanism=SHA_256),
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


@pytest.mark.parametrize("mechanism", [-128, -1, 0, 3, 127])
def test_other_mechanisms_are_unknown(client, mechanism) -> None:
    user = f"mechanism{mechanism}"
    assert alter(client, upsertion(user, mechanism)) == {user: UNKNOWN}
    assert alter(client, ScramCredentialDeletion(user, mechanism=mechanism)) == {user: UNKNOWN}


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
@pytest.mark.parametrize(
    ("iterations", "reported"),
    [
        (-(1 << 31), "Too few iterations"),
        (-1, "Too few iterations"),
        (0, "Too few iterations"),
        (4095, "Too few iterations"),
        (4096, None),
        (16384, None),
        (16385, "Too many iterations"),
        ((1 << 31) - 1, "Too many iterations"),
    ],
)
def test_iterations_have_bounds(client, mechanism, iterations, reported) -> None:
    user, code = f"iterations{iterations}-{mechanism}", 0 if reported is None else UNACCEPTABLE_CREDENTIAL
    change = ScramCredentialUpsertion(
        user, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=b"salted"
    )
    assert alter(client, change) == {user: (code, reported)}
    if reported is None:
        until(lambda: describe(client, user) == {user: [(mechanism, iterations)]})


def test_a_salted_password_may_not_be_empty_and_anything_else_may_be(client) -> None:
    def of(user: str, salt: bytes, salted: bytes) -> ScramCredentialUpsertion:
        return ScramCredentialUpsertion(user, mechanism=SHA_256, iterations=4096, salt=salt, salted_password=salted)

    assert alter(
        client,
        of("before", b"salt", b"salted"),
        of("empty", b"salt", b""),
        of("no-salt", b"", b"salted"),
        of("long", b"s" * 70_000, b"s" * 70_000),
        of("after", b"salt", b"s"),
    ) == {
        "before": (0, None),
        "empty": (UNKNOWN_SERVER_ERROR, None),
        "no-salt": (0, None),
        "long": (0, None),
        "after": (0, None),
    }
    until(lambda: "after" in describe(client))
    assert {"before", "no-salt", "long"} <= set(describe(client))
    assert "empty" not in describe(client)


def test_an_empty_salted_password_is_found_after_all_else(client) -> None:
    def empty(user: str, iterations: int = 4096) -> ScramCredentialUpsertion:
        return ScramCredentialUpsertion(
            user, mechanism=SHA_256, iterations=iterations, salt=b"salt", salted_password=b""
        )

    assert alter(client, empty("few", 1), empty("twice"), upsertion("twice"), empty("empty")) == {
        "few": (UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        "twice": (DUPLICATE_RESOURCE, TWICE),
        "empty": (UNKNOWN_SERVER_ERROR, None),
    }


def test_the_first_error_of_a_user_stays_and_what_was_right_before_is_undone(client) -> None:
    assert alter(
        client,
        upsertion("wrong-right", 9),
        upsertion("wrong-right"),
        upsertion("right-wrong"),
        upsertion("right-wrong", 9),
        upsertion("thrice"),
        upsertion("thrice"),
        upsertion("thrice"),
        ScramCredentialDeletion("absent-made", mechanism=SHA_256),
        upsertion("absent-made"),
    ) == {
        "wrong-right": UNKNOWN,
        "right-wrong": (DUPLICATE_RESOURCE, TWICE),
        "thrice": (DUPLICATE_RESOURCE, TWICE),
        "absent-made": (RESOURCE_NOT_FOUND, ABSENT),
    }
    alter(client, upsertion("later"))
    until(lambda: "later" in describe(client))
    assert not {"wrong-right", "right-wrong", "thrice", "absent-made"} & set(describe(client))


def test_a_credential_is_deleted_by_its_mechanism_and_once_in_a_request(client) -> None:
    alter(client, upsertion("here"))
    until(lambda: "here" in describe(client))
    other = ScramCredentialDeletion("here", mechanism=SHA_512)
    one = ScramCredentialDeletion("here", mechanism=SHA_256)
    assert alter(client, other) == {"here": (RESOURCE_NOT_FOUND, ABSENT)}
    assert alter(client, one, one) == {"here": (DUPLICATE_RESOURCE, TWICE)}
    assert alter(client, one, other) == {"here": (DUPLICATE_RESOURCE, TWICE)}
    assert alter(client, other, one) == {"here": (RESOURCE_NOT_FOUND, ABSENT)}
    assert describe(client, "here") == {"here": [(SHA_256, 4096)]}
    assert alter(client, one) == {"here": (0, None)}
    until(lambda: "here" not in describe(client))


@pytest.mark.parametrize("user", [" ", "a,b=c", "\u00e9\0x", "\U0001f600", "u" * 32_767], ids=len)
def test_any_name_but_an_empty_one_is_a_users(client, user) -> None:
    assert alter(client, upsertion(user)) == {user: (0, None)}
    until(lambda: describe(client, user) == {user: [(SHA_256, 4096)]})


def test_requests_may_name_nobody(client) -> None:
    assert alter(client) == {}
    alter(client, upsertion("somebody"))
    until(lambda: "somebody" in describe(client))
    everybody, named = (client.call(DescribeUserScramCredentialsRequest(users), 0) for users in (None, []))
    assert sorted(each.user for each in everybody.results) == sorted(each.user for each in named.results)


def test_what_is_no_error_is_described_with_an_empty_message(client) -> None:
    alter(client, upsertion("named"))
    until(lambda: "named" in describe(client))
    response = client.call(DescribeUserScramCredentialsRequest([UserName("named"), UserName("")]), 0)
    assert (response.error_code, response.error_message) == (0, "")
    by_name = {each.user: (each.error_code, each.error_message) for each in response.results}
    reported = "Attempt to describe a user credential that does not exist: "
    assert by_name == {"named": (0, ""), "": (RESOURCE_NOT_FOUND, reported)}


@pytest.mark.parametrize("is_twice", [False, True])
def test_a_name_too_long_for_the_message_about_it_fails_the_request(client, is_twice) -> None:
    """The message names the user, and a string has 32,767 bytes at most."""
    alter(client, upsertion("named"))
    until(lambda: "named" in describe(client))
    before = "Cannot describe SCRAM credentials for the same user twice in a single request: "
    if not is_twice:
        before = "Attempt to describe a user credential that does not exist: "
    for length, code in ((32_767 - len(before), 0), (32_768 - len(before), UNKNOWN_SERVER_ERROR)):
        users = [UserName("u" * length)] * (1 + is_twice) + [UserName("named")]
        response = client.call(DescribeUserScramCredentialsRequest(users), 0)
        if code:
            assert (response.error_code, response.error_message) == (code, None)
            results = [(each.user, each.error_code, each.error_message) for each in response.results]
            assert results == [("", code, None)] * len(users)
        else:
            assert (response.error_code, len(response.results)) == (0, 2)
            assert before + "u" * length in {each.error_message for each in response.results}


def test_thousands_are_made_in_one_request_and_ten_thousand_at_most(client) -> None:
    salted = b"salted"

    def of(prefix: str, count: int) -> list[ScramCredentialUpsertion]:
        return [
            ScramCredentialUpsertion(
                f"{prefix}{at}", mechanism=SHA_512, iterations=4096, salt=b"salt", salted_password=salted
            )
            for at in range(count)
        ]

    assert set(alter(client, *of("many", 10_000)).values()) == {(0, None)}
    until(lambda: "many9999" in describe(client))
    assert {f"many{at}" for at in range(10_000)} <= set(describe(client))
    refused = alter(client, *of("more", 10_001))
    assert len(refused) == 10_001
    ((code, _),) = set(refused.values())
    assert code in (UNKNOWN_SERVER_ERROR, POLICY_VIOLATION)
    assert "more0" not in describe(client)


def test_altering_needs_alter_and_describing_describe_of_the_cluster(unauthorized) -> None:
    deletions = [ScramCredentialDeletion("z", mechanism=SHA_256), ScramCredentialDeletion("\uffff", mechanism=SHA_512)]
    upsertions = [upsertion("\U0001f600"), upsertion("a"), upsertion("a", 9)]
    response = unauthorized.call(AlterUserScramCredentialsRequest(deletions, upsertions=upsertions), 0)
    assert [each.user for each in response.results] == ["a", "z", "\U0001f600", "\uffff"], "by UTF-16 units"
    assert {each.error_code for each in response.results} == {CLUSTER_AUTHORIZATION_FAILED}
    assert alter(unauthorized) == {}
    for users in (["b", "a", "a"], []):
        response = unauthorized.call(DescribeUserScramCredentialsRequest([UserName(user) for user in users]), 0)
        assert (response.error_code, response.error_message) == (CLUSTER_AUTHORIZATION_FAILED, None)
        results = [(each.user, each.error_code, each.error_message) for each in response.results]
        assert results == [("", CLUSTER_AUTHORIZATION_FAILED, None)] * len(users)


@pytest.mark.ours
def test_describing_all_without_the_right_is_answered(unauthorized) -> None:
    """Apache Kafka never answers: its error response cannot be made of a request that names nobody."""
    response = unauthorized.call(DescribeUserScramCredentialsRequest(None), 0)
    assert (response.error_code, response.error_message, response.results) == (CLUSTER_AUTHORIZATION_FAILED, None, [])
