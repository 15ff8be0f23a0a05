"""The steps by which a member's request updates a KIP-848 group: membership, subscription, target, reconciliation.

A ConsumerGroupHeartbeat (heartbeat.py) and the JoinGroup of a classic member (../migration/classic_join.py) take them
in this order. Each step reads the replayed state of the group and adds records. Of the group only soft state changes
here (deadlines, the metadata last compared with). The order of the records is Apache Kafka's.
"""

from kafkapy.errors import ApiError
from kafkapy.group.assignors import ASSIGNORS
from kafkapy.group.assignors.spec import EMPTY_ASSIGNMENT, Assignment, GroupSpec, MemberSpec
from kafkapy.group.consumer.group import ConsumerGroup
from kafkapy.group.consumer.member import ConsumerMember, MemberState
from kafkapy.group.consumer.reconcile import Reported, Target, reconcile
from kafkapy.group.consumer.records import (
    current_record,
    epoch_record,
    member_record,
    member_tombstones,
    partition_metadata_tombstone,
    regex_tombstone,
    target_epoch_record,
    target_record,
)
from kafkapy.group.consumer.state import ConsumerGroupLog
from kafkapy.group.consumer.subscriptions import Subscriptions, check_regex
from kafkapy.group.decision import GroupRequestContext
from kafkapy.group.metadata_hash import topic_ids
from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.settings import MAX_NAMES_OF_GROUP
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.types import Uuid


class MemberUpdate:
    """A request in progress. `member` is the member before the request, `updated` the member after it.

    `records` is what the request writes; `subscriptions` and `group_epoch` are the group's after it.
    """

    def __init__(
        self,
        group: ConsumerGroup,
        context: GroupRequestContext,
        *,
        member: ConsumerMember,
        updated: ConsumerMember,
        reported: Reported | None,
        records: list[CoordinatorRecord],
    ) -> None:
        """`reported` are the partitions that the member says it owns, None if the request does not say.

        `records` are those of replace_static, if `member` replaces a static member, else none. The update adds to them.
        """
        self.member = member
        self.updated = updated
        self.records = records
        self.subscriptions: Subscriptions = group.log.subscriptions
        self.group_epoch = group.log.group_epoch
        self._group = group
        self._context = context
        self._reported = reported
        self._metadata_hash = group.log.metadata_hash
        self._has_subscription_changed = False

    # -- subscription ---------------------------------------------------------------------------------------------

    def update_subscription(self) -> None:
        """Write the member if it is new or changed; bump the group epoch if its topics or their metadata changed.

        The topics of a new expression change once it is resolved (regex_resolution.py).
        """
        names_changed = self._write_metadata()
        regex_changed = self._update_regex()
        self._has_subscription_changed = names_changed or regex_changed
        self._update_group_epoch(names_changed or (regex_changed and self._is_regex_resolved()))

    def _write_metadata(self) -> bool:
        """Write the member if it is new or changed; return whether its topic names changed, or it replaces two."""
        member, updated = self.member, self.updated
        is_taken_over = len(self._replaced_members()) > 1
        if updated is member and member.member_id in self._group.log.members:
            return is_taken_over
        if updated is not member or not self.records:
            self.records.append(member_record(self._group.group_id, updated))
        return is_taken_over or updated.subscribed_topic_names != member.subscribed_topic_names

    def _update_regex(self) -> bool:
        """Update the subscriptions with the member's; return whether its regular expression changed."""
        group, updated = self._group, self.updated
        old_regex, new_regex = self.member.subscribed_topic_regex, updated.subscribed_topic_regex
        has_changed = old_regex != new_regex
        if updated is not self.member or not self._is_known(self.member):
            self.subscriptions = group.subscriptions_with(self._replaced_members(), updated)
        subscriptions = self.subscriptions
        if MAX_NAMES_OF_GROUP < len(subscriptions.names) > len(group.log.subscriptions.names):
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"The members of the group name {len(subscriptions.names)} topics, more than {MAX_NAMES_OF_GROUP}.",
            )
        if has_changed and new_regex and new_regex not in group.log.subscriptions.regexes:
            check_regex(new_regex)
        if has_changed and old_regex in group.log.subscriptions.resolved and old_regex not in subscriptions.regexes:
            self.records.append(regex_tombstone(group.group_id, old_regex))
        return has_changed

    def _is_regex_resolved(self) -> bool:
        """Whether the member's expression, if any, is resolved. If not, the group epoch is bumped once it is."""
        regex = self.updated.subscribed_topic_regex
        return not regex or regex in self.subscriptions.resolved

    def _update_group_epoch(self, must_bump: bool) -> None:
        """Bump the group epoch if its subscriptions changed (`must_bump`), or the metadata of subscribed topics."""
        group, image = self._group, self._context.image
        if not must_bump and not group.has_metadata_expired(image):
            return
        metadata_hash = group.hashes.of(self.subscriptions.topics(), image)
        if must_bump or metadata_hash != self._metadata_hash:
            self.group_epoch, self._metadata_hash = self.group_epoch + 1, metadata_hash
            self.records.append(epoch_record(group.group_id, self.group_epoch, metadata_hash))
            group.settings.counts.consumer_rebalances += 1
        group.metadata_checked(image, self.group_epoch)
        if group.log.has_partition_metadata_record:
            self.records.append(partition_metadata_tombstone(group.group_id))

    def _replaced_members(self) -> list[ConsumerMember]:
        """Return the members of the log that `updated` replaces, which its subscriptions still count.

        Empty if it is new. Two if a member joins again, under its id, as a static member that has left for a while.

        Deviation: Apache Kafka does not assign what the member had under its own id before another change of the group
        needs a new target. Here it is assigned at once, because nobody would read it.
        """
        log = self._group.log
        own = log.members.get(self.updated.member_id)
        if own is not None and own is self.member:
            return [own]
        static = log.static_member(self.updated.instance_id)
        replaced = [own] if static is own else [own, static]
        return [member for member in replaced if member is not None]

    def _is_known(self, member: ConsumerMember) -> bool:
        return self._group.log.members.get(member.member_id) is member

    # -- assignment -----------------------------------------------------------------------------------------------

    def update_assignment(self) -> None:
        """Write the group's target if it is recomputed, and the member's next step towards its own."""
        target_epoch, target = self._update_target()
        self.reconcile_to(target_epoch, target)

    def _update_target(self) -> tuple[int, Assignment]:
        """Return the target epoch and the member's target, recomputed if the group epoch is ahead of it."""
        group, context = self._group, self._context
        if group.log.assignment_epoch >= self.group_epoch or not group.may_assign(context.wall_ms):
            return group.log.assignment_epoch, group.log.target_of(self.updated)
        spec = self._spec()
        assignment = ASSIGNORS[group.preferred_assignor(self._replaced_members(), self.updated)](spec)
        assert assignment.keys() <= spec.members.keys(), "partitions of members that there are not"
        for member_id in spec.members:
            target = assignment.get(member_id, EMPTY_ASSIGNMENT)
            if group.log.targets.get(member_id) != target:
                self.records.append(target_record(group.group_id, member_id, target))
        self.records.append(target_epoch_record(group.group_id, self.group_epoch, context.wall_ms))
        return self.group_epoch, assignment.get(self.updated.member_id, EMPTY_ASSIGNMENT)

    def _spec(self) -> GroupSpec:
        group, image, updated = self._group, self._context.image, self.updated
        members = {**group.log.members, updated.member_id: updated}
        for replaced in self._replaced_members():
            if replaced.member_id != updated.member_id:
                del members[replaced.member_id]
        ids_of: dict[tuple[frozenset[str], str], frozenset[Uuid]] = {}
        specs: dict[str, MemberSpec] = {}
        for member_id, member in members.items():
            subscription = member.subscribed_topic_names, member.subscribed_topic_regex
            ids = ids_of.get(subscription)
            if ids is None:
                ids = ids_of[subscription] = topic_ids(self.subscriptions.topics_of(*subscription), image)
            # A static member that came back takes over the target of the member that it replaces.
            target = (
                group.log.target_of(updated)
                if member is updated
                else group.log.targets.get(member_id, EMPTY_ASSIGNMENT)
            )
            specs[member_id] = MemberSpec(ids, member.instance_id, target)
        counts = {
            topic_id: len(topic.partitions)
            for topic_id in frozenset().union(*ids_of.values())
            if (topic := image.topics.by_id.get(topic_id)) is not None
        }
        return GroupSpec(specs, counts, self.subscriptions.is_homogeneous(len(members)))

    def reconcile_to(self, target_epoch: int, target: Assignment) -> None:
        """Write the member's next step towards this target, if there is one."""
        group, before = self._group, self.updated
        if not self._has_subscription_changed and before.is_reconciled_to(target_epoch):
            return
        topics = self.subscriptions.topics_of(before.subscribed_topic_names, before.subscribed_topic_regex)
        goal = Target(target_epoch, target, topic_ids(topics, self._context.image), self._has_subscription_changed)
        after = reconcile(before, goal, self._reported, group.log.is_owned)
        if after is before:
            return
        self.updated = after
        self.records.append(current_record(group.group_id, after))
        if after.uses_classic_protocol:
            return  # classic members have time-outs to join and to sync instead (timers.py)
        if after.state is MemberState.UNREVOKED_PARTITIONS:
            group.timers.start_rebalance_timer(after, self._context.now_ms)
        else:
            group.timers.stop_rebalance_timer(after.member_id)


def replace_static(
    log: ConsumerGroupLog, existing: ConsumerMember, member_id: str
) -> tuple[ConsumerMember, list[CoordinatorRecord]]:
    """Return the joining member that replaces a static one, with its assignment and target, and the records of that."""
    member = existing.renamed(member_id)
    target = log.targets.get(existing.member_id, EMPTY_ASSIGNMENT)
    return member, [
        *member_tombstones(log.group_id, existing.member_id),
        member_record(log.group_id, member),
        target_record(log.group_id, member_id, target),
        current_record(log.group_id, member),
    ]
