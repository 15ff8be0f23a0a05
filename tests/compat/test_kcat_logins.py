"""kcat with the mechanisms that its own librdkafka lacks or gets wrong, on confluent-kafka's librdkafka.

Debian's librdkafka (2.0.2) has no oidc, and its SCRAM sends the nonce twice, which Apache Kafka refuses, too. Sessions
end every two seconds; a token is renewed at four fifths of its fifteen.
"""

import time
from collections.abc import Iterator

import pytest

from harness.listeners import node_keys
from harness.servers import Server, free_port
from tests.compat.conftest import new_server
from tests.support import new_kcat as support
from tests.support.bearer_tokens import SigningKey
from tests.support.https_server import HttpsServer, allow_urls, give_keys, give_tokens, https_server
from tests.support.logins import MODULES, jaas_keys
from tests.support.new_kcat import Kcat
from tests.support.scram_users import add_user

pytestmark = pytest.mark.long

LISTENER = "SASL_PLAINTEXT"
SESSION_MS, TOKEN_S = 2000, 15
LINES, MAX_LINES = 8, 240
USER, PASSWORD = "alice", "wonder"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = (*SCRAM, "OAUTHBEARER")
OAUTH = f"{MODULES}.oauthbearer"


@pytest.fixture(scope="module")
def new_kcat(tmp_path_factory: pytest.TempPathFactory) -> Kcat:
    found = support.new_kcat(tmp_path_factory.mktemp("kcat"))
    if found is None:
        pytest.skip("kcat (`make tools`) or the library of confluent-kafka's wheel is missing")
    return found


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpsServer]:
    with https_server(tmp_path_factory.mktemp("provider")) as server, pytest.MonkeyPatch.context() as patch:
        key = SigningKey("one", "RS256")
        server.routes["/keys"] = give_keys(key)
        server.routes["/tokens"] = give_tokens(key, USER, PASSWORD, lifetime_s=TOKEN_S)
        allow_urls(patch, server.url("/keys"))
        yield server


@pytest.fixture(scope="module")
def secured(provider: HttpsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = new_server(tmp_path_factory.mktemp("secured") / "data")
    ports = {"PLAINTEXT": server.port, LISTENER: free_port(), "CONTROLLER": free_port()}
    prefix = f"listener.name.{LISTENER.lower()}"
    trust = f'ssl.truststore.type="PEM" ssl.truststore.location="{provider.ca_file}"'
    server.properties = {
        **node_keys(ports),
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "connections.max.reauth.ms": str(SESSION_MS),
        "sasl.oauthbearer.jwks.endpoint.url": provider.url("/keys"),
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.allow.unverified.issuer": "true",
        **jaas_keys(LISTENER, mechanisms=SCRAM, users={}),
        f"{prefix}.oauthbearer.sasl.jaas.config": (
            f'{OAUTH}.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker" {trust};'
        ),
        f"{prefix}.oauthbearer.sasl.server.callback.handler.class": f"{OAUTH}.OAuthBearerValidatorCallbackHandler",
    }
    with server:
        add_user(server.bootstrap, USER, PASSWORD)
        server.port = ports[LISTENER]
        yield server


def settings(secured: Server, provider: HttpsServer, mechanism: str, password: str = PASSWORD) -> dict[str, str]:
    found = {"bootstrap.servers": secured.bootstrap, "security.protocol": LISTENER, "sasl.mechanism": mechanism}
    if mechanism != "OAUTHBEARER":
        return found | {"sasl.username": USER, "sasl.password": password}
    return found | {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": provider.url("/tokens"),
        "sasl.oauthbearer.client.id": USER,
        "sasl.oauthbearer.client.secret": password,
        "https.ca.location": str(provider.ca_file),
    }


@pytest.mark.parametrize("mechanism", MECHANISMS[1:])
def test_kcat_writes_beyond_its_session_and_reads(
    new_kcat: Kcat, secured: Server, provider: HttpsServer, mechanism: str
) -> None:
    """It renews sessions, and tokens with them: no login fails, and no record is lost."""
    topic, used = f"by-{mechanism}", settings(secured, provider, mechanism)
    before = provider.count("/tokens")
    lines: list[str] = []
    with new_kcat.start("-P", "-t", topic, settings=used | {"linger.ms": "0"}) as writer:
        assert writer.stdin is not None
        while len(lines) < LINES or (mechanism == "OAUTHBEARER" and provider.count("/tokens") == before + 1):
            assert len(lines) < MAX_LINES, "no token was renewed"
            lines.append(f"{len(lines)}\n")
            writer.stdin.write(lines[-1])
            writer.stdin.flush()
            time.sleep(0.5)  # that sessions end meanwhile is what is tested
        _, stderr = writer.communicate(timeout=120)
    assert (writer.returncode, "uthentication" in stderr) == (0, False), stderr
    code, read, stderr = new_kcat.run("-C", "-t", topic, "-o", "beginning", "-e", "-q", settings=used)
    assert (code, read) == (0, "".join(lines)), stderr


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "OAUTHBEARER"])
def test_kcat_reports_a_wrong_password(new_kcat: Kcat, secured: Server, provider: HttpsServer, mechanism: str) -> None:
    code, _, stderr = new_kcat.run("-L", "-m", "10", settings=settings(secured, provider, mechanism, "wrong"))
    assert code != 0
    reported = "invalid_client" if mechanism == "OAUTHBEARER" else "invalid credentials with SASL mechanism"
    assert reported in stderr
