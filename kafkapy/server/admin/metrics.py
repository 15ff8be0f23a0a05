"""A node's metrics in Prometheus' text format.

Names are those that the usual JMX exporter rules (Strimzi's) derive from Kafka's, so that Kafka dashboards work:
kafka.log:type=LogCleaner,name=max-clean-time-secs is kafka_log_logcleaner_max_clean_time_secs, a PerSec's count is a
_total. The lag of groups has kafka_exporter's names.
"""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from kafkapy.gauge import Gauge


def exposition(gauges: Iterable[Gauge], accept: str) -> tuple[str, bytes]:
    """Return content type and body; `accept` is the Accept header, "" if there is none."""
    encode, content_type = choose_encoder(accept)
    registry = CollectorRegistry()
    registry.register(_Gauges(gauges))
    return content_type, encode(registry)


class _Gauges(Collector):
    def __init__(self, gauges: Iterable[Gauge]) -> None:
        self._gauges = gauges

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Nothing: the metrics are known only when they are collected."""
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Yield all gauges, grouped by name."""
        families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
        for gauge in self._gauges:
            name = prometheus_name(gauge)
            family = families.get(name)
            if family is None:
                kind = CounterMetricFamily if gauge.is_counter else GaugeMetricFamily
                family = families[name] = kind(name, _help(gauge), labels=[label for label, _ in gauge.tags])
            family.add_metric([value for _, value in gauge.tags], gauge.value)
        yield from families.values()


def _help(gauge: Gauge) -> str:
    return f"{gauge.group},name={gauge.name}" if gauge.group else "as kafka_exporter has it"


def prometheus_name(gauge: Gauge) -> str:
    """Return the name by the JMX exporter's usual rules: kafka_<domain>_<type>_<name>, in lower case."""
    if not gauge.group:
        return gauge.name
    domain, _, kind = gauge.group.partition(":type=")
    if kind in DASHED_TYPES:
        kind = kind.replace("-", "")
    name = gauge.name.removesuffix("PerSec") if gauge.is_counter else gauge.name
    return f"{domain}_{kind}_{name}".lower().replace(".", "_").replace("-", "_")


DASHED_TYPES = ("raft-metrics", "broker-metadata-metrics")
"""Types whose dashes the rules remove."""
