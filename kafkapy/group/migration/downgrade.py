"""Conversion of a KIP-848 group to a classic group, when its last member of the consumer protocol leaves.

The tombstones of the group's records and the classic group's record are written in one batch. The members' targets
become their assignments in the classic group, and the group epoch its generation. Then the classic group rebalances,
unless a static member merely rejoined with the classic protocol and all members have their targets.

group.consumer.migration.policy allows or forbids each direction. Source: KIP-848, KIP-1101 and Apache Kafka 4.4.0.
"""

from collections.abc import Sequence
from typing import TypeAlias

from kafkapy.errors import ProtocolError
from kafkapy.group.assignors.spec import Assignment
from kafkapy.group.classic.group import ClassicGroup
from kafkapy.group.classic.members import ClassicMember
from kafkapy.group.consumer.group import ConsumerGroup
from kafkapy.group.consumer.member import ConsumerMember
from kafkapy.group.consumer.records import group_tombstones
from kafkapy.group.decision import GroupDecision
from kafkapy.group.embedded import read_version, write_assignment
from kafkapy.group.migration.policy import allows_downgrade
from kafkapy.group.settings import GroupSettings
from kafkapy.metadata.image import MetadataImage
from kafkapy.protocol.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey

MembersWithTargets: TypeAlias = Sequence[tuple[ConsumerMember, Assignment]]


def can_downgrade(settings: GroupSettings, members: Sequence[ConsumerMember]) -> bool:
    """Whether a group may be converted to a classic group with these members.

    If a member's metadata cannot be read, the group is not converted. Apache Kafka fails there, each time.
    """
    return (
        bool(members)
        and all(member.uses_classic_protocol for member in members)
        and allows_downgrade(settings)
        and len(members) <= settings.config.group_max_size
        and all(_is_readable(metadata) for member in members for _, metadata in member.classic_protocols)
    )


def _is_readable(metadata: bytes) -> bool:
    try:
        return read_version(metadata) >= 0
    except ProtocolError:
        return False


def downgrade(
    group: ConsumerGroup,
    members: MembersWithTargets,
    *,
    removed_ids: list[str],
    rebalance_reason: str | None,
    image: MetadataImage,
    now_ms: int,
) -> GroupDecision:
    """Return the records of the conversion and the classic group (`made`), without a response.

    `members`: the remaining members with their targets, in the order of the classic group. `removed_ids`: the ids of
    all members that have records. `rebalance_reason`: None if all members have their targets, so that no rebalance is
    needed.
    """
    assert {member.member_id for member, _ in members}.issubset(removed_ids), "a member would be in both groups"
    classic = _classic_group(group, members, image)
    regexes = list(group.log.subscriptions.resolved)
    records = [*group_tombstones(group.group_id, removed_ids, regexes), classic.log.metadata_record()]
    is_next = type(records[-2].key) is ConsumerGroupMetadataKey
    assert is_next, "loading the log detects a conversion by this order (ClassicGroups.on_removal)"
    decision = GroupDecision(records=records, made=classic)
    classic.rebalance.renew_sessions(now_ms)
    if rebalance_reason is not None:
        classic.rebalance.prepare_rebalance(rebalance_reason, decision, now_ms)
    return decision


def _classic_group(group: ConsumerGroup, members: MembersWithTargets, image: MetadataImage) -> ClassicGroup:
    classic = ClassicGroup(group.group_id, group.settings, group.wall_ms)
    classic.log.found([_classic_member(member) for member, _ in members], group.log.group_epoch, group.history)
    classic.log.assign(
        {member.member_id: _encoded(classic, member.member_id, target, image) for member, target in members}
    )
    return classic


def _encoded(classic: ClassicGroup, member_id: str, target: Assignment, image: MetadataImage) -> bytes:
    """Return a member's target in the version of the subscription that it sent for the group's protocol."""
    metadata = classic.log.members[member_id].metadata(classic.log.protocol_name)
    return write_assignment(target, image, read_version(metadata))


def _classic_member(member: ConsumerMember) -> ClassicMember:
    return ClassicMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic_session_timeout_ms,
        protocols=member.classic_protocols,
    )
