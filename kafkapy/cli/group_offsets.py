"""A consumer group's offsets: committed offsets, partition ends, and the targets of a reset."""

import re
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias

from kafkapy.cli.client import confluent
from kafkapy.cli.deadline import TIMEOUT_S
from kafkapy.cli.moments import FORMS, moment_ms
from kafkapy.dataclass import dataclass
from kafkapy.errors import quoted

if TYPE_CHECKING:  # its messages are imported when a command runs
    from kafkapy.cli.committed_offsets import BrokerCalls

Partition: TypeAlias = tuple[str, int]

OFFSET_INVALID = -1001
"""librdkafka's value for "no offset"."""
PARTITION_NUMBER = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class ResetTarget:
    """The target of a reset: `kind` is earliest, latest, offset, shift or time (`value` in ms since the epoch)."""

    kind: str
    value: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the value of --to. Raises ValueError."""
        if text in ("earliest", "latest"):
            return cls(text)
        if re.fullmatch(r"[+-][0-9]{1,18}", text):
            return cls("shift", int(text))
        if re.fullmatch(r"[0-9]{1,18}", text):
            return cls("offset", int(text))
        try:
            return cls("time", moment_ms(text, int(time.time() * 1000)))
        except ValueError:
            raise ValueError(f"{quoted(text)} is none of: earliest, latest, an offset, +N, -N, {FORMS}") from None


def parse_topics(texts: Iterable[str]) -> dict[str, list[int] | None]:
    """Parse TOPIC or TOPIC:0,1; None stands for all partitions. Raises ValueError."""
    requested: dict[str, list[int] | None] = {}
    for text in texts:
        name, colon, partitions = text.partition(":")
        numbers = partitions.split(",")
        if colon and not all(PARTITION_NUMBER.fullmatch(each) for each in numbers):
            raise ValueError(f"{quoted(text)} must read TOPIC or TOPIC:0,1")
        requested[name] = [int(each) for each in numbers] if colon else None
    return requested


def offset_row(
    partition: Partition, committed: int | None, end: int | None, reader: tuple[str, str, str] | None
) -> dict[str, Any]:
    """Return what `groups describe` shows of a partition, in the order of its columns.

    reader: the member id, client id and host of the member that reads it.
    """
    member, client, host = reader or (None, None, None)
    return {
        "topic": partition[0],
        "partition": partition[1],
        "committed": committed,
        "end": end,
        "lag": None if committed is None or end is None else max(end - committed, 0),
        "member": member,
        "client": client,
        "host": host,
    }


class OffsetStore(Protocol):
    """Where a group is: committed offsets, or the start offsets of a share group (share_groups.ShareOffsets).

    Methods raise KafkaException, CoordinatorError.
    """

    def committed(self) -> dict[Partition, int]:
        """Return the offset of each partition that the group has begun to read."""

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Move the group to these offsets."""


class CommittedOffsets:
    """The committed offsets of a group: an OffsetStore."""

    def __init__(self, admin: Any, brokers: "BrokerCalls", group_id: str) -> None:
        self._admin = admin
        self._brokers = brokers
        self._group_id = group_id

    def committed(self) -> dict[Partition, int]:
        from kafkapy.cli.committed_offsets import committed_offsets

        return committed_offsets(self._brokers, self._group_id)

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        kafka = confluent()
        positions = [kafka.TopicPartition(name, partition, offset) for (name, partition), offset in offsets.items()]
        requested = kafka.ConsumerGroupTopicPartitions(self._group_id, positions)
        (future,) = self._admin.alter_consumer_group_offsets([requested], request_timeout=TIMEOUT_S).values()
        for position in future.result().topic_partitions:
            if position.error is not None:
                raise kafka.KafkaException(position.error)


class GroupOffsets:
    """The offsets of one group.

    Methods raise KafkaException, CoordinatorError, and LookupError for unknown topics and partitions.
    """

    def __init__(self, admin: Any, store: OffsetStore) -> None:
        self._admin = admin
        self._store = store

    def committed(self) -> dict[Partition, int]:
        """Return the offset of each partition that the group has begun to read."""
        return self._store.committed()

    def ends(self, partitions: Iterable[Partition]) -> dict[Partition, int | None]:
        """Return the end offsets, None for a deleted partition."""
        spec = confluent().admin.OffsetSpec.latest()
        return self._offsets(dict.fromkeys(partitions, spec))

    def partitions_of(self, requested: Mapping[str, list[int] | None]) -> list[Partition]:
        """Return the partitions; raises LookupError for one that does not exist."""
        topics = self._admin.list_topics(timeout=TIMEOUT_S).topics
        found = []
        for name, numbers in requested.items():
            topic = topics.get(name)
            if topic is None or topic.error is not None:
                raise LookupError(f"no such topic: {name}")
            missing = [number for number in numbers or () if number not in topic.partitions]
            if missing:
                raise LookupError(f"{name} has no partition {missing[0]}")
            found += [(name, number) for number in (topic.partitions if numbers is None else numbers)]
        return found

    def plan(self, partitions: list[Partition], target: ResetTarget) -> dict[Partition, tuple[int | None, int]]:
        """Return (offset before, offset after) of each partition, clamped to the partition's range."""
        committed = self.committed()
        spec = confluent().admin.OffsetSpec
        starts = self._offsets(dict.fromkeys(partitions, spec.earliest()))
        ends = self._offsets(dict.fromkeys(partitions, spec.latest()))
        at_time = {}
        if target.kind == "time":
            at_time = self._offsets(dict.fromkeys(partitions, spec.for_timestamp(target.value)))
        plan = {}
        for each in partitions:
            start, end, before = starts[each], ends[each], committed.get(each)
            if start is None or end is None:
                raise LookupError(f"{each[0]}-{each[1]} does not answer where it begins and ends")
            plan[each] = before, goal_of(target, each, start=start, end=end, before=before, at_time=at_time.get(each))
        return plan

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Move the group to these offsets."""
        self._store.commit(offsets)

    def _offsets(self, specs: Mapping[Partition, Any]) -> dict[Partition, int | None]:
        if not specs:
            return {}
        kafka = confluent()
        requested = {kafka.TopicPartition(name, partition): spec for (name, partition), spec in specs.items()}
        found: dict[Partition, int | None] = {}
        for position, future in self._admin.list_offsets(requested, request_timeout=TIMEOUT_S).items():
            try:
                found[position.topic, position.partition] = future.result().offset
            except kafka.KafkaException:
                found[position.topic, position.partition] = None
        return found


def goal_of(
    target: ResetTarget, partition: Partition, *, start: int, end: int, before: int | None, at_time: int | None
) -> int:
    """Return the new offset of a partition; for a time after its last record (at_time -1), its end.

    at_time: None if the broker did not return one. Raises LookupError.
    """
    if target.kind == "earliest":
        return start
    if target.kind == "latest":
        return end
    if target.kind == "time":
        if at_time is None:
            raise LookupError(f"{partition[0]}-{partition[1]} does not answer which offset that time has")
        return end if at_time < 0 else at_time
    if target.kind == "shift" and before is None:
        raise LookupError("a group that has committed nothing cannot be moved from where it is")
    goal = target.value if target.kind == "offset" else (before or 0) + target.value
    return min(max(goal, start), end)
