"""Where a group begins to read, committed before it has members."""

from collections.abc import Sequence

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.eventually import eventually


def commit_starts(bootstrap: str, group: str, topics: Sequence[str], partitions: int) -> None:
    """Commit offset 0 of all partitions, so that librdkafka need not ask for the start (auto.offset.reset).

    A member of librdkafka (2.16.0, and its sources of July 2026) may otherwise get records from before the committed
    offset. If a partition is revoked while the member's ListOffsets is under way, the late response ("outdated offset
    response") starts the fetcher of the partition all the same. When the member gets the partition again, what was
    fetched meanwhile is handed to the application until the version barrier is raised, a moment later. librdkafka does
    so with its own mock broker, too: with 500 records or more in 11 of 30 assignments.
    """
    starts = [TopicPartition(topic, number, 0) for topic in topics for number in range(partitions)]
    requested = [ConsumerGroupTopicPartitions(group, starts)]

    def is_committed() -> bool:
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})  # one that got an error may crash later
        answered = admin.alter_consumer_group_offsets(requested)[group].result(60)
        return all(each.error is None for each in answered.topic_partitions)

    eventually(is_committed)
