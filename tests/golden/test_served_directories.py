"""Apache Kafka 4.3.1's data directories, started on by a broker process: clients read what they read from Kafka.

Then the process is killed and started again, and after that written to: nothing of the old is lost or moved.
"""

import gzip
import json
import signal
import tarfile
import time
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, ResourceType

from harness.servers import Kafkapy
from kafkapy.types import uuid_from_string, uuid_to_string
from tests.support.client_requests import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    batch_of,
    batches_in,
    consume,
    fetch,
    list_offset,
    metadata,
    produce,
)
from tests.support.features import feature_levels
from tests.support.wire import WireClient

GOLDEN = Path(__file__).parent
LEVELS = {"read_uncommitted": 0, "read_committed": READ_COMMITTED}
INTERNAL_TOPIC = {"cleanup.policy": "compact", "segment.bytes": "104857600"}
CONFIGS = {
    "plain": {"file.delete.delay.ms": "1000", "segment.bytes": "1048576", "index.interval.bytes": "512"},
    "compacted": {
        "cleanup.policy": "compact",
        "max.compaction.lag.ms": "1000",
        "min.compaction.lag.ms": "0",
        "segment.ms": "1000",
        "min.cleanable.dirty.ratio": "0.01",
    },
    "txn": {},
    "codec-gzip": {},
    "codec-snappy": {},
    "codec-lz4": {},
    "codec-zstd": {},
    "__consumer_offsets": {**INTERNAL_TOPIC, "compression.type": "producer"},
    "__transaction_state": {
        **INTERNAL_TOPIC,
        "compression.type": "uncompressed",
        "min.insync.replicas": "1",
        "unclean.leader.election.enable": "false",
    },
}
"""What the topics of the first two directories were created with."""

Key = tuple[str, str, int]
"""(isolation, topic, partition)."""


@pytest.fixture
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kafkapy]:
    """A broker process on a copy of the directory that the test is parametrized with."""
    with tarfile.open(GOLDEN / f"kafka_data_dir_{request.param}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    with Kafkapy(tmp_path / "data", {"log.cleaner.enable": "false"}) as running:
        yield running


both = pytest.mark.parametrize("broker", ["clean", "unclean"], indirect=True)
of_4_4_0 = pytest.mark.parametrize("broker", ["clean_4.4.0"], indirect=True)
standalone = pytest.mark.parametrize("broker", ["standalone"], indirect=True)


@cache
def expected(release: str = "") -> tuple[dict[Key, list[dict[str, Any]]], dict[Key, tuple[int, int]]]:
    """Return by partition and isolation what was read: the records, and the first and the end offset."""
    records: dict[Key, list[dict[str, Any]]] = defaultdict(list)
    bounds = {}
    with gzip.open(GOLDEN / f"kafka_data_dir_expected{release}.jsonl.gz", "rt") as lines:
        for row in map(json.loads, lines):
            key = (row.pop("isolation"), row.pop("topic"), row.pop("partition"))
            if "end_offset" in row:
                bounds[key] = (row["log_start_offset"], row["end_offset"])
            else:
                records[key].append(row)
    return records, bounds


@cache
def expected_standalone() -> dict[str, Any]:
    result: dict[str, Any] = json.loads((GOLDEN / "kafka_data_dir_standalone_expected.json").read_text())
    return result


def kill_and_restart(broker: Kafkapy) -> None:
    assert broker.stop(signal.SIGKILL) == -signal.SIGKILL
    broker.start()


# -- reading --------------------------------------------------------------------------------------------------------


def read_with_confluent_kafka(bootstrap: str, isolation: str, release: str = "") -> dict[Key, list[dict[str, Any]]]:
    """Read partitions from their beginnings to their ends, as an application does."""
    settings = {"enable.partition.eof": True, "enable.auto.commit": False, "fetch.wait.max.ms": 20}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "isolation.level": isolation, **settings})
    rows: dict[Key, list[dict[str, Any]]] = {key: [] for key in expected(release)[1] if key[0] == isolation}
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for _, topic, partition in rows])
    unfinished = set(rows)
    deadline = time.monotonic() + 60
    while unfinished:
        assert time.monotonic() < deadline, f"no end of {unfinished}"
        message = consumer.poll(1.0)
        if message is None:
            continue
        key = (isolation, message.topic(), message.partition())
        if message.error() is None:
            rows[key].append(row_of(message))
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            unfinished.discard(key)
    consumer.close()
    return rows


def row_of(message: Any) -> dict[str, Any]:
    return {
        "offset": message.offset(),
        "timestamp": message.timestamp()[1],
        "key": in_hex(message.key()),
        "value": in_hex(message.value()),
        "headers": [[name, in_hex(value)] for name, value in message.headers() or ()],
    }


def read_with_the_codec(client: WireClient, topic_id: bytes, key: Key) -> list[dict[str, Any]]:
    isolation, _, partition = key
    start, end = expected()[1][key]
    options: dict[str, int] = {"partition": partition, "isolation_level": LEVELS[isolation]}
    return [
        {
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
            "key": in_hex(record.key),
            "value": in_hex(record.value),
            "headers": [[name, in_hex(value)] for name, value in record.headers],
        }
        for record in consume(client, topic_id, offset=start, end_offset=end, **options)
    ]


def in_hex(value: bytes | None) -> str | None:
    return None if value is None else bytes(value).hex()


def topic_ids(directory: Path) -> dict[str, str]:
    """Return what Kafka wrote into the folders of the partitions."""
    files = [path for path in directory.glob("*/partition.metadata") if path.parent.name != "__cluster_metadata-0"]
    return {path.parent.name.rpartition("-")[0]: path.read_text().split("topic_id: ")[1].strip() for path in files}


def dynamic_configs(bootstrap: str, topics: list[str]) -> dict[str, dict[str, str]]:
    """Return what was set on each topic itself."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    results = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic) for topic in topics])
    source = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {
        resource.name: {name: entry.value for name, entry in result.result(60).items() if entry.source == source}
        for resource, result in results.items()
    }


# -- what is served -------------------------------------------------------------------------------------------------


def assert_all_is_served(broker: Kafkapy, *, added: int = 0) -> None:
    """Compare every record of every partition at its isolation levels, and the bounds, with what Kafka served."""
    records, bounds = expected()
    ids = topic_ids(broker.directory)
    with WireClient(broker.bootstrap) as client:
        for key, (start, end) in bounds.items():
            isolation, topic, partition = key
            requested: dict[str, int] = {"partition": partition, "isolation_level": LEVELS[isolation]}
            assert list_offset(client, topic, EARLIEST, **requested).offset == start
            assert list_offset(client, topic, LATEST, **requested).offset == end + added
            assert read_with_the_codec(client, uuid_from_string(ids[topic]), key) == records[key], key


def assert_stock_client_reads_all(bootstrap: str) -> None:
    for isolation in LEVELS:
        for key, rows in read_with_confluent_kafka(bootstrap, isolation).items():
            assert rows == expected()[0][key], key


@both
def test_serves_a_stock_client_the_records_that_kafka_served_and_again_after_kill_9(broker: Kafkapy) -> None:
    assert_stock_client_reads_all(broker.bootstrap)
    kill_and_restart(broker)
    assert_stock_client_reads_all(broker.bootstrap)


@of_4_4_0
def test_serves_a_directory_of_4_4_0_which_keeps_its_level(broker: Kafkapy) -> None:
    """metadata.version 33, share.version 2: before and after kill -9."""
    for _ in range(2):
        for isolation in LEVELS:
            records = read_with_confluent_kafka(broker.bootstrap, isolation, "_4.4.0")
            assert records == {key: expected("_4.4.0")[0][key] for key in records}
        kill_and_restart(broker)
    with WireClient(broker.bootstrap) as client:
        assert feature_levels(client)["metadata.version"] == 33


@both
def test_goes_on_where_kafka_stopped(broker: Kafkapy) -> None:
    """New records follow the old ones, and with them survive kill -9; a clean stop and a third start keep them, too."""
    assert_all_is_served(broker)
    ends = {(topic, partition): end for (_, topic, partition), (_, end) in expected()[1].items()}
    produced = produce_one_to_each(broker.bootstrap, list(ends))
    assert produced == ends
    kill_and_restart(broker)
    assert_all_is_served(broker, added=1)
    assert_last_records_are(broker.bootstrap, produced)
    assert broker.stop() == 0
    broker.start()
    assert_all_is_served(broker, added=1)
    assert_last_records_are(broker.bootstrap, produced)


def produce_one_to_each(bootstrap: str, partitions: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Return the offsets of the new records; their values name their partitions."""
    offsets = {}

    def delivered(error: KafkaError | None, message: Any) -> None:
        assert error is None, error
        offsets[message.topic(), message.partition()] = message.offset()

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for topic, partition in partitions:
        producer.produce(topic, f"{topic}-{partition}", "new", partition=partition, on_delivery=delivered)
    assert producer.flush(60) == 0
    return offsets


def assert_last_records_are(bootstrap: str, produced: dict[tuple[str, int], int]) -> None:
    with WireClient(bootstrap) as client:
        for (topic, partition), offset in produced.items():
            for isolation_level in LEVELS.values():
                options: dict[str, int] = {"partition": partition, "isolation_level": isolation_level}
                rows = consume(client, topic, offset=offset, end_offset=offset + 1, **options)
                assert [(row.offset, row.value) for row in rows] == [(offset, f"{topic}-{partition}".encode())]


@both
def test_keeps_ids_configs_and_leader_epochs(broker: Kafkapy) -> None:
    with WireClient(broker.bootstrap) as client:
        response = metadata(client)
        assert (response.cluster_id, [node.node_id for node in response.brokers]) == ("AAAAAAAAAAAAAAAAAAAAAQ", [1])
        assert {topic.name: uuid_to_string(topic.topic_id) for topic in response.topics} == topic_ids(broker.directory)
        for topic in response.topics:
            assert len(topic.partitions) == len(list(broker.directory.glob(f"{topic.name}-[0-9]*")))
            assert all(partition.leader_id == 1 and partition.error_code == 0 for partition in topic.partitions)
            assert topic.is_internal == topic.name.startswith("__")
    assert dynamic_configs(broker.bootstrap, list(CONFIGS)) == CONFIGS


@both
def test_lists_the_aborted_transactions_of_what_it_returns(broker: Kafkapy) -> None:
    """As the .txnindex says, rising by first offset; a fetch that begins behind one does not name it."""
    with WireClient(broker.bootstrap) as client:
        response = fetch(client, "txn", isolation_level=READ_COMMITTED)
        aborted = response.aborted_transactions
        assert [entry.first_offset for entry in aborted] == sorted(entry.first_offset for entry in aborted)
        named = {(entry.producer_id, entry.first_offset) for entry in aborted}
        assert named == set(transactions_that_aborted(response))
        assert len(named) == 2
        assert response.last_stable_offset == response.high_watermark == 66
        assert fetch(client, "txn").aborted_transactions is None
        after = fetch(client, "txn", 65, isolation_level=READ_COMMITTED)
        assert not after.aborted_transactions


def transactions_that_aborted(response: Any) -> Iterator[tuple[int, int]]:
    """Yield (producer id, first offset) of each transaction that an abort marker ends in what was fetched."""
    open_since: dict[int, int] = {}
    for batch in batches_in(response):
        if not batch.is_control:
            if batch.is_transactional:
                open_since.setdefault(batch.producer_id, batch.base_offset)
            continue
        first_offset = open_since.pop(batch.producer_id)
        (marker,) = batch.records()
        if marker.key == b"\0\0\0\0":
            yield batch.producer_id, first_offset


@both
def test_compaction_left_gaps_that_a_fetch_goes_over(broker: Kafkapy) -> None:
    rows = expected()[0]["read_uncommitted", "compacted", 0]
    offsets = [row["offset"] for row in rows]
    gaps = [offset for offset in range(400) if offset not in set(offsets)]
    assert gaps
    with WireClient(broker.bootstrap) as client:
        for gap in gaps[::40]:
            wanted = [offset for offset in offsets if offset > gap]
            found = [record.offset for record in consume(client, "compacted", offset=gap, end_offset=400)]
            assert found == wanted


# -- kraft.version 1, a trimmed metadata log ------------------------------------------------------------------------


def assert_standalone_is_served(broker: Kafkapy) -> None:
    wanted = expected_standalone()
    with WireClient(broker.bootstrap) as client:
        response = metadata(client)
        assert response.cluster_id == wanted["cluster_id"]
        assert [node.node_id for node in response.brokers] == [wanted["node_id"]]
        topics = {name: (facts["topic_id"], facts["partitions"]) for name, facts in wanted["topics"].items()}
        served = {topic.name: (uuid_to_string(topic.topic_id), len(topic.partitions)) for topic in response.topics}
        assert served == topics
        for topic, count in wanted["records"].items():
            assert end_of(client, topic, wanted["topics"][topic]["partitions"]) == count
    configs = {name: facts["configs"] for name, facts in wanted["topics"].items()}
    assert dynamic_configs(broker.bootstrap, list(configs)) == configs


def end_of(client: WireClient, topic: str, partition_count: int) -> int:
    """Return the sum of the records that can be read of a topic, each partition from 0 to its end."""
    total = 0
    for partition in range(partition_count):
        end = list_offset(client, topic, LATEST, partition=partition).offset
        total += len(list(consume(client, topic, offset=0, end_offset=end, partition=partition)))
    return total


@standalone
def test_serves_a_directory_with_a_trimmed_metadata_log_and_again_after_kill_9(broker: Kafkapy) -> None:
    assert_standalone_is_served(broker)
    kill_and_restart(broker)
    assert_standalone_is_served(broker)


@standalone
def test_a_standalone_directory_takes_topics_and_records(broker: Kafkapy) -> None:
    with WireClient(broker.bootstrap) as client:
        old_id = uuid_from_string(expected_standalone()["topics"]["after-snapshot"]["topic_id"])
        assert produce(client, old_id, batch_of(3)).base_offset == 1
    kill_and_restart(broker)
    with WireClient(broker.bootstrap) as client:
        assert fetch(client, old_id, 1).high_watermark == 4
        assert metadata(client, "t3").topics[0].error_code == 3, "deleted topics stay deleted"
