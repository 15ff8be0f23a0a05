"""Stock clients, openssl and Java's tools over TLS: one broker with three TLS listeners, of either kind.

SSL asks for no certificate, MTLS requires one and names principals by a rule, JAVA has keytool's JKS and PKCS12 files.
"""

import asyncio
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from cryptography import x509
from cryptography.x509.oid import NameOID
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition

from harness.listeners import node_keys
from harness.servers import API_VERSIONS_FRAME, Server, free_port
from tests.compat.conftest import new_server
from tests.compat.test_cluster import eventually
from tests.support.certificates import Authority, Identity

STORES = Path(__file__).parents[1] / "golden" / "key_stores"
SUITE = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"


def person(name: str) -> x509.Name:
    pairs = [(NameOID.ORGANIZATION_NAME, "Kafkapy, Inc."), (NameOID.COMMON_NAME, name)]
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in pairs])


@dataclass
class Secured:
    """A broker, where its listeners are, and files for its clients."""

    server: Server
    ports: dict[str, int]
    directory: Path
    authority: Authority

    def bootstrap(self, listener: str) -> str:
        return f"localhost:{self.ports[listener]}"

    def librdkafka(self, listener: str = "SSL", identity: str | None = None) -> dict[str, str]:
        settings = {
            "bootstrap.servers": self.bootstrap(listener),
            "security.protocol": "ssl",
            "ssl.ca.location": str(self.directory / "ca.pem"),
        }
        if identity is not None:
            path = str(self.directory / f"{identity}.pem")
            settings |= {"ssl.certificate.location": path, "ssl.key.location": path}
        return settings

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.directory / "ca.pem"))

    def s_client(self, listener: str, *arguments: str, stdin: str = "Q\n") -> str:
        """Run openssl s_client, which ends when it reads Q; return all that it says."""
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{self.ports[listener]}"]
        trusted = ["-CAfile", str(self.directory / "ca.pem"), *arguments]
        done = subprocess.run([*command, *trusted], input=stdin, capture_output=True, text=True, timeout=60)
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("tls")
    authority = Authority()
    (directory / "ca.pem").write_text(authority.certificate_pem)
    people: dict[str, Identity] = {name: authority.issue(person(name)) for name in ("Alice", "Mallory")}
    for name, identity in {"broker": authority.issue("broker", key_number=2), **people}.items():
        identity.write(directory, name)
    authority.issue("first", key_number=2).write(directory, "changing")
    authority.issue("other", key_number=2).write(directory, "other")
    ports = {name: free_port() for name in ("SSL", "MTLS", "JAVA", "CHANGING", "CONTROLLER")}
    server = new_server(directory / "data")
    listeners = {"PLAINTEXT": server.port, **ports}
    pem = {"type": "PEM", "location": str(directory / "broker.pem")}
    properties = {
        **node_keys(listeners, dict.fromkeys(("MTLS", "JAVA", "CHANGING"), "SSL"), "localhost"),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:alice@kafkapy, inc.",
        "offsets.topic.replication.factor": "1",
        "group.initial.rebalance.delay.ms": "0",
        **{f"ssl.keystore.{key}": value for key, value in pem.items()},
        "listener.name.ssl.ssl.cipher.suites": f"TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,{SUITE}",
        "listener.name.mtls.ssl.client.auth": "required",
        "listener.name.mtls.ssl.truststore.type": "PEM",
        "listener.name.mtls.ssl.truststore.location": str(directory / "ca.pem"),
        "listener.name.mtls.ssl.principal.mapping.rules": r"RULE:^CN=(.*?),O=(Kafkapy)\\, (.*)$/$1@$2, $3/L,DEFAULT",
        "listener.name.java.ssl.keystore.type": "PKCS12",
        "listener.name.java.ssl.keystore.location": str(STORES / "keys.p12"),
        "listener.name.java.ssl.keystore.password": "storepass",
        "listener.name.java.ssl.truststore.type": "JKS",
        "listener.name.java.ssl.truststore.location": str(STORES / "trust.jks"),
        "listener.name.java.ssl.client.auth": "requested",
        "listener.name.changing.ssl.keystore.location": str(directory / "changing.pem"),
    }
    server.properties = {key: value.replace("\\", "\\\\") for key, value in properties.items()}
    with server:
        yield Secured(server, ports, directory, authority)


# ---- openssl


@pytest.mark.parametrize(("version", "suite"), [("-tls1_2", "ECDHE-ECDSA-AES128-GCM-SHA256"), ("-tls1_3", "TLS_AES_")])
def test_openssl_agrees_on_version_and_suite(secured: Secured, version: str, suite: str) -> None:
    output = secured.s_client("SSL", version, "-verify_return_error", "-verify_ip", "127.0.0.1")
    assert f"Cipher is {suite}" in output
    assert "Verify return code: 0 (ok)" in output


def test_openssl_is_refused_for_a_suite_or_version_that_is_not_offered(secured: Secured) -> None:
    assert "handshake failure" in secured.s_client("SSL", "-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-GCM-SHA384")
    assert "Cipher is (NONE)" in secured.s_client("SSL", "-tls1_1", "-cipher", "ALL:@SECLEVEL=0")


def test_openssl_shows_a_certificate_where_one_is_required(secured: Secured) -> None:
    path = str(secured.directory / "Alice.pem")
    assert "Verification: OK" in secured.s_client("MTLS", "-tls1_2", "-cert", path, "-key", path)
    output = secured.s_client("MTLS", "-tls1_2")
    assert "alert handshake failure" in output or "alert bad certificate" in output
    assert "Client Certificate Types" in secured.s_client("JAVA", "-tls1_2")
    assert "Client Certificate Types" not in secured.s_client("SSL", "-tls1_2")


@pytest.mark.ours
def test_openssl_comes_back_with_its_session(secured: Secured) -> None:
    """Apache Kafka's sessions cannot be resumed."""
    path = str(secured.directory / "Alice.pem")
    for listener in ("SSL", "MTLS"):
        output = secured.s_client(listener, "-tls1_2", "-reconnect", "-cert", path, "-key", path)
        assert output.count("Reused, TLSv1.2") == 5, listener


@pytest.mark.ours
def test_openssl_may_not_negotiate_anew(secured: Secured) -> None:
    """Apache Kafka closes the connection without a word."""
    output = secured.s_client("SSL", "-tls1_2", stdin="R\n")
    assert "RENEGOTIATING" in output
    assert "no renegotiation" in output


# ---- clients


def produce(settings: dict[str, str], topic: str, count: int, size: int = 100) -> list[KafkaError | None]:
    errors: list[KafkaError | None] = []
    producer = Producer({**settings, "linger.ms": "5", "topic.metadata.refresh.interval.ms": "100"})
    for number in range(count):
        value = b"%d" % number + bytes(size)
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: errors.append(error))
        producer.poll(0)
    assert producer.flush(60) == 0
    return errors


@pytest.mark.parametrize(("listener", "identity"), [("SSL", None), ("MTLS", "Alice")])
def test_confluent_kafka_reads_what_it_wrote(secured: Secured, topic: str, listener: str, identity: str | None) -> None:
    settings = secured.librdkafka(listener, identity)
    assert produce(settings, topic, 3000, 3000) == [None] * 3000
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    while len(values) < 3000:
        for message in consumer.consume(500, 10):
            assert message.error() is None
            values.append(message.value() or b"")
    consumer.close()
    assert [int(value.rstrip(b"\0")) for value in values] == list(range(3000))


def test_a_principal_without_rights_is_refused(secured: Secured, topic: str) -> None:
    assert produce(secured.librdkafka("MTLS", "Alice"), topic, 1) == [None]
    (error,) = produce(secured.librdkafka("MTLS", "Mallory"), topic, 1)
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


async def test_aiokafka_reads_what_it_wrote(secured: Secured, topic: str) -> None:
    settings = {"security_protocol": "SSL", "ssl_context": secured.context()}
    producer = AIOKafkaProducer(bootstrap_servers=secured.bootstrap("SSL"), **settings)
    await producer.start()
    for number in range(50):
        await producer.send(topic, b"%d" % number, partition=0)
    await producer.stop()
    consumer = AIOKafkaConsumer(bootstrap_servers=secured.bootstrap("SSL"), **settings)
    await consumer.start()
    consumer.assign([AioTopicPartition(topic, 0)])
    await consumer.seek_to_beginning()
    values = [(await asyncio.wait_for(consumer.getone(), 60)).value for _ in range(50)]
    await consumer.stop()
    assert values == [b"%d" % number for number in range(50)]


def test_kafka_python_reads_what_it_wrote(secured: Secured, topic: str) -> None:
    settings = {"security_protocol": "SSL", "ssl_context": secured.context()}
    producer = KafkaProducer(bootstrap_servers=secured.bootstrap("SSL"), **settings)
    for number in range(50):
        producer.send(topic, b"%d" % number, partition=0)
    producer.flush()
    producer.close()
    where = {"bootstrap_servers": secured.bootstrap("SSL"), "auto_offset_reset": "earliest"}
    consumer = KafkaConsumer(**where, **settings, consumer_timeout_ms=60_000)
    consumer.assign([PythonPartition(topic, 0)])
    values = [record.value for _, record in zip(range(50), consumer, strict=False)]
    consumer.close()
    assert values == [b"%d" % number for number in range(50)]


def test_kcat_reads_what_it_wrote(secured: Secured, topic: str, run_kcat: Callable[..., str]) -> None:
    options = [part for key, value in secured.librdkafka("MTLS", "Alice").items() for part in ("-X", f"{key}={value}")]
    run_kcat("-P", "-t", topic, *options, stdin="one\ntwo\n")
    assert run_kcat("-C", "-e", "-q", "-t", topic, *options) == "one\ntwo\n"


@pytest.mark.parametrize("trust", ["trust.jks", "trust.p12"])
def test_javas_console_tools_read_what_they_wrote(
    secured: Secured, topic: str, trust: str, java_tool: Callable[..., str], tmp_path: Path
) -> None:
    """With keytool's files on both sides; the client shows a certificate because it is asked for one."""
    settings = tmp_path / "client.properties"
    settings.write_text(
        "security.protocol=SSL\n"
        f"ssl.truststore.location={STORES / trust}\nssl.truststore.password=storepass\n"
        "ssl.keystore.type=PKCS12\n"
        f"ssl.keystore.location={STORES / 'keys.p12'}\nssl.keystore.password=storepass\n"
    )
    java_tool(
        "org.apache.kafka.tools.AclCommand", "--bootstrap-server", secured.server.bootstrap, "--add", "--topic", topic,
        "--allow-principal", r"User:CN=broker,OU=Tests,O=Kafkapy\, Inc.", "--operation", "All",
    )  # fmt: skip
    where = ["--bootstrap-server", secured.bootstrap("JAVA"), "--topic", topic]
    tools = "org.apache.kafka.tools"
    java_tool(f"{tools}.ConsoleProducer", *where, "--command-config", str(settings), stdin="one\ntwo\n")
    reading = ["--from-beginning", "--max-messages", "2", "--partition", "0", "--command-config", str(settings)]
    assert java_tool(f"{tools}.consumer.ConsoleConsumer", *where, *reading) == "one\ntwo\n"


# ---- certificates that change at run time


def test_certificates_are_changed_by_kafka_configs(secured: Secured, java_tool: Callable[..., str]) -> None:
    """Setting the same value reads the file again. A certificate of another name is refused, and the one before stays
    in use; the right to change configs does not suffice to allow another name.

    A broken file is not used either, and only a change to that file is refused.
    """

    def set_config(config: str) -> str:
        return java_tool(
            "org.apache.kafka.tools.ConfigCommand", "--bootstrap-server", secured.server.bootstrap, "--alter",
            "--entity-type", "brokers", "--entity-name", "1", "--add-config", config,
        )  # fmt: skip

    def alter(name: str) -> str:
        return set_config(f"listener.name.changing.ssl.keystore.location={secured.directory / name}.pem")

    def served() -> str:
        return ssl.get_server_certificate(("localhost", secured.ports["CHANGING"]))

    first = secured.directory / "changing.pem"
    open_before = socket.create_connection(("localhost", secured.ports["CHANGING"]))
    with secured.context().wrap_socket(open_before, server_hostname="localhost") as connection:
        with pytest.raises(AssertionError, match="DistinguishedName does not match"):
            alter("other")
        assert "Completed updating config" in set_config("listener.name.changing.ssl.allow.dn.changes=true")
        with pytest.raises(AssertionError, match="DistinguishedName does not match"):
            alter("other")
        assert served() in first.read_text()
        renewed = secured.authority.issue("first", key_number=3)
        renewed.write(secured.directory, "changing")
        assert "Completed updating config" in alter("changing")
        eventually(lambda: served() == renewed.certificate_pem)
        connection.sendall(API_VERSIONS_FRAME)
        assert connection.recv(4)
    eventually(lambda: {served() for _ in range(6)} == {renewed.certificate_pem})  # by each of Apache Kafka's threads
    first.write_text("")
    for config in ("log.retention.ms=600000", f"listener.name.changing.ssl.keystore.location={first}"):
        assert "Completed updating config" in set_config(config)
        assert served() == renewed.certificate_pem
