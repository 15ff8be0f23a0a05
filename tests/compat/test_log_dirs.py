"""Several log directories behind one broker process: where replicas are placed, and how they move while in use."""

import base64
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from kafka import KafkaAdminClient

from harness.servers import ApacheKafka, Server
from tests.compat.conftest import new_server
from tests.compat.test_confluent_kafka import consume
from tests.support.quick_kafka import QuickKafka

pytestmark = pytest.mark.long

THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"
VALUE_BYTES = 20_000
SLOW = 100_000
"""Bytes a second: a move lasts longer than a JVM takes to ask about it."""
LOG_DIR_MOVES = Path(__file__).with_name("LogDirMoves.java")


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    directory = tmp_path_factory.mktemp("directories")
    return [directory / name for name in ("first", "second", "third")]


@pytest.fixture(scope="module")
def several(paths: list[Path]) -> Iterator[Server]:
    """A broker with three log directories; the metadata lies in the first."""
    with new_server(paths[0], {"log.dirs": ",".join(map(str, paths))}) as running:
        yield running


@pytest.fixture
def admin(several: Server) -> AdminClient:
    return AdminClient({"bootstrap.servers": several.bootstrap})


def create(admin: AdminClient, topic: str, partitions: int, **configs: str) -> None:
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(60)


def move(bootstrap: str, topic: str, path: Path) -> str:
    """Have partition 0 moved; return the error's name."""
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        (error,) = client.alter_replica_log_dirs({(topic, 0, 1): str(path)}).values()
        return error.__name__
    finally:
        client.close()


def replicas(bootstrap: str, topic: str) -> list[tuple[str, int, bool, int]]:
    """Return (directory, partition, is_future, lag) of a topic's replicas."""
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        (broker,) = client.describe_log_dirs([topic])
    finally:
        client.close()
    return sorted(
        (result["log_dir"], each["partition_index"], each["is_future_key"], each["offset_lag"])
        for result in (broker.get("results") or broker["log_dirs"])
        for described in result["topics"]
        if described.get("name") == topic
        for each in described["partitions"]
    )


def throttle(admin: AdminClient, bytes_per_second: int | None) -> None:
    operation = AlterConfigOpType.SET if bytes_per_second is not None else AlterConfigOpType.DELETE
    entry = ConfigEntry(THROTTLE, str(bytes_per_second or ""), incremental_operation=operation)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(60)


def wait_for(condition: Callable[[], object], timeout_s: float = 90) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.1)


def place_of(paths: list[Path], topic: str, partition: int = 0) -> Path:
    return next(path for path in paths if (path / f"{topic}-{partition}").is_dir())


def test_new_replicas_go_where_there_are_fewest(admin: AdminClient, paths: list[Path], topic: str) -> None:
    create(admin, topic, 6)
    wait_for(lambda: sum((path / f"{topic}-{n}").is_dir() for path in paths for n in range(6)) == 6)
    assert set(Counter(place_of(paths, topic, partition) for partition in range(6)).values()) == {2}


def test_a_replica_moves_under_load_and_nothing_is_lost(
    several: Server, admin: AdminClient, paths: list[Path], topic: str
) -> None:
    create(admin, topic, 1, segment_bytes="1048576", file_delete_delay_ms="1000")
    offsets: list[int] = []
    is_over = threading.Event()

    def produce() -> None:
        producer = Producer({"bootstrap.servers": several.bootstrap, "enable.idempotence": True})
        while not is_over.is_set():
            value = b"%d " % len(offsets) + bytes(VALUE_BYTES)
            producer.produce(topic, value, on_delivery=lambda error, message: offsets.append(message.offset()))
            producer.poll(0.001)
        assert producer.flush(60) == 0

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        wait_for(lambda: len(offsets) > 500)
        source = place_of(paths, topic)
        for target in [path for path in paths if path != source] + [source]:
            assert move(several.bootstrap, topic, target) == "NoError"
            wait_for(
                lambda target=target: (
                    [(r[0], r[2]) for r in replicas(several.bootstrap, topic)] == [(str(target), False)]
                )
            )
    finally:
        is_over.set()
        thread.join()
    assert offsets == list(range(len(offsets)))
    assert [message.offset() for message in consume(several.bootstrap, topic, len(offsets))] == offsets


def test_a_throttled_move_is_shown_and_survives_kill_9(
    several: Server, admin: AdminClient, paths: list[Path], topic: str, java_tool: Callable[..., str]
) -> None:
    create(admin, topic, 1)
    producer = Producer({"bootstrap.servers": several.bootstrap})
    for _ in range(300):
        producer.produce(topic, os.urandom(VALUE_BYTES))
        producer.poll(0)
    assert producer.flush(60) == 0
    source = place_of(paths, topic)
    target = next(path for path in paths[1:] if path != source)
    throttle(admin, SLOW)
    assert move(several.bootstrap, topic, target) == "NoError"
    wait_for(lambda: any(is_future and 0 < lag < 300 for _, _, is_future, lag in replicas(several.bootstrap, topic)))
    arguments = ["--bootstrap-server", several.bootstrap, "--describe", "--topic-list", topic]
    output = java_tool("org.apache.kafka.tools.LogDirsCommand", *arguments)
    reported = json.loads(output.splitlines()[-1])["brokers"][0]["logDirs"]
    found = {each["logDir"]: each["partitions"] for each in reported}
    assert set(found) == set(map(str, paths))
    assert all(each["error"] is None for each in reported)
    (current,), (future,) = found[str(source)], found[str(target)]
    assert (current["partition"], current["isFuture"], current["offsetLag"]) == (f"{topic}-0", False, 0)
    assert (future["partition"], future["isFuture"]) == (f"{topic}-0", True)
    assert 0 < future["offsetLag"] < 300
    assert 0 < future["size"] < current["size"]
    several.stop(signal.SIGKILL)
    several.start()
    wait_for(lambda: replicas(several.bootstrap, topic))  # Apache Kafka may have gone on with the move by then
    throttle(AdminClient({"bootstrap.servers": several.bootstrap}), None)
    wait_for(lambda: [each[:3] for each in replicas(several.bootstrap, topic)] == [(str(target), 0, False)])
    assert len(consume(several.bootstrap, topic, 300)) == 300


def test_javas_admin_client_moves_a_replica(
    several: Server, admin: AdminClient, paths: list[Path], topic: str, java_tool: Callable[..., str]
) -> None:
    create(admin, topic, 1)
    producer = Producer({"bootstrap.servers": several.bootstrap})
    for _ in range(100):
        producer.produce(topic, os.urandom(VALUE_BYTES))
    assert producer.flush(60) == 0
    source = place_of(paths, topic)
    target = next(path for path in paths if path != source)
    throttle(admin, SLOW)
    try:
        reported = java_tool(str(LOG_DIR_MOVES), several.bootstrap, topic, str(target)).splitlines()
    finally:
        throttle(admin, None)
    assert reported == [
        f"at first: {source} lag 0, future null",
        f"begun: {source} lag 0, future {target}",
        f"moved: {target} lag 0, future null",
        "refused: LogDirNotFoundException",
        "refused: UnknownTopicOrPartitionException",
    ]


def test_what_cannot_be_moved_is_refused(several: Server, admin: AdminClient, paths: list[Path], topic: str) -> None:
    create(admin, topic, 1)
    wait_for(lambda: any((path / f"{topic}-0").is_dir() for path in paths))
    assert move(several.bootstrap, topic, Path("/nowhere")) == "LogDirNotFoundError"
    assert move(several.bootstrap, "no-such-topic", paths[1]) == "UnknownTopicOrPartitionError"
    assert move(several.bootstrap, topic, place_of(paths, topic)) == "NoError"


def test_a_cordoned_directory_gets_no_replicas(
    several: Server, admin: AdminClient, paths: list[Path], topic: str
) -> None:
    def cordon(value: str) -> None:
        entry = ConfigEntry("cordoned.log.dirs", value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(60)

    cordon(f"{paths[0]},{paths[2]}")
    try:
        create(admin, topic, 5)
        wait_for(lambda: all((paths[1] / f"{topic}-{partition}").is_dir() for partition in range(5)))
        assert move(several.bootstrap, topic, paths[2]) == "InvalidReplicationAssignmentError"
    finally:
        cordon("")


def test_the_directories_are_apache_kafkas(several: Server, paths: list[Path], tmp_path: Path) -> None:
    """It starts on what was placed and moved here, each replica where the metadata says."""
    if isinstance(several, ApacheKafka):
        pytest.skip("it is Apache Kafka that runs")
    admin = AdminClient({"bootstrap.servers": several.bootstrap})
    create(admin, "handed-over", 3)
    producer = Producer({"bootstrap.servers": several.bootstrap})
    for number in range(90):
        producer.produce("handed-over", b"%d" % number, partition=number % 3)
    assert producer.flush(60) == 0
    target = next(path for path in paths if path != place_of(paths, "handed-over"))
    assert move(several.bootstrap, "handed-over", target) == "NoError"
    wait_for(lambda: (str(target), 0, False, 0) in replicas(several.bootstrap, "handed-over"))
    several.stop()
    with QuickKafka(paths[0], {"log.dirs": ",".join(map(str, paths))}) as apache:
        wait_for(lambda: len(replicas(apache.bootstrap, "handed-over")) == 3)
        assert (str(target), 0, False, 0) in replicas(apache.bootstrap, "handed-over")
        assert len(consume(apache.bootstrap, "handed-over", 30)) == 30
    several.start()
    assert len(consume(several.bootstrap, "handed-over", 30)) == 30


def test_a_directory_that_cannot_be_read_is_reported_and_the_others_serve(
    several: Server, admin: AdminClient, paths: list[Path], topic: str, java_tool: Callable[..., str]
) -> None:
    before = len(metadata_log(paths[0]))
    create(admin, topic, 3)
    wait_for(lambda: sum((path / f"{topic}-{n}").is_dir() for path in paths for n in range(3)) == 3)
    places = {partition: place_of(paths, topic, partition) for partition in range(3)}
    reported = {directory_id(path): count for path, count in Counter(places.values()).items()}
    wait_for(lambda: all(metadata_log(paths[0]).count(each, before) >= count for each, count in reported.items()))
    failing = next(path for path in places.values() if path != paths[0])
    several.stop()
    identity = (failing / "meta.properties").read_bytes()
    (failing / "meta.properties").write_bytes(b"version=nonsense")
    several.start()
    output = java_tool("org.apache.kafka.tools.LogDirsCommand", "--bootstrap-server", several.bootstrap, "--describe")
    described = json.loads(output.splitlines()[-1])["brokers"][0]["logDirs"]
    errors = {each["logDir"]: each["error"] for each in described}
    assert errors.pop(str(failing)).endswith("KafkaStorageException")
    assert set(errors.values()) == {None}
    assert leaders(several, topic) == {number: -1 if path == failing else 1 for number, path in places.items()}
    several.stop()
    (failing / "meta.properties").write_bytes(identity)
    several.start()
    wait_for(lambda: set(leaders(several, topic).values()) == {1})


def metadata_log(metadata_directory: Path) -> bytes:
    """Return the metadata log, in which the controller notes the directory of each replica once it is told."""
    logs = sorted((metadata_directory / "__cluster_metadata-0").glob("*.log"))
    return b"".join(path.read_bytes() for path in logs)


def directory_id(directory: Path) -> bytes:
    (line,) = [
        line for line in (directory / "meta.properties").read_text().splitlines() if line.startswith("directory.id=")
    ]
    return base64.urlsafe_b64decode(line.partition("=")[2] + "==")


def leaders(server: Server, topic: str) -> dict[int, int]:
    described = AdminClient({"bootstrap.servers": server.bootstrap}).list_topics(topic, timeout=60).topics[topic]
    return {number: partition.leader for number, partition in described.partitions.items()}


def test_metadata_log_dir_serves_one_process_also_where_it_holds_no_logs(tmp_path: Path) -> None:
    shared = {"metadata.log.dir": str(tmp_path / "metadata")}
    first = new_server(tmp_path / "first", shared)
    second = new_server(tmp_path / "second", shared)
    with first:
        second.prepare()
        with pytest.raises(RuntimeError, match="did not start") as refused:
            second.start()
        if not isinstance(second, ApacheKafka):  # whose jars come without a logger
            message = (
                f"Failed to acquire lock on file .lock in {shared['metadata.log.dir']}. A Kafka instance in another "
            )
            assert message in str(refused.value)
        first.stop(signal.SIGKILL)
    with second:
        assert AdminClient({"bootstrap.servers": second.bootstrap}).list_topics(timeout=60).brokers
