"""BrokerTopicMetrics: the counts of kafkapy.metrics.traffic, for the broker and for each topic."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkapy.gauge import Gauge

if TYPE_CHECKING:
    from kafkapy.metrics.traffic import BrokerTraffic, TopicTraffic

TOPIC_METRICS: Final = "kafka.server:type=BrokerTopicMetrics"
NAMES: Final = {
    "bytes_in": "BytesInPerSec",
    "bytes_out": "BytesOutPerSec",
    "bytes_rejected": "BytesRejectedPerSec",
    "failed_fetches": "FailedFetchRequestsPerSec",
    "failed_produces": "FailedProduceRequestsPerSec",
    "failed_share_acknowledgements": "FailedShareAcknowledgementRequestsPerSec",
    "failed_share_fetches": "FailedShareFetchRequestsPerSec",
    "fetches": "TotalFetchRequestsPerSec",
    "messages_in": "MessagesInPerSec",
    "produce_conversions": "ProduceMessageConversionsPerSec",
    "produces": "TotalProduceRequestsPerSec",
    "share_acknowledgements": "TotalShareAcknowledgementRequestsPerSec",
    "share_fetches": "TotalShareFetchRequestsPerSec",
}
"""Metrics of the broker and of topics, from the counts of TopicTraffic."""
BROKER_NAMES: Final = {
    "replication_bytes_in": "ReplicationBytesInPerSec",
    "replication_bytes_out": "ReplicationBytesOutPerSec",
    "reassignment_bytes_in": "ReassignmentBytesInPerSec",
    "reassignment_bytes_out": "ReassignmentBytesOutPerSec",
    "invalid_crc_records": "InvalidMessageCrcRecordsPerSec",
    "invalid_sequence_records": "InvalidOffsetOrSequenceRecordsPerSec",
    "records_without_key": "NoKeyCompactedTopicRecordsPerSec",
}
"""Metrics of the broker only, from the counts of BrokerTraffic."""
NEVER: Final = ("FetchMessageConversionsPerSec", "InvalidMagicNumberRecordsPerSec")
"""Metrics that Kafka 4 still has, but never counts: it takes one batch, of magic 2, whose records have no magic."""


def traffic_gauges(traffic: "BrokerTraffic") -> Iterator[Gauge | None]:
    yield from _gauges(traffic.total(), (), is_broker=True)
    for attribute, name in BROKER_NAMES.items():
        yield Gauge(TOPIC_METRICS, name, getattr(traffic, attribute), is_counter=True)
    for name in NEVER:
        yield Gauge(TOPIC_METRICS, name, 0, is_counter=True)
    for topic, counts in list(traffic.topics.items()):
        yield from _gauges(counts, (("topic", topic),), is_broker=False)
        yield None


def _gauges(counts: "TopicTraffic", tags: tuple[tuple[str, str], ...], *, is_broker: bool) -> Iterator[Gauge]:
    """Yield the counts of the broker or of a topic; of a topic only those above 0, as in Apache Kafka."""
    for attribute, name in NAMES.items():
        value = getattr(counts, attribute)
        if value or is_broker:
            yield Gauge(TOPIC_METRICS, name, value, tags, is_counter=True)
