"""Bearer tokens of a small identity provider (https): stock clients get theirs there, the broker its keys.

Tokens are of 12 seconds, so that clients renew them, and their sessions, during a test.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.abc
import kafka
import pytest
from confluent_kafka import KafkaError, Producer
from kafka.net.sasl.oauth import AbstractTokenProvider

from harness.listeners import node_keys
from harness.servers import Server, free_port
from kafkapy.__main__ import main
from tests.compat.conftest import new_server
from tests.support.bearer_tokens import SigningKey
from tests.support.eventually import eventually
from tests.support.https_server import HttpsServer, allow_urls, give_keys, give_tokens, https_server
from tests.support.logins import MODULES

LISTENER = "SASL_PLAINTEXT"
MODULE = f"{MODULES}.oauthbearer.OAuthBearerLoginModule required"
LIFETIME_S = 12
CLIENT, SECRET = "alice", "client-secret"
PRODUCER, CONSUMER = "org.apache.kafka.tools.ConsoleProducer", "org.apache.kafka.tools.consumer.ConsoleConsumer"


class Provider:
    """Keys at /keys; tokens at /tokens, and at /wrong those that another key has signed."""

    def __init__(self, server: HttpsServer) -> None:
        self.server = server
        self.key = SigningKey("one", "RS256")
        server.routes["/keys"] = give_keys(self.key)
        server.routes["/tokens"] = give_tokens(self.key, CLIENT, SECRET, lifetime_s=LIFETIME_S)
        server.routes["/wrong"] = give_tokens(SigningKey("one", "RS256"), CLIENT, SECRET)
        self.urls = [server.url(path) for path in ("/keys", "/tokens", "/wrong")]

    @property
    def trust(self) -> str:
        """Options of a login module: whom to trust."""
        return f'ssl.truststore.type="PEM" ssl.truststore.location="{self.server.ca_file}"'

    def token(self) -> str:
        now_ms = int(time.time() * 1000)
        return self.key.token(now_ms=now_ms, exp=now_ms // 1000 + LIFETIME_S)


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    with https_server(tmp_path_factory.mktemp("provider")) as server, pytest.MonkeyPatch.context() as patch:
        provider = Provider(server)
        allow_urls(patch, *provider.urls)
        yield provider


@pytest.fixture(scope="module")
def secured(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Apache Kafka's broker logs in to nobody, but wants a name for it as soon as its module has any option."""
    server = new_server(tmp_path_factory.mktemp("bearer") / "data")
    module = f'{MODULE} unsecuredLoginStringClaim_sub="broker" {provider.trust};'
    ports = {"PLAINTEXT": server.port, LISTENER: free_port(), "CONTROLLER": free_port()}
    server.properties = {
        **node_keys(ports),
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": module,
        "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class": (
            f"{MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        "sasl.oauthbearer.jwks.endpoint.url": provider.urls[0],
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "us",
        "connections.max.reauth.ms": "60000",
        "offsets.topic.replication.factor": "1",
    }
    with server:
        server.port = ports[LISTENER]
        yield server


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name).strip("-")


def oidc(secured: Server, provider: Provider, path: str = "/tokens", secret: str = SECRET) -> dict[str, Any]:
    return {
        "bootstrap.servers": secured.bootstrap,
        "security.protocol": LISTENER,
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": provider.server.url(path),
        "sasl.oauthbearer.client.id": CLIENT,
        "sasl.oauthbearer.client.secret": secret,
        "https.ca.location": str(provider.server.ca_file),
        "log_level": 0,
    }


def test_librdkafkas_oidc_logs_in_and_renews(secured: Server, provider: Provider, topic: str) -> None:
    """Longer than a token, and so than a session, lasts."""
    errors: list[KafkaError] = []
    producer = Producer(oidc(secured, provider) | {"error_cb": errors.append})
    before = provider.server.count("/tokens")
    while provider.server.count("/tokens") < before + 2:
        producer.produce(topic, b"by librdkafka")
        assert producer.flush(60) == 0
    assert authentication_errors(errors) == []  # a client that stands still beyond its session is disconnected


def authentication_errors(errors: list[KafkaError]) -> list[KafkaError]:
    return [each for each in errors if each.code() == KafkaError._AUTHENTICATION]


@pytest.mark.parametrize(("path", "secret"), [("/wrong", SECRET), ("/tokens", "wrong")])
def test_librdkafkas_oidc_is_refused(secured: Server, provider: Provider, path: str, secret: str) -> None:
    """With a token that another key has signed, and without one."""
    errors: list[KafkaError] = []
    producer = Producer(oidc(secured, provider, path, secret) | {"error_cb": errors.append})
    eventually(lambda: producer.poll(0.1) >= 0 and authentication_errors(errors))


def test_a_token_without_a_signature_is_refused(secured: Server, topic: str) -> None:
    """All that kcat could send: its librdkafka is built without oidc."""
    errors: list[KafkaError] = []
    settings = {
        "bootstrap.servers": secured.bootstrap,
        "security.protocol": LISTENER,
        "sasl.mechanism": "OAUTHBEARER",
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
        "sasl.oauthbearer.config": f"principal={CLIENT}",
    }
    producer = Producer(settings | {"error_cb": errors.append, "log_level": 0})
    eventually(lambda: producer.poll(0.1) >= 0 and authentication_errors(errors))


class _AioTokens(aiokafka.abc.AbstractTokenProvider):
    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    async def token(self) -> str:
        return self._provider.token()


async def test_aiokafka_logs_in(secured: Server, provider: Provider, topic: str) -> None:
    settings: dict[str, Any] = {
        "bootstrap_servers": secured.bootstrap,
        "security_protocol": LISTENER,
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": _AioTokens(provider),
    }
    async with aiokafka.AIOKafkaProducer(**settings) as producer:
        await producer.send_and_wait(topic, b"by aiokafka")
    async with aiokafka.AIOKafkaConsumer(topic, **settings, auto_offset_reset="earliest") as consumer:
        assert bytes((await consumer.getone()).value) == b"by aiokafka"


class _PythonTokens(AbstractTokenProvider):
    def __init__(self, provider: Provider) -> None:
        super().__init__()
        self._provider = provider

    def token(self) -> str:
        return self._provider.token()


def test_kafka_python_logs_in(secured: Server, provider: Provider, topic: str) -> None:
    settings: dict[str, Any] = {
        "bootstrap_servers": secured.bootstrap,
        "security_protocol": LISTENER,
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": _PythonTokens(provider),
    }
    producer = kafka.KafkaProducer(**settings)
    assert producer.send(topic, b"by kafka-python").get(60).offset == 0
    producer.close()


def client_properties(directory: Path, provider: Provider, secret: str = SECRET) -> Path:
    path = directory / "client.properties"
    keys = {
        "security.protocol": LISTENER,
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{MODULE} {provider.trust};",
        "sasl.login.callback.handler.class": f"{MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": provider.server.url("/tokens"),
        "sasl.oauthbearer.client.credentials.client.id": CLIENT,
        "sasl.oauthbearer.client.credentials.client.secret": secret,
    }
    path.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    return path


def test_java_logs_in(
    secured: Server, provider: Provider, java_tool: Callable[..., str], tmp_path: Path, topic: str
) -> None:
    arguments = ["--bootstrap-server", secured.bootstrap, "--topic", topic]
    config = ["--command-config", str(client_properties(tmp_path, provider))]
    java_tool(PRODUCER, *arguments, *config, stdin="by Java\n")
    read = java_tool(CONSUMER, *arguments, *config, "--from-beginning", "--max-messages", "1")
    assert read == "by Java\n"


@pytest.mark.parametrize("command", [("topics", "create", "by-command"), ("topics", "list"), ("transactions", "list")])
def test_kafkapys_commands_log_in(
    secured: Server, provider: Provider, tmp_path: Path, capfd: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    """Over librdkafka, and over connections of our own."""
    path = client_properties(tmp_path, provider)
    assert main([*command, "-b", secured.bootstrap, "--command-config", str(path)]) == 0


def test_a_key_that_is_new_is_found(secured: Server, provider: Provider, topic: str) -> None:
    """The provider changes its key: the first token with it is refused, and has the broker read the keys again."""
    before, reads = provider.key, provider.server.count("/keys")
    provider.key = SigningKey("two", "RS256")
    provider.server.routes["/keys"] = give_keys(before, provider.key)
    provider.server.routes["/tokens"] = give_tokens(provider.key, CLIENT, SECRET, lifetime_s=LIFETIME_S)
    producer = Producer(oidc(secured, provider))
    producer.produce(topic, b"with a new key")
    assert producer.flush(60) == 0
    assert provider.server.count("/keys") == reads + 1
