"""The quorum's driver in virtual time: one voter on its disk, Apache Kafka's directories."""

import asyncio
import errno
import io
import itertools
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from kafkapy.config.quorum import QuorumConfig
from kafkapy.errors import ApiError, StorageError
from kafkapy.raft.effects import WriteSnapshotPart
from kafkapy.raft.events import SnapshotInstalled, SnapshotRefused
from kafkapy.raft.voters import Endpoint, VoterSet, static_voter
from kafkapy.runtime.quorum.exchange import SnapshotDownload
from kafkapy.runtime.quorum.identity import MetadataDirectory, QuorumIdentity
from kafkapy.runtime.quorum.quorum import NotLeaderError, Quorum
from kafkapy.runtime.quorum.snapshots import AFTER_START_MS, REPLAYED_BYTES
from kafkapy.seams import System
from kafkapy.storage.metadata.snapshot import parse_name, snapshot_name
from kafkapy.types import OffsetAndEpoch, ReplicaKey, uuid_from_string
from tests.simulator.disk import SimDisk
from tests.simulator.io_pool import SimIoPool
from tests.simulator.loop import SimClock, SimLoop, run
from tests.support.chance import SeededRandom
from tests.support.quorums import (
    DIRECTORY,
    ValueList,
    append,
    committed,
    format_standalone,
    new_quorum,
)
from tools.kafka import JAVA_LIBS

SMALL = QuorumConfig(
    internal_metadata_log_segment_bytes=600,
    metadata_log_max_record_bytes_between_snapshots=500,
    metadata_max_retention_bytes=1500,
    internal_metadata_delete_delay_millis=0,
)


def standalone() -> SimDisk:
    disk = SimDisk()
    format_standalone(disk)
    disk.changes = 0
    return disk


async def test_a_new_standalone_directory_gets_its_voters_into_the_log(loop: SimLoop) -> None:
    disk, listener = standalone(), ValueList()
    quorum = new_quorum(loop, disk, listener=listener)
    await quorum.start()
    assert (quorum.leader_id, quorum.leader_epoch, quorum.is_leader) == (1, 1, True)
    assert (quorum.high_watermark, quorum.log_end_offset, quorum.finalized_kraft_version) == (3, 3, 1)
    assert listener.leaders == [(1, 1)]
    assert await append(quorum, b"a", b"b") == 4
    assert listener.values == [b"a", b"b"]
    await quorum.close()
    assert b'"data_version":1' in disk.read_file(f"{DIRECTORY}/quorum-state")


async def test_epochs_rise_with_every_start_and_records_stay(loop: SimLoop) -> None:
    disk = standalone()
    for epoch in range(1, 5):
        listener = ValueList()
        quorum = new_quorum(loop, disk, listener=listener)
        await quorum.start()
        assert listener.leaders == [(1, epoch)]
        assert listener.values == [b"%d" % former for former in range(1, epoch)]
        await append(quorum, b"%d" % epoch)
        await quorum.close()


async def test_a_changed_port_goes_into_the_voters_record(loop: SimLoop) -> None:
    disk = standalone()
    for port in (9093, 9999, 9999):
        quorum = new_quorum(loop, disk, port=port)
        await quorum.start()
        assert quorum.voters.endpoints_of(1) == (Endpoint("CONTROLLER", "localhost", port),)
        await quorum.close()
    assert quorum.log_end_offset == 3 + 3 + 1, "LeaderChange alone where nothing changed"


async def test_a_listener_may_append_as_it_becomes_leader(loop: SimLoop) -> None:
    listener = ValueList()
    quorum = new_quorum(loop, standalone(), listener=listener)
    offsets: list[int] = []
    listener.on_leader = lambda _, epoch: offsets.append(quorum.append([b"first"], epoch))
    await quorum.start()
    await committed(quorum, offsets[0])
    assert listener.values == [b"first"]
    await quorum.close()


async def test_many_appends_share_an_fsync(loop: SimLoop) -> None:
    disk, listener = standalone(), ValueList()
    quorum = new_quorum(loop, disk, listener=listener)
    await quorum.start()
    syncs: list[str] = []
    disk.hook = lambda operation, path: syncs.append(path) if operation == "sync" else None
    for number in range(100):
        quorum.append([b"%d" % number], 1)
    assert listener.values == []
    await committed(quorum, quorum.log_end_offset - 1)
    assert len(listener.values) == 100
    assert len([path for path in syncs if path.endswith(".log")]) <= 2
    await quorum.close()


async def test_nothing_is_committed_before_its_fsync_ends(loop: SimLoop) -> None:
    disk, listener = standalone(), ValueList()
    quorum = new_quorum(loop, disk, listener=listener)
    await quorum.start()
    disk.hook = lambda operation, path: loop.block(2000) if operation == "sync" else None
    offset = quorum.append([b"slow"], 1)
    await asyncio.sleep(1.9)
    assert quorum.high_watermark == offset
    assert listener.values == []
    await committed(quorum, offset)
    assert loop.now >= 2
    disk.hook = None
    await quorum.close()


async def test_a_failed_fsync_stops_the_process(loop: SimLoop) -> None:
    disk, fatal = standalone(), list[BaseException]()
    quorum = new_quorum(loop, disk, on_fatal=fatal.append)
    await quorum.start()
    disk.fail("sync", errno.EIO, path=".log")
    offset = quorum.append([b"lost"], 1)
    with pytest.raises(StorageError):
        await committed(quorum, offset)
    assert isinstance(fatal[0], StorageError)
    assert quorum.high_watermark == offset
    with pytest.raises(StorageError):
        quorum.append([b"more"], 1)
    await quorum.close()


async def test_only_the_leader_of_the_epoch_appends(loop: SimLoop) -> None:
    quorum = new_quorum(loop, standalone())
    await quorum.start()
    with pytest.raises(NotLeaderError):
        quorum.append([b"x"], 0)
    with pytest.raises(ApiError, match="bytes of metadata records"):
        quorum.append([bytes(5 << 20), bytes(4 << 20)], 1)
    await quorum.close()
    with pytest.raises(NotLeaderError):
        quorum.append([b"x"], 1)


async def test_a_leader_that_resigns_is_elected_again(loop: SimLoop) -> None:
    listener = ValueList()
    quorum = new_quorum(loop, standalone(), listener=listener)
    await quorum.start()
    quorum.resign(1)
    assert not quorum.is_leader
    await quorum.wait_until(lambda: (1, 3) in listener.leaders)
    assert listener.leaders == [(1, 1), (-1, 1), (1, 3)]
    await append(quorum, b"x")
    await quorum.close()


async def test_snapshots_are_taken_and_the_prefix_goes(loop: SimLoop) -> None:
    disk, listener = standalone(), ValueList()
    quorum = new_quorum(loop, disk, listener=listener, config=SMALL)
    await quorum.start()
    for number in range(60):
        await append(quorum, b"%020d" % number)
    await asyncio.sleep(61)
    assert quorum.log_start_offset > 0
    names = disk.list_directory(DIRECTORY)
    snapshots = [parsed for name in names if (parsed := parse_name(name))]
    assert all(suffix == ".checkpoint" for _, suffix in snapshots)
    assert quorum.log_start_offset in [snapshot_id.offset for snapshot_id, _ in snapshots]
    assert quorum.latest_snapshot_id == max(snapshots)[0]
    segments = sorted(name for name in names if name.endswith(".log"))
    assert 0 < int(segments[0][:20]) <= quorum.log_start_offset
    await quorum.close()
    again = ValueList()
    quorum = new_quorum(loop, disk, listener=again, config=SMALL)
    await quorum.start()
    assert again.loaded == [max(snapshots)[0]]
    assert again.values == listener.values
    assert quorum.finalized_kraft_version == 1
    await quorum.close()


@pytest.mark.parametrize(
    ("operation", "path", "code"),
    [("open", ".checkpoint", errno.EMFILE), ("rename", ".log", errno.ENOSPC), ("rename", ".checkpoint", errno.ENOSPC)],
)
async def test_a_shortage_delays_the_clean_up_and_the_node_goes_on(
    loop: SimLoop, operation: str, path: str, code: int
) -> None:
    disk, fatal = standalone(), list[BaseException]()
    quorum = new_quorum(loop, disk, listener=ValueList(), config=SMALL, on_fatal=fatal.append)
    await quorum.start()
    failed: list[str] = []

    def fail_once(found: str, where: str) -> None:
        if found == operation and where.endswith(path) and not failed:
            failed.append(where)
            raise OSError(code, os.strerror(code), where)

    disk.hook = fail_once
    for number in range(60):
        await append(quorum, b"%020d" % number)
    assert failed
    await asyncio.sleep(61)
    disk.hook = None
    assert not fatal
    snapshots = [parsed[0].offset for name in disk.list_directory(DIRECTORY) if (parsed := parse_name(name))]
    assert quorum.log_start_offset == min(snapshots) > 0
    await append(quorum, b"on")
    await quorum.close()


async def test_a_snapshot_that_a_bug_ends_is_followed_by_others(loop: SimLoop) -> None:
    def broken() -> Iterator[list[bytes]]:
        yield [b"v"]
        raise ValueError("planted")

    class Faulty(ValueList):
        has_failed = False

        def snapshot(self) -> tuple[OffsetAndEpoch, int, Iterable[list[bytes]]]:
            if self.has_failed:
                return super().snapshot()
            self.has_failed = True
            return OffsetAndEpoch(self.next_offset, self.last_epoch), 0, broken()

    listener = Faulty()
    quorum = new_quorum(loop, standalone(), listener=listener, config=SMALL)
    await quorum.start()
    for number in range(60):
        await append(quorum, b"%020d" % number)
    await asyncio.sleep(61)
    assert listener.has_failed
    assert quorum.latest_snapshot_id is not None
    assert quorum.latest_snapshot_id.offset > 0
    await quorum.close()


async def test_a_snapshot_of_a_later_epoch_lies_beside_an_untrimmed_log(loop: SimLoop) -> None:
    disk, values = standalone(), list[bytes]()
    config = QuorumConfig(metadata_log_max_record_bytes_between_snapshots=300, metadata_max_retention_ms=-1)
    for epoch in range(1, 4):
        listener = ValueList()
        quorum = new_quorum(loop, disk, listener=listener, config=config)
        await quorum.start()
        assert listener.values == values
        for number in range(9):
            values.append(b"%d-%020d" % (epoch, number))
            await append(quorum, values[-1])
        await asyncio.sleep(1)
        assert quorum.log_start_offset == 0
        assert quorum.latest_snapshot_id is not None
        assert quorum.latest_snapshot_id.leader_epoch == epoch
        await quorum.close()


@pytest.mark.parametrize("was_clean_shutdown", [True, False])
async def test_a_log_without_its_file_of_epochs_keeps_what_follows_its_snapshot(
    loop: SimLoop, was_clean_shutdown: bool
) -> None:
    """Without the file the log seems to be of an earlier epoch than its snapshot."""
    disk, listener = standalone(), ValueList()
    config = QuorumConfig(metadata_log_max_snapshot_interval_ms=300_000)
    quorum = new_quorum(loop, disk, listener=listener, config=config)
    await quorum.start()
    await append(quorum, b"before")
    await asyncio.sleep(400)
    snapshot_id = quorum.latest_snapshot_id
    offset = await append(quorum, b"after")
    assert snapshot_id is not None
    assert 0 < snapshot_id.offset <= offset
    await quorum.close()
    disk.delete(f"{DIRECTORY}/leader-epoch-checkpoint")

    again = ValueList()
    quorum = new_quorum(loop, disk, listener=again, was_clean_shutdown=was_clean_shutdown)
    await quorum.start()
    assert (again.loaded, again.values) == ([snapshot_id], [b"before", b"after"])
    await append(quorum, b"on")
    await quorum.close()


async def test_a_snapshot_is_taken_after_the_interval_if_anything_changed(loop: SimLoop) -> None:
    listener = ValueList()
    config = QuorumConfig(metadata_log_max_snapshot_interval_ms=300_000)
    quorum = new_quorum(loop, standalone(), listener=listener, config=config)
    await quorum.start()
    offset = await append(quorum, b"x")
    await asyncio.sleep(200)
    assert quorum.latest_snapshot_id == OffsetAndEpoch(0, 0)
    await asyncio.sleep(200)
    assert quorum.latest_snapshot_id == OffsetAndEpoch(offset + 1, 1)
    await asyncio.sleep(1000)
    assert quorum.latest_snapshot_id == OffsetAndEpoch(offset + 1, 1)
    await quorum.close()


async def test_a_start_that_replayed_much_takes_a_snapshot(loop: SimLoop) -> None:
    disk = standalone()
    quorum = new_quorum(loop, disk, listener=ValueList())
    await quorum.start()
    await asyncio.sleep(AFTER_START_MS / 1000)
    for _ in range(REPLAYED_BYTES // 60_000 + 1):
        await append(quorum, bytes(60_000))
    await asyncio.sleep(60)
    assert quorum.latest_snapshot_id == OffsetAndEpoch(0, 0)
    await quorum.close()
    taken = [await _snapshot_soon_after_start(loop, disk) for _ in range(2)]
    assert [each.leader_epoch for each in taken] == [2, 2]
    assert taken[0] == taken[1], "the second start had no more to replay than its snapshot"


async def _snapshot_soon_after_start(loop: SimLoop, disk: SimDisk) -> OffsetAndEpoch:
    """Start a quorum and stop it a little after AFTER_START_MS; return its latest snapshot."""
    quorum = new_quorum(loop, disk, listener=ValueList())
    await quorum.start()
    await asyncio.sleep(AFTER_START_MS / 1000)
    await append(quorum, b"x")
    await asyncio.sleep(1)
    found = quorum.latest_snapshot_id
    await quorum.close()
    assert found is not None
    return found


async def test_a_log_without_the_snapshot_that_it_needs_does_not_start(loop: SimLoop) -> None:
    disk = standalone()
    disk.write_file_atomically(f"{DIRECTORY}/{50:020d}.log", b"")
    disk.delete(f"{DIRECTORY}/{snapshot_name(OffsetAndEpoch(0, 0))}")
    with pytest.raises(StorageError, match="starts at 50, and no snapshot"):
        await new_quorum(loop, disk).start()


async def test_static_voters_of_the_configuration_are_taken(loop: SimLoop) -> None:
    disk = SimDisk()
    voters = VoterSet([static_voter(1, Endpoint("CONTROLLER", "localhost", 9093))])
    quorum = new_quorum(loop, disk, static_voters=voters)
    await quorum.start()
    assert (quorum.high_watermark, quorum.finalized_kraft_version) == (1, 0)
    description = quorum.describe()
    assert description is not None
    assert description.voters[0].key == ReplicaKey(1, bytes(16))
    assert b'"currentVoters":[{"voterId":1}],"data_version":0' in disk.read_file(f"{DIRECTORY}/quorum-state")
    await quorum.close()


async def test_a_node_that_is_no_voter_waits(loop: SimLoop) -> None:
    voters = VoterSet([static_voter(2, Endpoint("CONTROLLER", "localhost", 9093))])
    quorum = new_quorum(loop, SimDisk(), static_voters=voters)
    await quorum.start()
    await asyncio.sleep(10)
    assert (quorum.leader_id, quorum.leader_epoch, quorum.describe()) == (-1, 0, None)
    await quorum.close()


def test_a_damaged_download_never_gets_its_name() -> None:
    disk, snapshot_id = standalone(), OffsetAndEpoch(7, 1)
    whole = disk.read_file(f"{DIRECTORY}/{snapshot_name(OffsetAndEpoch(0, 0))}")
    download = SnapshotDownload(disk, DIRECTORY)
    download.write(WriteSnapshotPart(snapshot_id, 0, whole[:100]))
    download.write(WriteSnapshotPart(snapshot_id, 100, whole[101:]))
    assert download.install() == SnapshotRefused(snapshot_id)
    assert disk.list_directory(DIRECTORY) == [snapshot_name(OffsetAndEpoch(0, 0))]
    for position in (0, 100):
        download.write(WriteSnapshotPart(snapshot_id, position, whole[position : position + 100 * (1 + position)]))
    assert isinstance(download.install(), SnapshotInstalled)
    assert disk.exists(f"{DIRECTORY}/{snapshot_name(snapshot_id)}")


# Apache Kafka's directories


def unpack(kind: str) -> tuple[SimDisk, int, bytes]:
    """Return a disk with a golden directory's metadata log, its node id and directory id."""
    disk = SimDisk()
    disk.make_directory(DIRECTORY)
    properties: dict[str, str] = {}
    archive_path = Path(f"tests/golden/kafka_data_dir_{kind}.tar.gz")
    with tarfile.open(fileobj=io.BytesIO(archive_path.read_bytes())) as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member) if member.isfile() else None
            if file is None:
                continue
            if "__cluster_metadata-0/" in member.name:
                disk.write_file_atomically(f"{DIRECTORY}/{member.name.rsplit('/', 1)[1]}", file.read())
            elif member.name.endswith("meta.properties"):
                lines = file.read().decode().splitlines()
                properties = dict(line.split("=", 1) for line in lines if "=" in line)
    disk.sync_all()
    return disk, int(properties["node.id"]), uuid_from_string(properties["directory.id"])


def kafkas_quorum(loop: SimLoop, disk: SimDisk, node_id: int, directory_id: bytes, listener: ValueList) -> Quorum:
    endpoints = (Endpoint("CONTROLLER", "127.0.0.1", 28393),)
    quorum = Quorum(
        identity=QuorumIdentity("c", node_id, directory_id, endpoints, VoterSet()),
        directory=MetadataDirectory(DIRECTORY),
        config=QuorumConfig(),
        system=System(disk, SimClock(loop), SeededRandom(1), SimIoPool(loop)),
        on_fatal=lambda error: None,
    )
    quorum.add_listener(listener)
    return quorum


@pytest.mark.parametrize(
    ("kind", "end_offset", "start_offset", "value_count", "kraft_version"),
    [("clean", 132, 0, 130, 0), ("unclean", 113, 0, 111, 0), ("standalone", 994, 680, 106, 1)],
)
async def test_a_directory_of_apache_kafka_is_taken_over(
    loop: SimLoop, kind: str, end_offset: int, start_offset: int, value_count: int, kraft_version: int
) -> None:
    disk, node_id, directory_id = unpack(kind)
    for epoch in (2, 3):
        listener = ValueList()
        quorum = kafkas_quorum(loop, disk, node_id, directory_id, listener)
        await quorum.start()
        assert listener.leaders == [(node_id, epoch)]
        assert (quorum.log_start_offset, quorum.log_end_offset) == (start_offset, end_offset + epoch - 2)
        assert quorum.high_watermark == quorum.log_end_offset
        assert (len(listener.values), quorum.finalized_kraft_version) == (value_count, kraft_version)
        await quorum.close()


@pytest.mark.skipif(not JAVA_LIBS.is_dir() or shutil.which("java") is None, reason="Apache Kafka's jars: `make tools`")
@pytest.mark.compat
def test_apache_kafkas_tool_reads_log_and_snapshots(tmp_path: Path) -> None:
    async def main(loop: SimLoop) -> SimDisk:
        disk, node_id, directory_id = unpack("standalone")
        listener = ValueList()
        quorum = kafkas_quorum(loop, disk, node_id, directory_id, listener)
        quorum.set_snapshot_source(listener.snapshot)
        quorum._config = QuorumConfig(metadata_log_max_record_bytes_between_snapshots=1)
        await quorum.start()
        await append(quorum, listener.values[-1])
        await asyncio.sleep(61)
        assert quorum.latest_snapshot_id is not None
        assert quorum.latest_snapshot_id.offset > 990
        await quorum.close()
        return disk

    disk = run(main)
    names = [name for name in disk.list_directory(DIRECTORY) if name.endswith((".log", ".checkpoint"))]
    for name in names:
        (tmp_path / name).write_bytes(disk.read_file(f"{DIRECTORY}/{name}"))
    files = ",".join(str(tmp_path / name) for name in names)
    command = ["java", "-cp", f"{JAVA_LIBS}/*", "org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder"]
    output = subprocess.run(
        [*command, "--files", files], capture_output=True, text=True, timeout=120, check=True
    ).stdout
    newest = max(name for name in names if name.endswith(".checkpoint"))
    snapshot = output[output.index(newest) :]
    assert "SnapshotHeader" in snapshot
    assert "SnapshotFooter" in snapshot
    assert '"kraftVersion":1' in snapshot or "KRaftVersion" in snapshot
    assert "LeaderChange" in output
    for complaint in ("isvalid: false", "Found invalid", "Could not", "Exception"):
        assert complaint not in output


def test_what_a_long_log_holds_is_listed_in_turns() -> None:
    disk = standalone()

    async def first(loop: SimLoop) -> None:
        quorum = new_quorum(loop, disk)
        await quorum.start()
        for number in range(40):
            await append(quorum, *(b"%06d" % number + bytes(2000) for _ in range(200)))
        await quorum.close()

    async def second(loop: SimLoop) -> None:
        listener = ValueList()
        quorum = new_quorum(loop, disk, listener=listener)
        starting = asyncio.ensure_future(quorum.start())
        reported = [0]
        while not starting.done():
            await asyncio.sleep(0.0005)
            reported.append(len(listener.values))
        assert listener.leaders[-1] == (1, 2), "it leads once it has been told of everything"
        assert len(listener.values) == 8000
        steps = [after - before for before, after in itertools.pairwise(reported)]
        assert max(steps) <= 4000
        await quorum.close()

    run(first)
    run(second)
