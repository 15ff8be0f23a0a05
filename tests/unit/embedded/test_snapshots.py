"""Snapshots: filled once, given to many brokers, of which each writes to its own."""

import json
import os
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kafkapy.embedded import snapshots
from kafkapy.testing import Broker, FaultError, Snapshot, SnapshotError
from tests.support.topic_contents import messages

TIMEOUT_S = 60


def produce(broker: Broker, *values: bytes) -> None:
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for value in values:
        producer.produce("orders", value, partition=0, on_delivery=lambda error, _: failed.append(error))
        producer.flush(TIMEOUT_S)
    assert failed == [None] * len(values)


def values(broker: Broker) -> list[bytes]:
    return [message.value() or b"" for message in messages(broker.client_config(), "orders")]


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    """Of a topic with three segments, of which the last two are active or closed, and a committed offset."""
    with Broker() as broker:
        broker.create_topics("orders", partitions=1, configs={"segment.bytes": 1_048_576})
        produce(broker, b"a" * 900_000, b"b" * 900_000, b"c")
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
        consumer.commit(offsets=[TopicPartition("orders", 0, 2)], asynchronous=False)
        consumer.close()
        found = broker.snapshot(tmp_path_factory.mktemp("snapshots") / "filled")
        produce(broker, b"later")
        assert values(broker)[2:] == [b"c", b"later"], "the broker goes on"
        return found


def test_each_broker_has_the_data_and_writes_to_its_own(snapshot: Snapshot) -> None:
    with Broker(snapshot=snapshot) as first, Broker(snapshot=str(snapshot.path)) as second:
        produce(first, b"first's")
        produce(second, b"second's")
        assert [len(value) for value in values(first)[:2]] == [900_000, 900_000]
        assert values(first)[2:] == [b"c", b"first's"]
        assert values(second)[2:] == [b"c", b"second's"]
        consumer = Consumer({"bootstrap.servers": first.bootstrap_servers, "group.id": "g"})
        assert consumer.committed([TopicPartition("orders", 0)], TIMEOUT_S)[0].offset == 2
        consumer.close()
    with Broker(snapshot=snapshot) as third:
        assert values(third)[2:] == [b"c"]


def test_what_a_broker_appends_to_is_its_own(snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "FICLONE", 0)  # a file system without copy on write
    with Broker(snapshot=snapshot) as broker:
        links = {path.name: path.stat().st_nlink for path in snapshot.data_dir.glob("orders-0/*")}
        active = max(name for name in links if name.endswith(".log")).removesuffix(".log")
        own = {f"{active}{suffix}" for suffix in (".log", ".index", ".timeindex")}
        assert own <= {name for name, count in links.items() if count == 1}
        assert {name for name, count in links.items() if count > 1} >= {
            "partition.metadata",
            "00000000000000000000.log",
        }
        with pytest.raises(FaultError, match="shares the segment of offset 0 with a snapshot"):
            broker.faults.corrupt("orders", 0, 0)
        broker.faults.corrupt("orders", 0, 2)
    with Broker(snapshot=snapshot) as other:
        assert values(other)[2:] == [b"c"]


def test_nothing_of_a_snapshot_changes_while_brokers_run_from_it(snapshot: Snapshot) -> None:
    def contents() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in snapshot.path.rglob("*") if path.is_file()}

    before = contents()
    with Broker(snapshot=snapshot) as broker:
        produce(broker, b"more")
        broker.delete_topics("orders")
        broker.restart()
    assert contents() == before


def test_a_data_dir_keeps_what_begins_with_a_snapshot(snapshot: Snapshot, tmp_path: Path) -> None:
    with Broker(tmp_path / "data", snapshot=snapshot) as broker:
        produce(broker, b"kept")
    with Broker(tmp_path / "data") as broker:
        assert values(broker)[2:] == [b"c", b"kept"]
    with pytest.raises(SnapshotError, match="has data already: name an empty data_dir"):
        Broker(tmp_path / "data", snapshot=snapshot).__enter__()


def test_what_is_no_snapshot_or_a_newer_one_is_refused_by_name(snapshot: Snapshot, tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match=r"is no snapshot: broker\.snapshot"):
        Broker(snapshot=tmp_path)
    (tmp_path / "snapshot.json").write_text(json.dumps({"format": 2, "kafkapy": "9.1.0"}))
    with pytest.raises(SnapshotError, match=r"is a snapshot of kafkapy 9\.1\.0: it has the format 2, this is kafkapy"):
        Snapshot(tmp_path)
    (tmp_path / "snapshot.json").write_text("{}")
    with pytest.raises(SnapshotError, match="cannot be read"):
        Snapshot(tmp_path)
    with Broker() as broker, pytest.raises(SnapshotError, match="is not empty"):
        broker.snapshot(tmp_path)
    two = {"log.dirs": f"{tmp_path}/one,{tmp_path}/two"}
    with (
        Broker(properties=two) as broker,
        pytest.raises(SnapshotError, match=r"one log directory, and log\.dirs names"),
    ):
        broker.snapshot()


def test_a_directory_is_not_copied_into_itself(snapshot: Snapshot, tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        with pytest.raises(SnapshotError, match="is within"):
            broker.snapshot(tmp_path / "kept")
        broker.create_topics("orders")
    assert not (tmp_path / "kept").exists()
    with pytest.raises(SnapshotError, match="is within"), Broker(data_dir=snapshot.data_dir / "own", snapshot=snapshot):
        pass


async def test_in_an_async_block() -> None:
    async with Broker() as broker:
        await broker.create_topics_async("orders", partitions=1)
        snapshot = await broker.snapshot_async()
    assert os.path.isdir(snapshot.data_dir / "orders-0")
