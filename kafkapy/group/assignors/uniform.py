"""The uniform assignor: members get equal numbers of partitions and keep as many of their previous ones as possible.

As in Apache Kafka there are two algorithms. If all members subscribe to the same topics, their counts differ by at most
one. Otherwise each topic's free partitions are given to its least loaded subscribers, topic by topic. Then partitions
move from the most to the least loaded subscribers until every topic is balanced, or for MAX_ROUNDS. Balance has
priority over stickiness.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final

from kafkapy.group.assignors.spec import GroupAssignment, GroupSpec
from kafkapy.types import Uuid

MAX_ROUNDS: Final = 16
"""Rounds over all topics. Each roughly halves the remaining imbalance between overlapping subscriptions."""

Owned = dict[Uuid, set[int]]


def assign_uniformly(spec: GroupSpec) -> GroupAssignment:
    if not spec.members or not spec.partition_counts:
        return {}
    owned = _assign_same_topics(spec) if spec.is_homogeneous else _Balancer(spec).assign()
    return {
        member_id: {topic_id: frozenset(partitions) for topic_id, partitions in topics.items() if partitions}
        for member_id, topics in owned.items()
    }


def _assign_same_topics(spec: GroupSpec) -> dict[str, Owned]:
    """Take partitions from members above their quota and give them to members below it.

    The remainder of the division gives extra partitions. A member that already has more than the quota keeps one of
    them; the rest go to the last members.
    """
    member_ids = sorted(spec.members)
    topic_ids = spec.members[member_ids[0]].topic_ids
    assert all(member.topic_ids == topic_ids for member in spec.members.values()), "some subscribe to other topics"
    quota, extra_count = divmod(sum(spec.partition_counts.values()), len(member_ids))
    owned = {member_id: _kept(spec, member_id) for member_id in member_ids}
    free = list(_unassigned(spec, owned))
    below_quota: list[tuple[str, int]] = []
    for index, member_id in enumerate(member_ids):
        may_have = quota + (extra_count > 0)
        has = sum(map(len, owned[member_id].values()))
        free += sorted(_remove_excess(owned[member_id], has - may_have))
        takes_extra = extra_count > 0 and (has >= may_have or len(member_ids) - index <= extra_count)
        wants = quota + takes_extra - has
        extra_count -= takes_extra
        if wants > 0:
            below_quota.append((member_id, wants))
    assert extra_count == 0, "the remainder was not given out"
    free_partitions = iter(free)
    for member_id, wants in below_quota:
        for _, (topic_id, partition) in zip(range(wants), free_partitions, strict=False):
            owned[member_id].setdefault(topic_id, set()).add(partition)
    assert next(free_partitions, None) is None, "partitions were left unassigned"
    return owned


def _kept(spec: GroupSpec, member_id: str) -> Owned:
    """Return the member's previous partitions of topics that it subscribes to."""
    member = spec.members[member_id]
    return {
        topic_id: set(partitions) for topic_id, partitions in member.assignment.items() if topic_id in member.topic_ids
    }


def _unassigned(spec: GroupSpec, owned: dict[str, Owned]) -> Iterator[tuple[Uuid, int]]:
    taken: Owned = {}
    for topics in owned.values():
        for topic_id, partitions in topics.items():
            taken.setdefault(topic_id, set()).update(partitions)
    for topic_id, count in sorted(spec.partition_counts.items()):
        taken_of_topic = taken.get(topic_id, ())
        for partition in range(count):
            if partition not in taken_of_topic:
                yield topic_id, partition


def _remove_excess(topics: Owned, excess: int) -> Iterator[tuple[Uuid, int]]:
    """Remove and yield `excess` partitions, the highest of the last topics first."""
    for topic_id in sorted(topics, reverse=True):
        for partition in sorted(topics[topic_id], reverse=True):
            if excess <= 0:
                return
            topics[topic_id].discard(partition)
            excess -= 1
            yield topic_id, partition


class _Balancer:
    """Assigns members with different subscriptions. Members are numbered in the order of their ids."""

    def __init__(self, spec: GroupSpec) -> None:
        self._member_ids = sorted(spec.members)
        self._counts = spec.partition_counts
        self._subscribers: dict[Uuid, list[int]] = {}
        for index, member_id in enumerate(self._member_ids):
            for topic_id in spec.members[member_id].topic_ids:
                self._subscribers.setdefault(topic_id, []).append(index)
        self._owned = [_kept(spec, member_id) for member_id in self._member_ids]
        self._sizes = [sum(map(len, topics.values())) for topics in self._owned]

    def assign(self) -> dict[str, Owned]:
        topic_ids = sorted(self._subscribers, key=self._rank)
        for topic_id in topic_ids:
            self._assign_free(topic_id)
        self._balance([topic_id for topic_id in topic_ids if len(self._subscribers[topic_id]) > 1])
        assert self._sizes == [sum(map(len, topics.values())) for topics in self._owned], "a size is out of step"
        return dict(zip(self._member_ids, self._owned, strict=True))

    def _rank(self, topic_id: Uuid) -> tuple[float, int, Uuid]:
        """Sort topics with the most partitions per subscriber first: later ones even out the imbalance they leave."""
        subscriber_count = len(self._subscribers[topic_id])
        return -self._counts[topic_id] / subscriber_count, subscriber_count, topic_id

    def _assign_free(self, topic_id: Uuid) -> None:
        """Give each free partition to the least loaded subscriber of its topic."""
        subscribers = self._subscribers[topic_id]
        taken = {partition for index in subscribers for partition in self._owned[index].get(topic_id, ())}
        by_load = [(self._sizes[index], index) for index in subscribers]
        heapify(by_load)
        for partition in range(self._counts[topic_id]):
            if partition not in taken:
                _, index = heappop(by_load)
                self._give(index, topic_id, partition)
                heappush(by_load, (self._sizes[index], index))

    def _balance(self, topic_ids: list[Uuid]) -> None:
        """Balance each topic in turn until a whole round moved nothing."""
        unmoved_count = 0
        for _ in range(MAX_ROUNDS):
            for topic_id in topic_ids:
                unmoved_count = 0 if self._balance_topic(topic_id) else unmoved_count + 1
                if unmoved_count >= len(topic_ids):
                    return

    def _balance_topic(self, topic_id: Uuid) -> bool:
        """Move partitions from the most to the least loaded subscribers until they differ by one; return if any moved.

        An entry of `least` is outdated if its member has given partitions meanwhile, and then too high by that number.
        Such a member was one of the most loaded, so the loop ends before its entry could matter.
        """
        subscribers = self._subscribers[topic_id]
        least = [(self._sizes[index], index) for index in subscribers]
        most = [(-self._sizes[index], index) for index in subscribers if self._owned[index].get(topic_id)]
        heapify(least)
        heapify(most)
        has_moved = False
        while most:
            giver, taker = most[0][1], least[0][1]
            if self._sizes[giver] - self._sizes[taker] <= 1:
                break
            heappop(most)
            heappop(least)
            partition = max(self._owned[giver][topic_id])
            self._owned[giver][topic_id].discard(partition)
            self._sizes[giver] -= 1
            self._give(taker, topic_id, partition)
            heappush(least, (self._sizes[taker], taker))
            if self._owned[giver][topic_id]:
                heappush(most, (-self._sizes[giver], giver))
            has_moved = True
        return has_moved

    def _give(self, index: int, topic_id: Uuid, partition: int) -> None:
        self._owned[index].setdefault(topic_id, set()).add(partition)
        self._sizes[index] += 1
