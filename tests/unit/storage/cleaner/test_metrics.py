"""The cleaner's gauges, by Kafka's names."""

from kafkapy.storage.cleaner.metrics import cleaner_gauges
from tests.simulator.disk import SimDisk
from tests.support.cleaning import NOW_MS, CompactedLogs, append


def gauges(logs: CompactedLogs, now_ms: int) -> dict[str, int]:
    return {str(gauge): gauge.value for gauge in cleaner_gauges(logs.cleaner, ["/logs"], now_ms)}


def test_before_the_first_pass_all_are_zero() -> None:
    found = gauges(CompactedLogs(SimDisk()), 0)
    assert len(found) == 14
    assert set(found.values()) == {0}


def test_a_pass_is_reported() -> None:
    logs = CompactedLogs(SimDisk())
    for number in range(10):
        append(logs.log, ("key", str(number)))
    logs.roll_and_flush()
    report = logs.clean()
    assert report is not None
    found = gauges(logs, NOW_MS)
    recopied = 100 * report.bytes_after // report.bytes_before
    assert found["kafka.log:type=LogCleaner,name=cleaner-recopy-percent"] == recopied == 10
    assert found["kafka.log:type=LogCleaner,name=max-clean-time-secs"] == 1
    assert found["kafka.log:type=LogCleaner,name=last-clean-bytes-before"] == report.bytes_before
    assert found["kafka.log:type=LogCleaner,name=last-clean-bytes-after"] == report.bytes_after
    assert found["kafka.log:type=LogCleaner,name=last-clean-records-read"] == 10
    assert found["kafka.log:type=LogCleaner,name=last-clean-records-kept"] == 1
    assert found["kafka.log:type=LogCleanerManager,name=max-dirty-percent"] == 100


def test_the_delay_is_that_of_the_last_time_when_there_was_something_to_clean() -> None:
    logs = CompactedLogs(SimDisk(), max_compaction_lag_ms=1000)
    append(logs.log, ("key", "value"))
    logs.roll_and_flush()
    assert logs.clean(NOW_MS + 4000) is not None
    assert logs.clean(NOW_MS + 9000) is None
    assert gauges(logs, NOW_MS)["kafka.log:type=LogCleaner,name=max-compaction-delay-secs"] == 3


def test_what_is_set_aside_is_counted() -> None:
    logs = CompactedLogs(SimDisk())
    append(logs.log, ("key", "value"))
    logs.roll_and_flush()
    logs.cleaner.set_aside(logs.log, "no reason")
    found = gauges(logs, NOW_MS)
    group = "kafka.log:type=LogCleanerManager"
    assert found[f"{group},name=uncleanable-partitions-count,logDirectory=/logs"] == 1
    assert found[f"{group},name=uncleanable-bytes,logDirectory=/logs"] == logs.log.segments.first.size
