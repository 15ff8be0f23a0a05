"""The machine stops at every change of a script over a directory of logs, under four ideas of what a disk keeps.

`pytest -s` shows what the recoveries found.
"""

import pytest

from kafkapy.record.validate import AppendOrigin
from kafkapy.storage.log.flush import flush_log
from kafkapy.storage.log.lookup import aborted_transactions
from kafkapy.storage.log.truncation import truncate_to
from tests.simulator.crash_enumeration import KEEPS, SOAK_FACTOR, Crash, Outcomes, Recorder, crashes
from tests.simulator.disk import SimDisk
from tests.simulator.storage_checks import CUT, OUTCOMES, WHOLE, check_crash, stored_batches
from tests.simulator.storage_script import Script, start
from tests.support.logs import NOW_MS, append, batch, marker, open_small_log

pytestmark = pytest.mark.long

SEEDS = range(1, 1 + SOAK_FACTOR)
STRIDE = 2 if SOAK_FACTOR == 1 else 1
STEP_COUNT = 120
THOROUGH_STRIDE = 4
RECOVERY_STRIDE = 61
SECOND_STRIDE = 17


@pytest.mark.parametrize("seed", SEEDS)
def test_a_crash_at_any_change_loses_nothing_that_was_promised(seed: int) -> None:
    moments = Script(seed).run(STEP_COUNT)
    outcomes = Outcomes()
    for crash in crashes(moments, stride=STRIDE):
        try:
            outcome = check_crash(crash, is_thorough=crash.moment.number % THOROUGH_STRIDE == 0)
        except Exception as error:
            error.add_note(f"seed {seed}, {crash}")
            raise
        outcomes.add(crash, outcome)
    print(f"\nseed {seed}: {outcomes.table(OUTCOMES)}")
    assert len(moments) > 300
    assert outcomes.recoveries >= max(len(moments) * len(KEEPS) // STRIDE, 1200)
    assert outcomes.count(WHOLE)
    assert outcomes.count(CUT)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_crash_at_any_change_of_a_recovery_is_recovered_from(seed: int) -> None:
    moments = Script(seed).run(STEP_COUNT)
    recoveries = 0
    for crash in crashes(moments, stride=RECOVERY_STRIDE):
        recorder = Recorder(crash.disk, lambda promises=crash.promise: promises)  # type: ignore[misc]
        start(crash.disk, crash.promise)
        for again in crashes(recorder.finish(), stride=SECOND_STRIDE):
            keep = crash.keep if again.keep == "all" else again.keep
            check_crash(Crash(crash.moment, keep, again.disk), is_thorough=False)
            recoveries += 1
    assert recoveries > 50


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_a_crash_at_any_change_of_a_truncation_leaves_no_gap(policy: str) -> None:
    """Nothing but this order saves a compacted log: in one a gap between two segments is no sign of a loss."""
    disk = SimDisk(1)
    log = open_small_log(disk, segment_bytes=300)
    for _ in range(12):
        append(log, value_bytes=50)
    flush_log(log)
    disk.sync_all()
    recorder = Recorder(disk, lambda: None)
    truncate_to(log, 4)
    for crash in crashes(recorder.finish()):
        found = open_small_log(crash.disk, was_clean_shutdown=False, segment_bytes=300, cleanup_policy=(policy,))
        offsets = [batch.base_offset for batch in stored_batches(found)]
        assert offsets == list(range(found.log_end_offset)), str(crash)
        assert 4 <= found.log_end_offset <= 12


@pytest.mark.parametrize("lost", [".index", ".timeindex", ".txnindex"])
def test_a_crash_at_any_change_of_a_rebuild_forgets_no_aborted_transaction(lost: str) -> None:
    """The segment lies below the recovery point: the next start believes its indexes if they look sound."""
    disk = SimDisk(1)
    log = open_small_log(disk, segment_bytes=500, index_interval_bytes=1)
    data = batch(producer_id=8, producer_epoch=0, base_sequence=0, is_transactional=True)
    verification = log.producer_state.start_verification(8, 0, 0, supports_epoch_bump=False, now_ms=NOW_MS)
    log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS, verification=verification)
    log.append_as_leader(marker(is_abort=True), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    for count in range(9):
        append(log, value_bytes=50, timestamp_ms=NOW_MS + count)
    assert len(log.segments) > 2
    flush_log(log)
    (aborted,) = aborted_transactions(log, 0, 100)
    first_segment = log.segments.first.log.path.removesuffix(".log")
    disk.sync_all()
    if lost == ".txnindex":
        disk.open(first_segment + lost).truncate(5)
    else:
        disk.delete(first_segment + lost)
    recorder = Recorder(disk, lambda: None)
    open_small_log(disk, was_clean_shutdown=False, recovery_point=log.log_end_offset)
    for crash in crashes(recorder.finish()):
        found = open_small_log(crash.disk, was_clean_shutdown=False, recovery_point=log.log_end_offset)
        assert aborted_transactions(found, 0, 100) == [aborted], str(crash)
