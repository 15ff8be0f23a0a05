"""The machine stops at every change while a segment is split whose offsets its indexes cannot hold.

What was durable stays, whatever the disk kept of the split: each batch once, in segments that begin where Apache Kafka
has them begin (tests/compat/test_overflowed_segments.py compares them with its own).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from kafkapy.config.log import LogConfig
from kafkapy.record.batches import batch_at, batches
from kafkapy.storage import checkpoint
from kafkapy.storage.file_names import CLEANED_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX, segment_file
from kafkapy.storage.log.flush import flush_log
from kafkapy.storage.log.log import Log
from kafkapy.storage.manager.log_manager import LogManager
from tests.simulator.crash_enumeration import SOAK_FACTOR, Moment, Recorder, crashes
from tests.simulator.disk import SimDisk
from tests.support.batches import build_batch
from tests.support.chance import SeededRandom
from tests.support.logs import DIRECTORY, NOW_MS, PARTITION, load_logs

FAR = 1 << 31
DELETE: dict[str, Any] = {"segment_bytes": 4000, "index_interval_bytes": 200, "segment_index_bytes": 480}
COMPACT = {**DELETE, "cleanup_policy": ("compact",)}
THREE_PARTS = [0, 3, FAR - 9, FAR, 2 * FAR - 9, 3 * FAR, 3 * FAR + 3]


@dataclass(frozen=True)
class Case:
    """Segments by base offset, each the base offsets of its batches of three records; `parts` are those wanted.

    indexes: whether they are there, empty. Of a batch that is torn some bytes lie behind the last one. clean_to: where
    the pass of Apache Kafka's cleaner ended that merged too much.
    """

    segments: dict[int, list[int]]
    parts: list[int]
    config: dict[str, Any]
    is_stopped: bool = False
    has_indexes: bool = False
    is_torn: bool = False
    recovery_point: int = 0
    clean_to: int = 0


CASES = {
    "killed": Case(
        {0: THREE_PARTS, 3 * FAR + 9: [3 * FAR + 9]}, [0, FAR, 3 * FAR, 3 * FAR + 9], COMPACT, clean_to=3 * FAR + 9
    ),
    "killed and torn": Case({0: THREE_PARTS}, [0, FAR, 3 * FAR], COMPACT, is_torn=True),
    "deleted by time": Case({0: [0, 5 * FAR], 9 * FAR: [9 * FAR]}, [0, 5 * FAR, 9 * FAR], DELETE),
    "begins late": Case({0: [9, FAR + 5, FAR + 8]}, [9, FAR + 8], DELETE),
    "stopped, begins late": Case(
        {0: [9, FAR + 5, FAR + 8], 9 * FAR: []}, [9, FAR + 8, 9 * FAR], DELETE, is_stopped=True
    ),
    "stopped": Case({0: THREE_PARTS, 9 * FAR: [9 * FAR]}, [0, FAR, 3 * FAR, 9 * FAR], COMPACT, is_stopped=True),
    "stopped, indexed": Case(
        {0: [0, FAR], 9 * FAR: [9 * FAR]}, [0, FAR, 9 * FAR], COMPACT, is_stopped=True, has_indexes=True
    ),
    "active, indexed": Case({0: [0, FAR]}, [0, FAR], COMPACT, is_stopped=True, has_indexes=True),
    "below the recovery point": Case(
        {0: THREE_PARTS, 9 * FAR: [9 * FAR]}, [0, FAR, 3 * FAR, 9 * FAR], COMPACT, recovery_point=9 * FAR
    ),
}


def bytes_of(base_offsets: Iterable[int]) -> bytes:
    """Return batches of an idempotent producer, the last of a transaction that was aborted."""
    found = []
    for number, base_offset in enumerate(base_offsets):
        records = [(NOW_MS + number, b"%d" % i, bytes(90), ()) for i in range(3)]
        found.append(
            build_batch(
                records,
                base_offset=base_offset,
                leader_epoch=0,
                producer_id=7,
                producer_epoch=0,
                base_sequence=3 * number,
            )
        )
    return b"".join(found)


def write(disk: SimDisk, case: Case) -> list[bytes]:
    """Put a case on a disk, durable; return its batches."""
    disk.make_directory(DIRECTORY)
    written = []
    for base_offset, offsets in case.segments.items():
        data = bytes_of(offsets)
        written += [bytes(batch.raw()) for batch in batches(data)]
        if case.is_torn:
            data += build_batch([(NOW_MS, b"torn", b"torn", ())], base_offset=20 * FAR)[:-2]
        disk.write_file_atomically(segment_file(DIRECTORY, base_offset, LOG_SUFFIX), data)
        if case.has_indexes:
            for suffix in (".index", ".timeindex"):
                disk.write_file_atomically(segment_file(DIRECTORY, base_offset, suffix), b"")
    if case.is_stopped:
        disk.write_file_atomically(f"/logs/{checkpoint.CLEAN_SHUTDOWN_FILE}", checkpoint.encode_clean_shutdown(1))
    points = checkpoint.encode_offsets({PARTITION: case.recovery_point})
    disk.write_file_atomically(f"/logs/{checkpoint.RECOVERY_POINT_FILE}", points)
    clean_offsets = checkpoint.encode_offsets({PARTITION: case.clean_to})
    disk.write_file_atomically(f"/logs/{checkpoint.CLEANER_OFFSET_FILE}", clean_offsets)
    disk.sync_all()
    return written


def start(disk: SimDisk, case: Case) -> Log:
    manager = LogManager(disk, ["/logs"], LogConfig(**case.config), random=SeededRandom(1))
    manager.directories.lock()
    load_logs(manager)
    assert not manager.directories.offline_paths
    log = manager.logs[PARTITION]
    log.update_high_watermark(log.log_end_offset)
    return log


def check(log: Log, disk: SimDisk, case: Case, written: list[bytes]) -> None:
    assert [segment.base_offset for segment in log.segments] == case.parts
    stored = [
        (segment, batch) for segment in log.segments for batch in batches(segment.log.file.pread(segment.size, 0))
    ]
    assert [bytes(batch.raw()) for _, batch in stored] == written
    assert all(batch.last_offset - segment.base_offset < FAR for segment, batch in stored)
    for data in written:
        region = log.read(batch_at(data).base_offset, 1).region
        assert region is not None
        assert region.read() == data
        region.release()
    names = disk.list_directory(DIRECTORY)
    assert not [name for name in names if name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX))]
    logs = [int(name[:20]) for name in names if name.endswith(LOG_SUFFIX)]
    assert logs == case.parts


def check_that_it_goes_on(log: Log, disk: SimDisk, case: Case, written: list[bytes]) -> None:
    """What is appended behind it and flushed is there after the next power cut, too."""
    data = bytearray(build_batch([(NOW_MS, b"next", b"life", ())]))
    data[:8] = log.append_as_leader(bytes(data), leader_epoch=0, now_ms=NOW_MS).first_offset.to_bytes(8)
    data[12:16] = bytes(4)  # the leader epoch
    flush_log(log)
    disk.crash("none")
    log = start(disk, case)
    stored = b"".join(segment.log.file.pread(segment.size, 0) for segment in log.segments)
    assert stored == b"".join([*written, data])


@pytest.mark.parametrize("name", CASES)
def test_a_crash_at_any_change_of_a_split_loses_nothing(name: str) -> None:
    case = CASES[name]
    disk = SimDisk(1)
    written = write(disk, case)
    recorder = Recorder(disk, lambda: None)
    check(start(disk, case), disk, case, written)
    moments = recorder.finish()
    for crash in crashes(moments, stride=3 if SOAK_FACTOR == 1 else 1):
        second = Recorder(crash.disk, lambda: None)
        log = start(crash.disk, case)
        check(log, crash.disk, case, written)
        again = second.finish()
        check_that_it_goes_on(log, crash.disk, case, written)
        if crash.moment.operation == "rename" and crash.keep == "all":
            crash_again([moment for moment in again if moment.operation in ("rename", "delete")], case, written)
    operations = [(moment.operation, moment.path.rpartition(".")[2]) for moment in moments]
    assert {("rename", suffix[1:]) for suffix in (CLEANED_SUFFIX, SWAP_SUFFIX, LOG_SUFFIX)} <= set(operations)


def crash_again(moments: list[Moment], case: Case, written: list[bytes]) -> None:
    """Stop a recovery, too, where it puts right what the first crash left."""
    for crash in crashes(moments, ("all", "none")):
        try:
            check(start(crash.disk, case), crash.disk, case, written)
        except Exception as error:
            error.add_note(str(crash))
            raise
