"""PLAIN and SCRAM, both sides: RFC 7677's example, right and wrong passwords, and what a client may try."""

import base64

import pytest

from kafkapy.metadata.scram_types import MECHANISMS, keys_of, salt_of, salted_password
from kafkapy.security.plain import PlainClient, PlainServer, users_of
from kafkapy.security.sasl import SaslError, VisibleSaslError, in_java_order
from kafkapy.security.scram import MAX_MESSAGE_BYTES, ScramClient, ScramCredential, ScramServer, made_up_credential

NOW_MS = 0
SHA_256, SHA_512 = MECHANISMS["SCRAM-SHA-256"], MECHANISMS["SCRAM-SHA-512"]
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"


def scram_server(mechanism=SHA_256, *, name="user", password="pencil", iterations=4096) -> ScramServer:
    salted = salted_password(mechanism, password, SALT, iterations)
    credentials = {name: ScramCredential(SALT, *keys_of(mechanism, salted), iterations)}
    return ScramServer(mechanism, credentials.get, nonce=SERVER_NONCE, secret=b"secret")


def log_in(client, server) -> None:
    challenge = b""
    while not client.is_complete:
        response = client.evaluate(challenge)
        if not client.is_complete:
            challenge = server.evaluate(response, NOW_MS)


def test_scram_sends_what_rfc_7677_shows() -> None:
    client, server = ScramClient(SHA_256, "user", "pencil", nonce=CLIENT_NONCE), scram_server()
    first = client.evaluate(b"")
    assert first == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenge = server.evaluate(first, NOW_MS)
    assert challenge == f"r={CLIENT_NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    final = client.evaluate(challenge)
    assert final.endswith(b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    signature = server.evaluate(final, NOW_MS)
    assert signature == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert client.evaluate(signature) == b""
    assert client.is_complete
    assert server.is_complete
    assert server.authorization_id == "user"


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=str)
@pytest.mark.parametrize("name", ["alice", "a=b,c", "=2C", "with space"])
def test_scram_logs_users_in_by_any_name(mechanism, name) -> None:
    server = scram_server(mechanism, name=name, password="ä, =\0", iterations=5000)
    client = ScramClient(mechanism, name, "ä, =\0", nonce="abc")
    assert client.mechanism == server.mechanism == mechanism.name
    with pytest.raises(AssertionError):
        _ = server.authorization_id
    log_in(client, server)
    assert server.authorization_id == name


def test_scram_prints_no_key() -> None:
    credential = ScramCredential(b"s3cret", b"s3cret", b"s3cret", 4096)
    assert repr(credential) == "ScramCredential([hidden])"


def test_scram_reads_the_reserved_attribute_of_either_side() -> None:
    """`m=`, of RFC 5802, is read as Apache Kafka reads it; the proofs cover it."""
    client, server = ScramClient(SHA_256, "user", "pencil", nonce=CLIENT_NONCE), scram_server()
    client._bare = f"m=x y,{client._bare}"
    challenge = server.evaluate(client.evaluate(b""), NOW_MS)
    client.evaluate(server.evaluate(client.evaluate(challenge), NOW_MS))
    assert client.is_complete
    assert server.is_complete
    client = ScramClient(SHA_256, "user", "pencil", nonce=CLIENT_NONCE)
    client.evaluate(b"")
    assert client.evaluate(b"m=x y," + challenge).startswith(b"c=biws,")


@pytest.mark.parametrize(("name", "password"), [("user", "wrong"), ("nobody", "pencil"), ("user", "")])
def test_scram_refuses_a_wrong_password_and_an_unknown_user_at_the_same_step(name, password) -> None:
    client, server = ScramClient(SHA_256, name, password, nonce=CLIENT_NONCE), scram_server()
    challenge = server.evaluate(client.evaluate(b""), NOW_MS)
    with pytest.raises(SaslError, match=r"^Invalid client credentials$") as error:
        server.evaluate(client.evaluate(challenge), NOW_MS)
    assert not isinstance(error.value, VisibleSaslError)
    assert not server.is_complete


def test_the_salt_of_an_unknown_user_is_always_the_same() -> None:
    first = ScramClient(SHA_256, "nobody", "x", nonce="abc").evaluate(b"")
    challenges = [scram_server().evaluate(first, NOW_MS) for _ in range(2)]
    other = scram_server().evaluate(first.replace(b"nobody", b"no one"), NOW_MS)
    assert challenges[0] == challenges[1] != other


@pytest.mark.parametrize(
    ("number", "salt"),
    [(0, b"0"), (35, b"z"), (36, b"10"), (36**25 - 1, b"z" * 25), (36**25, b"1" + b"0" * 25)],
)
def test_a_salt_is_a_number_in_base_36(number, salt) -> None:
    """As BigInteger.toString(36) writes it, from which Kafka's ScramFormatter makes salts."""
    assert salt_of(number) == salt


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=str)
def test_the_salts_of_unknown_users_look_like_those_of_kafkas_tools(mechanism) -> None:
    salts = [made_up_credential(mechanism, b"secret", f"user{at}").salt for at in range(300)]
    assert {len(salt) for salt in salts} <= {23, 24, 25, 26}
    assert set(b"".join(salts)) == set(b"0123456789abcdefghijklmnopqrstuvwxyz")
    assert 75 < sum(len(salt) == 26 for salt in salts) < 175, "two in five"


FIRST = "n,,n=user,r=abc"


@pytest.mark.parametrize(
    "first",
    [
        "",
        "n,,",
        "y,,n=user,r=abc",
        "p=tls-unique,,n=user,r=abc",
        "n,,n=us=er,r=abc",
        "n,,n=us,er,r=abc",
        "n,,n=user,r=",
        "n,,n=user,r=a b",
        "n,,n=ü,r=abc",
        "n,,n=,r=abc",
        "n,a=,n=user,r=abc",
        "n,,n=user,r=abc\udcff",
        "\0" * 1000,
    ],
)
def test_scram_refuses_first_messages_that_it_cannot_read(first) -> None:
    with pytest.raises(SaslError):
        scram_server().evaluate(first.encode(errors="surrogateescape"), NOW_MS)


def test_scram_refuses_messages_that_are_too_long() -> None:
    server = scram_server()
    first = "n,,n=user,r=abc".ljust(MAX_MESSAGE_BYTES, "x")
    with pytest.raises(SaslError, match="client first message is too long"):
        scram_server().evaluate(f"{first}x".encode(), NOW_MS)
    server.evaluate(first.encode(), NOW_MS)
    with pytest.raises(SaslError, match="client final message is too long"):
        server.evaluate(b"c=biws,r=abc".ljust(MAX_MESSAGE_BYTES + 1, b"x"), NOW_MS)


def test_scram_refuses_another_authorization_id() -> None:
    scram_server().evaluate(b"n,a=user,n=user,r=abc", NOW_MS)
    with pytest.raises(VisibleSaslError, match=r"different from username$"):
        scram_server().evaluate(b"n,a=admin,n=user,r=abc", NOW_MS)


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("c=biws", "c=eSws", "channel binding"),
        (f"r={CLIENT_NONCE}%", f"r={CLIENT_NONCE}#", "client nonce"),
        (f",r={CLIENT_NONCE}", ",r=", "client nonce"),
        (",p=", ",p=AAAA", "client credentials"),
        (",p=", ",x=1,p=", "client credentials"),
        (",p=", ",q=", "format"),
        (",p=", ",p=!", "format"),
        (",p=", ",p=\n", "format"),
        (",p=", ",p==", "format"),
        (",p=", "\udcff,p=", "format"),
    ],
)
def test_scram_refuses_final_messages_that_were_changed(before, after, reason) -> None:
    client, server = ScramClient(SHA_256, "user", "pencil", nonce=CLIENT_NONCE), scram_server()
    final = client.evaluate(server.evaluate(client.evaluate(b""), NOW_MS)).decode()
    assert before in final
    with pytest.raises(SaslError, match=reason):
        server.evaluate(final.replace(before, after).encode(errors="surrogateescape"), NOW_MS)


@pytest.mark.parametrize(
    ("challenge", "reason"),
    [
        ("r=other,s=QUJD,i=4096", "nonce"),
        ("r=abcdef,s=QUJD,i=4095", "iterations"),
        ("r=abcdef,s=QUJD,i=999999999", "iterations"),
        ("r=abcdef,s=QUJD,i=16385", "iterations"),
        ("r=abcdef,s=QUJD", "format"),
        ("r=abc\udcff,s=QUJD,i=4096", "format"),
    ],
)
def test_the_scram_client_refuses_a_server_that_does_not_fit(challenge, reason) -> None:
    client = ScramClient(SHA_256, "user", "pencil", nonce="abc")
    client.evaluate(b"")
    with pytest.raises(SaslError, match=reason):
        client.evaluate(challenge.encode(errors="surrogateescape"))


@pytest.mark.parametrize("iterations", [4096, 16384])
def test_the_scram_client_takes_the_fewest_and_the_most_iterations(iterations) -> None:
    client = ScramClient(SHA_256, "user", "pencil", nonce="abc")
    log_in(client, scram_server(iterations=iterations))
    assert client.is_complete


@pytest.mark.parametrize("last", [b"v=AAAA", b"e=other-error", b""])
def test_the_scram_client_refuses_a_server_that_does_not_know_the_password(last) -> None:
    client = ScramClient(SHA_256, "user", "pencil", nonce=CLIENT_NONCE)
    client.evaluate(scram_server().evaluate(client.evaluate(b""), NOW_MS))
    with pytest.raises(SaslError):
        client.evaluate(last)
    assert not client.is_complete


def test_scram_refuses_a_credential_of_too_few_iterations() -> None:
    """Of a directory that something else has written: no request stores such a credential."""
    with pytest.raises(SaslError, match="Iterations 4095 is less than the minimum 4096"):
        scram_server(iterations=4095).evaluate(b"n,,n=user,r=abc", NOW_MS)


USERS = users_of({"username": "broker", "password": "b", "user_alice": "wonder", "user_": "nobody", "user_b": ""})


def test_plain_logs_the_users_of_the_options_in() -> None:
    server = PlainServer(USERS)
    log_in(PlainClient("alice", "wonder"), server)
    assert server.is_complete
    assert server.authorization_id == "alice"
    assert PlainServer(USERS).evaluate(b"alice\0alice\0wonder", NOW_MS) == b""


@pytest.mark.parametrize(
    ("token", "reported"),
    [
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0wonder\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0alice\0wonder\0\0\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\0wonder", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0wonder", "Authentication failed: Invalid username or password"),
        (b"\0broker\0b", "Authentication failed: Invalid username or password"),
        (b"\0b\0\xff", "Authentication failed: Invalid username or password"),
        (
            b"admin\0alice\0wonder",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
    ],
)
def test_plain_answers_what_apache_kafka_answers(token, reported) -> None:
    server = PlainServer(USERS)
    with pytest.raises(VisibleSaslError) as error:
        server.evaluate(token, NOW_MS)
    assert str(error.value) == reported
    assert not server.is_complete


def test_mechanisms_come_in_the_order_of_javas_set() -> None:
    enabled = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
    assert in_java_order(enabled) == ("PLAIN", "SCRAM-SHA-512", "SCRAM-SHA-256", "OAUTHBEARER")


def test_a_plain_client_takes_no_challenge():
    """PLAIN has one message: a server that asks for more has not accepted it."""
    client = PlainClient("alice", "wonder")
    client.evaluate(b"")
    with pytest.raises(SaslError, match="challenge"):
        client.evaluate(b"more")
    assert not client.is_complete
