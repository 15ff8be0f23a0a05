"""Samples of /metrics: summed over labels, bounded, counters as rates."""

from kafkapy.console.samples import MAX_NAMES, MAX_POINTS, MetricSamples, rate, sums_of

TEXT = """# HELP a_total text
# TYPE a_total counter
a_total{topic="x"} 1.0
a_total{topic="y z",q="\\"}"} 2.5
gauge 7
h_bucket{le="1"} 3
s{quantile="0.5"} 9
bad nan-ish
endless +Inf
stamped 4 1700000000000
"""


def test_metrics_are_summed_over_labels() -> None:
    assert sums_of(TEXT) == {"a_total": 3.5, "gauge": 7.0, "stamped": 4.0}


def test_a_total_beside_its_parts_is_not_added_to_them() -> None:
    assert sums_of('x{topic="a"} 1\nx 3\nx{topic="b"} 2\n') == {"x": 3.0}


def test_a_counter_is_shown_as_a_rate_which_is_never_negative() -> None:
    assert rate([(0, 10), (5, 20), (10, 0), (10, 3), (15, 8)]) == [(5, 2.0), (10, 0.0), (15, 1.0)]


def test_series_and_points_are_bounded() -> None:
    samples = MetricSamples([])
    many = "\n".join(f"metric_{number} {number}" for number in range(MAX_NAMES + 10))
    for now_s in range(MAX_POINTS + 5):
        samples.add([many] if now_s == 0 else ["metric_0 1"], float(now_s))
    assert len(samples.names()) == MAX_NAMES
    assert len(samples.of("metric_0")) == MAX_POINTS
    assert samples.of("metric_9999") == []


def test_several_brokers_are_added_up() -> None:
    samples = MetricSamples([])
    samples.add(["x 1", "x 2"], 5.0)
    assert samples.of("x") == [(5.0, 3.0)]
