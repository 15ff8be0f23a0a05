"""The target assignment of a share group, and the step of a member towards it, which is always a single one."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from kafkapy.dataclass import dataclass
from kafkapy.group.assignors.spec import EMPTY_ASSIGNMENT, Assignment, GroupAssignment, MemberSpec
from kafkapy.group.hash_order import capacity_of_copy, hash_of_text, hash_of_uuid, in_put_order
from kafkapy.group.share.member import ShareMember
from kafkapy.group.share.simple_assignor import ShareGroupSpec, assign_steps
from kafkapy.group.share.state import ShareGroupLog
from kafkapy.group.share.states import NO_STATES, GroupStates
from kafkapy.machine import SmallSteps
from kafkapy.metadata.image import MetadataImage, TopicsImage
from kafkapy.types import Uuid

LARGE: Final = 1_000
"""Partitions that have a state, and those of all targets, from which on a target is computed in steps: 10 ms."""
MEMBERS_PER_STEP: Final = 50


@dataclass(frozen=True, slots=True)
class TargetInput:
    """What a target depends on. Equal inputs have equal targets."""

    subscriptions: Mapping[str, frozenset[str]]
    """By member id."""
    targets: Mapping[str, Assignment]
    states: GroupStates
    topics: TopicsImage
    is_homogeneous: bool

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
        )

    def steps(self) -> SmallSteps[GroupAssignment]:
        """Return the steps to the target of each member.

        Everything is in the order of Kafka's hash maps, so that the target is the one that Kafka would compute.
        """
        in_order = in_put_order(self.subscriptions, hash_of_text)
        topic_ids: dict[frozenset[str], dict[Uuid, None]] = {}
        specs: dict[str, MemberSpec] = {}
        for count, member_id in enumerate(in_order, 1):
            names = self.subscriptions[member_id]
            if names not in topic_ids:
                topic_ids[names] = dict.fromkeys(_topic_ids(names, self.topics))
            target = self.targets.get(member_id, {})
            had = {topic_id: target[topic_id] for topic_id in in_put_order(target, hash_of_uuid)}
            specs[member_id] = MemberSpec(frozenset(topic_ids[names]), None, had)
            if count % MEMBERS_PER_STEP == 0:
                yield
        subscribed = {topic_id: None for ids in topic_ids.values() for topic_id in ids}
        assignable = yield from _assignable(self, subscribed)
        assignment = yield from assign_steps(ShareGroupSpec(specs, assignable, self.is_homogeneous))
        assert assignment.keys() <= specs.keys(), "partitions of members that there are not"
        targets = {member_id: assignment.get(member_id, EMPTY_ASSIGNMENT) for member_id in in_order}
        assert targets.keys() == self.subscriptions.keys(), "a target has every member"
        return targets

    def is_same(self, other: Any) -> bool:
        return (
            type(other) is TargetInput and self.topics is other.topics and self.states is other.states and self == other
        )

    @property
    def is_large(self) -> bool:
        count = sum(len(states.partitions) for states in self.states.initialized.values())
        return count + sum(len(each) for target in self.targets.values() for each in target.values()) >= LARGE


def _topic_ids(names: frozenset[str], topics: TopicsImage) -> Iterator[Uuid]:
    """Yield the ids of the topics that exist."""
    for name in in_put_order(sorted(names), hash_of_text, capacity_of_copy(len(names))):
        topic = topics.by_name.get(name)
        if topic is not None:
            yield topic.topic_id


def _assignable(wanted: TargetInput, topic_ids: Mapping[Uuid, None]) -> SmallSteps[dict[Uuid, list[int]]]:
    """Return the partitions of existing topics that have a state."""
    initialized = wanted.states.initialized
    assignable: dict[Uuid, list[int]] = {}
    for topic_id in topic_ids:
        states = initialized.get(topic_id)
        count = len(wanted.topics.by_id[topic_id].partitions)
        assignable[topic_id] = [] if states is None else sorted(each for each in states.partitions if each < count)
        yield
    return assignable


def reconciled(
    member: ShareMember, target_epoch: int, target: Assignment, image: MetadataImage, *, has_changed: bool
) -> ShareMember:
    """Return the member at the target's epoch, with the partitions of topics that it subscribes to and that exist.

    has_changed: the group epoch was bumped by this request, so that the response has the assignment in any case.
    """
    if not has_changed and member.is_reconciled_to(target_epoch):
        return member
    assigned = {
        topic_id: partitions
        for topic_id, partitions in target.items()
        if (topic := image.topics.by_id.get(topic_id)) is not None and topic.name in member.subscribed_topic_names
    }
    if target_epoch != member.member_epoch:
        return member.moved_to(target_epoch, assigned)
    return replace(member, assigned=assigned) if has_changed else member


def is_assignment_pending(log: ShareGroupLog) -> bool:
    """Whether partitions of subscribed topics were initialised, or are no longer, since the target was computed."""
    initialized = (log.states or NO_STATES).initialized
    if not initialized or not log.topic_names:
        return False
    targeted: dict[Uuid, set[int]] = {}
    for target in log.targets.values():
        for topic_id, partitions in target.items():
            targeted.setdefault(topic_id, set()).update(partitions)
    return any(
        states.name in log.topic_names and targeted.get(topic_id, frozenset()) != states.partitions
        for topic_id, states in initialized.items()
    )
