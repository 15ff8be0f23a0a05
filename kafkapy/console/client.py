"""confluent-kafka's clients for the console: one AdminClient for all pages, a consumer per search."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from kafkapy.cli.client import client_properties, confluent, outcomes, reason_of_kafka, with_java_defaults
from kafkapy.cli.committed_offsets import CoordinatorError, NoResponseError
from kafkapy.cli.group_offsets import CommittedOffsets, GroupOffsets
from kafkapy.console.brokers import Brokers, ClusterError
from kafkapy.console.settings import Settings

CONSUMER_PROPERTIES: Final[dict[str, Any]] = {
    "group.id": "kafkapy-console",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    "allow.auto.create.topics": False,
    "queued.max.messages.kbytes": 8192,
    "queued.min.messages": 2000,
    "fetch.queue.backoff.ms": 10,
    "fetch.message.max.bytes": 1 << 20,
    "fetch.wait.max.ms": 200,
}
"""Properties of searches: little is fetched ahead. By default librdkafka sleeps for 1 s when its queue is full."""


class Clients:
    """Creates clients with the properties of the command line. `brokers`: for requests that librdkafka lacks."""

    def __init__(self, settings: Settings, brokers: Brokers) -> None:
        self._settings = settings
        self._brokers = brokers
        self._lock = threading.Lock()
        self._admin: Any = None

    def admin(self) -> Any:
        with self._lock:
            if self._admin is None:
                self._admin = confluent().admin.AdminClient(self._properties())
            return self._admin

    def offsets(self, group: str) -> GroupOffsets:
        return GroupOffsets(self, CommittedOffsets(self, group))

    def call(self, node_id: int | None, request: Any, version: int) -> Any:
        """committed_offsets.BrokerCalls.call: Brokers.call, which raises NoResponseError."""
        try:
            return self._brokers.call(node_id, request, version)
        except ClusterError as error:
            raise NoResponseError(str(error)) from error

    def consumer(self, isolation: str = "read_committed") -> Any:
        """Return a consumer that is never a member of a group and never commits; its memory is bounded.

        librdkafka requires the name of a group, but joins none as long as partitions are assigned.
        """
        return confluent().Consumer(self._properties() | CONSUMER_PROPERTIES | {"isolation.level": isolation})

    def producer(self, properties: Mapping[str, Any] | None = None) -> Any:
        """Return a producer, with these properties before our defaults."""
        defaults = {"message.timeout.ms": 10_000, "acks": "all"}
        return confluent().Producer(with_java_defaults(self._properties() | defaults | dict(properties or {})))

    def _properties(self) -> dict[str, Any]:
        return {
            **client_properties(
                self._brokers.servers, None, client_id="kafkapy-console", reconnect_backoff_max_ms=1000
            ),
            **(self._settings.properties or {}),
        }


@contextmanager
def failures() -> Iterator[None]:
    """Turn the errors of librdkafka and of GroupOffsets into ClusterError."""
    try:
        yield
    except CoordinatorError as error:
        raise ClusterError(str(error)) from error
    except confluent().KafkaException as error:
        raise ClusterError(reason_of_kafka(error.args[0], None)) from error


def all_done(futures: Mapping[Any, Any]) -> None:
    """Wait for admin requests. Raises ClusterError."""
    for _, _, error in outcomes(futures):
        if error is not None:
            raise ClusterError(error)
