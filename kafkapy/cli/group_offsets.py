"""A consumer group's offsets: committed offsets, partition ends, and the targets of a reset."""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias

from kafkapy.cli.moments import FORMS, moment_ms
from kafkapy.dataclass import dataclass
from kafkapy.errors import quoted

if TYPE_CHECKING:  # its messages are imported when a command runs
    from kafkapy.cli.committed_offsets import BrokerCalls

Partition: TypeAlias = tuple[str, int]

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
    """Return the values of a partition's row in `groups describe`, in the order of its columns.

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


def lag_of(committed: Mapping[Partition, int], ends: Mapping[Partition, int | None]) -> int | None:
    """Return how many records are not committed yet; None if the end of a partition is not known.

    `ends`: as GroupOffsets.ends_of_existing has them. A deleted partition has no lag.
    """
    lag = 0
    for partition, offset in committed.items():
        if partition in ends:
            end = ends[partition]
            if end is None:
                return None
            lag += max(end - offset, 0)
    return lag


class OffsetStore(Protocol):
    """The offsets of a group: its committed ones, or the start offsets of a share group (share_groups.ShareOffsets).

    Methods raise CoordinatorError.
    """

    def committed(self) -> dict[Partition, int]:
        """Return the offset of each partition that the group has begun to read."""

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Move the group to these offsets."""


class CommittedOffsets:
    """The committed offsets of a group: an OffsetStore."""

    def __init__(self, brokers: "BrokerCalls", group_id: str) -> None:
        self._brokers = brokers
        self._group_id = group_id

    def committed(self) -> dict[Partition, int]:
        from kafkapy.cli.committed_offsets import committed_offsets

        return committed_offsets(self._brokers, self._group_id)

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        from kafkapy.cli.consumer_groups import commit_offsets

        commit_offsets(self._brokers, self._group_id, offsets)


class GroupOffsets:
    """The offsets of one group, and those of the partitions that it reads.

    Methods raise CoordinatorError, and LookupError for unknown topics and partitions.
    """

    def __init__(self, brokers: "BrokerCalls", store: OffsetStore) -> None:
        self._brokers = brokers
        self._store = store

    def committed(self) -> dict[Partition, int]:
        """Return the offset of each partition that the group has begun to read."""
        return self._store.committed()

    def ends_of_existing(self, partitions: Iterable[Partition]) -> dict[Partition, int | None]:
        """Return the end offsets of the partitions that are not deleted; None is one whose leader does not say."""
        from kafkapy.cli.topic_facts import LATEST, TopicQueries

        return TopicQueries(self._brokers).known_offsets(partitions, LATEST)

    def partitions_of(self, requested: Mapping[str, Sequence[int] | None]) -> list[Partition]:
        """Return the partitions; raises LookupError for one that does not exist."""
        from kafkapy.cli.topic_facts import TopicQueries

        topics = TopicQueries(self._brokers).topics(requested)
        found = []
        for name, numbers in requested.items():
            if name not in topics:
                raise LookupError(f"no such topic: {name}")
            existing = [each.number for each in topics[name].partitions]
            missing = [number for number in numbers or () if number not in existing]
            if missing:
                raise LookupError(f"{name} has no partition {missing[0]}")
            found += [(name, number) for number in (existing if numbers is None else numbers)]
        return found

    def plan(self, targets: Mapping[Partition, ResetTarget]) -> dict[Partition, tuple[int | None, int]]:
        """Return (offset before, offset after) of each partition, clamped to the partition's range."""
        from kafkapy.cli.topic_facts import EARLIEST, LATEST

        committed = self.committed()
        starts, ends = self._offsets(targets, EARLIEST), self._offsets(targets, LATEST)
        by_time: dict[int, list[Partition]] = {}
        for each, target in targets.items():
            if target.kind == "time":
                by_time.setdefault(max(target.value, 0), []).append(each)  # a time before 1970 is before all records
        at_time: dict[Partition, int] = {}
        for time_ms, partitions in by_time.items():
            at_time |= self._offsets(partitions, time_ms)
        plan = {}
        for each, target in targets.items():
            start, end, before = starts.get(each), ends.get(each), committed.get(each)
            if start is None or end is None:
                raise LookupError(f"{each[0]}-{each[1]} does not answer where it begins and ends")
            plan[each] = before, goal_of(target, each, start=start, end=end, before=before, at_time=at_time.get(each))
        return plan

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Move the group to these offsets."""
        self._store.commit(offsets)

    def _offsets(self, partitions: Iterable[Partition], timestamp: int) -> dict[Partition, int]:
        from kafkapy.cli.topic_facts import TopicQueries

        return TopicQueries(self._brokers).offsets_of(partitions, timestamp)


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
