"""The target assignment of a share group, and the step of a member towards it, which is always a single one."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, Final

from kafkapy.dataclass import dataclass
from kafkapy.group.hash_order import capacity_of_copy, hash_of_text, hash_of_uuid, in_put_order
from kafkapy.group.share.member import ShareMember
from kafkapy.group.share.simple_assignor import ShareGroupSpec, ShareMemberSpec, Target, assign_steps
from kafkapy.group.share.state import ShareGroupLog
from kafkapy.group.share.states import NO_STATES, GroupStates
from kafkapy.machine import SmallSteps
from kafkapy.metadata.image import MetadataImage, TopicsImage
from kafkapy.types import Uuid

LARGE: Final = 1_000
"""Partitions that have a state, and those of all targets, from which on a target is computed in steps: 10 ms."""
LARGE_NAMES: Final = 5_000
"""Likewise: names that members subscribe to, and, if they differ, topics of each member."""
KEYS_PER_STEP: Final = 1_000
"""Names and topics of members that are looked at before other work may come."""
KEYS_OF_MEMBER: Final = 20
"""What a member counts for beside its names and topics."""
NO_TARGET: Final[Target] = {}


@dataclass(frozen=True, slots=True)
class TargetInput:
    """The input of a target assignment. Equal inputs have equal targets."""

    subscriptions: Mapping[str, frozenset[str]]
    """By member id."""
    targets: Mapping[str, Target]
    states: GroupStates
    topics: TopicsImage
    is_homogeneous: bool
    topic_count: int
    """The number of different names that members subscribe to."""

    @classmethod
    def of(
        cls, log: ShareGroupLog, updated: ShareMember, topic_names: Mapping[str, int], image: MetadataImage
    ) -> "TargetInput":
        """Return the input for a group's target with a member as `updated`.

        `topic_names`: how many members subscribe to each topic.
        """
        members = {**log.members, updated.member_id: updated}
        assert all(count <= len(members) for count in topic_names.values()), "a name has more subscribers than members"
        return cls(
            {member_id: member.subscribed_topic_names for member_id, member in members.items()},
            dict(log.targets),
            log.states or NO_STATES,
            image.topics,
            all(count == len(members) for count in topic_names.values()),
            len(topic_names),
        )

    def steps(self) -> SmallSteps[Mapping[str, Target]]:
        """Return the steps to the target of each member.

        Everything is in the order of Kafka's hash maps, so that the target is the one that Kafka would compute.
        """
        in_order = in_put_order(self.subscriptions, hash_of_text)
        # most members subscribe to the same: their topics are looked up, and kept, once
        topic_ids: dict[frozenset[str], frozenset[Uuid]] = {}
        subscribed: dict[Uuid, None] = {}
        hashes: dict[str, int] = {}
        specs: dict[str, ShareMemberSpec] = {}
        seen_count = 0
        for member_id in in_order:
            names = self.subscriptions[member_id]
            if names not in topic_ids:
                found = dict.fromkeys(_topic_ids(names, self.topics, hashes))
                topic_ids[names] = frozenset(found)
                subscribed |= found
            target = self.targets.get(member_id, {})
            had = {topic_id: target[topic_id] for topic_id in in_put_order(target, hash_of_uuid)}
            specs[member_id] = ShareMemberSpec(topic_ids[names], had)
            seen_count += KEYS_OF_MEMBER + len(names) + len(target)
            if seen_count >= KEYS_PER_STEP:
                seen_count = 0
                yield
        in_turn = subscribed if self.is_homogeneous else in_put_order(subscribed, hash_of_uuid)
        assignable = yield from _assignable(self, in_turn)
        assignment = yield from assign_steps(ShareGroupSpec(specs, assignable, self.is_homogeneous))
        assert assignment.keys() <= specs.keys(), "partitions of members that there are not"
        targets = {member_id: assignment.get(member_id, NO_TARGET) for member_id in in_order}
        assert targets.keys() == self.subscriptions.keys(), "a target has every member"
        return targets

    def is_same(self, other: Any) -> bool:
        return (
            type(other) is TargetInput and self.topics is other.topics and self.states is other.states and self == other
        )

    @property
    def is_large(self) -> bool:
        count = sum(len(states.partitions) for states in self.states.initialized.values())
        for target in self.targets.values():
            if count >= LARGE:
                return True
            count += sum(map(len, target.values()))
        return count >= LARGE or self._name_count() >= LARGE_NAMES

    def _name_count(self) -> int:
        """Return how many names are looked up, or how often a member is looked at for a topic, if that is more."""
        name_count = sum(map(len, self.subscriptions.values()))
        if self.is_homogeneous:
            return name_count
        return max(name_count, len(self.subscriptions) * min(self.topic_count, len(self.topics.by_name)))


def _topic_ids(names: Set[str], topics: TopicsImage, hashes: dict[str, int]) -> Iterator[Uuid]:
    """Yield the ids of the topics that exist. `hashes`: of names that were hashed before, to which others are added."""
    existing = sorted(_existing(names, topics))
    for name in existing:
        if name not in hashes:
            hashes[name] = hash_of_text(name)
    for name in in_put_order(existing, hashes.__getitem__, capacity_of_copy(len(names))):
        yield topics.by_name[name].topic_id


def _existing(names: Set[str], topics: TopicsImage) -> Sequence[str]:
    """Return those names that topics have. Members may name many others: the smaller of both sets is visited."""
    if len(names) <= len(topics.by_name):
        return [name for name in names if name in topics.by_name]
    return [name for name in topics.by_name if name in names]


def _assignable(wanted: TargetInput, topic_ids: Iterable[Uuid]) -> SmallSteps[dict[Uuid, list[int]]]:
    """Return the partitions of existing topics that have a state."""
    initialized = wanted.states.initialized
    assignable: dict[Uuid, list[int]] = {}
    for topic_id in topic_ids:
        states = initialized.get(topic_id)
        count = len(wanted.topics.by_id[topic_id].partitions)
        assignable[topic_id] = [] if states is None else sorted(each for each in states.partitions if each < count)
        yield
    return assignable


def is_same_target(before: Target | None, after: Target) -> bool:
    """Return whether a member has this target already, in whatever order: then it is not written again."""
    if before == after:  # nearly always, and much faster
        return True
    if before is None or before.keys() != after.keys():
        return False
    return all(before[each] == after[each] or set(before[each]) == set(after[each]) for each in after)


def reconciled(
    member: ShareMember, target_epoch: int, target: Target, image: MetadataImage, *, has_changed: bool
) -> ShareMember:
    """Return the member at the target's epoch, with the partitions of topics that it subscribes to and that exist.

    has_changed: the group epoch was bumped by this request, so that the response has the assignment in any case.
    """
    if not has_changed and member.is_reconciled_to(target_epoch):
        return member
    assigned = {
        topic_id: frozenset(partitions)
        for topic_id, partitions in target.items()
        if (topic := image.topics.by_id.get(topic_id)) is not None and topic.name in member.subscribed_topic_names
    }
    if target_epoch != member.member_epoch:
        return member.moved_to(target_epoch, assigned)
    return replace(member, assigned=assigned) if has_changed else member


def is_assignment_pending(log: ShareGroupLog, image: MetadataImage) -> bool:
    """Whether partitions of subscribed topics were initialised, or are no longer, since the target was computed.

    Deviation: Apache Kafka counts states of topics that are deleted, too. Here only those of topics that exist, because
    a coordinator that did not learn of the deletion keeps them, and each heartbeat would begin a group epoch for ever.
    """
    initialized = (log.states or NO_STATES).initialized
    if not initialized or not log.topic_names:
        return False
    targeted = log.targeted()
    return any(
        states.name in log.topic_names and targeted.get(topic_id, frozenset()) != states.partitions
        for topic_id, states in initialized.items()
        if topic_id in image.topics.by_id
    )
