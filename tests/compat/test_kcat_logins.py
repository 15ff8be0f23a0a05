"""kcat with the mechanisms that its own librdkafka lacks or gets wrong, on confluent-kafka's librdkafka.

Debian's librdkafka (2.0.2) has no oidc, and its SCRAM sends the nonce twice, which Apache Kafka refuses, too. Sessions
end every two seconds, tokens after six.
"""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from harness.servers import Server, free_port
from tests.compat.conftest import new_server
from tests.support.bearer_tokens import SigningKey
from tests.support.https_server import HttpsServer, give_keys, give_tokens, https_server
from tests.support.logins import MODULES, SCRAM_MODULE
from tools.kafka import kcat

LISTENER = "SASL_PLAINTEXT"
SESSION_MS, TOKEN_S = 2000, 6
USER, PASSWORD = "alice", "wonder"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = (*SCRAM, "OAUTHBEARER")
OAUTH = f"{MODULES}.oauthbearer"


class Kcat:
    """kcat, and the environment in which it finds another librdkafka."""

    def __init__(self, program: str, libraries: Path, library: Path, directory: Path) -> None:
        (directory / "librdkafka.so.1").symlink_to(library)
        self.program = program
        self.environment = {**os.environ, "LD_LIBRARY_PATH": f"{directory}:{libraries}"}

    def start(self, *arguments: str, settings: dict[str, str]) -> "subprocess.Popen[str]":
        options = [part for key, value in settings.items() for part in ("-X", f"{key}={value}")]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([self.program, *arguments, *options], text=True, env=self.environment, **pipes)  # type: ignore[call-overload,no-any-return]

    def run(self, *arguments: str, settings: dict[str, str], stdin: str = "") -> tuple[int, str, str]:
        with self.start(*arguments, settings=settings) as process:
            stdout, stderr = process.communicate(stdin, timeout=120)
        return process.returncode, stdout, stderr


@pytest.fixture(scope="module")
def new_kcat(tmp_path_factory: pytest.TempPathFactory) -> Kcat:
    program, libraries = kcat(), Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs")
    library = next(libraries.glob("librdkafka-*.so*"), None)
    if program is None or library is None:
        pytest.skip("kcat (`make tools`) or the library of confluent-kafka's wheel is missing")
    found = Kcat(program, libraries, library, tmp_path_factory.mktemp("kcat"))
    if "oidc" not in found.run("-V", settings={})[1]:
        pytest.skip("kcat does not work with the library of confluent-kafka's wheel")
    return found


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpsServer]:
    with https_server(tmp_path_factory.mktemp("provider")) as server, pytest.MonkeyPatch.context() as patch:
        key = SigningKey("one", "RS256")
        server.routes["/keys"] = give_keys(key)
        server.routes["/tokens"] = give_tokens(key, USER, PASSWORD, lifetime_s=TOKEN_S)
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={server.url('/keys')}"
        patch.setenv("KAFKA_OPTS", allowed)
        patch.setenv("JDK_JAVA_OPTIONS", f"-XX:TieredStopAtLevel=1 {allowed}")
        yield server


@pytest.fixture(scope="module")
def secured(provider: HttpsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = new_server(tmp_path_factory.mktemp("secured") / "data")
    ports = {"PLAINTEXT": server.port, LISTENER: free_port(), "CONTROLLER": free_port()}
    prefix = f"listener.name.{LISTENER.lower()}"
    trust = f'ssl.truststore.type="PEM" ssl.truststore.location="{provider.ca_file}"'
    server.properties = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{LISTENER}:{LISTENER}",
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@127.0.0.1:{ports['CONTROLLER']}",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "connections.max.reauth.ms": str(SESSION_MS),
        "sasl.oauthbearer.jwks.endpoint.url": provider.url("/keys"),
        "sasl.oauthbearer.expected.audience": "kafka",
        **{f"{prefix}.{name.lower()}.sasl.jaas.config": f"{SCRAM_MODULE};" for name in SCRAM},
        f"{prefix}.oauthbearer.sasl.jaas.config": (
            f'{OAUTH}.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker" {trust};'
        ),
        f"{prefix}.oauthbearer.sasl.server.callback.handler.class": f"{OAUTH}.OAuthBearerValidatorCallbackHandler",
    }
    with server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            info = ScramCredentialInfo(mechanism, 4096)
            made = admin.alter_user_scram_credentials([UserScramCredentialUpsertion(USER, info, PASSWORD.encode())])
            made[USER].result(60)
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
    lines = [f"{number}\n" for number in range(8 if mechanism != "OAUTHBEARER" else 16)]
    with new_kcat.start("-P", "-t", topic, settings=used | {"linger.ms": "0"}) as writer:
        assert writer.stdin is not None
        for line in lines:
            writer.stdin.write(line)
            writer.stdin.flush()
            time.sleep(0.5)  # that sessions end meanwhile is what is tested
        _, stderr = writer.communicate(timeout=120)
    assert (writer.returncode, "uthentication" in stderr) == (0, False), stderr
    if mechanism == "OAUTHBEARER":
        assert provider.count("/tokens") > before + 1
    code, read, stderr = new_kcat.run("-C", "-t", topic, "-o", "beginning", "-e", "-q", settings=used)
    assert (code, read) == (0, "".join(lines)), stderr


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "OAUTHBEARER"])
def test_kcat_is_told_of_a_wrong_password(
    new_kcat: Kcat, secured: Server, provider: HttpsServer, mechanism: str
) -> None:
    code, _, stderr = new_kcat.run("-L", "-m", "5", settings=settings(secured, provider, mechanism, "wrong"))
    assert code != 0
    told = "invalid_client" if mechanism == "OAUTHBEARER" else "invalid credentials with SASL mechanism"
    assert told in stderr
