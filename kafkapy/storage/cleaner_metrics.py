"""What the log cleaner tells of itself, under the names of Apache Kafka's gauges.

Computed when asked for, from the last pass and the last look at the logs, as there. One pass runs at a time here, so
what Kafka takes the maximum of over its threads is that of the last pass. The `last-clean-*` gauges are ours: what
Kafka tells of a pass in its log alone.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from kafkapy.storage.cleaner_manager import CleanerManager

CLEANER: Final = "kafka.log:type=LogCleaner"
MANAGER: Final = "kafka.log:type=LogCleanerManager"


class Gauge(NamedTuple):
    """`group` and `name` as in Kafka's JMX; log_dir: the tag logDirectory, "" where there is none."""

    group: str
    name: str
    value: int
    log_dir: str = ""

    def __str__(self) -> str:
        tag = f",logDirectory={self.log_dir}" if self.log_dir else ""
        return f"{self.group},name={self.name}{tag}"


def cleaner_gauges(manager: CleanerManager, log_dirs: list[str], now_ms: int) -> Iterator[Gauge]:
    """Yield all gauges. log_dirs: the paths to tell of, each by itself."""
    last = manager.last_report
    recopied = 100 * last.bytes_after // max(last.bytes_before, 1) if last is not None else 0
    yield Gauge(CLEANER, "max-buffer-utilization-percent", int(100 * last.map_utilization) if last is not None else 0)
    yield Gauge(CLEANER, "cleaner-recopy-percent", recopied)
    yield Gauge(CLEANER, "max-clean-time-secs", last.duration_ms // 1000 if last is not None else 0)
    yield Gauge(CLEANER, "max-compaction-delay-secs", manager.max_overdue_ms // 1000)
    yield Gauge(CLEANER, "DeadThreadCount", 0)
    yield Gauge(CLEANER, "last-clean-bytes-before", last.bytes_before if last is not None else 0)
    yield Gauge(CLEANER, "last-clean-bytes-after", last.bytes_after if last is not None else 0)
    yield Gauge(CLEANER, "last-clean-records-read", last.records_read if last is not None else 0)
    yield Gauge(CLEANER, "last-clean-records-kept", last.records_kept if last is not None else 0)
    yield Gauge(MANAGER, "max-dirty-percent", int(100 * manager.max_dirty_ratio))
    yield Gauge(MANAGER, "time-since-last-run-ms", max(now_ms - manager.looked_at_ms, 0))
    for log_dir in log_dirs:
        aside = [log for log in manager.logs_set_aside if log.log_dir.path == log_dir]
        dirty = [to_clean.dirty_bytes for log in aside if (to_clean := manager.assess(log, now_ms)) is not None]
        yield Gauge(MANAGER, "uncleanable-partitions-count", len(aside), log_dir)
        yield Gauge(MANAGER, "uncleanable-bytes", sum(dirty), log_dir)
