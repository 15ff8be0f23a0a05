"""The log cleaner's metrics, under the names of Apache Kafka's gauges.

Computed on request, as in Kafka, from the last pass of each worker and the last choice of a log. DeadThreadCount is
always 0: a worker whose process dies gets a new one. The `last-clean-*` gauges are kafkapy's own, for the last pass of
any worker; Kafka reports these values only in its log.
"""

from collections.abc import Iterator
from typing import Final

from kafkapy.gauge import Gauge
from kafkapy.storage.cleaner.manager import CleanerManager

CLEANER: Final = "kafka.log:type=LogCleaner"
MANAGER: Final = "kafka.log:type=LogCleanerManager"


def cleaner_gauges(manager: CleanerManager, log_dirs: list[str], now_ms: int) -> Iterator[Gauge]:
    """Yield all gauges. log_dirs: the paths that get gauges of their own."""
    reports = list(manager.reports.values())
    written_bytes = sum(report.bytes_after for report in reports)
    read_bytes = sum(report.bytes_before for report in reports)
    utilization = max((report.map_utilization for report in reports), default=0.0)
    duration_ms = max((report.duration_ms for report in reports), default=0)
    yield Gauge(CLEANER, "max-buffer-utilization-percent", int(100 * utilization))
    yield Gauge(CLEANER, "cleaner-recopy-percent", 100 * written_bytes // max(read_bytes, 1))
    yield Gauge(CLEANER, "max-clean-time-secs", duration_ms // 1000)
    yield Gauge(CLEANER, "max-compaction-delay-secs", max(manager.overdue_ms.values(), default=0) // 1000)
    yield Gauge(CLEANER, "DeadThreadCount", 0)
    last = reports[-1] if reports else None
    yield Gauge(CLEANER, "last-clean-bytes-before", last.bytes_before if last is not None else 0)
    yield Gauge(CLEANER, "last-clean-bytes-after", last.bytes_after if last is not None else 0)
    yield Gauge(CLEANER, "last-clean-records-read", last.records_read if last is not None else 0)
    yield Gauge(CLEANER, "last-clean-records-kept", last.records_kept if last is not None else 0)
    yield Gauge(MANAGER, "max-dirty-percent", int(100 * manager.max_dirty_ratio))
    yield Gauge(MANAGER, "time-since-last-run-ms", max(now_ms - manager.last_check_ms, 0))
    yield Gauge("kafka.utils:type=Throttler", "cleaner-io", manager.io_bytes, is_counter=True)
    for log_dir in log_dirs:
        aside = [log for log in manager.logs_set_aside if log.log_dir.path == log_dir]
        dirty = [to_clean.dirty_bytes for log in aside if (to_clean := manager.assess(log, now_ms)) is not None]
        tags = (("logDirectory", log_dir),)
        yield Gauge(MANAGER, "uncleanable-partitions-count", len(aside), tags)
        yield Gauge(MANAGER, "uncleanable-bytes", sum(dirty), tags)
