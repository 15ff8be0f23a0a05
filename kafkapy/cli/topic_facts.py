"""Topics with leaders, offsets and sizes, over connections of our own: librdkafka has no DescribeLogDirs.

Versions: Metadata 5, ListOffsets 2, DescribeLogDirs 1, DeleteRecords 1, DescribeConfigs 1: the oldest that Apache
Kafka 4 serves and that say what is needed.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any, Final

from kafkapy.cli.committed_offsets import BrokerCalls, NoResponseError, Partition
from kafkapy.dataclass import dataclass
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kafkapy.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from kafkapy.protocol.messages.describe_log_dirs_request import DescribableLogDirTopic, DescribeLogDirsRequest
from kafkapy.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkapy.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic

EARLIEST: Final = -2
LATEST: Final = -1
TOPIC_RESOURCE: Final = 2
OF_TOPIC: Final = 1
"""The source of a config that was set on the topic itself."""
TOPICS_AT_ONCE: Final = 500
"""Topics of one DescribeConfigs: a response of some 2 MB."""
DELETE_TIMEOUT_MS: Final = 8_000
"""The time-out in DeleteRecords: less than a connection waits for its response."""


@dataclass(slots=True)
class PartitionFacts:
    """`start`, `end`, `size_bytes`, `at` are the leader's; None if it does not say. leader: -1 if there is none."""

    number: int
    leader: int
    replicas: list[int]
    isr: list[int]
    start: int | None = None
    end: int | None = None
    size_bytes: int | None = None
    at: int | None = None
    """The first offset at or after a time that was asked for, the end if there is none."""

    @property
    def records(self) -> int | None:
        """Offsets between start and end: at most so many records, fewer after compaction and in transactions."""
        return None if self.start is None or self.end is None else self.end - self.start


@dataclass(slots=True)
class TopicFacts:
    """A topic; `configs`: those that were set on it."""

    name: str
    partitions: list[PartitionFacts]
    configs: dict[str, str | None] = field(default_factory=dict)

    @property
    def replica_count(self) -> int:
        return max((len(each.replicas) for each in self.partitions), default=0)

    @property
    def under_replicated(self) -> int:
        """The number of partitions with a replica that is not in sync."""
        return sum(len(each.isr) < len(each.replicas) for each in self.partitions)

    @property
    def offline(self) -> int:
        """The number of partitions without a leader."""
        return sum(each.leader < 0 for each in self.partitions)

    @property
    def unknown(self) -> int:
        """The number of partitions whose leaders do not answer: their records and sizes are not counted."""
        return sum(each.records is None for each in self.partitions)

    @property
    def records(self) -> int | None:
        """The number of records in partitions whose leaders answer; None if none does."""
        return _sum(each.records for each in self.partitions)

    @property
    def size_bytes(self) -> int | None:
        """The size of one replica of each partition, the leader's; None if no leader reports it."""
        return _sum(each.size_bytes for each in self.partitions)


def _sum(numbers: Iterable[int | None]) -> int | None:
    known = [each for each in numbers if each is not None]
    return sum(known) if known else None


class TopicQueries:
    """Asks the brokers of a cluster about topics. Methods raise CoordinatorError; a silent leader is left out."""

    def __init__(self, brokers: BrokerCalls) -> None:
        self._brokers = brokers

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicFacts]:
        """Return topics by name, without offsets and sizes; None: all topics. One that is not there is left out."""
        wanted = None if names is None else [MetadataRequestTopic(name=each) for each in names]
        response = self._brokers.call(None, MetadataRequest(topics=wanted, allow_auto_topic_creation=False), 5)
        return {
            each.name: TopicFacts(
                each.name,
                [
                    PartitionFacts(
                        found.partition_index, found.leader_id, list(found.replica_nodes), list(found.isr_nodes)
                    )
                    for found in sorted(each.partitions, key=lambda partition: int(partition.partition_index))
                ],
            )
            for each in response.topics
            if not each.error_code
        }

    def add_offsets(self, topics: Collection[TopicFacts]) -> None:
        starts, ends = self.offsets(topics, EARLIEST), self.offsets(topics, LATEST)
        for topic in topics:
            for each in topic.partitions:
                each.start, each.end = starts.get((topic.name, each.number)), ends.get((topic.name, each.number))

    def offsets(self, topics: Collection[TopicFacts], timestamp: int) -> dict[Partition, int]:
        """Return the first offset of each partition at or after a time, -1 if there is none; or EARLIEST, LATEST."""
        found = {}
        for leader, by_topic in _by_leader(topics).items():
            requested = [
                ListOffsetsTopic(
                    name=name,
                    partitions=[ListOffsetsPartition(partition_index=each, timestamp=timestamp) for each in numbers],
                )
                for name, numbers in by_topic.items()
            ]
            for topic in self._answered(leader, ListOffsetsRequest(-1, topics=requested), 2):
                for each in topic.partitions:
                    if not each.error_code:
                        found[topic.name, each.partition_index] = each.offset
        return found

    def offsets_of(self, partitions: Iterable[Partition], timestamp: int) -> dict[Partition, int]:
        """Like offsets(), of these partitions of topics; one that is not there is left out."""
        found = self.known_offsets(partitions, timestamp)
        return {each: offset for each, offset in found.items() if offset is not None}

    def known_offsets(self, partitions: Iterable[Partition], timestamp: int) -> dict[Partition, int | None]:
        """Like offsets_of, and None for a partition that is there and whose leader does not say, or that has none."""
        numbers: dict[str, set[int]] = {}
        for name, number in partitions:
            numbers.setdefault(name, set()).add(number)
        if not numbers:
            return {}
        topics = self.topics(numbers).values()
        for topic in topics:
            topic.partitions = [each for each in topic.partitions if each.number in numbers[topic.name]]
        found = self.offsets(topics, timestamp)
        existing = [(topic.name, each.number) for topic in topics for each in topic.partitions]
        return {each: found.get(each) for each in existing}

    def add_sizes(self, topics: Collection[TopicFacts]) -> None:
        by_name = {topic.name: {each.number: each for each in topic.partitions} for topic in topics}
        for leader, by_topic in _by_leader(topics).items():
            requested = [DescribableLogDirTopic(topic=name, partitions=numbers) for name, numbers in by_topic.items()]
            try:
                response = self._brokers.call(leader, DescribeLogDirsRequest(topics=requested), 1)
            except NoResponseError:
                continue
            for directory in response.results:
                for topic in directory.topics:
                    for each in topic.partitions:
                        facts = by_name.get(topic.name, {}).get(each.partition_index)
                        if facts is not None and facts.leader == leader and not each.is_future_key:
                            facts.size_bytes = each.partition_size

    def add_configs(self, topics: Collection[TopicFacts]) -> None:
        by_name = {topic.name: topic for topic in topics}
        names = list(by_name)
        for start in range(0, len(names), TOPICS_AT_ONCE):
            resources = [
                DescribeConfigsResource(TOPIC_RESOURCE, resource_name=name, configuration_keys=None)
                for name in names[start : start + TOPICS_AT_ONCE]
            ]
            for result in self._brokers.call(None, DescribeConfigsRequest(resources=resources), 1).results:
                by_name[result.resource_name].configs = {
                    each.name: each.value
                    for each in sorted(result.configs, key=lambda config: str(config.name))
                    if each.config_source == OF_TOPIC
                }

    def delete_records(
        self, topics: Collection[TopicFacts], before: Mapping[Partition, int]
    ) -> Iterator[tuple[Partition, str | None]]:
        """Delete the records before an offset of each partition; yield each with its error, None if it is done."""
        for leader, by_topic in _by_leader(topics).items():
            requested = []
            for name, numbers in by_topic.items():
                wanted = [
                    DeleteRecordsPartition(partition_index=each, offset=before[name, each])
                    for each in numbers
                    if (name, each) in before
                ]
                if wanted:
                    requested.append(DeleteRecordsTopic(name=name, partitions=wanted))
            if not requested:
                continue
            request = DeleteRecordsRequest(topics=requested, timeout_ms=DELETE_TIMEOUT_MS)
            for topic in self._brokers.call(leader, request, 1).topics:
                for each in topic.partitions:
                    error = ErrorCode(each.error_code)
                    reason = f"{error.message} ({error.name})" if error else None
                    yield (topic.name, each.partition_index), reason

    def _answered(self, leader: int, request: Any, version: int) -> list[Any]:
        try:
            return list(self._brokers.call(leader, request, version).topics)
        except NoResponseError:
            return []


def _by_leader(topics: Iterable[TopicFacts]) -> dict[int, dict[str, list[int]]]:
    """Return the partitions that have a leader, by leader and topic."""
    found: dict[int, dict[str, list[int]]] = {}
    for topic in topics:
        for each in topic.partitions:
            if each.leader >= 0:
                found.setdefault(each.leader, {}).setdefault(topic.name, []).append(each.number)
    return found
