"""Stock clients that log in, with the right password and with a wrong one, over plain connections and over TLS.

PLAIN's passwords are the broker's own configuration; SCRAM's users are made by kafka-configs.sh and by librdkafka.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import kafka
import kafka.errors
import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient

from harness.certificates import make_certificate
from harness.listeners import listener_keys
from harness.servers import Server, free_port
from tests.compat.conftest import new_server
from tests.support.logins import MECHANISMS_ENABLED, PLAIN_MODULE, SCRAM_MODULE, jaas_keys
from tests.support.scram_users import add_user

PASSWORD = "s3cret=, ;"
USER = "alice"
CONFIGS, PRODUCER, CONSUMER = (
    "org.apache.kafka.tools.ConfigCommand",
    "org.apache.kafka.tools.ConsoleProducer",
    "org.apache.kafka.tools.consumer.ConsoleConsumer",
)


class Secured:
    """A broker with a listener of each SASL protocol; `certificate` is what its clients trust."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        keys, self.certificate = make_certificate(directory)
        self.ports = {name: free_port() for name in ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL", "CONTROLLER")}
        properties = {
            **listener_keys(self.ports),
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self.ports['CONTROLLER']}",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS_ENABLED),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(keys),
        }
        for listener in ("SASL_PLAINTEXT", "SASL_SSL"):
            properties |= jaas_keys(listener, mechanisms=MECHANISMS_ENABLED, users={USER: PASSWORD})
        self.server: Server = new_server(directory / "data", properties)
        self.server.port = self.ports["PLAINTEXT"]

    def bootstrap(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"

    def librdkafka(self, listener: str, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap(listener),
            "security.protocol": listener,
            "sasl.mechanism": mechanism,
            "sasl.username": USER,
            "sasl.password": password,
            "ssl.ca.location": str(self.certificate),
            "log_level": 0,
        }

    def java(self, mechanism: str, password: str = PASSWORD) -> str:
        """Return a file of client properties, for the listener with TLS."""
        module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
        path = self.directory / f"{mechanism}-{len(password)}.properties"
        path.write_text(
            "security.protocol=SASL_SSL\nssl.truststore.type=PEM\n"
            f"ssl.truststore.location={self.certificate}\nsasl.mechanism={mechanism}\n"
            f'sasl.jaas.config={module} username="{USER}" password="{password}";\n'
        )
        return str(path)


@pytest.fixture(scope="module")
def secured(tmp_path_factory, java_tool) -> Iterator[Secured]:
    found = Secured(tmp_path_factory.mktemp("sasl"))
    with found.server:
        credential = f"SCRAM-SHA-256=[iterations=8192,password={PASSWORD.replace(',', '')}]"
        users = ["--entity-type", "users", "--entity-name", USER]
        plain = ["--bootstrap-server", found.bootstrap("PLAINTEXT")]
        reported = java_tool(CONFIGS, *plain, "--alter", *users, "--add-config", credential)
        assert f"Completed updating config for user {USER}." in reported
        admin = AdminClient({"bootstrap.servers": found.bootstrap("PLAINTEXT")})
        add_user(found.bootstrap("PLAINTEXT"), USER, PASSWORD)
        described = admin.describe_user_scram_credentials([USER])[USER].result(60)
        assert [info.iterations for info in described.scram_credential_infos] == [4096, 4096]
        yield found


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", MECHANISMS_ENABLED)
def test_librdkafka_logs_in(secured, topic, listener, mechanism) -> None:
    producer = Producer(secured.librdkafka(listener, mechanism))
    producer.produce(topic, b"by confluent-kafka")
    assert producer.flush(60) == 0


def test_kcat_logs_in(secured, run_kcat, topic) -> None:
    """With PLAIN: SCRAM of librdkafka before 2.6.1 sends its nonce twice, which Apache Kafka refuses, too."""
    settings = secured.librdkafka("SASL_SSL", "PLAIN")
    options = [part for key, value in settings.items() for part in ("-X", f"{key}={value}") if key != "log_level"]
    run_kcat("-P", "-t", topic, *options, stdin="by kcat\n")
    assert run_kcat("-C", "-t", topic, "-o", "beginning", "-e", "-q", *options) == "by kcat\n"


@pytest.mark.parametrize(
    ("mechanism", "reported"),
    [
        ("PLAIN", "Authentication failed: Invalid username or password"),
        ("SCRAM-SHA-512", "due to invalid credentials with SASL mechanism SCRAM-SHA-512"),
    ],
)
def test_librdkafka_reports_a_wrong_password(secured, mechanism, reported) -> None:
    errors: list[KafkaError] = []
    consumer = Consumer(
        {**secured.librdkafka("SASL_PLAINTEXT", mechanism, "wrong"), "group.id": "g", "error_cb": errors.append}
    )
    refused = lambda: [each for each in errors if each.code() == KafkaError._AUTHENTICATION]  # noqa: E731
    while not refused():
        consumer.poll(1)
    consumer.close()
    assert reported in refused()[0].str()


@pytest.mark.parametrize("mechanism", MECHANISMS_ENABLED)
async def test_aiokafka_logs_in(secured, topic, mechanism) -> None:
    settings = {
        "bootstrap_servers": secured.bootstrap("SASL_PLAINTEXT"),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
    }

    async with aiokafka.AIOKafkaProducer(**settings, sasl_plain_password=PASSWORD) as producer:
        await producer.send_and_wait(topic, b"by aiokafka")
    consumer = aiokafka.AIOKafkaConsumer(topic, **settings, sasl_plain_password=PASSWORD, auto_offset_reset="earliest")
    async with consumer:
        assert (await consumer.getone()).value == b"by aiokafka"
    wrong = aiokafka.AIOKafkaProducer(**settings, sasl_plain_password="wrong")
    with pytest.raises(aiokafka.errors.KafkaError):
        await wrong.start()
    await wrong.stop()


@pytest.mark.parametrize("mechanism", MECHANISMS_ENABLED)
def test_kafka_python_logs_in(secured, topic, mechanism) -> None:
    settings = {
        "bootstrap_servers": secured.bootstrap("SASL_PLAINTEXT"),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
    }
    producer = kafka.KafkaProducer(**settings, sasl_plain_password=PASSWORD)
    assert producer.send(topic, b"by kafka-python").get(60).offset == 0
    producer.close()


def test_java_logs_in(secured, java_tool: Callable[..., str], topic) -> None:
    server = ("--bootstrap-server", secured.bootstrap("SASL_SSL"), "--topic", topic)
    java_tool(PRODUCER, *server, "--command-config", secured.java("SCRAM-SHA-512"), stdin="by java\n")
    read = ("--from-beginning", "--max-messages", "1", "--command-config", secured.java("PLAIN"))
    assert java_tool(CONSUMER, *server, *read) == "by java\n"


def test_java_reports_a_wrong_password(secured, java_tool) -> None:
    with pytest.raises(AssertionError, match=r"SaslAuthenticationException: .*invalid credentials with SASL mechanism"):
        java_tool(
            CONFIGS, "--bootstrap-server", secured.bootstrap("SASL_SSL"), "--describe", "--entity-type", "topics",
            "--command-config", secured.java("SCRAM-SHA-256", "wrong"),
        )  # fmt: skip
