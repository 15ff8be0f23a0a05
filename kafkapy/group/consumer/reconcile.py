"""One member's next step towards its target assignment: KIP-848's reconciliation as a pure function.

First the member revokes the partitions that are not in the target. It stays at its epoch until it no longer reports
them (UNREVOKED_PARTITIONS). Then it moves to the target's epoch and gets the partitions that are free. It gets those
that other members still own later, at the same epoch, as they are released (UNRELEASED_PARTITIONS). So a partition is
never assigned while another member owns it. The states and transitions are those of Apache Kafka's
CurrentAssignmentBuilder.
"""

from collections.abc import Callable, Mapping, Set

from kafkapy.dataclass import dataclass
from kafkapy.errors import ApiError
from kafkapy.group.assignors.spec import Assignment
from kafkapy.group.consumer.member import ConsumerMember, MemberState, OwnedPartitions
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.types import Uuid

Reported = Mapping[Uuid, Set[int]]
"""The partitions that a member says it owns, by topic id."""


@dataclass(frozen=True, slots=True)
class Target:
    """A member's target assignment.

    `subscribed_topic_ids`: the existing topics that the member subscribes to; partitions of other topics are revoked,
    even if the target has them. `has_subscription_changed`: in this heartbeat, so that unsubscribed topics are revoked
    at once.
    """

    target_epoch: int
    assignment: Assignment
    subscribed_topic_ids: Set[Uuid]
    has_subscription_changed: bool = False


def reconcile(
    member: ConsumerMember,
    target: Target,
    reported: Reported | None,
    is_owned: Callable[[Uuid, int], bool],
) -> ConsumerMember:
    """Return the member after this heartbeat; the same object if nothing changes.

    `reported` is None if the heartbeat does not report owned partitions: then none counts as revoked.
    `is_owned(topic_id, partition)`: whether any member has the partition assigned or must still revoke it.
    Raises ApiError FENCED_MEMBER_EPOCH.
    """
    if not target.has_subscription_changed and member.is_reconciled_to(target.target_epoch):
        return member
    if member.state is MemberState.STABLE:
        if member.member_epoch != target.target_epoch:
            return _advance(member, target, reported, is_owned)
        return _drop_unsubscribed(member, target, reported)
    if member.state is MemberState.UNREVOKED_PARTITIONS and _still_owns(reported, member.pending_revocation):
        return _drop_unsubscribed(member, target, reported) if target.has_subscription_changed else member
    if member.state is MemberState.UNKNOWN and (reported is None or reported):
        raise ApiError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin.",
        )
    return _advance(member, target, reported, is_owned)


def _advance(
    member: ConsumerMember,
    target: Target,
    reported: Reported | None,
    is_owned: Callable[[Uuid, int], bool],
) -> ConsumerMember:
    """Revoke partitions that are not in the target; if none is left, move to the target's epoch with all free ones."""
    wanted = {
        topic_id: partitions
        for topic_id, partitions in target.assignment.items()
        if topic_id in target.subscribed_topic_ids
    }
    kept, to_revoke = _divided(member.assigned, wanted)
    if to_revoke and _still_owns(reported, to_revoke):
        return member.moved_to(
            member.member_epoch,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=kept,
            pending_revocation=to_revoke,
        )
    waits = False
    assigned: dict[Uuid, Mapping[int, int]] = dict(kept)
    for topic_id, partitions in wanted.items():
        has = kept.get(topic_id, {})
        own = member.pending_revocation.get(topic_id, {})
        missing = partitions.difference(has)
        # never before its owner has let go of it; what the member itself has yet to revoke, it may keep
        free = [partition for partition in missing if partition in own or not is_owned(topic_id, partition)]
        waits = waits or len(free) < len(missing)
        if free:
            assigned[topic_id] = {**has, **dict.fromkeys(free, target.target_epoch)}
    assert all(owned.keys() <= wanted[topic_id] for topic_id, owned in assigned.items()), "more than its target"
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    moved = member.moved_to(target.target_epoch, state=state, assigned=assigned, pending_revocation={})
    return member if moved == member else moved


def _drop_unsubscribed(member: ConsumerMember, target: Target, reported: Reported | None) -> ConsumerMember:
    """Revoke the topics that the member no longer subscribes to, without applying the rest of the target."""
    unwanted = {
        topic_id: partitions
        for topic_id, partitions in member.assigned.items()
        if topic_id not in target.subscribed_topic_ids
    }
    if not unwanted:
        return member
    assigned = {topic_id: owned for topic_id, owned in member.assigned.items() if topic_id not in unwanted}
    to_revoke: dict[Uuid, Mapping[int, int]] = dict(member.pending_revocation)
    for topic_id, partitions in unwanted.items():
        to_revoke[topic_id] = {**to_revoke.get(topic_id, {}), **partitions}
    if not _still_owns(reported, to_revoke):
        return member.moved_to(member.member_epoch, assigned=assigned)
    return member.moved_to(
        member.member_epoch,
        state=MemberState.UNREVOKED_PARTITIONS,
        assigned=assigned,
        pending_revocation=to_revoke,
    )


def _divided(owned: OwnedPartitions, wanted: Assignment) -> tuple[OwnedPartitions, OwnedPartitions]:
    """Return the partitions of `owned` to keep and those to revoke."""
    kept: dict[Uuid, Mapping[int, int]] = {}
    gone: dict[Uuid, Mapping[int, int]] = {}
    for topic_id, partitions in owned.items():
        stay = wanted.get(topic_id, frozenset())
        if partitions.keys() <= stay:
            kept[topic_id] = partitions
            continue
        kept_of_topic = {partition: epoch for partition, epoch in partitions.items() if partition in stay}
        if kept_of_topic:
            kept[topic_id] = kept_of_topic
        gone[topic_id] = {partition: epoch for partition, epoch in partitions.items() if partition not in stay}
    assert _count(kept) + _count(gone) == _count(owned), "a partition is kept or revoked, and none is both"
    return kept, gone


def _count(owned: OwnedPartitions) -> int:
    return sum(map(len, owned.values()))


def _still_owns(reported: Reported | None, revoked: OwnedPartitions) -> bool:
    if reported is None:
        return True
    return any(partition in revoked.get(topic_id, ()) for topic_id, owned in reported.items() for partition in owned)
