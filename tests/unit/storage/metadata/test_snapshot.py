"""Metadata snapshots: Apache Kafka's bytes read and rebuilt, damage found, what a crash leaves."""

import io
import tarfile
from pathlib import Path

import pytest

from kafkapy.errors import StorageError
from kafkapy.raft.voters import Endpoint
from kafkapy.storage.metadata.snapshot import (
    SnapshotFacts,
    SnapshotReader,
    SnapshotStore,
    SnapshotWriter,
    parse_name,
    snapshot_name,
    snapshots_to_trim_to,
)
from kafkapy.types import OffsetAndEpoch, uuid_from_string
from tests.simulator.disk import SimDisk

LATEST = OffsetAndEpoch(990, 1)
ARCHIVE = Path("tests/golden/kafka_data_dir_standalone.tar.gz")


def golden(name: str) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(ARCHIVE.read_bytes())) as archive:
        member = next(each for each in archive.getmembers() if each.name.endswith(f"__cluster_metadata-0/{name}"))
        file = archive.extractfile(member)
        assert file is not None
        return file.read()


@pytest.fixture(scope="module")
def snapshot_bytes() -> bytes:
    return golden(snapshot_name(LATEST))


def on_disk(data: bytes, snapshot_id: OffsetAndEpoch = LATEST) -> SimDisk:
    disk = SimDisk()
    disk.make_directory("/log")
    disk.write_file_atomically(f"/log/{snapshot_name(snapshot_id)}", data)
    return disk


def test_a_snapshot_of_apache_kafka_is_read(snapshot_bytes: bytes) -> None:
    reader = SnapshotReader(on_disk(snapshot_bytes), "/log", LATEST)
    assert reader.last_contained_log_timestamp_ms == 1795228317015
    assert reader.kraft_version == 1
    assert reader.voters is not None
    voter = reader.voters.get(3)
    assert voter is not None
    assert voter.key.directory_id == uuid_from_string("LeqMXqJJQseQMWuar_bOUQ")
    assert voter.endpoints == (Endpoint("CONTROLLER", "127.0.0.1", 28393),)
    assert [len(values) for values in reader.batches()] == [103]


@pytest.mark.parametrize("name", [snapshot_name(LATEST), f"{snapshot_name(OffsetAndEpoch(0, 0))}.deleted"])
def test_a_snapshot_is_written_as_apache_kafka_writes_it(name: str) -> None:
    """Byte for byte but for the clock, which moves while Kafka writes: its footer is some milliseconds younger."""
    data = golden(name)
    parsed = parse_name(name)
    assert parsed is not None
    snapshot_id = parsed[0]
    reader = SnapshotReader(on_disk(data, snapshot_id), "/log", snapshot_id)
    disk = SimDisk()
    disk.make_directory("/log")
    writer = SnapshotWriter(
        disk,
        "/log",
        snapshot_id,
        last_contained_log_timestamp_ms=reader.last_contained_log_timestamp_ms,
        now_ms=int.from_bytes(data[27:35], "big"),
        kraft_version=reader.kraft_version,
        voters=reader.voters,
    )
    for values in reader.batches():
        writer.append(values)
    writer.finish()
    writer.sync()
    writer.freeze()
    footer_bytes = 75
    written = disk.read_file(f"/log/{snapshot_name(snapshot_id)}")
    assert written[:-footer_bytes] == data[:-footer_bytes]
    assert len(written) == len(data)
    assert written[-14:] == data[-14:]


def test_every_damaged_byte_is_found(snapshot_bytes: bytes) -> None:
    small = golden(f"{snapshot_name(OffsetAndEpoch(0, 0))}.deleted")
    disk = on_disk(small, OffsetAndEpoch(0, 0))
    path = f"/log/{snapshot_name(OffsetAndEpoch(0, 0))}"
    harmless = 0
    for position in range(len(small)):
        disk.write_file_atomically(path, small[:position] + bytes([small[position] ^ 1]) + small[position + 1 :])
        try:
            SnapshotReader(disk, "/log", OffsetAndEpoch(0, 0)).check()
            harmless += 1
        except StorageError:
            pass
    assert harmless <= 24, "base offset and leader epoch of two batches are outside of their CRC"


@pytest.mark.parametrize("kept", [0, 1, 11, 60, 166, 241 - 75, 240])
def test_a_snapshot_that_is_cut_is_refused(kept: int) -> None:
    small = golden(f"{snapshot_name(OffsetAndEpoch(0, 0))}.deleted")
    with pytest.raises(StorageError, match="is damaged"):
        SnapshotReader(on_disk(small[:kept], OffsetAndEpoch(0, 0)), "/log", OffsetAndEpoch(0, 0)).check()


def test_what_a_crash_left_is_removed_and_the_rest_listed(snapshot_bytes: bytes) -> None:
    disk = on_disk(snapshot_bytes)
    for suffix in (".part", ".deleted"):
        disk.write_file_atomically(f"/log/{snapshot_name(OffsetAndEpoch(995, 1))}{suffix}", b"x")
    disk.write_file_atomically("/log/00000000000000000990.log", b"")
    store = SnapshotStore(disk, "/log")
    store.clear_remains()
    assert store.complete() == [LATEST]
    assert disk.list_directory("/log") == [snapshot_name(LATEST), "00000000000000000990.log"]


def test_snapshots_go_in_two_steps(snapshot_bytes: bytes) -> None:
    disk = on_disk(snapshot_bytes)
    store = SnapshotStore(disk, "/log")
    store.schedule_deletion([LATEST], due_ms=100)
    assert store.complete() == []
    store.delete_due_snapshots(99)
    assert disk.list_directory("/log") == [f"{snapshot_name(LATEST)}.deleted"]
    store.delete_due_snapshots(100)
    assert disk.list_directory("/log") == []


def facts(*sizes_and_times: tuple[int, int]) -> list[SnapshotFacts]:
    return [SnapshotFacts(OffsetAndEpoch(10 * n, 1), *each) for n, each in enumerate(sizes_and_times, 1)]


@pytest.mark.parametrize(
    ("max_bytes", "max_age_ms", "kept_from"),
    [
        (-1, -1, None),
        (360, -1, None),
        (359, -1, 20),
        (259, -1, 30),
        (0, 0, 30),
        (-1, 500, 20),
        (-1, 100, 30),
    ],
)
def test_the_prefix_goes_by_size_and_age_but_the_latest_snapshot_stays(
    max_bytes: int, max_age_ms: int, kept_from: int | None
) -> None:
    found = snapshots_to_trim_to(
        facts((100, 400), (100, 600), (60, 900)),
        log_bytes=100,
        max_bytes=max_bytes,
        max_age_ms=max_age_ms,
        now_ms=1000,
    )
    assert (found.offset if found else None) == kept_from
