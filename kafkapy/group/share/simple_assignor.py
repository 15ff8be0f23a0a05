"""The assignor `simple` of share groups: equal numbers of partitions, which several members may share. Pure.

With fewer partitions than members each partition is shared by as many members as are needed to give every member some.
Members keep what they had as far as that is balanced. If all members subscribe to the same topics, the partitions of
all topics are balanced together, else topic by topic.

The result is Apache Kafka's for the same input, partition by partition (tests/golden/share_assignments.txt.gz). Kafka's
result depends on the order of its hash maps, hence hash_order.py: which partition a member gives up, for example.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from itertools import chain
from math import ceil
from typing import Final, Generic, TypeAlias, TypeVar

from kafkapy.dataclass import dataclass
from kafkapy.group.hash_order import (
    capacity_for,
    capacity_of_copy,
    hash_of_int,
    hash_of_topic,
    hash_of_uuid,
    in_computed_order,
    in_order_of_copy,
    in_put_order,
)
from kafkapy.machine import SmallSteps, end_of
from kafkapy.types import Uuid

NAME: Final = "simple"
KEYS_PER_STEP: Final = 1_000
"""Partitions, or topics of members, that are looked at before other work may come: one to three milliseconds."""
KeyT = TypeVar("KeyT", bound=Hashable)

Target: TypeAlias = Mapping[Uuid, Sequence[int]]
"""Partitions by topic id. Both are in the order of Kafka's maps: what is taken from a member first depends on it."""


@dataclass(frozen=True, slots=True)
class ShareMemberSpec:
    """A member to assign, with its last target."""

    topic_ids: frozenset[Uuid]
    target: Target


@dataclass(frozen=True, slots=True)
class ShareGroupSpec:
    """A share group to assign. Its mappings are in the order in which Kafka's iterate: results depend on it.

    `assignable` has every existing topic that a member subscribes to, with the partitions that may be assigned: those
    with an initialised state. `is_homogeneous`: all members subscribe to the same topics.
    """

    members: Mapping[str, ShareMemberSpec]
    assignable: Mapping[Uuid, Collection[int]]
    is_homogeneous: bool


def assign_simply(spec: ShareGroupSpec) -> Mapping[str, Target]:
    """Return the target of every member. A topic that a member just lost may have no partitions."""
    return end_of(assign_steps(spec))


def assign_steps(spec: ShareGroupSpec) -> SmallSteps[Mapping[str, Target]]:
    """Like assign_simply(), in steps of some milliseconds with 10,000 partitions: each sorts them at most."""
    if not spec.members or not spec.assignable:
        return {}
    members = list(spec.members.values())
    if spec.is_homogeneous:
        targets = yield from _assign_together(spec, members)
    else:
        targets = yield from _assign_by_topic(spec, members)
    return dict(zip(spec.members, targets, strict=True))


def _assign_together(spec: ShareGroupSpec, members: list[ShareMemberSpec]) -> SmallSteps[list[Target]]:
    assert len({member.topic_ids for member in members}) == 1, "some subscribe to other topics"
    to_assign = [(topic_id, partition) for topic_id, partitions in spec.assignable.items() for partition in partitions]
    # a key's hash decides its place in Java's map and is needed many times: the part of its topic is computed once
    topic_hashes = {topic_id: hash_of_topic(topic_id) for topic_id in spec.assignable}

    def hash_of(key: tuple[Uuid, int]) -> int:
        return topic_hashes[key[0]] + key[1] & 0xFFFFFFFF

    yield
    had: list[list[tuple[Uuid, int]]] = []
    seen_count = 0
    for member in members:
        keys = list(_partitions(member.target))
        had.append([key for key in keys if key[0] in spec.assignable])
        seen_count += len(keys)
        if seen_count >= KEYS_PER_STEP:
            seen_count = 0
            yield
    sharing = _Sharing(to_assign, range(len(members)), had, hash_of)
    final = yield from sharing.steps()
    targets: list[Target] = []
    for member, owned, given in zip(members, final, sharing.given, strict=True):
        lost = {topic_id for topic_id in member.target if topic_id not in spec.assignable}
        by_topic: dict[Uuid, set[int]] = {}
        for topic_id, partition in owned:
            by_topic.setdefault(topic_id, set()).add(partition)
        targets.append(_new_target(member.target, by_topic, given, lost))
        seen_count += len(owned)
        if seen_count >= KEYS_PER_STEP:
            seen_count = 0
            yield
    return targets


def _assign_by_topic(spec: ShareGroupSpec, members: list[ShareMemberSpec]) -> SmallSteps[list[Target]]:
    """Assign each topic to its subscribers. Topics that nobody subscribes to stay in the target, as in Kafka."""
    owned = [{topic_id: set(partitions) for topic_id, partitions in member.target.items()} for member in members]
    given: list[list[tuple[Uuid, int]]] = [[] for _ in members]
    seen_count = 0
    for topic_id, assignable in spec.assignable.items():
        seen_count += len(members)  # also if nothing is taken or given: then the sharing has no step of its own
        if seen_count >= KEYS_PER_STEP:
            seen_count = 0
            yield
        subscribers = [index for index, member in enumerate(members) if topic_id in member.topic_ids]
        had = [list(_in_set_order(member.target.get(topic_id, ()))) for member in members]
        sharing = _Sharing(list(assignable), subscribers, had, hash_of_int)
        final = yield from sharing.steps()
        for index, partitions in enumerate(final):
            if partitions or topic_id in owned[index]:
                owned[index][topic_id] = partitions
                given[index] += [(topic_id, partition) for partition in sharing.given[index]]
    targets: list[Target] = []
    for index, member in enumerate(members):
        targets.append(_new_target(member.target, owned[index], given[index], ()))
        seen_count += sum(1 + len(partitions) for partitions in owned[index].values())
        if seen_count >= KEYS_PER_STEP:
            seen_count = 0
            yield
    return targets


def _new_target(
    before: Target,
    owned: Mapping[Uuid, Collection[int]],
    given: Sequence[tuple[Uuid, int]],
    lost: Collection[Uuid],
) -> Target:
    """Return a member's target in the order of Kafka's map, which is a copy of the one before that was changed.

    `owned`: the partitions of the new target; `given`: those of them that were given to the member, one after another;
    `lost`: the topics that it has no longer.
    """
    new: dict[Uuid, list[int]] = {}
    for topic_id, partition in given:
        new.setdefault(topic_id, []).append(partition)
    in_order = in_order_of_copy(before, lost, [topic_id for topic_id, _ in given], hash_of_uuid)
    return {
        topic_id: _changed_set(before.get(topic_id, ()), owned.get(topic_id, ()), new.get(topic_id, ()))
        for topic_id in in_order
    }


def _changed_set(had: Sequence[int], owned: Collection[int], given: Sequence[int]) -> tuple[int, ...]:
    """Return partitions in the order of a copy of the HashSet of those it `had`, with those it was given added last."""
    if len(had) == len(owned) and not given:
        return tuple(_in_set_order(had))
    added = set(given)
    kept = [partition for partition in _in_set_order(had) if partition in owned and partition not in added]
    return tuple(in_put_order([*kept, *given], hash_of_int, capacity_of_copy(len(had))))


def _partitions(target: Target) -> Iterator[tuple[Uuid, int]]:
    for topic_id, partitions in target.items():
        for partition in _in_set_order(partitions):
            yield topic_id, partition


def _in_set_order(partitions: Sequence[int]) -> Sequence[int]:
    """Return partitions in the order of a HashSet made from them. Mostly that is ascending: each has its own bucket."""
    in_order = sorted(partitions)
    capacity = capacity_of_copy(len(in_order))
    if not in_order or in_order[-1] < capacity:
        return in_order
    return in_put_order(partitions, hash_of_int, capacity)


class _Sharing(Generic[KeyT]):
    """Shares partitions between subscribers. Members are numbered; a key is a partition, with its topic if needed.

    Orders are made only if something is taken or given: in a balanced group nothing is.
    """

    def __init__(
        self, targets: list[KeyT], subscribers: Sequence[int], had: list[list[KeyT]], hash_of: Callable[[KeyT], int]
    ) -> None:
        """`had` is what each member had before, `targets` what is to be assigned now."""
        self._targets = targets
        self._hash_of = hash_of
        self._sharing = -(-len(subscribers) // len(targets)) if targets else 0
        """How many members shall share a partition."""
        quota = self._sharing * len(targets) / len(subscribers) if subscribers else 0.0
        self._quotas = {
            member: ceil(quota * (index + 1)) - ceil(quota * index) for index, member in enumerate(subscribers)
        }
        self._had = had
        self._owned = [set(keys) for keys in had]
        self.given: list[list[KeyT]] = [[] for _ in had]
        """What each member was given, one after another."""
        self._had_holders: dict[KeyT, list[int]] = {}
        """By key: the members that had it, ascending."""
        for member, keys in enumerate(had):
            for key in keys:
                self._had_holders.setdefault(key, []).append(member)

    def steps(self) -> SmallSteps[list[set[KeyT]]]:
        """Return the keys of each member."""
        yield from self._revoke_above_quota()
        yield from self._revoke_overshared()
        yield from self._assign_remaining()
        sizes = map(len, self._owned)
        assert all(size <= self._quotas.get(member, 0) for member, size in enumerate(sizes)), "more than its quota"
        return self._owned

    def _revoke_above_quota(self) -> SmallSteps[None]:
        for member, owned in enumerate(self._owned):
            surplus = len(owned) - self._quotas.get(member, 0)
            if surplus > 0:
                owned.difference_update(in_put_order(self._had[member], self._hash_of)[:surplus])
                yield

    def _revoke_overshared(self) -> SmallSteps[None]:
        owned = self._owned
        for count, (key, members) in enumerate(self._had_holders.items(), 1):
            if count % KEYS_PER_STEP == 0:
                yield
            if len(members) <= self._sharing:
                continue
            holders = [member for member in in_put_order(members, hash_of_int) if key in owned[member]]
            for member in holders[: max(len(holders) - self._sharing, 0)]:
                owned[member].discard(key)

    def _keys_in_order(self) -> list[KeyT]:
        """Return all keys in the order of the map that Kafka goes through to give them."""
        keys = chain(self._had_holders, self._targets)
        return in_computed_order(keys, self._hash_of, capacity_for(len(self._targets)))

    def _assign_remaining(self) -> SmallSteps[None]:
        """Give each partition that too few members share to those below their quota, in turns.

        If none of them can take a partition, because all of them have it, neither it nor the ones after it are given.

        Deviation: Apache Kafka fails if the members have their quotas before the partition is shared enough. Here the
        rest stays as it is, because the member would get UNKNOWN_SERVER_ERROR for ever.
        """
        kept = [frozenset(keys) for keys in self._owned]
        hungry = [member for member, quota in self._quotas.items() if len(kept[member]) < quota]
        turn, has_given = 0, False
        keys = self._keys_in_order() if hungry else ()
        for count, key in enumerate(keys):
            if count % KEYS_PER_STEP == 0:
                yield
            missing = self._sharing
            if key in self._had_holders:
                missing -= sum(key in kept[member] for member in self._had_holders[key])
            assert missing >= 0, "more members keep a partition than may share it"
            while missing > 0:
                if turn == len(hungry):
                    if not has_given or not hungry:
                        break
                    turn, has_given = 0, False
                member = hungry[turn]
                if key in kept[member]:
                    turn += 1
                    continue
                self._owned[member].add(key)
                self.given[member].append(key)
                missing -= 1
                has_given = True
                if len(self._owned[member]) >= self._quotas[member]:
                    del hungry[turn]  # the next one moves to this turn
                else:
                    turn += 1
            if not hungry:
                break
