"""Sessions that end every two seconds, and wrong passwords: what stock clients make of them.

librdkafka and Java renew their sessions (KIP-368); aiokafka and kafka-python do not, and connect again when the broker
closes on them. Either way a program goes on and loses nothing.
"""

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import kafka
import kafka.errors
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from harness.listeners import node_keys
from harness.servers import Server, free_port
from tests.compat.conftest import new_server
from tests.simulator.crash_enumeration import SOAK_FACTOR
from tests.support.logins import SCRAM_MODULE, jaas_keys
from tests.support.scram_users import add_user
from tools.kafka import kcat

pytestmark = pytest.mark.long

LISTENER = "SASL_PLAINTEXT"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SESSION_MS = 2000
ENDS_AFTER_S = 2.5 * SESSION_MS / 1000
USER, PASSWORD = "alice", "wonder"
PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = new_server(tmp_path_factory.mktemp("sessions") / "data")
    ports = {"PLAINTEXT": server.port, LISTENER: free_port(), "CONTROLLER": free_port()}
    server.properties = {
        **node_keys(ports),
        "offsets.topic.replication.factor": "1",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "connections.max.reauth.ms": str(SESSION_MS),
        **jaas_keys(LISTENER, mechanisms=MECHANISMS, users={USER: PASSWORD}),
    }
    with server:
        add_user(server.bootstrap, USER, PASSWORD)
        server.port = ports[LISTENER]
        yield server


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name).strip("-")


def python_settings(secured: Server, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    """What aiokafka and kafka-python are given."""
    return {
        "bootstrap_servers": secured.bootstrap,
        "security_protocol": LISTENER,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": password,
    }


def librdkafka(secured: Server, mechanism: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": secured.bootstrap,
        "security.protocol": LISTENER,
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        "log_level": 0,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS if SOAK_FACTOR > 1 else MECHANISMS[-1:])
def test_librdkafka_renews_its_session(secured: Server, topic: str, mechanism: str) -> None:
    errors: list[KafkaError] = []
    producer = Producer(librdkafka(secured, mechanism) | {"error_cb": errors.append})
    consumer = Consumer(librdkafka(secured, mechanism) | {"group.id": topic, "error_cb": errors.append})
    producer.produce(topic, b"first")
    assert producer.flush(60) == 0
    consumer.assign([TopicPartition(topic, 0, 0)])
    read, sent = 0, 1
    ends_at = time.monotonic() + ENDS_AFTER_S
    while time.monotonic() < ends_at or read < sent:
        if time.monotonic() < ends_at:
            producer.produce(topic, b"another")
            assert producer.flush(60) == 0
            sent += 1
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None
        read += 1
    consumer.close()
    assert [each for each in errors if each.code() == KafkaError._AUTHENTICATION] == []


def test_java_renews_its_session(secured: Server, java_tool: Callable[..., str], topic: str, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        f"bootstrap.servers={secured.bootstrap}\nsecurity.protocol={LISTENER}\nsasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={SCRAM_MODULE} username="{USER}" password="{PASSWORD}";\n'
    )
    count = int(20 * ENDS_AFTER_S)
    load = ["--topic", topic, "--num-records", str(count), "--record-size", "10", "--throughput", "20"]
    output = java_tool(PERFORMANCE, *load, "--command-config", str(path))
    assert f"{count} records sent" in output
    assert "SaslAuthenticationException" not in output


async def test_aiokafka_goes_on_after_its_session(secured: Server, topic: str) -> None:
    sent = 0
    async with aiokafka.AIOKafkaProducer(**python_settings(secured, "SCRAM-SHA-256")) as producer:
        ends_at = time.monotonic() + ENDS_AFTER_S
        while time.monotonic() < ends_at or sent < 3:
            await producer.send_and_wait(topic, b"value")
            sent += 1
            await asyncio.sleep(0.1)  # the pace of a program that has little to say
    assert sent > 2


def test_kafka_python_goes_on_after_its_session(secured: Server, topic: str) -> None:
    producer = kafka.KafkaProducer(**python_settings(secured, "SCRAM-SHA-512"), retries=10)
    ends_at = time.monotonic() + ENDS_AFTER_S
    while time.monotonic() < ends_at:
        producer.send(topic, b"value").get(60)
    producer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_python_clients_report_a_wrong_password(secured: Server, mechanism: str) -> None:
    settings = python_settings(secured, mechanism, "wrong")
    with pytest.raises(kafka.errors.KafkaError):
        kafka.KafkaAdminClient(**settings, api_version_auto_timeout_ms=5000).list_topics()

    producer = aiokafka.AIOKafkaProducer(**settings)
    try:
        with pytest.raises(aiokafka.errors.KafkaError):
            await producer.start()
    finally:
        await producer.stop()


def test_kcat_reports_a_wrong_password(secured: Server) -> None:
    program = kcat()
    if program is None:
        pytest.skip("kcat is missing: run `make tools`")
    settings = {**librdkafka(secured, "PLAIN"), "sasl.password": "wrong"}
    options = [part for key, value in settings.items() for part in ("-X", f"{key}={value}") if key != "log_level"]
    done = subprocess.run([program, "-L", "-m", "10", *options], capture_output=True, text=True, timeout=60)
    assert done.returncode
    assert "Authentication failed: Invalid username or password" in done.stderr
