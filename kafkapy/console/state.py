"""What all pages share: settings, connections, clients."""

from kafkapy.console.brokers import Brokers
from kafkapy.console.client import Clients
from kafkapy.console.samples import LagSamples, MetricSamples
from kafkapy.console.settings import Settings


class Console:
    """The console of one cluster."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.brokers = Brokers(settings)
        self.clients = Clients(settings)
        self.lags = LagSamples()
        self.metrics = MetricSamples(settings.metrics_urls)

    def close(self) -> None:
        self.metrics.stop()
        self.brokers.close()
