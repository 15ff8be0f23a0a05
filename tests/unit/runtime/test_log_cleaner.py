"""The cleaner's loop: steps in a helper process that may die, be slow or be throttled."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kafkapy.config.log_defaults import LogDefaults
from kafkapy.runtime.cleaner import LogCleaner
from kafkapy.storage.cleaner_steps import Steps
from tests.sim.disk import SimDisk
from tests.support.cleaning import NOW_MS, PARTITION, SETTINGS, CompactedLogs, append, stored


class FakeClock:
    def wall_ms(self) -> int:
        return NOW_MS

    def monotonic_ms(self) -> int:
        return 0


class InlinePool:
    def submit(self, call: Callable[[], Any], on_done: Callable[[Any, BaseException | None], None]) -> None:
        on_done(call(), None)


class InlineHelper:
    """Runs the calls here; `hook(name)` comes before each and may raise, as a process that dies."""

    def __init__(self, disk: SimDisk, hook: Callable[[str], None] = lambda name: None) -> None:
        self.calls: list[str] = []
        self._steps = Steps(disk)
        self._hook = hook

    def submit(self, path: str, arguments: dict[str, Any], on_done: Callable[[Any, str | None], None]) -> None:
        name = path.rpartition(":")[2]
        self.calls.append(name)
        try:
            self._hook(name)
        except RuntimeError as error:
            on_done(None, str(error))
            return
        on_done(getattr(self._steps, name)(**arguments), None)

    def close(self) -> None:
        self.calls.append("close")


def dirty_logs() -> CompactedLogs:
    logs = CompactedLogs(SimDisk())
    append(logs.log, ("a", "1"))
    append(logs.log, ("a", "2"))
    logs.roll_and_flush()
    return logs


def cleaner_of(logs: CompactedLogs, helper: InlineHelper, settings: LogDefaults = SETTINGS) -> LogCleaner:
    return LogCleaner(
        logs.cleaner,
        logs.logs,
        new_helper=lambda loop: helper,
        settings=lambda: settings,
        clock=FakeClock(),
        io_pool=InlinePool(),
    )


def test_a_pass_is_taken_to_its_end_and_checkpointed() -> None:
    logs = dirty_logs()
    helper = InlineHelper(logs.disk)
    assert asyncio.run(cleaner_of(logs, helper).clean_dirtiest())
    assert stored(logs.log) == [(1, "a", "2")]
    assert logs.disk.read_file("/logs/cleaner-offset-checkpoint") == b"0\n1\nt 0 2\n"
    assert logs.cleaner.last_report is not None
    assert "cleaned log t-0 (dirty section = [0, 2])" in str(logs.cleaner.last_report)


def test_nothing_is_started_where_nothing_is_dirty() -> None:
    logs = CompactedLogs(SimDisk())
    append(logs.log, ("a", "1"))
    helper = InlineHelper(logs.disk)
    assert not asyncio.run(cleaner_of(logs, helper).clean_dirtiest())
    assert helper.calls == []


def test_what_retention_takes_of_a_compacted_log_goes_between_passes() -> None:
    logs = CompactedLogs(SimDisk(), cleanup_policy=("compact", "delete"), retention_ms=1000)
    append(logs.log, ("a", "1"), now_ms=NOW_MS - 2000)
    logs.roll_and_flush()
    append(logs.log, ("b", "2"), now_ms=NOW_MS)
    assert not asyncio.run(cleaner_of(logs, InlineHelper(logs.disk)).clean_dirtiest())
    assert stored(logs.log) == [(1, "b", "2")]
    assert logs.log.log_start_offset == 1


def test_a_helper_that_dies_three_times_sets_the_partition_aside() -> None:
    logs = dirty_logs()

    def die(name: str) -> None:
        raise RuntimeError(f"killed in {name}")

    cleaner = cleaner_of(logs, InlineHelper(logs.disk, die))
    for _ in range(3):
        assert list(logs.cleaner.uncleanable) == []
        assert not asyncio.run(cleaner.clean_dirtiest())
    assert list(logs.cleaner.uncleanable) == [PARTITION]
    assert stored(logs.log) == [(0, "a", "1"), (1, "a", "2")]


def test_a_log_truncated_between_two_steps_is_left_as_it_is() -> None:
    logs = dirty_logs()

    def truncate(name: str) -> None:
        if name == "advance":
            logs.logs.truncate_to({PARTITION: 1})

    helper = InlineHelper(logs.disk, truncate)
    assert not asyncio.run(cleaner_of(logs, helper).clean_dirtiest())
    assert stored(logs.log) == [(0, "a", "1")]
    assert not logs.cleaner.uncleanable


def test_a_throttled_pass_waits_as_long_as_its_bytes_may_take(monkeypatch: Any) -> None:
    logs = dirty_logs()
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    settings = replace(SETTINGS, log_cleaner_io_max_bytes_per_second=100.0)
    size_bytes = logs.log.segments.first.size
    assert asyncio.run(cleaner_of(logs, InlineHelper(logs.disk), settings).clean_dirtiest())
    moved_bytes = 2 * size_bytes + logs.log.segments.first.size
    assert sum(waits) == moved_bytes / 100


def test_a_disabled_cleaner_does_not_start() -> None:
    logs = dirty_logs()

    async def start_and_stop() -> list[str]:
        helper = InlineHelper(logs.disk)
        cleaner = cleaner_of(logs, helper, replace(SETTINGS, log_cleaner_enable=False))
        cleaner.start()
        await asyncio.sleep(0)
        await cleaner.stop()
        return helper.calls

    assert asyncio.run(start_and_stop()) == []
