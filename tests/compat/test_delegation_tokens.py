"""kafka-delegation-tokens.sh makes, shows, renews and ends tokens, and Java's clients log in with one meanwhile.

librdkafka, aiokafka and kafka-python cannot: none of them sends the extension tokenauth.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.listeners import listener_keys
from harness.servers import Server, free_port
from tests.compat.conftest import new_server
from tests.support.eventually import eventually
from tests.support.logins import PLAIN_MODULE, SCRAM_MODULE, jaas_keys

TOKENS, CONFIGS = "org.apache.kafka.tools.DelegationTokenCommand", "org.apache.kafka.tools.ConfigCommand"
PRODUCER, CONSUMER = "org.apache.kafka.tools.ConsoleProducer", "org.apache.kafka.tools.consumer.ConsoleConsumer"
LISTENER = "SASL_PLAINTEXT"
MECHANISMS = ("PLAIN", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[dict[str, int]]:
    ports = {name: free_port() for name in ("PLAINTEXT", LISTENER, "CONTROLLER")}
    properties = {
        **listener_keys(ports),
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{ports['CONTROLLER']}",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "delegation.token.secret.key": "the secret of all nodes",
        **jaas_keys(LISTENER, mechanisms=MECHANISMS, users=dict.fromkeys(("alice", "bob", "carol", "dave"), "pw")),
    }
    server: Server = new_server(tmp_path_factory.mktemp("tokens") / "data", properties)
    server.port = ports["PLAINTEXT"]
    with server:
        yield ports


@pytest.fixture
def bootstrap(served: dict[str, int]) -> str:
    return f"127.0.0.1:{served[LISTENER]}"


@pytest.fixture
def plaintext(served: dict[str, int]) -> str:
    return f"127.0.0.1:{served['PLAINTEXT']}"


def client_properties(path: Path, mechanism: str, module: str) -> str:
    path.write_text(
        f"security.protocol={LISTENER}\nsasl.mechanism={mechanism}\nsasl.jaas.config={module};\n"
        "default.api.timeout.ms=60000\nrequest.timeout.ms=60000\n"
    )
    return str(path)


Run = Callable[..., str]


@pytest.fixture
def tokens(bootstrap: str, java_tool: Run, tmp_path: Path) -> Run:
    """Run the tool as a user."""

    def run(user: str, *arguments: str) -> str:
        login = client_properties(tmp_path / user, "PLAIN", f'{PLAIN_MODULE} username="{user}" password="pw"')
        return java_tool(TOKENS, "--bootstrap-server", bootstrap, "--command-config", login, *arguments)

    return run


def created(tokens: Run, user: str, *arguments: str, life_ms: int = -1) -> tuple[str, str, str]:
    """Make a token and wait for it; return its HMAC, owner and requester, and renewers, as printed."""
    output = tokens(user, "--create", "--max-life-time-period", str(life_ms), *arguments)
    found = re.search(r"^\S{22} +(\S{88}) +(\S+ +\S+) +(\[.*?\]) +\S+ +\S+ +\S+ *$", output, re.M)
    assert found is not None, output
    owner = found[2].split()[0]
    eventually(lambda: found[1] in tokens(user, "--describe", "--owner-principal", owner))
    return found[1], re.sub(" +", " ", found[2]), found[3]


def is_refused(tokens: Run, user: str, *arguments: str, reported: str) -> bool:
    try:
        tokens(user, *arguments)
    except AssertionError as error:
        return reported in str(error)
    return False


def test_owners_and_renewers_change_a_token(tokens: Run) -> None:
    renewers = ("--renewer-principal", "User:carol", "--renewer-principal", "User:dave")
    hmac, owner, printed = created(tokens, "alice", "--owner-principal", "User:bob", *renewers)
    assert (owner, printed) == ("User:bob User:alice", "[User:carol, User:dave]")
    for user in ("bob", "carol"):
        output = tokens(user, "--renew", "--renew-time-period", "60000", "--hmac", hmac)
        assert "Completed renew operation. New expiry date :" in output
    for who, owners in (("bob", "User:bob"), ("carol", "User:carol"), ("dave", "User:bob")):
        assert hmac in tokens(who, "--describe", "--owner-principal", owners)
    assert hmac not in tokens("bob", "--describe", "--owner-principal", "User:nobody")
    for action in (("--renew", "--renew-time-period"), ("--expire", "--expiry-time-period")):
        with pytest.raises(AssertionError, match="OwnerMismatchException: Specified Principal is not valid Owner"):
            tokens("alice", *action, "600000", "--hmac", hmac)
    output = tokens("carol", "--expire", "--expiry-time-period", "600000", "--hmac", hmac)
    assert "Completed expire operation. New expiry date :" in output


def test_what_cannot_be_is_printed(tokens: Run, java_tool: Run, plaintext: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="InvalidPrincipalTypeException: Supplied principalType is not supported"):
        created(tokens, "alice", "--renewer-principal", "Group:bob")
    hmac, _, _ = created(tokens, "alice", life_ms=1)
    expired = "DelegationTokenExpiredException: Delegation Token is expired"
    for period in (("--renew", "--renew-time-period"), ("--expire", "--expiry-time-period")):
        eventually(lambda period=period: is_refused(tokens, "alice", *period, "9", "--hmac", hmac, reported=expired))
        with pytest.raises(AssertionError, match="NotFoundException: Delegation Token is not found on server"):
            tokens("alice", *period, "9", "--hmac", "YWJj")
    anonymous = tmp_path / "anonymous"
    anonymous.write_text("default.api.timeout.ms=60000\n")
    with pytest.raises(AssertionError, match="UnsupportedByAuthenticationException"):
        java_tool(TOKENS, "--bootstrap-server", plaintext, "--command-config", str(anonymous), "--describe")


def test_a_token_by_javas_tools(bootstrap, java_tool, tmp_path, topic) -> None:
    alice = client_properties(tmp_path / "alice", "PLAIN", f'{PLAIN_MODULE} username="alice" password="pw"')
    as_alice = ("--bootstrap-server", bootstrap, "--command-config", alice)
    output = java_tool(TOKENS, *as_alice, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    token_id, hmac = re.search(r"^(\S{22}) +(\S{88}) +User:alice +User:alice +\[User:bob\]", output, re.M).groups()

    described = ("--describe", "--owner-principal", "User:alice")
    eventually(lambda: hmac in java_tool(TOKENS, *as_alice, *described))
    assert re.search("^Total number of tokens : [1-9]$", java_tool(TOKENS, *as_alice, *described), re.M)
    output = java_tool(TOKENS, *as_alice, "--renew", "--renew-time-period", "-1", "--hmac", hmac)
    assert "Completed renew operation." in output

    module = f'{SCRAM_MODULE} username="{token_id}" password="{hmac}" tokenauth="true"'
    token = client_properties(tmp_path / "token", "SCRAM-SHA-512", module)
    by_token = ("--bootstrap-server", bootstrap, "--command-config", token)
    java_tool(PRODUCER, *by_token, "--topic", topic, stdin="by token\n")
    read = ("--from-beginning", "--max-messages", "1", "--topic", topic)
    assert java_tool(CONSUMER, *by_token, *read) == "by token\n"
    with pytest.raises(AssertionError, match="UnsupportedByAuthenticationException"):
        java_tool(TOKENS, *by_token, "--describe")

    output = java_tool(TOKENS, *as_alice, "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert "Completed expire operation." in output
    with pytest.raises(AssertionError, match=r"SaslAuthenticationException: .*invalid credentials"):
        java_tool(CONFIGS, *by_token, "--describe", "--entity-type", "topics")
