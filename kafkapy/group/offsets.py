"""The committed offsets in the log, by group, topic and partition. Only replay changes them.

Offsets committed in a transaction are pending until the transaction's marker (KIP-98, KIP-447). A commit marker makes
them committed, unless a later record has committed the same partition meanwhile; an abort marker drops them. A
tombstone removes the committed and the pending offset of its partition.
"""

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from kafkapy.dataclass import dataclass
from kafkapy.group.records import CoordinatorRecord
from kafkapy.protocol.messages.offset_commit_key import OffsetCommitKey
from kafkapy.protocol.messages.offset_commit_value import OffsetCommitValue
from kafkapy.record.batch import NO_PRODUCER_ID
from kafkapy.types import ZERO_UUID, TopicPartition, Uuid


@dataclass(slots=True)
class CommittedOffset:
    """An offset, and the offset of the record in `__consumer_offsets` that committed it."""

    value: OffsetCommitValue
    record_offset: int


GroupOffsets: TypeAlias = dict[str, dict[int, CommittedOffset]]
"""By topic, then partition."""
NO_OFFSETS: Final[GroupOffsets] = {}


class OffsetStore:
    """The committed and pending offsets of all groups of one `__consumer_offsets` partition."""

    def __init__(self) -> None:
        self._committed: dict[str, GroupOffsets] = {}
        self._pending: dict[int, dict[str, GroupOffsets]] = {}
        """By producer id, then group, topic and partition."""
        self._open: dict[str, dict[tuple[str, int], set[int]]] = {}
        """The producers with a pending offset, by group, then (topic, partition)."""

    # -- reading --------------------------------------------------------------------------------------------------

    def of_group(self, group_id: str) -> GroupOffsets:
        """Return the group's committed offsets; callers must not modify them."""
        return self._committed.get(group_id, NO_OFFSETS)

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        return self._committed.get(group_id, NO_OFFSETS).get(topic, {}).get(partition)

    def partitions_of(self, group_id: str) -> list[TopicPartition]:
        """Return the partitions of which the group has a committed offset."""
        return [
            TopicPartition(topic, partition)
            for topic, partitions in self.of_group(group_id).items()
            for partition in partitions
        ]

    def open_partitions(self, group_id: str) -> Mapping[tuple[str, int], set[int]]:
        """Return the (topic, partition) pairs with pending offsets, each with the ids of its producers."""
        return self._open.get(group_id, {})

    @property
    def committed_count(self) -> int:
        """The number of committed offsets, for metrics; linear in the number of topics."""
        return sum(len(partitions) for topics in self._committed.values() for partitions in topics.values())

    def has_any(self, group_id: str) -> bool:
        """Whether the group has a committed or a pending offset."""
        return group_id in self._committed or group_id in self._open

    def tombstones(self, group_id: str) -> list[CoordinatorRecord]:
        """Return the tombstones of all offsets of the group, pending ones included."""
        records = [
            offset_tombstone(group_id, topic, partition)
            for topic, partitions in self.of_group(group_id).items()
            for partition in partitions
        ]
        records += [
            offset_tombstone(group_id, topic, partition)
            for topic, partition in self.open_partitions(group_id)
            if self.get(group_id, topic, partition) is None
        ]
        return records

    def tombstones_of_topic(self, topic: str, topic_id: Uuid) -> list[CoordinatorRecord]:
        """Return the tombstones of a deleted topic's offsets; offsets committed with another topic id stay."""
        found: dict[tuple[str, int], None] = {}
        for offsets_by_group in (self._committed, *self._pending.values()):
            for group_id, topics in offsets_by_group.items():
                for partition, committed in topics.get(topic, {}).items():
                    if committed.value.topic_id in (ZERO_UUID, topic_id):
                        found[group_id, partition] = None
        return [offset_tombstone(group_id, topic, partition) for group_id, partition in found]

    # -- replay ---------------------------------------------------------------------------------------------------

    def replay(
        self, key: OffsetCommitKey, value: OffsetCommitValue | None, record_offset: int, producer_id: int
    ) -> None:
        """Apply an OffsetCommit record. With a producer id, the offset is pending until the transaction's marker."""
        if value is None:
            self._remove(key.group, key.topic, key.partition)
        elif producer_id == NO_PRODUCER_ID:
            _put(self._committed, key.group, key.topic, key.partition, CommittedOffset(value, record_offset))
        else:
            pending = self._pending.setdefault(producer_id, {})
            _put(pending, key.group, key.topic, key.partition, CommittedOffset(value, record_offset))
            self._open.setdefault(key.group, {}).setdefault((key.topic, key.partition), set()).add(producer_id)

    def replay_marker(self, producer_id: int, *, is_commit: bool) -> None:
        """Apply a transaction's marker to the producer's pending offsets."""
        for group_id, topic, partition, offset in _entries(self._pending.pop(producer_id, {})):
            self._close(group_id, topic, partition, producer_id)
            if is_commit:
                current = self.get(group_id, topic, partition)
                if current is None or offset.record_offset > current.record_offset:
                    _put(self._committed, group_id, topic, partition, offset)

    def _close(self, group_id: str, topic: str, partition: int, producer_id: int) -> None:
        producers = self._open[group_id][topic, partition]
        assert producer_id in producers, f"producer {producer_id} has no pending offset of {topic}-{partition}"
        producers.discard(producer_id)
        if not producers:
            self._forget_open(group_id, topic, partition)

    def _remove(self, group_id: str, topic: str, partition: int) -> None:
        _pop(self._committed, group_id, topic, partition)
        for producer_id in self._forget_open(group_id, topic, partition):
            assert producer_id in self._pending, f"producer {producer_id} has no pending offset of {topic}-{partition}"
            _pop(self._pending[producer_id], group_id, topic, partition)

    def _forget_open(self, group_id: str, topic: str, partition: int) -> set[int]:
        partitions = self._open.get(group_id, {})
        assert partitions or group_id not in self._open, f"{group_id} is kept as open without a pending offset"
        producers = partitions.pop((topic, partition), set())
        if not partitions:
            self._open.pop(group_id, None)
        return producers


def offset_record(group_id: str, topic: str, partition: int, value: OffsetCommitValue) -> CoordinatorRecord:
    return CoordinatorRecord(OffsetCommitKey(group_id, topic=topic, partition=partition), value)


def offset_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    return CoordinatorRecord(OffsetCommitKey(group_id, topic=topic, partition=partition), None)


def _put(offsets: dict[str, GroupOffsets], group_id: str, topic: str, partition: int, offset: CommittedOffset) -> None:
    offsets.setdefault(group_id, {}).setdefault(topic, {})[partition] = offset


def _pop(offsets: dict[str, GroupOffsets], group_id: str, topic: str, partition: int) -> None:
    topics = offsets.get(group_id)
    if topics is None:
        return
    assert topics, f"{group_id} is kept without offsets: it would count as a group that has some"
    partitions = topics.get(topic)
    if partitions is None or partitions.pop(partition, None) is None:
        return
    if not partitions:
        del topics[topic]
    if not topics:
        del offsets[group_id]


def _entries(offsets: Mapping[str, GroupOffsets]) -> Iterator[tuple[str, str, int, CommittedOffset]]:
    for group_id, topics in offsets.items():
        for topic, partitions in topics.items():
            for partition, offset in partitions.items():
                yield group_id, topic, partition, offset
