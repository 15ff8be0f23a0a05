"""Configures a topology against the cluster's topics: numbers of partitions and tasks, and missing internal topics.

1. All source topics must exist.
2. A repartition topic without a number of partitions gets that of the subtopology that writes it. This is repeated
   until all are known.
3. The repartition topics of a copartition group get the same number of partitions.
4. A changelog topic gets one partition per task of its subtopology.
5. An internal topic that exists must have its computed number of partitions; the others are missing.

handlers/streams/internal_topics.py creates the missing ones. The results, texts included, are Apache Kafka's
(InternalTopicManager; tests/golden/streams_topologies.txt.gz). Some depend on the order of Java's hash maps, hence
hash_order.py.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from heapq import heappop, heappush
from typing import Any, Final, NoReturn, TypeAlias, TypeVar

from kafkapy.dataclass import dataclass
from kafkapy.errors import ApiError, KafkapyError
from kafkapy.group.hash_order import hash_of_text, in_put_order, natural_order
from kafkapy.group.streams.configured_topology import (
    ConfiguredInternalTopic,
    ConfiguredSubtopology,
    ConfiguredTopology,
    StatusCode,
    TopicConfigurationProblem,
)
from kafkapy.group.streams.topology import StreamsTopology
from kafkapy.machine import SmallSteps, end_of
from kafkapy.metadata.image import TopicsImage
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.streams_group_topology_value import CopartitionGroup, Subtopology, TopicInfo

PartitionCountOf: TypeAlias = Callable[[str], int | None]
"""A topic's number of partitions, None if there is no such topic."""

ItemT = TypeVar("ItemT")

MAX_TOPICS_IN_MESSAGE: Final = 3
MAX_TASKS: Final = 20_000
"""Tasks of a topology: each takes some 10 us to assign, in steps, and to write and replay, at once."""
LARGE: Final = 200
"""A topology with so many names is configured in steps: some 3 ms."""
NAMES_PER_STEP: Final = 100
SUBTOPOLOGIES_PER_STEP: Final = 50


class _Misconfigured(KafkapyError):
    def __init__(self, status: StatusCode, message: str) -> None:
        super().__init__(message)
        self.problem = TopicConfigurationProblem(status, message)


@dataclass(frozen=True, slots=True)
class TopologyInput:
    """A topology, and the cluster's topics."""

    topology: StreamsTopology
    topics: TopicsImage

    @property
    def is_large(self) -> bool:
        return sum(map(_size, self.topology.subtopologies.values())) >= LARGE

    def is_same(self, other: Any) -> bool:
        return type(other) is TopologyInput and self.topics is other.topics and self.topology == other.topology

    def steps(self) -> SmallSteps[ConfiguredTopology]:
        by_name = self.topics.by_name

        def partition_count_of(name: str) -> int | None:
            topic = by_name.get(name)
            return None if topic is None else len(topic.partitions)

        return configure_steps(self.topology, partition_count_of)


def configure_topology(topology: StreamsTopology, partition_count_of: PartitionCountOf) -> ConfiguredTopology:
    """Return the topology as configured for these topics, or with the problem that prevents it.

    Raises STREAMS_INVALID_TOPOLOGY for a topology that no topics can satisfy, and UNKNOWN_SERVER_ERROR, as Kafka does,
    for one that does not fit together: a copartition group that names no topic, a negative number of partitions.
    """
    return end_of(configure_steps(topology, partition_count_of))


def configure_steps(topology: StreamsTopology, partition_count_of: PartitionCountOf) -> SmallSteps[ConfiguredTopology]:
    """Like configure_topology(), in steps of some milliseconds."""
    try:
        return (yield from _Configuration(topology, partition_count_of).configured())
    except _Misconfigured as error:
        return ConfiguredTopology(topology.topology_epoch, None, {}, error.problem)


class _Configuration:
    """A run of configure_topology: the partition counts that were decided so far, by internal topic."""

    def __init__(self, topology: StreamsTopology, partition_count_of: PartitionCountOf) -> None:
        self._topology = topology
        self._by_id = topology.subtopologies
        self._subtopologies = list(self._by_id.values())
        self._existing_count = partition_count_of
        self._decided: dict[str, int] = {}
        self._hash_of = cache(hash_of_text)
        """A name's hash is needed several times, and takes up to 20 us."""

    def configured(self) -> SmallSteps[ConfiguredTopology]:
        copartition_groups = yield from self._copartition_groups()
        yield from self._check_source_topics()
        # In Kafka's order: the partitions of a changelog topic follow from those of its subtopology's sources.
        counts = yield from _repartition_counts(self._subtopologies, self._count)
        self._decided.update(counts)
        yield from self._enforce_copartitioning(copartition_groups)
        yield
        self._decide_changelogs()
        yield
        subtopologies: dict[str, ConfiguredSubtopology] = {}
        size = 0
        for subtopology_id in sorted(self._by_id, key=natural_order):
            subtopology = self._by_id[subtopology_id]
            size += _size(subtopology)
            if size >= NAMES_PER_STEP:
                size = 0
                yield
            subtopologies[subtopology_id] = self._configured_subtopology(subtopology)
        _check_task_count(sum(each.number_of_tasks for each in subtopologies.values()))
        missing = yield from self._missing_internal_topics(subtopologies)
        problem = None
        if missing:
            message = f"Internal topics are missing: {_summary(list(missing))}"
            problem = TopicConfigurationProblem(StatusCode.MISSING_INTERNAL_TOPICS, message)
        return ConfiguredTopology(self._topology.topology_epoch, subtopologies, missing, problem)

    def _count(self, topic: str) -> int | None:
        """Return the partitions of a topic that exists, or whose count is decided."""
        existing = self._existing_count(topic)
        return self._decided.get(topic) if existing is None else existing

    def _known_count(self, topic: str) -> int:
        count = self._count(topic)
        assert count is not None, f"{topic} was checked to exist, or its count to be decided"
        return count

    def _copartition_groups(self) -> SmallSteps[list[list[str]]]:
        """Return the topics of each copartition group, in the order of a HashSet."""
        groups: list[list[str]] = []
        size = 0
        for subtopology in self._subtopologies:
            for each in subtopology.copartition_groups:
                topics = in_put_order(_copartitioned(subtopology, each), self._hash_of)
                if topics:
                    groups.append(topics)
                size += 1 + len(topics)
                if size >= NAMES_PER_STEP:
                    size = 0
                    yield
        return groups

    def _check_source_topics(self) -> SmallSteps[None]:
        sources = {topic for each in self._subtopologies for topic in each.source_topics}
        yield
        missing = sorted(topic for topic in sources if self._existing_count(topic) is None)
        if missing:
            raise _Misconfigured(StatusCode.MISSING_SOURCE_TOPICS, f"Source topics {_summary(missing)} are missing.")

    def _enforce_copartitioning(self, groups: Iterable[list[str]]) -> SmallSteps[None]:
        repartition = [topic for each in self._subtopologies for topic in each.repartition_source_topics]
        fixed = {topic.name for topic in repartition if topic.partitions != 0}
        flexible = {topic.name for topic in repartition if topic.partitions == 0}
        fixed_counts = {topic: self._known_count(topic) for topic in fixed}
        are_alike = len(set(fixed_counts.values())) == 1
        size = 0
        for topics in groups:
            size += 1 + len(topics)
            if size >= NAMES_PER_STEP:
                size = 0
                yield
            counts = {topic: self._known_count(topic) for topic in topics if topic in fixed or topic in flexible}
            others = {topic: self._known_count(topic) for topic in topics if topic not in counts}
            if others:
                count = _same_count(others, others)
            elif fixed:
                count = next(iter(fixed_counts.values())) if are_alike else _same_count(fixed_counts, counts)
            else:
                count = max(counts.values(), default=0)
            for topic in in_put_order(counts, self._hash_of):
                if topic in fixed and counts[topic] != count:
                    _misfit(
                        f"Number of partitions [{counts[topic]}] of repartition topic [{topic}] doesn't match number "
                        f"of partitions [{count}] of the source topic."
                    )
            self._decided.update(dict.fromkeys(counts, count))

    def _decide_changelogs(self) -> None:
        changelogs: dict[str, int] = {}
        for subtopology in self._subtopologies:
            counts = [self._known_count(topic) for topic in _inputs(subtopology)]
            if not counts:
                raise ApiError(
                    ErrorCode.STREAMS_INVALID_TOPOLOGY,
                    f"No source topics found for subtopology {subtopology.subtopology_id}",
                )
            changelogs.update((topic.name, max(counts)) for topic in subtopology.state_changelog_topics)
        self._decided.update(changelogs)

    def _configured_subtopology(self, subtopology: Subtopology) -> ConfiguredSubtopology:
        number_of_tasks = max(self._known_count(topic) for topic in _inputs(subtopology))
        if number_of_tasks <= 0:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
        return ConfiguredSubtopology(
            number_of_tasks,
            frozenset(subtopology.source_topics),
            self._internal_topics(subtopology.repartition_source_topics),
            frozenset(subtopology.repartition_sink_topics),
            self._internal_topics(subtopology.state_changelog_topics),
        )

    def _internal_topics(self, topics: list[TopicInfo]) -> dict[str, ConfiguredInternalTopic]:
        by_name = {topic.name: self._internal_topic(topic) for topic in topics}
        if len(by_name) < len(topics):
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
        return {name: by_name[name] for name in in_put_order(by_name, self._hash_of)}

    def _internal_topic(self, topic: TopicInfo) -> ConfiguredInternalTopic:
        count = topic.partitions or self._decided[topic.name]
        configs = {each.key: each.value for each in topic.topic_configs}
        if count < 1 or len(configs) < len(topic.topic_configs):
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
        in_order = {key: configs[key] for key in in_put_order(configs, self._hash_of)}
        return ConfiguredInternalTopic(topic.name, count, topic.replication_factor or None, in_order)

    def _missing_internal_topics(
        self, subtopologies: Mapping[str, ConfiguredSubtopology]
    ) -> SmallSteps[dict[str, ConfiguredInternalTopic]]:
        internal: dict[str, ConfiguredInternalTopic] = {}
        for subtopology in subtopologies.values():
            internal.update(subtopology.repartition_source_topics)
            internal.update(subtopology.state_changelog_topics)
        required = self._topology.required_topics()
        for number, topic in enumerate(required):
            self._hash_of(topic)
            if number % NAMES_PER_STEP == 0:
                yield
        in_order = in_put_order(internal, self._hash_of)
        yield
        for topic in in_put_order(required, self._hash_of):
            count = self._existing_count(topic)
            expected = internal.pop(topic, None) if count is not None else None
            if expected is not None and count != expected.number_of_partitions:
                _misfit(
                    f"Existing topic {topic} has different number of partitions: "
                    f"expected {expected.number_of_partitions}, found {count}"
                )
        return {name: internal[name] for name in in_order if name in internal}


def _check_task_count(count: int) -> None:
    """Raise STREAMS_INVALID_TOPOLOGY for very many tasks.

    Deviation: Apache Kafka assigns any number of tasks. Here a topology of more than MAX_TASKS is refused, because
    a member's tasks are written and replayed in one turn of the event loop.
    """
    if count > MAX_TASKS:
        raise ApiError(ErrorCode.STREAMS_INVALID_TOPOLOGY, f"The topology has {count} tasks, more than {MAX_TASKS}.")


def _size(subtopology: Subtopology) -> int:
    """Return about how many names are visited to configure a subtopology."""
    copartitioned = sum(
        1 + len(group.source_topics) + len(group.repartition_source_topics) for group in subtopology.copartition_groups
    )
    internal = len(subtopology.repartition_source_topics) + len(subtopology.state_changelog_topics)
    return 1 + len(subtopology.source_topics) + len(subtopology.repartition_sink_topics) + internal + copartitioned


def _copartitioned(subtopology: Subtopology, group: CopartitionGroup) -> list[str]:
    """Return the topics of a copartition group."""
    try:
        return [
            *(_at(subtopology.source_topics, index) for index in group.source_topics),
            *(_at(subtopology.repartition_source_topics, index).name for index in group.repartition_source_topics),
        ]
    except IndexError:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR) from None


def _repartition_counts(subtopologies: list[Subtopology], count_of: PartitionCountOf) -> SmallSteps[dict[str, int]]:
    """Return the count of each repartition topic: its own, or that of the subtopology that writes it."""
    counts = {
        topic.name: topic.partitions
        for each in subtopologies
        for topic in each.repartition_source_topics
        if topic.partitions != 0
    }
    yield from _spread_counts(subtopologies, count_of, counts)
    if any(topic.name not in counts for each in subtopologies for topic in each.repartition_source_topics):
        raise ApiError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            "Failed to compute number of partitions for all repartition topics, because a repartition source topic is "
            "never used as a sink topic.",
        )
    return counts


def _spread_counts(
    subtopologies: list[Subtopology], count_of: PartitionCountOf, counts: dict[str, int]
) -> SmallSteps[None]:
    """Add the counts that follow from those that are known.

    Apache Kafka visits all subtopologies in passes, until every count is known. The count of what a subtopology writes
    depends on which counts are known at its visit, so the order of visits is the same here. But after the first pass a
    subtopology is visited only if one of its inputs has become known: `due` has (number of the pass, index). Otherwise
    a chain of 1,000 subtopologies in reverse order would take 180 ms.
    """
    readers: dict[str, list[int]] = {}
    for index, subtopology in enumerate(subtopologies):
        for topic in subtopology.repartition_source_topics:
            readers.setdefault(topic.name, []).append(index)
    due = [(0, index) for index in range(len(subtopologies))]
    while due:
        passed, index = heappop(due)
        if index % SUBTOPOLOGIES_PER_STEP == 0:
            yield
        sinks = _undecided(subtopologies[index], counts)
        known = _input_counts(subtopologies[index], count_of, counts) if sinks else ()
        if known:
            counts.update(dict.fromkeys(sinks, max(known)))
            for reader in (reader for sink in sinks for reader in readers.get(sink, ())):
                # Apache Kafka's loop comes to a later subtopology in this pass, to an earlier one in the next
                heappush(due, (passed if reader > index else passed + 1, reader))
    if any(_undecided(each, counts) for each in subtopologies):
        raise ApiError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            "Failed to compute number of partitions for all repartition topics. There may be loops in the topology "
            "that cannot be resolved.",
        )


def _undecided(subtopology: Subtopology, counts: Mapping[str, int]) -> list[str]:
    """Return the repartition topics that the subtopology writes and whose count is not known."""
    return [sink for sink in subtopology.repartition_sink_topics if sink not in counts]


def _input_counts(subtopology: Subtopology, count_of: PartitionCountOf, counts: Mapping[str, int]) -> list[int]:
    """Return the known counts of the topics that the subtopology reads."""
    inputs = [counts.get(topic.name) for topic in subtopology.repartition_source_topics]
    inputs += [count_of(topic) for topic in subtopology.source_topics]
    return [count for count in inputs if count is not None]


def _at(items: Sequence[ItemT], index: int) -> ItemT:
    """Return an item by an index of a request, which may be negative: as wrong as one beyond the end."""
    if index < 0:
        raise IndexError(index)
    return items[index]


def _same_count(counts: Mapping[str, int], named: Mapping[str, int]) -> int:
    """Return the common count; if they differ, raise an error with the counts of `named`."""
    if len(set(counts.values())) > 1:
        in_order = ", ".join(f"{topic}={named[topic]}" for topic in sorted(named))
        _misfit(f"Following topics do not have the same number of partitions: [{{{in_order}}}]")
    return next(iter(counts.values()))


def _misfit(message: str) -> NoReturn:
    raise _Misconfigured(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, message)


def _inputs(subtopology: Subtopology) -> list[str]:
    return [*subtopology.source_topics, *(topic.name for topic in subtopology.repartition_source_topics)]


def _summary(topics: list[str]) -> str:
    more = len(topics) - MAX_TOPICS_IN_MESSAGE
    shown = ", ".join(topics[:MAX_TOPICS_IN_MESSAGE])
    return f"{shown} and {more} additional topics" if more > 0 else shown
