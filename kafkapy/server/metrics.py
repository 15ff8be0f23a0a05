"""What a node tells of itself over HTTP, in Prometheus' text format: http://127.0.0.1:PORT/metrics.

Names are those that the usual rules of the JMX exporter make of Kafka's, so that dashboards for Kafka find them:
kafka.log:type=LogCleaner,name=max-clean-time-secs is kafka_log_logcleaner_max_clean_time_secs. Imported only where
kafkapy.metrics.port is set; a thread serves it and asks the event loop, to which all that is told belongs.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kafkapy.storage.cleaner.metrics import Gauge

HOST: Final = "127.0.0.1"
ANSWER_TIMEOUT_S: Final = 10.0
"""How long an answer waits for the event loop; then it is 500."""

logger = logging.getLogger("kafkapy.server")


class MetricsEndpoint(Collector):
    """Serves from its making to close()."""

    def __init__(self, loop: asyncio.AbstractEventLoop, port: int, gauges: Callable[[], Iterable[Gauge]]) -> None:
        """`gauges()` is called on the loop's thread. port: 0 for a free one. Raises OSError where it is taken."""
        self._loop = loop
        self._gauges = gauges
        registry = CollectorRegistry()
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(port, HOST, registry)
        except OSError as error:
            raise OSError(error.errno, f"cannot serve metrics on {HOST}:{port}: {error.strerror}") from error
        self.port = self._server.server_port
        logger.info("Serving metrics on http://%s:%d/metrics", HOST, self.port)

    def close(self) -> None:
        """Serve no more. Waits for the thread; answers under way that need the loop are not waited for."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Nothing: what there is is known when it is asked for."""
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield all gauges, those of one name together."""
        gauges = asyncio.run_coroutine_threadsafe(self._look(), self._loop).result(ANSWER_TIMEOUT_S)
        families: dict[str, GaugeMetricFamily] = {}
        for gauge in gauges:
            labels = {"logDirectory": gauge.log_dir} if gauge.log_dir else {}
            name = prometheus_name(gauge)
            if name not in families:
                families[name] = GaugeMetricFamily(name, f"{gauge.group},name={gauge.name}", labels=list(labels))
            families[name].add_metric(list(labels.values()), gauge.value)
        yield from families.values()

    async def _look(self) -> list[Gauge]:
        return list(self._gauges())


def prometheus_name(gauge: Gauge) -> str:
    """Return the name that the JMX exporter's usual rules give: kafka_<domain>_<type>_<name>, in small letters."""
    domain, _, kind = gauge.group.partition(":type=")
    return f"{domain}_{kind}_{gauge.name}".lower().replace(".", "_").replace("-", "_")
