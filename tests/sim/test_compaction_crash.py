"""The machine stops at every step of a pass of the cleaner, under four ideas of what a disk keeps.

All that the pass reads was synced before it began, so nothing of it may be lost: after recovery each key has its last
value, whether a segment was swapped in or not, aborted data stays aborted, and another pass finishes the work.
"""

from collections.abc import Iterator

import pytest

from kafkapy.storage.file_names import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX
from kafkapy.storage.log import AppendOrigin, FetchIsolation
from tests.sim.disk import Keep, SimCrash, SimDisk
from tests.support.cleaning import NOW_MS, CompactedLogs, append, consume, last_values, stored_batches
from tests.support.logs import marker

KEEPS: tuple[Keep, ...] = ("all", "none", "torn", "reordered")
LATER_MS = NOW_MS + 5000


def written(disk: SimDisk) -> CompactedLogs:
    """A log of eight durable segments: transactions, tombstones, an idempotent producer; one pass was done already."""
    logs = CompactedLogs(disk, segment_bytes=700)
    log = logs.log
    for number in range(8):
        append(log, *((f"k{(number * 3 + n) % 7}", f"{number}-{n}") for n in range(4)), compression=number % 5)
        fields = {"producer_id": 8, "producer_epoch": 0, "base_sequence": 2 * number, "is_transactional": True}
        append(log, ("k1", f"txn {number}"), (f"t{number}", None if number % 3 else "x"), **fields)
        data = marker(is_abort=number % 2 == 0)
        log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
        append(log, ("idempotent", str(number)), producer_id=9, producer_epoch=0, base_sequence=number)
        logs.roll_and_flush()
        if number == 3:
            logs.clean()
    disk.settle()
    return logs


def crashes(keep: Keep, *, stride: int = 1) -> Iterator[tuple[SimDisk, int]]:
    """Yield a disk for each step at which the machine stopped in a pass, after the power is back."""
    step = 0
    while True:
        disk = SimDisk(seed=step)
        logs = written(disk)
        disk.crash_after = disk.changes + step
        try:
            logs.clean(LATER_MS)
            logs.log.delete_due_files(LATER_MS)
            logs.log.delete_due_files(LATER_MS + 60_000)
        except SimCrash:
            disk.crash(keep)
            yield disk, step
            step += stride
        else:
            return


def test_what_the_crashes_below_are_held_against() -> None:
    logs = written(SimDisk())
    before = consume(logs.log, FetchIsolation.TXN_COMMITTED)
    logs.clean(LATER_MS)
    after = consume(logs.log, FetchIsolation.TXN_COMMITTED)
    assert last_values(after) == last_values(before)
    assert len(after) < len(before)


@pytest.mark.parametrize("keep", KEEPS)
def test_a_crash_at_any_step_of_a_pass_loses_no_last_value(keep: Keep) -> None:
    wanted = last_values(consume(written(SimDisk()).log, FetchIsolation.TXN_COMMITTED))
    steps = 0
    for disk, _ in crashes(keep):
        steps += 1
        logs = CompactedLogs(disk, segment_bytes=700)
        check(logs, wanted)
        names = disk.list_directory("/logs/t-0")
        assert not [name for name in names if name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX, DELETED_SUFFIX))]
        logs.roll_and_flush()
        logs.clean(LATER_MS)
        check(logs, wanted)
    assert steps > 60


def check(logs: CompactedLogs, wanted: dict[bytes | None, bytes]) -> None:
    log = logs.log
    log.update_high_watermark(log.log_end_offset)
    assert log.log_end_offset == 64
    assert last_values(consume(log, FetchIsolation.TXN_COMMITTED)) == wanted
    offsets = [record.offset for record in consume(log)]
    assert offsets == sorted(set(offsets))
    assert all(batch.is_valid() for batch in stored_batches(log))
    producers = {entry.producer_id: entry.last_sequence for entry in log.active_producers()}
    assert producers == {8: 15, 9: 7}


def test_a_crash_while_recovering_from_a_swap_is_recovered_from() -> None:
    wanted = last_values(consume(written(SimDisk()).log, FetchIsolation.TXN_COMMITTED))
    for disk, step in crashes("all", stride=7):
        disk.crash_after = disk.changes + step % 11
        try:
            CompactedLogs(disk, segment_bytes=700)
        except SimCrash:
            disk.crash("torn")
        else:
            disk.crash("all")
        check(CompactedLogs(disk, segment_bytes=700), wanted)
