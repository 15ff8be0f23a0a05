"""What a node measures, in Prometheus' text format.

Names are those that the usual rules of the JMX exporter make of Kafka's, so that dashboards for Kafka find them:
kafka.log:type=LogCleaner,name=max-clean-time-secs is kafka_log_logcleaner_max_clean_time_secs.
"""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from kafkapy.storage.cleaner.metrics import Gauge


def exposition(gauges: Iterable[Gauge], accept: str) -> tuple[str, bytes]:
    """Return content type and body; `accept` is the header of that name, "" where there is none."""
    encode, content_type = choose_encoder(accept)
    registry = CollectorRegistry()
    registry.register(_Gauges(gauges))
    return content_type, encode(registry)


class _Gauges(Collector):
    def __init__(self, gauges: Iterable[Gauge]) -> None:
        self._gauges = gauges

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Nothing: what there is is known when it is asked for."""
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield all gauges, those of one name together."""
        families: dict[str, GaugeMetricFamily] = {}
        for gauge in self._gauges:
            labels = {"logDirectory": gauge.log_dir} if gauge.log_dir else {}
            name = prometheus_name(gauge)
            if name not in families:
                families[name] = GaugeMetricFamily(name, f"{gauge.group},name={gauge.name}", labels=list(labels))
            families[name].add_metric(list(labels.values()), gauge.value)
        yield from families.values()


def prometheus_name(gauge: Gauge) -> str:
    """Return the name that the JMX exporter's usual rules give: kafka_<domain>_<type>_<name>, in small letters."""
    domain, _, kind = gauge.group.partition(":type=")
    return f"{domain}_{kind}_{gauge.name}".lower().replace(".", "_").replace("-", "_")
