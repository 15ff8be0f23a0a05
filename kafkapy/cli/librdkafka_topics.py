"""Topics as librdkafka knows them, for logins that only librdkafka has (GSSAPI by -X): without sizes."""

from collections.abc import Collection, Mapping
from typing import Any

from kafkapy.cli.client import confluent, outcomes
from kafkapy.cli.committed_offsets import Partition
from kafkapy.cli.deadline import TIMEOUT_S
from kafkapy.cli.topic_facts import EARLIEST, LATEST, PartitionFacts, TopicFacts

OF_TOPIC = 1


class LibrdkafkaTopics:
    """In the place of TopicQueries. Methods raise KafkaException; what a leader does not say is left out."""

    def __init__(self, admin: Any) -> None:
        self._admin = admin

    def topics(self) -> dict[str, TopicFacts]:
        found = self._admin.list_topics(timeout=TIMEOUT_S).topics
        return {
            name: TopicFacts(
                name,
                [
                    PartitionFacts(number, each.leader, list(each.replicas), list(each.isrs))
                    for number, each in sorted(topic.partitions.items())
                ],
            )
            for name, topic in found.items()
            if topic.error is None
        }

    def add_offsets(self, topics: Collection[TopicFacts]) -> None:
        starts, ends = self.offsets(topics, EARLIEST), self.offsets(topics, LATEST)
        for topic in topics:
            for each in topic.partitions:
                each.start, each.end = starts.get((topic.name, each.number)), ends.get((topic.name, each.number))

    def offsets(self, topics: Collection[TopicFacts], timestamp: int) -> dict[Partition, int]:
        kafka = confluent()
        spec = kafka.admin.OffsetSpec
        known = {EARLIEST: spec.earliest, LATEST: spec.latest}
        wanted = known[timestamp]() if timestamp in known else spec.for_timestamp(timestamp)
        requested = {
            kafka.TopicPartition(topic.name, each.number): wanted
            for topic in topics
            for each in topic.partitions
            if each.leader >= 0
        }
        if not requested:
            return {}
        futures = self._admin.list_offsets(requested, request_timeout=TIMEOUT_S)
        return {(each.topic, each.partition): found.offset for each, found, error in outcomes(futures) if error is None}

    def add_sizes(self, topics: Collection[TopicFacts]) -> None:
        """librdkafka has no DescribeLogDirs: sizes stay unknown."""

    def add_configs(self, topics: Collection[TopicFacts]) -> None:
        if not topics:
            return
        kinds = confluent().admin
        resources = {kinds.ConfigResource(kinds.ResourceType.TOPIC, topic.name): topic for topic in topics}
        for resource, entries, error in outcomes(
            self._admin.describe_configs(list(resources), request_timeout=TIMEOUT_S)
        ):
            if error is None:
                resources[resource].configs = {
                    key: entry.value for key, entry in sorted(entries.items()) if entry.source == OF_TOPIC
                }

    def delete_records(
        self, topics: Collection[TopicFacts], before: Mapping[Partition, int]
    ) -> list[tuple[Partition, str | None]]:
        kafka = confluent()
        requested = [kafka.TopicPartition(name, number, offset) for (name, number), offset in before.items()]
        futures = self._admin.delete_records(requested, request_timeout=TIMEOUT_S)
        return [((each.topic, each.partition), error) for each, _, error in outcomes(futures)]
