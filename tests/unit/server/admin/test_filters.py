"""Which topics and groups have series."""

import pytest

from kafkapy.errors import ConfigError
from kafkapy.gauge import Gauge
from kafkapy.server.admin.filters import SeriesFilter
from kafkapy.server.admin.metrics import Exposition

pytest.importorskip("re2")


def test_series_of_other_topics_and_groups_are_left_out() -> None:
    shown = SeriesFilter(topics="a.*|b", groups="g[0-9]")
    assert shown.shows((("topic", "abc"), ("partition", "0")))
    assert not shown.shows((("topic", "bc"), ("partition", "0")))
    assert shown.shows((("consumergroup", "g1"), ("topic", "b")))
    assert not shown.shows((("consumergroup", "g11"), ("topic", "b")))
    assert shown.shows((("listener", "PLAINTEXT"),))


def test_names_longer_than_topics_are_matched_too() -> None:
    shown = SeriesFilter(topics="a.*")
    for name, is_shown in (("a" * 5000, True), ("b" * 5000, False), ("a\u00e9", True)):
        assert shown.shows((("topic", name),)) is is_shown


def test_sums_stay() -> None:
    exposition = Exposition(shown=SeriesFilter(topics="other"))
    group = "kafka.server:type=BrokerTopicMetrics"
    gauges = [Gauge(group, "BytesInPerSec", 7, is_counter=True)]
    gauges.append(Gauge(group, "BytesInPerSec", 7, (("topic", "t"),), is_counter=True))
    for _ in exposition.render(gauges, "", 0.0):
        pass
    lines = [line for line in exposition.body.decode().splitlines() if not line.startswith("#")]
    assert lines == ["kafka_server_brokertopicmetrics_bytesin_total 7"]


def test_a_broken_pattern_is_refused_with_its_key() -> None:
    with pytest.raises(ConfigError, match=r"Invalid value \( for configuration kafkapy.metrics.groups"):
        SeriesFilter(groups="(")
