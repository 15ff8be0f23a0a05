"""Which share partitions of a group have a state at the share coordinator, by topic (ShareGroupStatePartitionMetadata).

A topic's partitions are `initializing` from the decision to create their states on, then `initialized`: only those are
assigned. A topic whose states are to be deleted is in `deleting` until that has succeeded. What is initializing for
longer than group.share.initialize.retry.interval.ms is tried again: its coordinator may have been lost meanwhile.
"""

from collections.abc import Iterable, Mapping, Set
from typing import Final

from kafkapy.dataclass import dataclass
from kafkapy.metadata.image import MetadataImage
from kafkapy.protocol.messages.share_group_state_partition_metadata_value import (
    ShareGroupStatePartitionMetadataValue,
    TopicInfo,
    TopicPartitionsInfo,
)
from kafkapy.types import Uuid

UNKNOWN_NAME: Final = "<UNKNOWN>"
"""The name in a record of a topic that is deleted, as in Kafka."""
NEVER_MS: Final = -1


@dataclass(frozen=True, slots=True)
class TopicStates:
    """Partitions of one topic. `since_ms`: the wall clock when this broker replayed the record that has them."""

    name: str
    partitions: frozenset[int]
    since_ms: int = NEVER_MS


StatesByTopic = Mapping[Uuid, TopicStates]
PartitionsByTopic = Mapping[Uuid, Set[int]]


@dataclass(frozen=True, slots=True)
class GroupStates:
    """The states of one group. Immutable: requests derive the next one and write its record."""

    initializing: StatesByTopic
    initialized: StatesByTopic
    deleting: frozenset[Uuid] = frozenset()

    # -- records --------------------------------------------------------------------------------------------------

    @classmethod
    def from_value(cls, value: ShareGroupStatePartitionMetadataValue, wall_ms: int) -> "GroupStates":
        return cls(
            _from_record(value.initializing_topics, wall_ms),
            _from_record(value.initialized_topics, wall_ms),
            frozenset(topic.topic_id for topic in value.deleting_topics),
        )

    def to_value(self, image: MetadataImage) -> ShareGroupStatePartitionMetadataValue:
        return ShareGroupStatePartitionMetadataValue(
            _to_record(self.initializing),
            initialized_topics=_to_record(self.initialized),
            deleting_topics=[
                TopicInfo(topic_id, topic_name=name_of(topic_id, image)) for topic_id in sorted(self.deleting)
            ],
        )

    # -- initialisation -------------------------------------------------------------------------------------------

    @property
    def known_topics(self) -> frozenset[Uuid]:
        return frozenset(self.initializing) | frozenset(self.initialized)

    def missing(
        self, names: Iterable[str], image: MetadataImage, wall_ms: int, retry_ms: int
    ) -> dict[Uuid, TopicStates]:
        """Return the partitions of these topics that are to be initialised now: new ones, and those tried long ago."""
        missing: dict[Uuid, TopicStates] = {}
        for name in names:
            topic = image.topics.by_name.get(name)
            if topic is None:
                continue
            has: frozenset[int] = frozenset()
            if (initialized := self.initialized.get(topic.topic_id)) is not None:
                has = initialized.partitions
            initializing = self.initializing.get(topic.topic_id)
            if initializing is not None and wall_ms - initializing.since_ms < retry_ms:
                has |= initializing.partitions
            if len(has) < len(topic.partitions):
                missing[topic.topic_id] = TopicStates(name, frozenset(topic.partitions) - has, wall_ms)
        return missing

    def have_all(self, names: Iterable[str], image: MetadataImage) -> bool:
        """Whether all partitions of those of these topics that exist are initialised."""
        for name in names:
            topic = image.topics.by_name.get(name)
            if topic is None:
                continue
            states = self.initialized.get(topic.topic_id)
            if states is None or len(states.partitions) < len(topic.partitions):
                return False
        return True

    def with_initializing(self, topics: StatesByTopic) -> "GroupStates":
        """Return the states once these are being created. A topic that was being deleted is kept."""
        return GroupStates(
            combined(self.initializing, topics), self.initialized, self.deleting.difference(self.initializing, topics)
        )

    def with_initialized(self, created: PartitionsByTopic, image: MetadataImage, wall_ms: int) -> "GroupStates":
        topics = {
            topic_id: TopicStates(name_of(topic_id, image), frozenset(partitions), wall_ms)
            for topic_id, partitions in created.items()
        }
        return GroupStates(
            without_partitions(self.initializing, created), combined(self.initialized, topics), self.deleting
        )

    def without_initializing(self, failed: PartitionsByTopic) -> "GroupStates":
        """Return the states after these could not be created: the next heartbeat tries again."""
        return GroupStates(without_partitions(self.initializing, failed), self.initialized, self.deleting)

    # -- deletion -------------------------------------------------------------------------------------------------

    def without_topics(self, topic_ids: Set[Uuid]) -> "GroupStates":
        """Return the states without topics that were deleted."""
        return GroupStates(
            {topic_id: states for topic_id, states in self.initializing.items() if topic_id not in topic_ids},
            {topic_id: states for topic_id, states in self.initialized.items() if topic_id not in topic_ids},
            self.deleting - topic_ids,
        )

    def to_delete(self, image: MetadataImage) -> StatesByTopic:
        """Return all states, with those that are being deleted of topics that exist: to be deleted with the group."""
        retried = {
            topic_id: TopicStates(topic.name, frozenset(topic.partitions))
            for topic_id in self.deleting
            if (topic := image.topics.by_id.get(topic_id)) is not None
        }
        return combined(combined(self.initialized, self.initializing), retried)


NO_STATES: Final = GroupStates({}, {})


def combined(first: StatesByTopic, second: StatesByTopic) -> StatesByTopic:
    """Return the partitions of both, by topic; the second one's names and times count."""
    result = dict(first)
    for topic_id, states in second.items():
        before = result.get(topic_id)
        partitions = states.partitions if before is None else before.partitions | states.partitions
        result[topic_id] = TopicStates(states.name, partitions, states.since_ms)
    return result


def without_partitions(states: StatesByTopic, gone: PartitionsByTopic) -> StatesByTopic:
    """Return the states without some partitions, and without topics of which none is left."""
    result = dict(states)
    for topic_id in gone.keys() & states.keys():
        topic = result.pop(topic_id)
        left = topic.partitions.difference(gone[topic_id])
        if left:
            result[topic_id] = TopicStates(topic.name, left, topic.since_ms)
    return result


def name_of(topic_id: Uuid, image: MetadataImage) -> str:
    topic = image.topics.by_id.get(topic_id)
    return UNKNOWN_NAME if topic is None else topic.name


def _from_record(topics: Iterable[TopicPartitionsInfo], wall_ms: int) -> StatesByTopic:
    return {topic.topic_id: TopicStates(topic.topic_name, frozenset(topic.partitions), wall_ms) for topic in topics}


def _to_record(states: StatesByTopic) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(topic_id, topic_name=topic.name, partitions=sorted(topic.partitions))
        for topic_id, topic in sorted(states.items(), key=_topic_id)
    ]


def _topic_id(item: tuple[Uuid, TopicStates]) -> Uuid:
    return item[0]
