"""Sessions of Python's clients, recorded in front of kafkapy and of Apache Kafka, and replayed to the other one.

What differs between the two is a difference of the brokers, or a value that should be matched by its role.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic
from confluent_kafka import Consumer, KafkaException, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient
from kafka.admin import NewTopic as PythonNewTopic

from kafkapy import Broker
from kafkapy.embedded.loop_thread import LoopThread
from kafkapy.recording.file import RecordingWriter, read
from kafkapy.recording.main import main
from kafkapy.recording.proxy import Recorder
from tests.support.copying import only_soaked
from tests.support.eventually import eventually
from tests.support.quick_kafka import QuickKafka

pytestmark = [pytest.mark.long, pytest.mark.compat, pytest.mark.ours]
TIMEOUT_S = 60
USER, PASSWORD = "alice", "alice-secret"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
PROPERTIES = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
}
WITH_LOGIN = {
    **PROPERTIES,
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        f'{PLAIN_MODULE} username="{USER}" password="{PASSWORD}" user_{USER}="{PASSWORD}";'
    ),
}
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": USER,
    "sasl.password": PASSWORD,
}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The addresses of both brokers."""
    directory = tmp_path_factory.mktemp("apache")
    with Broker(properties=PROPERTIES) as ours, QuickKafka(directory, PROPERTIES) as apache:
        yield {"kafkapy": ours.bootstrap_servers, "apache": apache.bootstrap}


@pytest.fixture(scope="module")
def brokers_with_login(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    directory = tmp_path_factory.mktemp("apache-login")
    with Broker(properties=PROPERTIES, users={USER: PASSWORD}) as ours, QuickKafka(directory, WITH_LOGIN) as apache:
        yield {"kafkapy": ours.bootstrap_servers, "apache": apache.bootstrap}


Wait = Callable[[], None]
"""Waits, past the recorder, until the topic of the session can be used: what is answered until then is chance."""


def wait_until_led(servers: str, name: str, login: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0, **login})

    def is_led() -> bool:
        try:
            numbers = admin.list_topics(name, TIMEOUT_S).topics[name].partitions
            asked = admin.list_offsets({TopicPartition(name, number): OffsetSpec.latest() for number in numbers})
            return all(each.result(TIMEOUT_S) for each in asked.values())
        except (KafkaException, KeyError, ValueError):
            return False

    eventually(is_led)


def confluent_session(servers: str, name: str, wait: Wait, **login: str) -> None:
    """A topic, a transaction that is aborted, one with offsets in it, a group of each protocol, and its end."""
    config = {"bootstrap.servers": servers, "log_level": 0, **login}
    admin = AdminClient(config)
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(TIMEOUT_S)
    wait()
    resource = ConfigResource(ResourceType.TOPIC, name)
    admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    producer = Producer({**config, "transactional.id": name})
    producer.init_transactions(TIMEOUT_S)
    for is_kept in (False, True):
        producer.begin_transaction()
        for number in range(4):
            producer.produce(name, b"value %d" % number, b"key", partition=number % 2, headers=[("h", b"1")])
        assert producer.flush(TIMEOUT_S) == 0
        producer.commit_transaction(TIMEOUT_S) if is_kept else producer.abort_transaction(TIMEOUT_S)
    for protocol in ("classic", "consumer"):
        group = f"{name}-{protocol}"
        settings = {"group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest"}
        consumer = Consumer({**config, **settings, "enable.auto.commit": False})
        consumer.subscribe([name])
        assert len(consumer.consume(4, TIMEOUT_S)) == 4
        producer.begin_transaction()
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT_S)
        producer.commit_transaction(TIMEOUT_S)
        consumer.close()
        admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
        admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)
    admin.delete_topics([name])[name].result(TIMEOUT_S)


def share_session(servers: str, name: str, wait: Wait, **login: str) -> None:
    """A share group of librdkafka's, which acknowledges what it reads."""
    config = {"bootstrap.servers": servers, "log_level": 0, **login}
    admin = AdminClient(config)
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(TIMEOUT_S)
    wait()
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, name, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
    producer = Producer(config)
    for number in range(4):
        producer.produce(name, b"job %d" % number)
    assert producer.flush(TIMEOUT_S) == 0
    found: list[bytes] = []
    with ShareConsumer({**config, "group.id": name}) as consumer:
        consumer.subscribe([name])
        deadline_s = time.monotonic() + TIMEOUT_S
        while len(found) < 4:
            assert time.monotonic() < deadline_s, found
            found.extend(message.value() for message in consumer.poll(1) or ())
        consumer.commit_sync(30.0)
    assert sorted(found) == [b"job %d" % number for number in range(4)]


def aiokafka_session(servers: str, name: str, wait: Wait, **login: str) -> None:
    asyncio.run(asyncio.wait_for(_aiokafka_session(servers, name, wait, _of_python(login)), 2 * TIMEOUT_S))


async def _aiokafka_session(servers: str, name: str, wait: Wait, login: dict[str, str]) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=servers, **login)
    await admin.start()
    await admin.create_topics([AioNewTopic(name, 2, 1)])
    await asyncio.to_thread(wait)
    group = {"group_id": name, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id=name, **login) as producer:
        async with producer.transaction():
            for number in range(4):
                await producer.send_and_wait(name, b"value %d" % number, partition=number % 2)
        async with AIOKafkaConsumer(name, bootstrap_servers=servers, **group, **login) as consumer:
            for _ in range(4):
                await consumer.getone()
            positions = {each: await consumer.position(each) for each in consumer.assignment()}
            async with producer.transaction():
                await producer.send_offsets_to_transaction(positions, name)
            await consumer.commit()
    await admin.describe_consumer_groups([name])
    await admin.delete_topics([name])
    await admin.close()


def kafka_python_session(servers: str, name: str, wait: Wait, **login: str) -> None:
    given = _of_python(login)
    admin = KafkaAdminClient(bootstrap_servers=servers, **given)
    admin.create_topics([PythonNewTopic(name, 2, 1)])
    wait()
    producer = KafkaProducer(bootstrap_servers=servers, transactional_id=name, **given)
    producer.init_transactions()
    producer.begin_transaction()
    for number in range(4):
        producer.send(name, b"value %d" % number, partition=number % 2).get(TIMEOUT_S)
    producer.commit_transaction()
    group = {"group_id": name, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    consumer = KafkaConsumer(name, bootstrap_servers=servers, **group, **given)
    count, deadline_s = 0, time.monotonic() + TIMEOUT_S
    while count < 4:
        assert time.monotonic() < deadline_s, count
        count += sum(map(len, consumer.poll(timeout_ms=1_000).values()))
    consumer.commit()
    consumer.close()
    producer.close()
    admin.delete_topics([name])
    admin.close()


def _of_python(login: dict[str, str]) -> dict[str, str]:
    """Return librdkafka's keys as kafka-python's and aiokafka's arguments."""
    names = {"sasl.username": "sasl_plain_username", "sasl.password": "sasl_plain_password"}
    return {names.get(key, key.replace(".", "_")): value for key, value in login.items()}


SESSIONS = {
    session.__name__: session for session in (confluent_session, share_session, aiokafka_session, kafka_python_session)
}


WITH_LOGIN_TOO = (
    "confluent_session",
    pytest.param("share_session", marks=only_soaked),  # the login of the client before it; 14 s both ways
    "aiokafka_session",
    "kafka_python_session",
)


def record(upstream: str, path: Path, session: str, name: str, login: dict[str, str]) -> None:
    host, _, port = upstream.rpartition(":")
    loop = LoopThread()
    try:
        with path.open("w", encoding="utf-8") as file:
            recorder = Recorder(RecordingWriter(file, upstream, 0), (host, int(port)))
            address = loop.call(lambda: recorder.start("127.0.0.1", 0))
            wait = partial(wait_until_led, upstream, name, login)
            SESSIONS[session](f"{address[0]}:{address[1]}", name, wait, **login)
            loop.call(recorder.stop)
    finally:
        loop.close()


@pytest.mark.parametrize("session", SESSIONS)
@pytest.mark.parametrize(("of", "to"), [("kafkapy", "apache"), ("apache", "kafkapy")])
def test_a_session_has_the_same_responses_at_the_other_broker(
    brokers: dict[str, str], of: str, to: str, session: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "recording.jsonl"
    record(brokers[of], path, session, f"{session}-of-{of}", {})
    status = main("replay", [str(path), "--to", brokers[to], "--all"])
    printed = capsys.readouterr().out
    assert status == 0, printed


@pytest.mark.parametrize("session", WITH_LOGIN_TOO)
@pytest.mark.parametrize(("of", "to"), [("kafkapy", "apache"), ("apache", "kafkapy")])
def test_a_session_of_a_user_who_logs_in_has_too(
    brokers_with_login: dict[str, str],
    of: str,
    to: str,
    session: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path, config = tmp_path / "recording.jsonl", tmp_path / "client.properties"
    record(brokers_with_login[of], path, session, f"{session}-of-{of}", LOGIN)
    assert PASSWORD.encode() not in b"".join(event.frame for event in read(path))
    jaas = f'{PLAIN_MODULE} username="{USER}" password="{PASSWORD}";'
    config.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={jaas}\n", encoding="utf-8"
    )
    status = main("replay", [str(path), "--to", brokers_with_login[to], "--all", "--command-config", str(config)])
    printed = capsys.readouterr().out
    assert status == 0, printed
