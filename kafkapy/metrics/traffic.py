"""Counts of topics: kafka.server:type=BrokerTopicMetrics, for each topic and for the broker.

A topic is counted once, in its TopicTraffic. The broker's counts are the sum over its topics, those that it no longer
has included, so that they never fall.
"""

from typing import Final

from kafkapy.metrics.histogram import bucket_of, new_histogram
from kafkapy.protocol.error_code import ErrorCode

TOPIC_COUNTS: Final = (
    "bytes_in",
    "bytes_out",
    "bytes_rejected",
    "failed_fetches",
    "failed_produces",
    "failed_share_acknowledgements",
    "failed_share_fetches",
    "fetches",
    "messages_in",
    "produce_conversions",
    "produces",
    "share_acknowledgements",
    "share_fetches",
)

REJECTED: Final = frozenset((ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE))
EXPECTED: Final = REJECTED | {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
}
"""Errors of an append that Apache Kafka does not count as failed produce requests."""
READ_FAILURES: Final = frozenset((ErrorCode.UNKNOWN_SERVER_ERROR,))
"""Errors of a read that it counts as failed fetch requests: none that a reader or the metadata causes."""


class TopicTraffic:
    """The counts of one topic, shared by its partitions on this broker."""

    __slots__ = TOPIC_COUNTS

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        """To consumers."""
        self.bytes_rejected = 0
        self.failed_fetches = 0
        self.failed_produces = 0
        self.failed_share_acknowledgements = 0
        self.failed_share_fetches = 0
        self.fetches = 0
        """Reads of a partition, for consumers and followers; a fetch that waits reads twice."""
        self.messages_in = 0
        self.produce_conversions = 0
        """Records re-encoded in the topic's compression.type."""
        self.produces = 0
        """Appends to a partition."""
        self.share_acknowledgements = 0
        """Requests of share groups with acknowledgements for the topic; those below are counted alike."""
        self.share_fetches = 0

    def count_appends(self, *, produces: int, size_bytes: int, messages: int) -> None:
        self.produces += produces
        self.bytes_in += size_bytes
        self.messages_in += messages

    def count_conversions(self, records: int) -> None:
        self.produce_conversions += records

    def count_refusal(self, error_code: int, size_bytes: int) -> None:
        """Count an append that was refused."""
        self.produces += 1
        if error_code not in EXPECTED:
            self.failed_produces += 1
        if error_code in REJECTED:
            self.bytes_rejected += size_bytes

    def count_read(self, error_code: int) -> None:
        """Count a read of a partition."""
        self.fetches += 1
        if error_code in READ_FAILURES:
            self.failed_fetches += 1

    def count_share_fetch(self, *, has_failed: bool) -> None:
        self.share_fetches += 1
        self.failed_share_fetches += has_failed

    def count_share_acknowledgement(self, *, has_failed: bool) -> None:
        self.share_acknowledgements += 1
        self.failed_share_acknowledgements += has_failed

    def add(self, other: "TopicTraffic") -> None:
        for name in TOPIC_COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class BrokerTraffic:
    """The counts of all topics on this broker, and what is counted for the broker only."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicTraffic] = {}
        self._gone = TopicTraffic()
        """Sums of the topics that are not on this broker any more."""
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0
        self.reassignment_bytes_in = 0
        self.reassignment_bytes_out = 0
        self.invalid_crc_records = 0
        self.invalid_sequence_records = 0
        self.records_without_key = 0
        self.conversion_us = new_histogram()
        """The time to re-encode the batches of Produce requests; requests without re-encoding are not counted."""
        self.temporary_bytes = new_histogram()
        """The memory of Produce requests with compressed or re-encoded batches, besides the request."""

    def of(self, topic: str) -> TopicTraffic:
        """Return the counts of a topic that has a partition on this broker."""
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = TopicTraffic()
        return found

    def of_any(self, topic: str) -> TopicTraffic:
        """Return the counts of a topic; of one without a partition on this broker only the broker's sums have them."""
        return self.topics.get(topic, self._gone)

    def forget(self, topic: str) -> None:
        """Remove a topic whose last partition has left this broker; the broker's sums keep its counts."""
        gone = self.topics.pop(topic, None)
        if gone is not None:
            self._gone.add(gone)

    def count_invalid(self, error_code: int, invalid_record_count: int, *, is_out_of_sequence: bool) -> None:
        """Count the cause of a refused append; invalid_record_count: of records without a key."""
        if error_code == ErrorCode.CORRUPT_MESSAGE:
            self.invalid_crc_records += 1
        elif error_code == ErrorCode.INVALID_RECORD:
            self.records_without_key += invalid_record_count
            self.invalid_sequence_records += is_out_of_sequence

    def record_validation(self, *, temporary_bytes: int, conversion_ns: int) -> None:
        """Count a Produce request with compressed or re-encoded batches."""
        self.temporary_bytes[bucket_of(temporary_bytes)] += 1
        if conversion_ns:
            self.conversion_us[bucket_of(conversion_ns // 1000)] += 1

    def count_replicated(self, size_bytes: int, *, is_reassigned: bool) -> None:
        """Count bytes that this broker has fetched as a follower."""
        self.replication_bytes_in += size_bytes
        if is_reassigned:
            self.reassignment_bytes_in += size_bytes

    def count_sent_to_follower(self, size_bytes: int, *, is_reassigned: bool) -> None:
        self.replication_bytes_out += size_bytes
        if is_reassigned:
            self.reassignment_bytes_out += size_bytes

    def total(self) -> TopicTraffic:
        """Return the sums over all topics."""
        total = TopicTraffic()
        total.add(self._gone)
        for topic in self.topics.values():
            total.add(topic)
        return total
