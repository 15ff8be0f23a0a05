"""Groups of Apache Kafka that librdkafka does not know, in the console: share and streams groups, with members."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from starlette.testclient import TestClient

from harness.servers import QUICK_JVM, ApacheKafka, java, temporary_in
from kafkapy.console.app import new_app
from kafkapy.console.settings import Settings
from tests.support import topics
from tests.support.committed import commit
from tests.support.eventually import eventually
from tests.support.group_configs import set_group_configs
from tests.support.streams_applications import application_command
from tests.support.wire import WireClient
from tools.kafka import JAVA_LIBS, STREAMS_LIBS

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.environ.get("KAFKAPY_COMPAT_SERVER") == "apache", reason="it starts Apache Kafka as it is"),
    pytest.mark.skipif(not JAVA_LIBS.is_dir() or shutil.which("java") is None, reason="`make tools` brings the jars"),
]
PROGRAM = Path(__file__).with_name("StreamsGroup.java")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    node = ApacheKafka(tmp_path_factory.mktemp("kafka") / "data", {"offsets.topic.num.partitions": "1"})
    node.heap, node.jvm_options = "256m", QUICK_JVM
    with node:
        for name in ("orders", "copies"):
            topics.create(node.bootstrap, name, partitions=2)
        consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "plain"})
        commit(consumer, TopicPartition("orders", 0, 0))
        consumer.close()
        yield node.bootstrap


@pytest.fixture(scope="module")
def page(kafka: str) -> Iterator[TestClient]:
    with TestClient(new_app(Settings(servers=kafka)), base_url="http://127.0.0.1:8080") as client:
        yield client


@contextmanager
def running(command: list[str]) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def text_of(page: TestClient, path: str, **query: str) -> str:
    response = page.get(path, params=query)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", response.text)) if response.status_code == 200 else ""


def test_a_share_group_is_listed_and_shown_with_its_members_and_lag(kafka: str, page: TestClient) -> None:
    read_from_the_beginning(kafka, "sharers")
    consumer = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
    options = ["--bootstrap-server", kafka, "--topic", "orders", "--group", "sharers"]
    with running(java(consumer, *options, heap="128m", options=QUICK_JVM)):
        eventually(lambda: re.search(r"sharers Share share Stable", text_of(page, "/groups")))
        assert re.search(r"plain Classic \S+ Empty", text_of(page, "/groups"))
        eventually(lambda: re.search(r"Members 1 .*console-share-consumer.*orders-1", group(page, "sharers")))
        produce(kafka)
        eventually(lambda: re.search(r"Lag 0 .* orders 1 \d+ 5 0", group(page, "sharers")))
    produce(kafka)
    eventually(lambda: re.search(r"Lag 5 .* orders 1 \d+ 10 5", group(page, "sharers")))
    assert "they are no kafkapy brokers" in group(page, "sharers"), "what is in flight, Apache Kafka does not tell"
    planned = text_of(page, "/group/reset", name="sharers", topic="orders:1", to="3")
    assert re.search(r"orders 1 \d+ 3 ", planned)
    eventually(lambda: re.search(r"sharers 5", text_of(page, "/topic/groups", name="orders")))
    assert page.get("/group", params={"name": "missing"}).status_code == 404


def read_from_the_beginning(bootstrap: str, share_group: str) -> None:
    with WireClient(bootstrap) as client:
        set_group_configs(client, share_group, share_auto_offset_reset="earliest")


def produce(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(5):
        producer.produce("orders", str(number), partition=1)
    assert producer.flush(60) == 0


@pytest.mark.skipif(not STREAMS_LIBS.is_dir(), reason="`make tools` brings Kafka Streams")
def test_a_streams_group_is_listed_and_shown_with_its_tasks(kafka: str, page: TestClient, tmp_path: Path) -> None:
    arguments = [kafka, "copiers", "orders", "copies", str(tmp_path / "state")]
    options = [*QUICK_JVM, temporary_in(tmp_path)]
    with running(application_command(PROGRAM, *arguments, options=options)):
        eventually(lambda: re.search(r"copiers Streams streams Stable", text_of(page, "/groups")))
        eventually(lambda: re.search(r"Type Streams .*Assignor sticky .*Runs .*0_0 0_1", group(page, "copiers")))
        shown = group(page, "copiers")
        assert re.search(r"Topology .*orders 2 partitions .*Subtopology 0 2 tasks .*All 2 tasks are run", shown)
        assert re.search(r"Tasks by process .*StreamThread-1-consumer \(/127.0.0.1\) 0_0 0_1", shown)


def group(page: TestClient, name: str) -> str:
    return text_of(page, "/group", name=name)
