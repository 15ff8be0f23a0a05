"""The cleaner's loop: steps in helper processes that may die, be slow or be throttled."""

import asyncio
import errno
import sys
from collections.abc import Callable, Coroutine
from dataclasses import replace
from itertools import count
from typing import Any, TypeVar

import pytest

from kafkapy.record.validate import AppendOrigin
from kafkapy.runtime.logs.cleaner import LogCleaner
from kafkapy.runtime.logs.maintenance import LOGS_PER_SLICE
from kafkapy.seams import HELPER_NOT_STARTED
from kafkapy.storage.cleaner.manager import MAX_LOST_PASSES
from kafkapy.storage.file_names import CLEANED_SUFFIX
from kafkapy.storage.log.flush import flush_log
from kafkapy.storage.log.log import Log
from kafkapy.types import TopicPartition
from tests.simulator.disk import SimDisk
from tests.simulator.helper import CALL_MS, SimHelper
from tests.simulator.io_pool import SimIoPool
from tests.simulator.loop import SimClock, SimLoop, run
from tests.support.cleaning import NOW_MS, PARTITION, SETTINGS, CompactedLogs, append, stored
from tests.support.interpreter import needs_interpreter
from tests.support.logs import delete_due_logs, marker

T = TypeVar("T")
BACKOFF_MS = 1000
SEGMENT_CLEANED = f"/logs/t-0/{0:020d}.log{CLEANED_SUFFIX}"
COMMON = replace(SETTINGS, log_cleaner_backoff_ms=BACKOFF_MS)


class World:
    """Logs and the cleaner that is at work on them; `helpers` are the processes in the order of their start."""

    def __init__(self, loop: SimLoop, logs: CompactedLogs, before_call: Callable[[str], None]) -> None:
        self.loop = loop
        self.logs = logs
        self.helpers: list[SimHelper] = []
        self._before_call = before_call
        self.cleaner = LogCleaner(
            logs.cleaner,
            logs.logs,
            new_helper=self._new_helper,
            clock=SimClock(loop, NOW_MS),
            io_pool=SimIoPool(loop),
        )

    def _new_helper(self, loop: asyncio.AbstractEventLoop) -> SimHelper:
        self.helpers.append(SimHelper(self.loop, self.logs.disk, self._before_call))
        return self.helpers[-1]

    def calls(self, name: str) -> int:
        return sum(helper.calls.count(name) for helper in self.helpers)


def at_work(
    logs: CompactedLogs,
    main: Callable[[World], Coroutine[Any, Any, T]],
    before_call: Callable[[str], None] = lambda name: None,
    **settings: Any,
) -> T:
    """Run `main` beside a cleaner in virtual time; then stop that."""

    async def live(loop: SimLoop) -> T:
        world = World(loop, logs, before_call)
        world.cleaner.start(replace(COMMON, **settings))
        result = await main(world)
        await world.cleaner.stop()
        return result

    return run(live)


def one_round(logs: CompactedLogs, before_call: Callable[[str], None] = lambda name: None, **settings: Any) -> World:
    """Let the cleaner work for less than its backoff."""

    async def main(world: World) -> World:
        await asyncio.sleep(0.9 * BACKOFF_MS / 1000)
        return world

    return at_work(logs, main, before_call, **settings)


def dirty_logs(count: int = 1) -> CompactedLogs:
    logs = CompactedLogs(SimDisk())
    for number in range(count):
        make_dirty(log_of(logs, number))
    return logs


def log_of(logs: CompactedLogs, number: int) -> Log:
    return logs.logs.get_or_create_log(TopicPartition("t", number), None, logs.config, NOW_MS)


def make_dirty(log: Log) -> None:
    append(log, ("a", "1"))
    append(log, ("a", "2"))
    log.roll(NOW_MS)
    flush_log(log)


def test_a_pass_is_taken_to_its_end_and_checkpointed() -> None:
    logs = dirty_logs()
    one_round(logs)
    assert stored(logs.log) == [(1, "a", "2")]
    assert logs.disk.read_file("/logs/cleaner-offset-checkpoint") == b"0\n1\nt 0 2\n"
    assert "cleaned log t-0 (dirty section = [0, 2])" in str(logs.cleaner.reports[0])


def test_no_process_is_started_where_nothing_is_dirty() -> None:
    logs = CompactedLogs(SimDisk())
    append(logs.log, ("a", "1"))
    assert one_round(logs).helpers == []


def test_what_retention_takes_of_a_compacted_log_goes_between_passes() -> None:
    logs = CompactedLogs(SimDisk(), cleanup_policy=("compact", "delete"), retention_ms=1000)
    append(logs.log, ("a", "1"), now_ms=NOW_MS - 2000)
    logs.roll_and_flush()
    append(logs.log, ("b", "2"), now_ms=NOW_MS)
    assert one_round(logs).helpers == []
    assert stored(logs.log) == [(1, "b", "2")]
    assert logs.log.log_start_offset == 1


def test_retention_of_all_logs_leaves_a_compacted_one_to_the_cleaner_whose_pass_goes_on() -> None:
    logs = CompactedLogs(SimDisk(), cleanup_policy=("compact", "delete"), retention_ms=1000)
    make_dirty(logs.log)
    deleted: list[int] = []

    def retain(name: str) -> None:
        if name == "advance":
            deleted.extend(logs.logs.cleanup_steps(NOW_MS + 2000))

    world = one_round(logs, retain)
    assert deleted == [0] * world.calls("advance")
    assert world.calls("begin") == 1
    assert stored(logs.log) == [(1, "a", "2")]


def test_a_log_deleted_while_the_others_were_looked_at_is_passed_over() -> None:
    logs = CompactedLogs(SimDisk(), cleanup_policy=("compact", "delete"), retention_ms=1000)
    for number in range(LOGS_PER_SLICE + 1):
        append(log_of(logs, number), ("a", "1"), now_ms=NOW_MS - 2000)

    async def main(world: World) -> None:
        await asyncio.sleep(0)
        first, last = log_of(logs, 0), log_of(logs, LOGS_PER_SLICE)
        assert (first.log_start_offset, last.log_start_offset) == (1, 0), "the last one's turn is still to come"
        logs.logs.delete_log(last.topic_partition, NOW_MS)
        assert delete_due_logs(logs.logs, NOW_MS + last.config.file_delete_delay_ms) == 1
        await asyncio.sleep(0.1)

    at_work(logs, main)
    assert logs.logs.directories.offline_paths == []
    assert not logs.cleaner.uncleanable


@needs_interpreter("it sets a constant")
def test_many_logs_that_are_not_compacted_are_looked_at_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkapy.runtime.logs.cleaner.LOOKED_AT_ONCE", 2)
    logs = CompactedLogs(SimDisk(), cleanup_policy=("delete",))
    for number in range(5):
        log_of(logs, number)
    looked_at: list[int] = []
    compacted_logs = logs.cleaner.compacted_logs

    def note(*arguments: Any) -> list[Log]:
        looked_at.append(0)
        return compacted_logs(*arguments)

    async def main(world: World) -> list[int]:
        monkeypatch.setattr(logs.cleaner, "compacted_logs", note)
        passes = []
        for _ in range(4):
            passes.append(len(looked_at))
            await asyncio.sleep(0)
        return passes

    assert at_work(logs, main) == [0, 1, 2, 3]


def test_a_helper_that_dies_three_times_sets_the_partition_aside() -> None:
    logs = dirty_logs()

    def die(name: str) -> None:
        raise RuntimeError(f"killed in {name}")

    async def main(world: World) -> list[int]:
        aside = []
        for _ in range(4):
            await asyncio.sleep(BACKOFF_MS / 1000)
            aside.append(len(logs.cleaner.uncleanable))
        assert world.calls("begin") == 3
        return aside

    assert at_work(logs, main, die) == [0, 0, 1, 1]
    assert list(logs.cleaner.uncleanable) == [PARTITION]
    assert stored(logs.log) == [(0, "a", "1"), (1, "a", "2")]


def test_a_helper_that_cannot_be_started_is_tried_again_and_sets_nothing_aside() -> None:
    logs = dirty_logs()
    failures = iter(range(5))

    def fail(name: str) -> None:
        if next(failures, None) is not None:
            raise RuntimeError(f"{HELPER_NOT_STARTED}: Too many open files")

    async def main(world: World) -> World:
        await asyncio.sleep(7 * BACKOFF_MS / 1000)
        return world

    assert at_work(logs, main, fail).calls("begin") == 6
    assert record_counts(logs, 1) == [1]
    assert not logs.cleaner.uncleanable


def logs_with_an_abort_yet_to_be_read() -> CompactedLogs:
    """Return logs with a cleaned segment: of that the list of aborted transactions is only on disk."""
    logs = CompactedLogs(SimDisk())
    append(logs.log, ("a", "0"))
    append(logs.log, ("a", "1"), producer_id=8, producer_epoch=0, base_sequence=0, is_transactional=True)
    logs.log.append_as_leader(marker(is_abort=True), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    append(logs.log, ("b", "1"))
    logs.roll_and_flush()
    assert logs.clean() is not None
    make_dirty(logs.log)
    return logs


def test_too_many_open_files_where_a_pass_begins_let_it_wait() -> None:
    logs = logs_with_an_abort_yet_to_be_read()
    logs.disk.fail("open", errno.EMFILE, path="0.txnindex", times=2)

    async def main(world: World) -> list[int]:
        await asyncio.sleep(1.5 * BACKOFF_MS / 1000)
        assert not logs.logs.directories.offline_paths
        before = world.calls("begin")
        await asyncio.sleep(2 * BACKOFF_MS / 1000)
        return [before, world.calls("begin")]

    assert at_work(logs, main) == [0, 1]
    assert not logs.cleaner.uncleanable


def test_a_plan_that_cannot_be_imported_yet_lets_a_log_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module of plans is imported for the first log, which fails without a free descriptor."""
    logs = dirty_logs()

    async def main(world: World) -> int:
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "kafkapy.storage.cleaner.plan", None)
            await asyncio.sleep(1.5 * BACKOFF_MS / 1000)
        await asyncio.sleep(2 * BACKOFF_MS / 1000)
        return world.calls("begin")

    assert at_work(logs, main) == 1
    assert not logs.cleaner.uncleanable


def test_a_disk_that_fails_where_a_pass_begins_takes_its_directory_offline() -> None:
    logs = logs_with_an_abort_yet_to_be_read()
    logs.disk.fail("read", errno.EIO, path=".txnindex")
    assert one_round(logs).helpers == []
    assert logs.logs.directories.offline_paths == ["/logs"]


def test_a_pass_without_memory_is_done_later() -> None:
    logs = dirty_logs()

    def refuse(operation: str, path: str) -> None:
        if operation == "create" and path.endswith(CLEANED_SUFFIX):
            raise MemoryError

    async def main(world: World) -> None:
        logs.disk.hook = refuse
        await asyncio.sleep(3.5 * BACKOFF_MS / 1000)
        assert world.calls("begin") == 4
        logs.disk.hook = None
        await asyncio.sleep(BACKOFF_MS / 1000)

    at_work(logs, main)
    assert record_counts(logs, 1) == [1]
    assert not logs.cleaner.uncleanable
    assert not logs.logs.directories.offline_paths


def test_a_log_truncated_between_two_steps_is_left_as_it_is() -> None:
    logs = dirty_logs()

    def truncate(name: str) -> None:
        if name == "advance":
            logs.logs.truncate_to({PARTITION: 1})

    assert one_round(logs, truncate).calls("begin") == 1
    assert stored(logs.log) == [(0, "a", "1")]
    assert not logs.cleaner.uncleanable


def test_a_log_truncated_in_the_last_step_of_a_pass_is_not_taken_to_be_clean() -> None:
    logs = dirty_logs()
    steps = count(1)

    def truncate(name: str) -> None:
        if name == "advance" and next(steps) == 2:
            logs.logs.truncate_to({PARTITION: 0})

    assert one_round(logs, truncate).calls("advance") == 2
    assert not logs.cleaner.reports
    make_dirty(logs.log)
    one_round(logs)
    assert stored(logs.log) == [(1, "a", "2")]


@pytest.mark.parametrize("step", range(1, 5))
def test_what_a_step_of_a_pass_writes_where_another_topic_has_the_name_is_deleted(step: int) -> None:
    logs = dirty_logs()
    steps, made = count(1), []
    logs.disk.hook = lambda operation, path: made.append(path) if operation == "create" else None

    def remake(name: str) -> None:
        if name == "advance" and next(steps) == step:
            made.clear()
            logs.logs.delete_log(PARTITION, NOW_MS)
            assert logs.log.log_end_offset == 0

    async def main(world: World) -> None:
        await asyncio.sleep(5 * BACKOFF_MS / 1000)

    at_work(logs, main, remake, log_cleaner_io_max_bytes_per_second=100.0)
    assert (SEGMENT_CLEANED in made) == (step == 2), "the second begins the new segment"
    assert not [name for name in logs.disk.list_directory(logs.log.directory) if name.endswith(CLEANED_SUFFIX)]


def test_a_topic_does_not_inherit_the_troubles_of_one_that_had_its_name() -> None:
    logs = CompactedLogs(SimDisk())
    deaths = []

    def die(name: str) -> None:
        deaths.append(name)
        raise RuntimeError("killed")

    async def main(world: World) -> None:
        for number in range(1, 3):
            before = len(deaths)
            make_dirty(logs.logs.get_or_create_log(PARTITION, bytes([number] * 16), logs.config, NOW_MS))
            await asyncio.sleep((MAX_LOST_PASSES - 1) * BACKOFF_MS / 1000)
            assert len(deaths) == before + MAX_LOST_PASSES - 1
            assert not logs.cleaner.uncleanable
            logs.logs.delete_log(PARTITION, NOW_MS)

    at_work(logs, main, die)


def test_a_log_truncated_after_it_was_chosen_is_left_as_it_is(monkeypatch: Any) -> None:
    logs = dirty_logs()
    choose = logs.cleaner.choose

    def choose_late(*arguments: Any) -> Any:
        chosen = choose(*arguments)
        logs.logs.truncate_to({PARTITION: 0})
        return chosen

    monkeypatch.setattr(logs.cleaner, "choose", choose_late)
    assert one_round(logs).helpers == []
    assert not logs.cleaner.uncleanable


def test_a_disabled_cleaner_does_not_start() -> None:
    assert one_round(dirty_logs(), log_cleaner_enable=False).helpers == []


def test_a_backoff_of_0_leaves_time_to_others() -> None:
    logs = CompactedLogs(SimDisk())

    async def main(world: World) -> None:
        await asyncio.sleep(0.1)
        make_dirty(logs.log)
        await asyncio.sleep(0.1)

    at_work(logs, main, log_cleaner_backoff_ms=0)
    assert record_counts(logs, 1) == [1]


def test_a_throttled_pass_waits_as_long_as_its_bytes_may_take() -> None:
    logs = dirty_logs()
    assert seconds_at_100_bytes_a_second(logs, thread_count=1) == moved_bytes(logs) / 100


def test_passes_share_the_rate() -> None:
    logs = dirty_logs(3)
    seconds = seconds_at_100_bytes_a_second(logs, thread_count=3)
    assert seconds == sum(moved_bytes(logs, number) for number in range(3)) / 100


def seconds_at_100_bytes_a_second(logs: CompactedLogs, *, thread_count: int) -> float:
    """Return how long passes over all logs take, to 0.1 s."""

    async def main(world: World) -> float:
        while len(logs.cleaner.reports) < thread_count:
            await asyncio.sleep(0.01)
        return round(world.loop.now - CALL_MS / 1000, 1)

    rate = {"log_cleaner_io_max_bytes_per_second": 100.0}
    return at_work(logs, main, log_cleaner_threads=thread_count, **rate)


def moved_bytes(logs: CompactedLogs, number: int = 0) -> int:
    """Return what a pass has read and written: the segment of two batches twice, and the one that stays."""
    return 5 * log_of(logs, number).segments.first.size


def test_as_many_logs_as_there_are_threads_are_cleaned_at_a_time_each_by_one() -> None:
    logs = dirty_logs(4)

    async def main(world: World) -> World:
        await asyncio.sleep(1.5 * CALL_MS / 1000)
        assert [helper.calls for helper in world.helpers] == [["begin"]] * 3
        await asyncio.sleep(1)
        return world

    assert at_work(logs, main, log_cleaner_threads=3).calls("begin") == 4
    assert record_counts(logs, 4) == [1, 1, 1, 1]


def test_one_log_after_another_is_one_process_s_work() -> None:
    logs = dirty_logs()

    async def main(world: World) -> World:
        await asyncio.sleep(1.5 * BACKOFF_MS / 1000)
        make_dirty(logs.log)
        await asyncio.sleep(1.5 * BACKOFF_MS / 1000)
        return world

    world = at_work(logs, main, log_cleaner_threads=3)
    assert (len(world.helpers), world.calls("begin")) == (1, 2)


def test_workers_have_an_equal_share_of_the_buffers() -> None:
    logs = dirty_logs()
    settings = replace(COMMON, log_cleaner_threads=4, log_cleaner_dedupe_buffer_size=4 << 20)
    to_clean = logs.cleaner.assess(logs.log, NOW_MS)
    assert to_clean is not None
    plan = logs.cleaner.begin(logs.log, to_clean, settings, NOW_MS).plan
    assert plan.dedupe_buffer_bytes == 1 << 20
    assert plan.io_buffer_bytes == settings.log_cleaner_io_buffer_size // 4


def test_a_process_that_dies_does_not_hold_up_the_other_logs() -> None:
    logs = dirty_logs(3)
    deaths = iter([True])

    def die_once(name: str) -> None:
        if name == "advance" and next(deaths, False):
            raise RuntimeError("killed")

    world = one_round(logs, die_once, log_cleaner_threads=2)
    assert record_counts(logs, 3) == [1, 1, 1]
    assert world.calls("begin") == 4
    assert not logs.cleaner.uncleanable


def test_one_log_that_cannot_be_cleaned_now_does_not_keep_a_worker_from_the_others() -> None:
    logs = dirty_logs(3)
    logs.disk.fail("write", errno.ENOSPC, path="t-0/", times=100)

    async def main(world: World) -> list[int]:
        await asyncio.sleep(2 * BACKOFF_MS / 1000)
        found = record_counts(logs, 3)
        logs.disk.heal()
        await asyncio.sleep(2 * BACKOFF_MS / 1000)
        return found

    assert at_work(logs, main) == [2, 1, 1]
    assert record_counts(logs, 3) == [1, 1, 1]


def test_nothing_is_cleaned_before_the_recovery_point_is_on_disk() -> None:
    logs = dirty_logs()
    logs.disk.fail("write", errno.ENOSPC, path="recovery-point-offset-checkpoint", times=1)
    assert one_round(logs).helpers == []
    one_round(logs)
    assert stored(logs.log) == [(1, "a", "2")]
    assert logs.disk.read_file("/logs/recovery-point-offset-checkpoint") == b"0\n1\nt 0 2\n"


def test_without_room_for_the_checkpoint_the_cleaner_goes_on_and_starts_over() -> None:
    logs = dirty_logs()
    logs.disk.fail("write", errno.ENOSPC, path="cleaner-offset-checkpoint", times=100)

    async def main(world: World) -> None:
        await asyncio.sleep(BACKOFF_MS / 1000)
        assert record_counts(logs, 1) == [1]
        world.cleaner.reconfigure(replace(COMMON, log_cleaner_threads=2))
        logs.disk.heal()
        make_dirty(logs.log)
        await asyncio.sleep(2 * BACKOFF_MS / 1000)

    at_work(logs, main)
    assert logs.disk.read_file("/logs/cleaner-offset-checkpoint") == b"0\n1\nt 0 4\n"


def record_counts(logs: CompactedLogs, count: int) -> list[int]:
    return [len(stored(log_of(logs, number))) for number in range(count)]


def test_more_threads_go_to_work_at_once_on_a_pass_begun_anew() -> None:
    logs = dirty_logs(2)

    async def main(world: World) -> tuple[int, int]:
        await asyncio.sleep(0.1)
        before = len(world.helpers)
        world.cleaner.reconfigure(replace(COMMON, log_cleaner_threads=2))
        await asyncio.sleep(0.1)
        return before, len(world.helpers)

    slow = {"log_cleaner_io_max_bytes_per_second": 1.0}
    assert at_work(logs, main, **slow) == (1, 3)
    assert record_counts(logs, 2) == [1, 1]


def test_settings_of_others_leave_a_pass_alone() -> None:
    logs = dirty_logs()

    async def main(world: World) -> int:
        await asyncio.sleep(0.1)
        world.cleaner.reconfigure(replace(COMMON, log_cleaner_io_max_bytes_per_second=100.0, log_flush_interval_ms=7))
        while not logs.cleaner.reports:
            await asyncio.sleep(0.1)
        return world.calls("begin")

    assert at_work(logs, main, log_cleaner_io_max_bytes_per_second=100.0) == 1
