"""The topology of a streams group: its subtopologies, as a member sent them and the log keeps them.

The checks of a request's topology are in Apache Kafka's order: check_bounds() and check_topic_names() before the topics
are authorized, then check_source_topic_regexes() before the rest of the heartbeat, and check_changelog_topics() at the
end of the checks of a join.
"""

from collections.abc import Iterable, Mapping, Set
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from kafkapy.dataclass import dataclass
from kafkapy.errors import ApiError
from kafkapy.group.hash_order import hash_of_text, in_put_order
from kafkapy.group.settings import MAX_NAMES
from kafkapy.metadata.topic_names import INTERNAL_TOPICS, invalid_topic_name_reason
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.streams_group_topology_value import (
    CopartitionGroup,
    StreamsGroupTopologyValue,
    Subtopology,
    TopicConfig,
    TopicInfo,
)

if TYPE_CHECKING:
    from kafkapy.protocol.messages import streams_group_heartbeat_request as heartbeat

MAX_SUBTOPOLOGIES: Final = 1_000
"""Subtopologies of a topology. With MAX_NAMES it bounds the work of a heartbeat's topology in one turn."""
RECORD_VERSION: Final = 0
MAX_DECODED: Final = 8
"""Topologies that are kept decoded, those used last. They are needed for joins, descriptions and changes of topics."""


@dataclass(frozen=True, slots=True)
class StreamsTopology:
    """A topology, kept as the bytes of its record, because groups are many and rarely need it.

    1,000 subtopologies take 20 KB of bytes, and 700 KB of objects, which full garbage collections would visit.
    """

    topology_epoch: int
    encoded: bytes

    @classmethod
    def of(cls, record: StreamsGroupTopologyValue) -> "StreamsTopology":
        return cls(record.epoch, record.encode(RECORD_VERSION))

    @property
    def subtopologies(self) -> Mapping[str, Subtopology]:
        """By id, in the order of Java's hash maps, on which partition counts and texts depend. Not to be changed."""
        return _subtopologies(self.encoded)

    def is_that_of(self, record: StreamsGroupTopologyValue) -> bool:
        """Return whether a record has the same topology, in whatever order it lists the subtopologies."""
        if self.topology_epoch != record.epoch:
            return False
        return self.encoded == record.encode(RECORD_VERSION) or self.subtopologies == {
            each.subtopology_id: each for each in record.subtopologies
        }

    def required_topics(self) -> Set[str]:
        """Return the sources, repartition sources and changelogs, in the order in which they are named."""
        names: dict[str, None] = {}
        for each in self.subtopologies.values():
            names.update(dict.fromkeys(each.source_topics))
            names.update(dict.fromkeys(topic.name for topic in each.repartition_source_topics))
            names.update(dict.fromkeys(topic.name for topic in each.state_changelog_topics))
        return names.keys()

    def subtopology_ids_by_source(self) -> dict[str, str]:
        """Return the subtopology of each topic that is read, repartition topics included."""
        return {
            name: subtopology_id
            for subtopology_id, each in self.subtopologies.items()
            for name in (*each.source_topics, *(topic.name for topic in each.repartition_source_topics))
        }


@lru_cache(MAX_DECODED)
def _subtopologies(encoded: bytes) -> Mapping[str, Subtopology]:
    record = StreamsGroupTopologyValue.decode(encoded, RECORD_VERSION)
    by_id = {each.subtopology_id: each for each in record.subtopologies}
    return {each: by_id[each] for each in in_put_order(by_id, hash_of_text)}


def stored_topology(topology: "heartbeat.Topology") -> StreamsGroupTopologyValue:
    """Return the record that keeps a request's topology.

    Raises UNKNOWN_SERVER_ERROR, as Kafka, for equal ids and a negative epoch.
    """
    ids = {each.subtopology_id for each in topology.subtopologies}
    if topology.epoch < 0 or len(ids) < len(topology.subtopologies):
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
    return StreamsGroupTopologyValue(
        epoch=topology.epoch, subtopologies=[_subtopology(each) for each in topology.subtopologies]
    )


def _subtopology(subtopology: "heartbeat.Subtopology") -> Subtopology:
    return Subtopology(
        subtopology.subtopology_id,
        source_topics=subtopology.source_topics,
        source_topic_regex=subtopology.source_topic_regex,
        state_changelog_topics=[_topic_info(each) for each in subtopology.state_changelog_topics],
        repartition_sink_topics=subtopology.repartition_sink_topics,
        repartition_source_topics=[_topic_info(each) for each in subtopology.repartition_source_topics],
        copartition_groups=[
            CopartitionGroup(
                each.source_topics,
                source_topic_regex=each.source_topic_regex,
                repartition_source_topics=each.repartition_source_topics,
            )
            for each in subtopology.copartition_groups
        ],
    )


def _topic_info(topic: "heartbeat.TopicInfo") -> TopicInfo:
    return TopicInfo(
        topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        topic_configs=[TopicConfig(each.key, value=each.value) for each in topic.topic_configs],
    )


def topics_of_request(topology: "heartbeat.Topology") -> list[str]:
    """Return all topics that a request's topology names, each once: the member must be allowed to DESCRIBE them."""
    names: dict[str, None] = {}
    for each in topology.subtopologies:
        names.update(dict.fromkeys(each.source_topics))
        names.update(dict.fromkeys(each.repartition_sink_topics))
        names.update(dict.fromkeys(topic.name for topic in each.repartition_source_topics))
        names.update(dict.fromkeys(topic.name for topic in each.state_changelog_topics))
    return list(names)


def check_bounds(topology: "heartbeat.Topology") -> None:
    """Raise INVALID_REQUEST for a topology that would take long to configure.

    Deviation: Apache Kafka accepts a topology of any size. Here one of more than MAX_SUBTOPOLOGIES subtopologies or
    MAX_NAMES names of topics is refused, because it is configured in one turn of the event loop.
    """
    names = sum(
        len(each.source_topics)
        + len(each.repartition_sink_topics)
        + len(each.repartition_source_topics)
        + len(each.state_changelog_topics)
        for each in topology.subtopologies
    )
    if names > MAX_NAMES or len(topology.subtopologies) > MAX_SUBTOPOLOGIES:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"The topology has more than {MAX_SUBTOPOLOGIES} subtopologies, or names more than {MAX_NAMES} topics.",
        )


def check_topic_names(names: Iterable[str]) -> None:
    """Raise STREAMS_INVALID_TOPOLOGY if some of topics_of_request() are internal topics, or no names of topics."""
    names = list(names)
    prohibited = [name for name in names if name in INTERNAL_TOPICS]
    if prohibited:
        topics = ",".join(prohibited)
        raise _invalid(f"Use of Kafka internal topics {topics} in a Kafka Streams topology is prohibited.")
    invalid = [name for name in names if invalid_topic_name_reason(name) is not None]
    if invalid:
        raise _invalid(f"Topic names {','.join(invalid)} are not valid topic names.")


def check_source_topic_regexes(topology: "heartbeat.Topology") -> None:
    """Raise INVALID_REQUEST if source topics are given by regular expression. Checked before all else of a request."""
    if any(each.source_topic_regex for each in topology.subtopologies):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Regular expressions for source topics are not supported yet.")


def check_changelog_topics(topology: "heartbeat.Topology") -> None:
    """Raise STREAMS_INVALID_TOPOLOGY if a changelog has a number of partitions: it gets one per task."""
    for subtopology in topology.subtopologies:
        for topic in subtopology.state_changelog_topics:
            if topic.partitions:
                raise _invalid(
                    f"Changelog topic {topic.name} must have an undefined partition count, "
                    f"but it is set to {topic.partitions}."
                )


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
