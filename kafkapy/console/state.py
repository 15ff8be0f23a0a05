"""The state that all pages share: settings, connections, clients."""

from kafkapy.console.brokers import Brokers
from kafkapy.console.client import Clients
from kafkapy.console.dead_letters import UnfinishedRedrives
from kafkapy.console.history import History
from kafkapy.console.lags import LagSamples, LagWatch
from kafkapy.console.samples import MetricSamples
from kafkapy.console.settings import Settings
from kafkapy.console.topic_list import TopicLists


class Console:
    """The console of one cluster."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.brokers = Brokers(settings)
        self.topic_lists = TopicLists(self.brokers)
        self.clients = Clients(settings, self.brokers)
        self.redrives = UnfinishedRedrives()
        self.lags = LagSamples()
        self.lag_watch = LagWatch(self.clients, self.lags)
        self.history = History(self.brokers, self.topic_lists, self.lags)
        self.metrics = MetricSamples(settings.metrics_urls)

    def start(self) -> None:
        self.lag_watch.start()
        self.history.start()
        self.metrics.start()

    def close(self) -> None:
        self.lag_watch.stop()
        self.history.stop()
        self.metrics.stop()
        self.brokers.close()
