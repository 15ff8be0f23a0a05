"""One ConsumerGroupHeartbeat decided: membership, subscription, target assignment, reconciliation, in this order.

Each step reads the group as the log has it and adds records; nothing of the group changes here but soft state
(deadlines, which metadata was looked at). The records' order is Apache Kafka's. One deviation: regular expressions are
resolved in the heartbeat that asks for them (Kafka does it on another thread; the member learns it a heartbeat later).
Source: KIP-848; versions: 1 lets the member make its id (KIP-1082) and subscribe by regular expression.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from kafkapy.errors import ApiError
from kafkapy.group.assignors import ASSIGNORS
from kafkapy.group.assignors.spec import EMPTY_ASSIGNMENT, Assignment, GroupSpec, MemberSpec
from kafkapy.group.consumer_members import JOIN_EPOCH, LEAVE_STATIC_EPOCH, ConsumerMember, MemberState
from kafkapy.group.consumer_records import (
    current_record,
    epoch_record,
    member_record,
    member_tombstones,
    partition_metadata_tombstone,
    regex_record,
    regex_tombstone,
    target_epoch_record,
    target_record,
)
from kafkapy.group.decision import Client, GroupDecision
from kafkapy.group.reconcile import Reported, Target, reconcile
from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.subscriptions import Subscriptions, compile_regex, resolve, topic_ids
from kafkapy.metadata.image import MetadataImage
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.consumer_group_heartbeat_response import (
    Assignment as AssignmentAnswer,
)
from kafkapy.protocol.messages.consumer_group_heartbeat_response import (
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kafkapy.types import Uuid

if TYPE_CHECKING:
    from kafkapy.group.consumer import ConsumerGroup

REGEX_REFRESH_MIN_MS: Final = 10_000
"""New topics make a group match its regular expressions again, but no more often than this."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a decision may look at beyond the group: who asks, both clocks, the cluster's metadata."""

    client: Client
    now_ms: int
    """Monotonic: deadlines."""
    wall_ms: int
    """What goes into records."""
    image: MetadataImage
    may_describe: Callable[[str], bool] = field(default=lambda topic: True)
    """Whether the asking member may see a topic that its regular expression matches."""


class HeartbeatDecision:
    """A heartbeat under way. `member` is where the member comes from, `updated` what becomes of it."""

    def __init__(
        self, group: "ConsumerGroup", request: ConsumerGroupHeartbeatRequest, member_id: str, around: Surroundings
    ) -> None:
        self._group = group
        self._request = request
        self._around = around
        self._reported = _reported(request)
        self._records: list[CoordinatorRecord] = []
        self._check_size(member_id)
        self._member = self._subscribe(member_id)
        self._updated = self._with_request(self._member)
        self._subscriptions: Subscriptions = group.subscriptions
        self._group_epoch = group.group_epoch

    def decide(self) -> GroupDecision:
        group, member = self._group, self._member
        names_changed = self._write_metadata()
        regex_changed, regex_bumps = self._update_regexes()
        self._update_group_epoch(names_changed or regex_bumps)
        target_epoch, target = self._update_target()
        self._reconcile(target_epoch, target, names_changed or regex_changed)
        group.touch_session(self._updated.member_id, self._around.now_ms)
        response = ConsumerGroupHeartbeatResponse(
            member_id=self._updated.member_id,
            member_epoch=self._updated.member_epoch,
            heartbeat_interval_ms=group.settings.consumer_heartbeat_interval_ms(group.group_id),
        )
        if self._is_full_request() or self._updated.assigned != member.assigned:
            response.assignment = _assignment_answer(self._updated)
        return GroupDecision(response, self._records)

    def _check_size(self, member_id: str) -> None:
        limit = self._group.settings.config.group_consumer_max_size
        if len(self._group.members) >= limit and member_id not in self._group.members:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {limit} members.",
            )

    def _subscribe(self, member_id: str) -> ConsumerMember:
        """Return the member as the group knows it, a new one, or one that takes a departed static member's place."""
        request, group = self._request, self._group
        joins = request.member_epoch == JOIN_EPOCH
        if request.instance_id is None:
            member = group.members.get(member_id)
            if member is None:
                if not joins:
                    raise unknown_member(group.group_id, member_id)
                return ConsumerMember(member_id)
            check_member_epoch(member, request.member_epoch, self._reported)
            return member
        existing = group.static_member(request.instance_id)
        if not joins:
            existing = check_static_member(existing, member_id, request.instance_id)
            check_member_epoch(existing, request.member_epoch, self._reported)
            return existing
        if existing is None:
            return group.members.get(member_id, ConsumerMember(member_id))
        return self._replace_static(existing, member_id)

    def _replace_static(self, existing: ConsumerMember, member_id: str) -> ConsumerMember:
        """Give the place of a departed static member, with all it had, to the one that joins."""
        if existing.member_epoch != LEAVE_STATIC_EPOCH and not existing.uses_classic_protocol:
            raise ApiError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {existing.instance_id} cannot join the group because "
                f"the instance id is owned by {existing.member_id} member.",
            )
        group_id = self._group.group_id
        member = existing.renamed(member_id)
        target = self._group.targets.get(existing.member_id, EMPTY_ASSIGNMENT)
        self._records += member_tombstones(group_id, existing.member_id)
        self._records += [
            member_record(group_id, member),
            target_record(group_id, member_id, target),
            current_record(group_id, member),
        ]
        return member

    def _with_request(self, member: ConsumerMember) -> ConsumerMember:
        """Return the member with what the request sets; what it leaves out stays as it was."""
        request, client = self._request, self._around.client
        names = request.subscribed_topic_names
        regex = request.subscribed_topic_regex
        updated = replace(
            member,
            instance_id=member.instance_id if request.instance_id is None else request.instance_id,
            rack_id=member.rack_id if request.rack_id is None else request.rack_id,
            rebalance_timeout_ms=(
                member.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
            ),
            server_assignor=member.server_assignor if request.server_assignor is None else request.server_assignor,
            subscribed_topic_names=member.subscribed_topic_names if names is None else frozenset(names),
            subscribed_topic_regex=member.subscribed_topic_regex if regex is None else regex,
            client_id=client.client_id,
            client_host=client.client_host,
            classic_metadata=None,
        )
        return member if updated == member else updated

    def _write_metadata(self) -> bool:
        """Write the member where it is new or changed; return whether its topic names changed."""
        member, updated = self._member, self._updated
        if updated is member and member.member_id in self._group.members:
            return False
        if updated is not member or not self._records:
            self._records.append(member_record(self._group.group_id, updated))
        return updated.subscribed_topic_names != member.subscribed_topic_names

    def _update_regexes(self) -> tuple[bool, bool]:
        """Return whether the member's expression changed, and whether the group needs a new assignment for it."""
        group, updated = self._group, self._updated
        old_regex, new_regex = self._member.subscribed_topic_regex, updated.subscribed_topic_regex
        has_changed = old_regex != new_regex
        if updated is not self._member or not self._is_known(self._member):
            self._subscriptions = group.subscriptions_with(self._replaced_member(), updated)
        subscriptions = self._subscriptions
        if has_changed and new_regex and new_regex not in group.subscriptions.regexes:
            compile_regex(new_regex)
        if has_changed and old_regex in group.subscriptions.resolved and old_regex not in subscriptions.regexes:
            self._records.append(regex_tombstone(group.group_id, old_regex))
        needs_epoch = has_changed and (bool(old_regex) or new_regex in subscriptions.resolved)
        return has_changed, self._refresh_regexes() or needs_epoch

    def _replaced_member(self) -> ConsumerMember | None:
        """Return the member that the subscriptions still count and that `updated` stands in for."""
        if self._is_known(self._member):
            return self._member
        return self._group.static_member(self._updated.instance_id)

    def _is_known(self, member: ConsumerMember) -> bool:
        return member.member_id in self._group.members

    def _refresh_regexes(self) -> bool:
        """Match the expressions that need it against the topics there are; return whether any matches others now."""
        subscriptions, around = self._subscriptions, self._around
        if not subscriptions.regexes:
            return False
        due = self._group.due_regexes(subscriptions, around.image, around.wall_ms)
        if not due:
            return False
        matches = resolve(due, around.image, around.wall_ms, around.may_describe)
        has_changed = False
        subscriptions = self._subscriptions = subscriptions.copy()
        for regex, resolved in matches.items():
            before = subscriptions.resolved.get(regex)
            has_changed = has_changed or resolved.topics != (before.topics if before is not None else frozenset())
            subscriptions.resolved[regex] = resolved
            self._records.append(regex_record(self._group.group_id, regex, resolved))
        return has_changed

    def _update_group_epoch(self, must_bump: bool) -> None:
        """Raise the group's epoch where its subscription changed, or the metadata of what it subscribes to did."""
        group, image = self._group, self._around.image
        if not must_bump and not group.has_metadata_expired(image):
            return
        metadata_hash = group.hashes.of(self._subscriptions.topics(), image)
        if must_bump or metadata_hash != group.metadata_hash:
            self._group_epoch += 1
            self._records.append(epoch_record(group.group_id, self._group_epoch, metadata_hash))
        group.metadata_checked(image, self._group_epoch)
        if group.has_partition_metadata_record:
            self._records.append(partition_metadata_tombstone(group.group_id))

    def _update_target(self) -> tuple[int, Assignment]:
        """Return the target epoch and the member's target, computed anew where the group has moved on."""
        group, around = self._group, self._around
        if group.assignment_epoch >= self._group_epoch or not group.may_assign(around.wall_ms):
            return group.assignment_epoch, group.target_of(self._updated)
        spec = self._spec()
        assignment = ASSIGNORS[group.preferred_assignor(self._replaced_member(), self._updated)](spec)
        for member_id in spec.members:
            target = assignment.get(member_id, EMPTY_ASSIGNMENT)
            if group.targets.get(member_id) != target:
                self._records.append(target_record(group.group_id, member_id, target))
        self._records.append(target_epoch_record(group.group_id, self._group_epoch, around.wall_ms))
        return self._group_epoch, assignment.get(self._updated.member_id, EMPTY_ASSIGNMENT)

    def _spec(self) -> GroupSpec:
        group, image, updated = self._group, self._around.image, self._updated
        members = {**group.members, updated.member_id: updated}
        replaced = self._replaced_member()
        if replaced is not None and replaced.member_id != updated.member_id:
            del members[replaced.member_id]
        ids_of: dict[tuple[frozenset[str], str], frozenset[Uuid]] = {}
        specs: dict[str, MemberSpec] = {}
        for member_id, member in members.items():
            subscription = member.subscribed_topic_names, member.subscribed_topic_regex
            ids = ids_of.get(subscription)
            if ids is None:
                ids = ids_of[subscription] = topic_ids(self._subscriptions.topics_of(*subscription), image)
            target = group.target_of(updated) if member is updated else group.targets.get(member_id, EMPTY_ASSIGNMENT)
            specs[member_id] = MemberSpec(ids, member.instance_id, target)
        counts = {
            topic_id: len(topic.partitions)
            for topic_id in frozenset().union(*ids_of.values())
            if (topic := image.topics.by_id.get(topic_id)) is not None
        }
        return GroupSpec(specs, counts, self._subscriptions.is_homogeneous(len(members)))

    def _reconcile(self, target_epoch: int, target: Assignment, has_subscription_changed: bool) -> None:
        group, before = self._group, self._updated
        if not has_subscription_changed and before.is_reconciled_to(target_epoch):
            return
        topics = self._subscriptions.topics_of(before.subscribed_topic_names, before.subscribed_topic_regex)
        goal = Target(target_epoch, target, topic_ids(topics, self._around.image), has_subscription_changed)
        after = reconcile(before, goal, self._reported, group.is_owned)
        if after is before:
            return
        self._updated = after
        self._records.append(current_record(group.group_id, after))
        if after.state is MemberState.UNREVOKED_PARTITIONS:
            group.start_rebalance_timer(after, self._around.now_ms)
        else:
            group.stop_rebalance_timer(after.member_id)

    def _is_full_request(self) -> bool:
        """Whether the member wants its assignment in any case: it joins, or has told everything after an error."""
        request = self._request
        has_subscription = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        return request.member_epoch == JOIN_EPOCH or (
            request.rebalance_timeout_ms != -1 and has_subscription and request.topic_partitions is not None
        )


def check_member_epoch(member: ConsumerMember, received_epoch: int, reported: Reported | None) -> None:
    """Raise FENCED_MEMBER_EPOCH unless the member is where the group thinks it is.

    One epoch behind is fine where what it owns is part of its assignment: the answer with the new epoch was lost.
    """
    if received_epoch in (JOIN_EPOCH, member.member_epoch):
        return
    is_ahead = received_epoch > member.member_epoch
    if not is_ahead and received_epoch == member.previous_member_epoch and _has_all(member, reported):
        return
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {'greater' if is_ahead else 'smaller'} member epoch ({received_epoch}) than "
        f"the one known by the group coordinator ({member.member_epoch}). The member must abandon all its partitions "
        "and rejoin.",
    )


def check_static_member(member: ConsumerMember | None, member_id: str, instance_id: str) -> ConsumerMember:
    """Return the static member when it is the one that asks; raises UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
    if member is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise ApiError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )
    return member


def unknown_member(group_id: str, member_id: str | None) -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")


def _has_all(member: ConsumerMember, reported: Reported | None) -> bool:
    if reported is None:
        return False
    return all(
        topic_id in member.assigned and partitions <= member.assigned[topic_id].keys()
        for topic_id, partitions in reported.items()
    )


def _reported(request: ConsumerGroupHeartbeatRequest) -> Reported | None:
    if request.topic_partitions is None:
        return None
    owned: dict[Uuid, set[int]] = {}
    for topic in request.topic_partitions:
        owned.setdefault(topic.topic_id, set()).update(topic.partitions)
    return owned


def _assignment_answer(member: ConsumerMember) -> AssignmentAnswer:
    return AssignmentAnswer(
        [TopicPartitions(topic_id, sorted(partitions)) for topic_id, partitions in sorted(member.assigned.items())]
    )
