"""The target assignment of a share group, and the step of a member towards it, which is always a single one."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from kafkapy.group.assignors.spec import EMPTY_ASSIGNMENT, Assignment, GroupAssignment, MemberSpec
from kafkapy.group.share.hash_order import capacity_of_copy, hash_of_text, hash_of_uuid, in_put_order
from kafkapy.group.share.member import ShareMember
from kafkapy.group.share.simple_assignor import ShareGroupSpec, assign_simply
from kafkapy.group.share.state import ShareGroupLog
from kafkapy.group.share.states import NO_STATES
from kafkapy.metadata.image import MetadataImage
from kafkapy.types import Uuid


def new_target(
    log: ShareGroupLog, updated: ShareMember, topic_names: Mapping[str, int], image: MetadataImage
) -> GroupAssignment:
    """Return the group's target with a member as `updated`. `topic_names`: how many members subscribe to each topic.

    Everything is in the order of Kafka's hash maps, so that the target is the one that Kafka would compute.
    """
    members = {**log.members, updated.member_id: updated}
    in_order = {member_id: members[member_id] for member_id in in_put_order(members, hash_of_text)}
    topic_ids: dict[frozenset[str], dict[Uuid, None]] = {}
    specs: dict[str, MemberSpec] = {}
    for member_id, member in in_order.items():
        names = member.subscribed_topic_names
        if names not in topic_ids:
            topic_ids[names] = dict.fromkeys(_topic_ids(names, image))
        target = log.targets.get(member_id, {})
        had = {topic_id: target[topic_id] for topic_id in in_put_order(target, hash_of_uuid)}
        specs[member_id] = MemberSpec(frozenset(topic_ids[names]), None, had)
    subscribed = {topic_id: None for ids in topic_ids.values() for topic_id in ids}
    is_homogeneous = all(count == len(members) for count in topic_names.values())
    assignment = assign_simply(ShareGroupSpec(specs, _assignable(log, subscribed, image), is_homogeneous))
    return {member_id: assignment.get(member_id, EMPTY_ASSIGNMENT) for member_id in in_order}


def _topic_ids(names: frozenset[str], image: MetadataImage) -> Iterator[Uuid]:
    """Yield the ids of the topics that exist."""
    for name in in_put_order(sorted(names), hash_of_text, capacity_of_copy(len(names))):
        topic = image.topics.by_name.get(name)
        if topic is not None:
            yield topic.topic_id


def _assignable(log: ShareGroupLog, topic_ids: Mapping[Uuid, None], image: MetadataImage) -> dict[Uuid, list[int]]:
    """Return the partitions of existing topics that have a state."""
    initialized = (log.states or NO_STATES).initialized
    assignable: dict[Uuid, list[int]] = {}
    for topic_id in topic_ids:
        states = initialized.get(topic_id)
        count = len(image.topics.by_id[topic_id].partitions)
        assignable[topic_id] = [] if states is None else sorted(each for each in states.partitions if each < count)
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
