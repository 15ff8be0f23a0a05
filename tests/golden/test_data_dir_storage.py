"""Apache Kafka 4.3.1's own data directories, opened by our storage: they serve what Kafka's consumers read from them.

And our files are Kafka's: indexes, transaction indexes and producer snapshots that we rebuild have its bytes.
"""

import gzip
import json
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kafkapy.config.log import LogConfig
from kafkapy.record.batches import batches
from kafkapy.storage import checkpoint
from kafkapy.storage.log.local_log import SharedByLogs
from kafkapy.storage.log.log import Log
from kafkapy.storage.log.lookup import offset_for_timestamp, offset_of_max_timestamp
from kafkapy.storage.log.opening import open_log
from kafkapy.storage.log.reader import FetchIsolation
from kafkapy.storage.manager.log_manager import LogManager
from kafkapy.storage.producers.state import ProducerState, decode_snapshot
from kafkapy.storage.recovery.loader import LastStop
from kafkapy.storage.system_disk import SystemDisk
from kafkapy.types import METADATA_PARTITION, TopicPartition, uuid_to_string
from tests.support.chance import SeededRandom
from tests.support.logs import load_logs

GOLDEN = Path(__file__).parent
NOW_MS = 1795225200000
NEVER_EXPIRES_MS = 1 << 60
ISOLATIONS = {"read_uncommitted": FetchIsolation.HIGH_WATERMARK, "read_committed": FetchIsolation.TXN_COMMITTED}


@cache
def expected(release: str = "") -> tuple[dict[tuple[str, str, int], list[dict[str, Any]]], list[dict[str, Any]]]:
    """Return the records by (isolation, topic, partition), and the rows that tell start and end offsets."""
    records: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    bounds = []
    with gzip.open(GOLDEN / f"kafka_data_dir_expected{release}.jsonl.gz", "rt") as lines:
        for row in map(json.loads, lines):
            if "end_offset" in row:
                bounds.append(row)
            else:
                records.setdefault((row["isolation"], row["topic"], row["partition"]), []).append(row)
    return records, bounds


@pytest.fixture
def extracted(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    with tarfile.open(GOLDEN / f"kafka_data_dir_{request.param}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return str(tmp_path / "data")


def started(directory: str) -> LogManager:
    manager = LogManager(
        SystemDisk(),
        [directory],
        LogConfig(),
        random=SeededRandom(1),
    )
    manager.configure_producers(expiration_ms=NEVER_EXPIRES_MS, is_verification_enabled=True)
    manager.directories.lock()
    load_logs(manager, NOW_MS)
    for log in manager.logs.values():
        log.update_high_watermark(log.log_end_offset)
    return manager


def consumed(log: Log, isolation: FetchIsolation, max_bytes: int) -> Iterator[dict[str, Any]]:
    """Yield what a consumer hands out: it reads on from the last offset, skips markers and aborted transactions."""
    offset = log.log_start_offset
    while True:
        read = log.read(offset, max_bytes, isolation=isolation, wait=True)
        if read.region is None:
            return
        aborted = list(read.aborted_transactions or [])
        for batch in batches(read.region.read()):
            is_aborted = batch.is_transactional and any(
                entry.producer_id == batch.producer_id and entry.first_offset <= batch.base_offset < entry.last_offset
                for entry in aborted
            )
            if not batch.is_control and not is_aborted:
                yield from (as_row(record) for record in batch.records() if record.offset >= offset)
        read.region.release()
        offset = batch.next_offset


def as_row(record: Any) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": record.key.hex() if record.key is not None else None,
        "value": record.value.hex() if record.value is not None else None,
        "headers": [[key, value.hex() if value is not None else None] for key, value in record.headers],
    }


@pytest.mark.parametrize("max_bytes", [1, 5000, 1 << 20])
@pytest.mark.parametrize(
    ("extracted", "release"), [("clean", ""), ("unclean", ""), ("clean_4.4.0", "_4.4.0")], indirect=["extracted"]
)
def test_serves_the_records_that_kafka_served(extracted: str, release: str, max_bytes: int) -> None:
    manager = started(extracted)
    records, bounds = expected(release)
    for bound in bounds:
        log = manager.logs[TopicPartition(bound["topic"], bound["partition"])]
        rows = records.get((bound["isolation"], bound["topic"], bound["partition"]), [])
        columns = ("offset", "timestamp", "key", "value", "headers")
        wanted = [{column: row[column] for column in columns} for row in rows]
        assert list(consumed(log, ISOLATIONS[bound["isolation"]], max_bytes)) == wanted
        assert (log.log_start_offset, log.log_end_offset) == (bound["log_start_offset"], bound["end_offset"])
    manager.close()


@pytest.mark.parametrize(("extracted", "release"), [("clean", ""), ("clean_4.4.0", "_4.4.0")], indirect=["extracted"])
def test_finds_records_by_time_as_their_timestamps_say(extracted: str, release: str) -> None:
    manager = started(extracted)
    log = manager.logs[TopicPartition("plain", 0)]
    rows = expected(release)[0]["read_uncommitted", "plain", 0]
    for row in rows[::97]:
        found = offset_for_timestamp(log, row["timestamp"], wait=True)
        assert found is not None
        assert found.offset == next(other["offset"] for other in rows if other["timestamp"] >= row["timestamp"])
    latest = max(row["timestamp"] for row in rows)
    assert offset_for_timestamp(log, latest + 1) is None
    largest = offset_of_max_timestamp(log, wait=True)
    assert largest is not None
    assert (largest.timestamp_ms, largest.leader_epoch) == (latest, 0)
    manager.close()


def binary_files(directory: str, *, also: tuple[str, ...] = ()) -> dict[str, bytes]:
    """Return indexes, transaction indexes and producer snapshots by path."""
    suffixes = (".index", ".timeindex", ".txnindex", ".snapshot", *also)
    paths = (path for path in Path(directory).rglob("*") if path.name.endswith(suffixes))
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


@pytest.mark.parametrize("extracted", ["clean", "standalone"], indirect=True)
def test_a_start_and_a_clean_stop_leave_every_byte_as_it_was(extracted: str) -> None:
    before = all_files(extracted)
    offsets_before = {name: checkpoint_lines(extracted, name) for name in OFFSET_FILES}
    started(extracted).close(broker_epoch=12)
    assert all_files(extracted) == before
    assert {name: checkpoint_lines(extracted, name) for name in OFFSET_FILES} == offsets_before
    assert Path(extracted, ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":12}'


def all_files(directory: str) -> dict[str, bytes]:
    """Return what must not change: but for epochs of empty logs, which begin anew with the next leader, as in Kafka."""
    kept = binary_files(directory, also=(".log", "leader-epoch-checkpoint", "partition.metadata", "meta.properties"))
    empty = {name.partition("/")[0] for name, data in kept.items() if name.endswith(".log") and not data}
    return {
        name: data
        for name, data in kept.items()
        if not (name.partition("/")[0] in empty and name.endswith("leader-epoch-checkpoint"))
    }


OFFSET_FILES = (checkpoint.RECOVERY_POINT_FILE, checkpoint.LOG_START_OFFSET_FILE, checkpoint.HIGH_WATERMARK_FILE)


def checkpoint_lines(directory: str, name: str) -> list[str]:
    return sorted(Path(directory, name).read_text().splitlines())


def rebuilt_files(directory: str) -> dict[str, bytes]:
    """Delete all that can be rebuilt, recover every log from its first byte, stop cleanly; return what is there."""
    for path in list(Path(directory).rglob("*.*")):
        if path.name.endswith((".index", ".timeindex", ".txnindex", ".snapshot")):
            path.unlink()
    for path in sorted(Path(directory).iterdir()):
        if path.is_dir():
            topic, _, partition = path.name.rpartition("-")
            shared = SharedByLogs.by_one(SystemDisk(), str(path))
            log = open_log(
                SystemDisk(),
                str(path),
                TopicPartition(topic, int(partition)),
                LogConfig(),
                now_ms=NOW_MS,
                last_stop=LastStop(was_clean=False),
                shared=shared._replace(
                    new_producer_state=lambda: ProducerState(producer_id_expiration_ms=NEVER_EXPIRES_MS)
                ),
            )
            log.close()
    return binary_files(directory)


@pytest.mark.parametrize("extracted", ["clean"], indirect=True)
def test_rebuilt_indexes_and_snapshots_have_kafkas_bytes(extracted: str) -> None:
    theirs = binary_files(extracted)
    assert sum(len(data) for name, data in theirs.items() if name.endswith(".txnindex")) == 68
    ours = rebuilt_files(extracted)
    assert {name: data.hex() for name, data in ours.items()} == {name: data.hex() for name, data in theirs.items()}


@pytest.mark.parametrize("extracted", ["clean", "standalone"], indirect=True)
def test_producer_snapshots_are_read_and_written_to_the_byte(extracted: str) -> None:
    snapshots = [data for name, data in binary_files(extracted).items() if name.endswith(".snapshot")]
    assert snapshots
    for data in snapshots:
        state = ProducerState(producer_id_expiration_ms=NEVER_EXPIRES_MS)
        state.load(decode_snapshot(data), 0, NOW_MS)
        assert state.encode_snapshot() == data


@pytest.mark.parametrize("extracted", ["unclean"], indirect=True)
def test_leftovers_of_an_unclean_stop_are_put_right(extracted: str) -> None:
    started(extracted).close()
    names = {path.name for path in Path(extracted, "compacted-0").iterdir()}
    assert not any(name.endswith(".deleted") for name in names)
    assert {"00000000000000000000.log", "00000000000000000300.log", "00000000000000000400.snapshot"} <= names
    sizes = {path.name: path.stat().st_size for path in Path(extracted, "plain-0").iterdir()}
    assert (sizes["00000000000000003751.index"], sizes["00000000000000003751.timeindex"]) == (16, 24)


@pytest.mark.parametrize("extracted", ["standalone"], indirect=True)
def test_the_metadata_log_opens_as_a_log(extracted: str) -> None:
    path = f"{extracted}/__cluster_metadata-0"
    log = open_log(
        SystemDisk(), path, METADATA_PARTITION, LogConfig(), now_ms=NOW_MS, last_stop=LastStop(was_clean=False)
    )
    assert log.topic_id == bytes(15) + b"\x01"
    assert log.log_start_offset > 0
    assert sum(1 for _ in all_batches(log)) > 10
    log.close()


def all_batches(log: Log) -> Iterator[Any]:
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, 1 << 20, isolation=FetchIsolation.LOG_END, wait=True)
        assert read.region is not None
        for batch in batches(read.region.read()):
            yield batch
            offset = batch.next_offset
        read.region.release()


@pytest.mark.parametrize("extracted", ["clean"], indirect=True)
def test_identities_are_read(extracted: str) -> None:
    manager = started(extracted)
    meta = manager.directories[0].meta
    assert meta is not None
    assert (meta.cluster_id, meta.node_id) == ("AAAAAAAAAAAAAAAAAAAAAQ", 1)
    assert meta.directory_id is not None
    assert uuid_to_string(meta.directory_id) == "CQ5zGdo25ldOkyFR3Uj-Gg"
    topic_id = manager.logs[TopicPartition("plain", 0)].topic_id
    assert topic_id == manager.logs[TopicPartition("plain", 1)].topic_id is not None
    manager.close()
