"""The changes that metadata records make to topics, and the partitions of one broker that they affect."""

from collections.abc import Generator, Iterator
from dataclasses import field
from typing import Final

from kafkapy.dataclass import dataclass
from kafkapy.metadata.image import TopicImage, TopicsImage
from kafkapy.metadata.registrations import RECOVERING, PartitionRegistration
from kafkapy.protocol.messages.partition_change_record import PartitionChangeRecord
from kafkapy.types import TopicPartition, Uuid

TOPICS_PER_STEP: Final = 300
"""Building a changed topic takes 3 us."""
PARTITIONS_PER_STEP: Final = 500


@dataclass(slots=True)
class TopicDelta:
    """One topic's changed partitions; `image` is the topic before the change (without partitions if it is new)."""

    image: TopicImage
    is_created: bool
    partition_changes: dict[int, PartitionRegistration] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.image.name

    @property
    def topic_id(self) -> Uuid:
        return self.image.topic_id

    def partition(self, partition_id: int) -> PartitionRegistration | None:
        """Return a partition after the records replayed so far."""
        return self.partition_changes.get(partition_id) or self.image.partitions.get(partition_id)

    def apply(self) -> TopicImage:
        return TopicImage(self.image.name, self.image.topic_id, {**self.image.partitions, **self.partition_changes})


@dataclass(slots=True)
class LocalPartition:
    """A changed partition with a replica on the broker."""

    topic_id: Uuid
    registration: PartitionRegistration
    is_new_leader_epoch: bool
    """Whether the leader epoch changed or the partition is new."""


@dataclass(slots=True)
class LocalChanges:
    """The changed partitions of one broker; each is in exactly one of the three."""

    deleted: dict[TopicPartition, Uuid] = field(default_factory=dict)
    """Partitions that no longer have a replica on the broker, with their topic id."""
    leaders: dict[TopicPartition, LocalPartition] = field(default_factory=dict)
    followers: dict[TopicPartition, LocalPartition] = field(default_factory=dict)


class TopicsDelta:
    """Created, changed and deleted topics. A topic deleted and created again is in both dicts, with different ids."""

    def __init__(self, image: TopicsImage) -> None:
        self.image = image
        self.changed: dict[Uuid, TopicDelta] = {}
        self.deleted: dict[Uuid, TopicImage] = {}
        """Deleted topics, as in the previous image."""
        self.unclean_election_count = self.eligible_election_count = 0
        """Leaders elected uncleanly, and those elected from the eligible leader replicas (KIP-966)."""
        self._created: dict[str, Uuid] = {}
        self._local: dict[int, LocalChanges] = {}

    def create(self, name: str, topic_id: Uuid) -> None:
        previous = self.image.by_name.get(name)
        is_free = name not in self._created and (previous is None or previous.topic_id in self.deleted)
        assert is_free, f"topic {name} is created twice"
        self.changed[topic_id] = TopicDelta(TopicImage(name, topic_id, {}), is_created=True)
        self._created[name] = topic_id

    def set_partition(self, topic_id: Uuid, partition_id: int, registration: PartitionRegistration) -> None:
        self._topic(topic_id).partition_changes[partition_id] = registration

    def add_again(self, topic: TopicImage, partition_id: int) -> None:
        """Add an unchanged partition to the local changes, as if it were new to the brokers."""
        delta = self.changed.get(topic.topic_id)
        if delta is None:
            none_yet = TopicImage(topic.name, topic.topic_id, {})
            delta = self.changed[topic.topic_id] = TopicDelta(none_yet, is_created=False)
        delta.partition_changes[partition_id] = topic.partitions[partition_id]

    def change_partition(self, record: PartitionChangeRecord) -> None:
        topic = self._topic(record.topic_id)
        partition = topic.partition(record.partition_id)
        assert partition is not None, f"{topic.name}-{record.partition_id} changes but does not exist"
        self.unclean_election_count += record.leader_recovery_state == RECOVERING
        self.eligible_election_count += record.leader in partition.elr
        topic.partition_changes[record.partition_id] = partition.merge(record)

    def clear_elr(self, name: str) -> None:
        """Clear the eligible leader replicas of a topic, or of all topics if `name` is empty."""
        for topic_id in list(self._all_topic_ids() if name == "" else [self._id_of(name)]):
            topic = self.changed.get(topic_id) or TopicDelta(self.image.by_id[topic_id], is_created=False)
            for partition_id, partition in topic.apply().partitions.items():
                if partition.elr or partition.last_known_elr:
                    change = PartitionChangeRecord(eligible_leader_replicas=[], last_known_elr=[])
                    self.set_partition(topic_id, partition_id, partition.merge(change))

    def remove(self, topic_id: Uuid) -> str:
        """Delete a topic and return its name."""
        delta = self.changed.pop(topic_id, None)
        if delta is not None and delta.is_created:
            del self._created[delta.name]
            return delta.name
        image = self.image.by_id.get(topic_id)
        assert image is not None, "a topic is removed that does not exist"
        assert topic_id not in self.deleted, f"topic {image.name} is removed twice"
        self.deleted[topic_id] = image
        return image.name

    def apply(self) -> Generator[None, None, TopicsImage]:
        """Return the topics after the delta, in steps. Nothing may be replayed afterwards."""
        if not self.changed and not self.deleted:
            return self.image
        by_id: dict[Uuid, TopicImage | None] = dict.fromkeys(self.deleted)
        by_name: dict[str, TopicImage | None] = {}
        for deleted in self.deleted.values():
            by_name[deleted.name] = None
        for count, (topic_id, delta) in enumerate(self.changed.items(), 1):
            topic = delta.apply()
            by_id[topic_id] = by_name[topic.name] = topic
            if count % TOPICS_PER_STEP == 0:
                yield
        names = self.image.by_name.updated(by_name)
        if len(by_id) > TOPICS_PER_STEP:
            yield
        return TopicsImage(names, self.image.by_id.updated(by_id))

    def local_changes(self, broker_id: int) -> LocalChanges:
        """Return the partitions that one broker has to delete, lead and follow because of the delta."""
        if broker_id not in self._local:
            for _ in self.find_local_changes(broker_id):
                pass
        return self._local[broker_id]

    def find_local_changes(self, broker_id: int) -> Iterator[None]:
        """Compute `local_changes`, in steps, once for all parts of the broker that use them."""
        if broker_id in self._local:
            return
        changes = LocalChanges()
        count = 0
        for topic in self.deleted.values():
            for partition_id, partition in topic.partitions.items():
                if broker_id in partition.replicas:
                    changes.deleted[TopicPartition(topic.name, partition_id)] = topic.topic_id
            yield
        for delta in self.changed.values():
            for partition_id, partition in delta.partition_changes.items():
                _add_local_change(changes, delta, partition_id, partition, broker_id)
                count += 1
                if count % PARTITIONS_PER_STEP == 0:
                    yield
        self._local[broker_id] = changes

    def _all_topic_ids(self) -> Iterator[Uuid]:
        yield from (topic_id for topic_id in self.image.by_id if topic_id not in self.deleted)
        yield from self._created.values()

    def _id_of(self, name: str) -> Uuid:
        topic_id = self._created.get(name)
        if topic_id is not None:
            return topic_id
        image = self.image.by_name.get(name)
        assert image is not None, f"topic {name} does not exist"
        assert image.topic_id not in self.deleted, f"topic {name} is removed already"
        return image.topic_id

    def _topic(self, topic_id: Uuid) -> TopicDelta:
        delta = self.changed.get(topic_id)
        if delta is None:
            image = self.image.by_id.get(topic_id)
            assert image is not None, "a topic changes that does not exist"
            assert topic_id not in self.deleted, f"topic {image.name} changes after its removal"
            delta = self.changed[topic_id] = TopicDelta(image, is_created=False)
        return delta


def _add_local_change(
    changes: LocalChanges, delta: TopicDelta, partition_id: int, partition: PartitionRegistration, broker_id: int
) -> None:
    topic = delta.image
    previous = topic.partitions.get(partition_id)
    if broker_id not in partition.replicas:
        if previous is not None and broker_id in previous.replicas:
            changes.deleted[TopicPartition(topic.name, partition_id)] = topic.topic_id
        return
    if previous is not None and previous.partition_epoch == partition.partition_epoch:
        return
    is_new_leader_epoch = previous is None or previous.leader_epoch != partition.leader_epoch
    side = changes.leaders if partition.leader == broker_id else changes.followers
    side[TopicPartition(topic.name, partition_id)] = LocalPartition(topic.topic_id, partition, is_new_leader_epoch)
