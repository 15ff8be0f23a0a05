"""Rendering many series: in steps, and rows as the gauges that they stand for."""

import pytest

from kafkapy.gauge import Distribution, Gauge, Row
from kafkapy.metrics.histogram import new_histogram
from kafkapy.server.admin.metrics import SAMPLES_PER_STEP, Exposition, exposition

LOG = "kafka.log:type=Log"
COLUMNS = ((LOG, "Size"), (LOG, "LogEndOffset"))


def tags(number: int) -> tuple[tuple[str, str], ...]:
    return (("partition", str(number)), ("topic", "t"))


def test_ten_thousand_partitions_are_rendered_in_small_steps() -> None:
    rows = [Row(COLUMNS, (number, 2 * number), tags(number)) for number in range(10_000)]
    rendering = Exposition()
    steps = sum(1 for _ in rendering.render(rows, "", 0.0))
    assert steps >= 20_000 // (SAMPLES_PER_STEP + len(COLUMNS))
    assert rendering.body.count(b"\n") == 20_000 + 2 * len(COLUMNS)


def test_many_names_take_few_steps() -> None:
    """Clients may push metrics of 10,000 names, and each step is followed by a pause of a millisecond."""
    rendering = Exposition()
    steps = sum(
        1 for _ in rendering.render([Gauge("", f"kafkapy_client_{index}", 1) for index in range(10_000)], "", 0)
    )
    assert steps < 1_000
    assert rendering.body.count(b"# TYPE") == 10_000


@pytest.mark.parametrize("names", ["strimzi", "confluent", "both"])
def test_a_row_is_shown_as_its_gauges(names: str) -> None:
    rows, gauges = Exposition(names), Exposition(names)
    for _ in rows.render([Row(COLUMNS, (1, 2), tags(0))], "", 0.0):
        pass
    for _ in gauges.render([Gauge(LOG, "Size", 1, tags(0)), Gauge(LOG, "LogEndOffset", 2, tags(0))], "", 0.0):
        pass
    assert sorted(rows.body.splitlines()) == sorted(gauges.body.splitlines())


def test_what_is_not_kafkas_is_a_summary() -> None:
    counts = new_histogram()
    counts[4] += 3
    _, body = exposition([Distribution("", "kafkapy_gc_pause_seconds", (), [counts], unit=0.5)], "")
    lines = body.decode().splitlines()
    assert lines[1] == "# TYPE kafkapy_gc_pause_seconds summary"
    assert lines[2] == 'kafkapy_gc_pause_seconds{quantile="0.50"} 2.0'
    assert lines[-1] == "kafkapy_gc_pause_seconds_count 3"


def test_a_maximum_that_is_a_counter_by_its_name_is_unknown_to_openmetrics() -> None:
    gauge = Gauge("kafka.server:type=raft-metrics", "commit-latency-max", float("nan"))
    name = "kafka_server_raftmetrics_commit_latency_max_total"
    assert f"# TYPE {name} counter\n{name} NaN\n" in exposition([gauge], "")[1].decode()
    assert f"# TYPE {name} unknown\n{name} NaN\n" in exposition([gauge], "application/openmetrics-text")[1].decode()


def test_openmetrics_ends_with_its_mark_and_names_counters_without_total() -> None:
    counter = Gauge("kafka.server:type=BrokerTopicMetrics", "BytesInPerSec", 5, is_counter=True)
    content_type, body = exposition([counter], "application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert body.decode().splitlines()[1:] == [
        "# TYPE kafka_server_brokertopicmetrics_bytesin counter",
        "kafka_server_brokertopicmetrics_bytesin_total 5",
        "# EOF",
    ]
