"""A broker process kills itself at a named point, between two changes of its files; the next one has all it promised.

What was acknowledged is there: records at their offsets, topics, configs, deletions. What was asked for and not
acknowledged is there or is not.
"""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.servers import Kafkapy
from kafkapy.protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kafkapy.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from kafkapy.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkapy.protocol.messages.init_producer_id_request import InitProducerIdRequest
from kafkapy.server.process.failpoints import VARIABLE
from tests.support.client_requests import (
    EARLIEST,
    LATEST,
    batch_of,
    consume,
    create_topic,
    delete_topic,
    list_offset,
    metadata,
    produce,
)
from tests.support.wire import ConnectionClosed, WireClient

pytestmark = pytest.mark.ours

PROPERTIES = {
    "log.initial.task.delay.ms": "200",
    "log.retention.check.interval.ms": "200",
    "log.flush.offset.checkpoint.interval.ms": "300",
    "log.flush.start.offset.checkpoint.interval.ms": "300",
    "replica.high.watermark.checkpoint.interval.ms": "300",
    "log.cleaner.backoff.ms": "100",
    "internal.metadata.log.segment.bytes": "4000",
    "metadata.log.max.record.bytes.between.snapshots": "2000",
}
SMALL = {"segment_bytes": "1048576", "index_interval_bytes": "300", "file_delete_delay_ms": "300"}
POINTS = (
    "log.index.between=kill@5",
    "log.roll.after_files=kill@2",
    "log.roll.after_trim=kill@3",
    "log.snapshot.before_write=kill@3",
    "log.flush.after_files=kill@2",
    "log.delete.after_rename=kill",
    "log.delete.after_unlink=kill",
    "log.directory.before_rename=kill",
    "log.directory.after_rename=kill",
    "log.swap.before=kill",
    "log.swap.after_swap=kill",
    "log.swap.after_delete=kill",
    "log.swap.after=kill@2",
    "disk.replace.before_rename=kill@4",
    "disk.replace.after_rename=kill@9",
    "quorum.state.before_write=kill",
    "quorum.state.after_write=kill",
    "quorum.log.before_append=kill@9",
    "quorum.log.after_append=kill@12",
    "quorum.log.before_flush=kill@9",
    "quorum.log.after_flush=kill@12",
    "quorum.snapshot.before_sync=kill",
    "quorum.snapshot.before_rename=kill",
    "quorum.snapshot.after_rename=kill",
)


class Promises:
    """What a broker acknowledged over its lives."""

    def __init__(self) -> None:
        self.records: dict[str, dict[int, tuple[bytes | None, bytes | None]]] = {}
        self.log_start: dict[str, int] = {}
        """As asked for: acknowledged, it is written down some time later, as in Apache Kafka."""
        self.deleted: set[str] = set()
        self.is_deleting: set[str] = set()
        self.retention_ms = {"604800000"}
        """Of the topic "plain": the value acknowledged last, or that and one asked for since."""


class User:
    """Works on a broker until it dies: every kind of change that has a failpoint."""

    def __init__(self, client: WireClient, promises: Promises) -> None:
        self.client = client
        self.promises = promises
        self.ids: dict[str, bytes] = {}

    def work(self) -> None:
        """Go on for ever, or until the connection ends."""
        self.create("plain", **SMALL)
        policy = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01", **SMALL}
        self.create("compacted", **policy)
        response = self.client.call(InitProducerIdRequest(transactional_id=None), 5)
        producer: dict[str, Any] = {"producer_id": response.producer_id, "producer_epoch": response.producer_epoch}
        for turn in range(1000):
            self.produce("plain", turn, **producer, base_sequence=turn)
            self.produce("compacted", turn, key=b"k%d" % (turn % 5))
            if turn % 20 == 19:
                self.delete_records("plain", turn - 10)
                self.alter("plain", str(10_000_000 + turn))
            if turn % 50 == 20:
                self.create(f"short-{turn}", **SMALL)
                self.produce(f"short-{turn}", turn)
                self.promises.is_deleting.add(f"short-{turn}")
                delete_topic(self.client, f"short-{turn}")
                self.promises.deleted.add(f"short-{turn}")

    def create(self, name: str, **configs: str) -> None:
        self.ids[name] = create_topic(self.client, name, **configs)
        self.promises.records[name] = {}

    def produce(self, topic: str, turn: int, *, key: bytes | None = None, **fields: Any) -> None:
        value = b"%d " % turn + b"." * 100_000
        response = produce(self.client, self.ids[topic], batch_of(value=value, key=key, **fields))
        assert response.error_code == 0, response
        self.promises.records[topic][response.base_offset] = (key, value)

    def delete_records(self, topic: str, offset: int) -> None:
        requested = DeleteRecordsTopic(topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])
        self.promises.log_start[topic] = offset
        response = self.client.call(DeleteRecordsRequest(topics=[requested], timeout_ms=10_000), 2)
        assert response.topics[0].partitions[0].error_code == 0

    def alter(self, topic: str, value: str) -> None:
        self.promises.retention_ms.add(value)
        resource = AlterConfigsResource(
            2, resource_name=topic, configs=[AlterableConfig("retention.ms", config_operation=0, value=value)]
        )
        response = self.client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert response.responses[0].error_code == 0
        self.promises.retention_ms = {value}


def check(client: WireClient, promises: Promises) -> None:
    names = {topic.name for topic in metadata(client).topics}
    assert promises.records.keys() - promises.is_deleting <= names
    assert not promises.deleted & names
    for topic in promises.records.keys() & names:
        start, end = (list_offset(client, topic, which).offset for which in (EARLIEST, LATEST))
        found = {each.offset: (each.key, each.value) for each in consume(client, topic, offset=start, end_offset=end)}
        known = promises.records[topic]
        assert end > max(known, default=-1)
        assert {offset: each for offset, each in found.items() if offset in known}.items() <= known.items()
        if topic == "compacted":
            latest = last_values(found)
            assert all(latest[key] >= offset for key, offset in last_values(known).items())
        else:
            assert {offset for offset in known if offset >= start} <= found.keys()
            assert start <= promises.log_start.get(topic, 0)
    if "plain" in names:
        requested = DescribeConfigsResource(2, resource_name="plain", configuration_keys=["retention.ms"])
        (result,) = client.call(DescribeConfigsRequest(resources=[requested]), 4).results
        assert {result.configs[0].value} <= promises.retention_ms


def last_values(records: dict[int, tuple[bytes | None, bytes | None]]) -> dict[bytes | None, int]:
    """Return the last offset of each key."""
    return {records[offset][0]: offset for offset in sorted(records)}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Kafkapy]:
    server = Kafkapy(tmp_path / "data", PROPERTIES)
    yield server
    server.stop()


@pytest.mark.parametrize("point", POINTS, ids=[point.partition("=")[0] for point in POINTS])
def test_nothing_acknowledged_is_lost(broker: Kafkapy, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    promises = Promises()
    monkeypatch.setenv(VARIABLE, point)
    try:
        broker.start()
        with WireClient(broker.bootstrap) as client:
            User(client, promises).work()
    except (ConnectionClosed, OSError, RuntimeError):
        pass  # it died, at its start or later
    process = broker.process
    assert process is None or process.wait(60) == -signal.SIGKILL
    monkeypatch.delenv(VARIABLE)
    broker.start()
    with WireClient(broker.bootstrap) as client:
        check(client, promises)
