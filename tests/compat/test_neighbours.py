"""Programs of Apache Kafka's that live beside a broker: Streams' WordCountDemo, Connect, MirrorMaker 2."""

import json
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from harness.servers import Server, free_port, java
from tests.compat.conftest import QUICK_JVM, new_server
from tests.support.committed import commit
from tests.support.copying import only_soaked
from tests.support.eventually import eventually
from tools.kafka import NEIGHBOUR_LIBS, NEIGHBOUR_STREAMS_LIBS, NEIGHBOUR_VERSION, kafka_libs

pytestmark = pytest.mark.long

LOGGING = "-Dlog4j2.level=WARN"
END_TIMEOUT_S = 180
QUICK_START = {"plugin.discovery": "service_load"}
"""Without a look at each class of each jar."""

FILE = "org.apache.kafka.connect.file.FileStream"
PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}


def write(path: Path, settings: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


class Program:
    """A context manager over one of their processes, which ends it as Ctrl-C would."""

    def __init__(self, log: Path, main_class: str, *arguments: Path) -> None:
        libs = [kafka_libs(NEIGHBOUR_VERSION), NEIGHBOUR_LIBS, NEIGHBOUR_STREAMS_LIBS]
        options = [*QUICK_JVM.split(), LOGGING]
        self._command = java(main_class, *map(str, arguments), heap="256m", libs=libs, options=options)
        self._log = log

    def __enter__(self) -> Self:
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise

    def printed(self) -> str:
        return self._log.read_text(errors="replace")


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    """One for all of them, and one that MirrorMaker copies to."""
    if not NEIGHBOUR_LIBS.is_dir() or shutil.which("java") is None:
        pytest.skip("jars of Apache Kafka or Java are missing: run `make tools`")
    with ExitStack() as stack:
        started = [
            stack.enter_context(new_server(tmp_path_factory.mktemp(name) / "data", PROPERTIES))
            for name in ("first", "second")
        ]
        yield started[0], started[1]


@pytest.fixture
def broker(brokers: tuple[Server, Server]) -> Server:
    return brokers[0]


def create(broker: Server, *topics: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic(each, partitions, 1, config=config or {}) for each in topics]).values():
        future.result(60)


def produce(broker: Server, topic: str, *values: str, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(60) == 0


class Reader:
    """A context manager: all records of a topic's first partition, read committed."""

    def __init__(self, broker: Server, topic: str) -> None:
        settings = {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False}
        self._consumer = Consumer({**settings, "topic.metadata.refresh.interval.ms": 500})
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self.records: list[tuple[bytes | None, bytes | None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self._consumer.close()

    def poll(self) -> None:
        """Take all that came within half a second: a call for each record would take `eventually` 0.1 s for each."""
        messages = self._consumer.consume(1000, 0.5)
        self.records += [(message.key(), message.value()) for message in messages if message.error() is None]

    def values(self) -> list[str]:
        self.poll()
        return [(value or b"").decode() for _, value in self.records]


# -- Streams


def test_the_word_count_demo_counts(broker: Server, tmp_path: Path) -> None:
    create(broker, "streams-plaintext-input", "streams-wordcount-output")
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "state.dir": str(tmp_path / "state"),
        "commit.interval.ms": "100",
    }
    demo = "org.apache.kafka.streams.examples.wordcount.WordCountDemo"
    with (
        Program(tmp_path / "log", demo, write(tmp_path / "demo", settings)),
        Reader(broker, "streams-wordcount-output") as counts,
    ):
        produce(broker, "streams-plaintext-input", "all streams lead to kafka", "hello kafka streams")

        def counted() -> bool:
            counts.poll()
            last = {(key or b"").decode(): int.from_bytes(value or b"", "big") for key, value in counts.records}
            return last == {"all": 1, "streams": 2, "lead": 1, "to": 1, "kafka": 2, "hello": 1}

        eventually(counted, what="the count")


# -- Connect


def worker(broker: Server, **settings: str) -> dict[str, str]:
    text = "org.apache.kafka.connect.storage.StringConverter"
    of_all = {"bootstrap.servers": broker.bootstrap, "key.converter": text, "value.converter": text, **QUICK_START}
    return of_all | {key.replace("_", "."): value for key, value in settings.items()}


def source(file: Path, topic: str) -> dict[str, str]:
    return {"connector.class": f"{FILE}SourceConnector", "tasks.max": "1", "file": str(file), "topic": topic}


def sink(file: Path, topic: str) -> dict[str, str]:
    return {"connector.class": f"{FILE}SinkConnector", "tasks.max": "1", "file": str(file), "topics": topic}


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def append(path: Path, *texts: str) -> None:
    with open(path, "a") as file:
        file.writelines(f"{text}\n" for text in texts)


def test_a_standalone_worker_takes_lines_through_a_topic_and_goes_on_where_it_was(
    broker: Server, tmp_path: Path
) -> None:
    create(broker, "connected")
    read, written = tmp_path / "read", tmp_path / "written"
    append(read, "one", "two")
    offsets = {"offset_storage_file_filename": str(tmp_path / "offsets"), "offset_flush_interval_ms": "500"}
    files = [
        write(tmp_path / "worker", worker(broker, listeners=f"http://127.0.0.1:{free_port()}", **offsets)),
        write(tmp_path / "source", {"name": "a-source"} | source(read, "connected")),
        write(tmp_path / "sink", {"name": "a-sink"} | sink(written, "connected")),
    ]
    for added, wanted in (([], ["one", "two"]), (["three"], ["one", "two", "three"])):
        append(read, *added)
        with Program(tmp_path / "log", "org.apache.kafka.connect.cli.ConnectStandalone", *files):
            eventually(lambda wanted=wanted: lines(written) == wanted, what="all lines")


class Rest:
    """The REST listener of a distributed worker."""

    def __init__(self) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        """Return what it answers; None where it refuses or does not answer yet."""
        data = None if body is None else json.dumps(body).encode()
        requested = urllib.request.Request(self.url + path, data, {"content-type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(requested, timeout=60) as response:
                return json.loads(response.read() or b"{}")
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return None

    def is_running(self, name: str) -> bool:
        status = self("GET", f"/connectors/{name}/status") or {"tasks": []}
        return [each["state"] for each in status["tasks"]] == ["RUNNING"]


@pytest.mark.parametrize("support", [pytest.param("disabled", marks=only_soaked), "enabled"])
def test_a_distributed_worker_keeps_its_state_in_topics(broker: Server, tmp_path: Path, support: str) -> None:
    """With exactly-once support each batch of a source, and its offsets, are one transaction."""
    topic = f"distributed-{support}"
    create(broker, topic)
    read, written, rest = tmp_path / "read", tmp_path / "written", Rest()
    append(read, *map(str, range(100)))
    storage = {
        f"{kind}.storage.{key}": value
        for kind in ("offset", "config", "status")
        for key, value in (("topic", f"{kind}s-{support}"), ("replication.factor", "1"), ("partitions", "1"))
    }
    del storage["config.storage.partitions"]
    settings = worker(
        broker,
        group_id=f"workers-{support}",
        listeners=rest.url,
        exactly_once_source_support=support,
        offset_flush_interval_ms="500",
        scheduled_rebalance_max_delay_ms="0",
    )
    file = write(tmp_path / "worker", settings | storage)
    wanted = list(map(str, range(100)))
    for is_new in (True, False):
        with Program(tmp_path / "log", "org.apache.kafka.connect.cli.ConnectDistributed", file):
            for name, config in (("in", source(read, topic)), ("out", sink(written, topic))):
                path = f"/connectors/{name}-{support}"
                if is_new:
                    eventually(
                        lambda path=path, config=config: rest("PUT", f"{path}/config", config), what="a connector"
                    )
                name_ = path.rpartition("/")[2]
                eventually(lambda name_=name_: rest.is_running(name_), what="a task")
            eventually(lambda: lines(written) == wanted, what="all lines")
        wanted.append("after the restart")
        append(read, wanted[-1])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for kind in ("offset", "config", "status"):
        requested = ConfigResource(ResourceType.TOPIC, f"{kind}s-{support}")
        assert admin.describe_configs([requested])[requested].result(60)["cleanup.policy"].value == "compact"


# -- MirrorMaker 2


def test_mirror_maker_copies_topics_configs_and_groups(brokers: tuple[Server, Server], tmp_path: Path) -> None:
    first, second = brokers
    create(first, "mirrored", partitions=2, config={"retention.ms": "123456789"})
    values = [f"record {number}" for number in range(1000)]
    produce(first, "mirrored", *values)
    consumer = Consumer({"bootstrap.servers": first.bootstrap, "group.id": "moved", "enable.auto.commit": False})
    commit(consumer, TopicPartition("mirrored", 0, 1000))
    consumer.close()
    replications = ("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic", "offset.storage", "status.storage")
    intervals = ("refresh.topics", "refresh.groups", "sync.topic.configs", "sync.topic.acls", "emit.checkpoints")
    settings = {
        **QUICK_START,
        "clusters": "first, second",
        "first.bootstrap.servers": first.bootstrap,
        "second.bootstrap.servers": second.bootstrap,
        "first->second.enabled": "true",
        "second->first.enabled": "false",
        "topics": "mirrored",
        "groups": "moved",
        "replication.factor": "1",
        "config.storage.replication.factor": "1",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "1",
        "offset.lag.max": "0",
        **{f"{each}.replication.factor": "1" for each in replications},
        **{f"{each}.interval.seconds": "1" for each in intervals},
    }
    file = write(tmp_path / "mm2.properties", settings)
    admin = AdminClient({"bootstrap.servers": second.bootstrap})
    with (
        Program(tmp_path / "log", "org.apache.kafka.connect.mirror.MirrorMaker", file) as program,
        Reader(second, "first.mirrored") as copied,
    ):
        eventually(lambda: copied.values() == values, 240, what="the copy")

        def synced() -> bool:
            client = AdminClient({"bootstrap.servers": second.bootstrap})
            (future,) = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions("moved")]).values()
            found = {(each.topic, each.partition): each.offset for each in future.result(60).topic_partitions}
            return found.get(("first.mirrored", 0)) == 1000

        eventually(synced, what="the group's offset")
        requested = ConfigResource(ResourceType.TOPIC, "first.mirrored")
        eventually(
            lambda: admin.describe_configs([requested])[requested].result(60)["retention.ms"].value == "123456789"
        )
        eventually(lambda: len(admin.list_topics("first.mirrored", 60).topics["first.mirrored"].partitions) == 2)
        produce(first, "mirrored", "one more")
        values.append("one more")
        eventually(lambda: copied.values() == values, what="the next record")
    assert "syncing topic ACLs" not in program.printed()
