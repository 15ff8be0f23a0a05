"""Conversion of a classic group of consumers to a KIP-848 group, when a member of the consumer protocol joins it.

The tombstone of the classic group's record, the KIP-848 group's records, and the joining member's changes are written
in one batch. Members keep the assignment of the last generation, which is also their target, at an epoch equal to the
generation. Requests parked in the classic group are answered with an error, so that the members rejoin.
Source: KIP-848, Apache Kafka 4.4.0.
"""

from collections.abc import Set

from kafkapy.errors import ApiError, ProtocolError
from kafkapy.group.assignors.spec import EMPTY_ASSIGNMENT, Assignment
from kafkapy.group.classic.group import ClassicGroup
from kafkapy.group.classic.members import ClassicMember
from kafkapy.group.classic.state import CONSUMER_PROTOCOL
from kafkapy.group.consumer.group import ConsumerGroup
from kafkapy.group.consumer.member import ConsumerMember
from kafkapy.group.consumer.records import (
    current_record,
    epoch_record,
    member_record,
    target_epoch_record,
    target_record,
)
from kafkapy.group.embedded import by_topic_id, read_assignment, read_subscription
from kafkapy.group.migration.downgrade import MembersWithTargets
from kafkapy.group.migration.policy import allows_upgrade
from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.settings import GroupSettings
from kafkapy.group.shared_rules import NEVER_ASSIGNED_AT_MS
from kafkapy.metadata.image import MetadataImage
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.consumer_group_member_metadata_value import ClassicMemberMetadata, ClassicProtocol
from kafkapy.types import Uuid


def check_upgrade(group: ClassicGroup, settings: GroupSettings) -> None:
    """Raise GROUP_ID_NOT_FOUND unless the group may be converted to a KIP-848 group; an empty group always may."""
    if group.is_empty:
        return
    if not allows_upgrade(settings):
        raise _refused(group, "online upgrade is disabled.")
    if group.protocol_type != CONSUMER_PROTOCOL:
        raise _refused(group, "the group does not use the consumer embedded protocol.")
    if len(group.log.members) > settings.config.group_consumer_max_size:
        raise _refused(group, "the group size exceeds the consumer group maximum size.")


def upgrade(classic: ClassicGroup, group: ConsumerGroup, image: MetadataImage, now_ms: int) -> list[CoordinatorRecord]:
    """Load the state of `classic` into `group`, which is new; return the records of the conversion. Raises ApiError.

    Before the first generation the members have had no response, not even with their ids. They are not converted: they
    join the new group by themselves. Apache Kafka fails there with UNKNOWN_SERVER_ERROR, which is fatal to the client
    that triggers the upgrade.
    """
    assert not group.log.members, f"{group.group_id} has members before it is converted"
    if classic.log.protocol_name is None:
        return list(classic.tombstone_records())
    members = _members(classic, image)
    records = _records(classic, group, members, image)
    group.continue_history(classic.history)
    for record in records:
        group.replay(record.key, record.value)
    assert group.log.members.keys() == {member.member_id for member in classic.log.members}, "a member would be lost"
    assert group.log.group_epoch == group.log.assignment_epoch == classic.log.generation, "epochs go on from it"
    for member, _ in members:
        group.timers.touch_session(member.member_id, now_ms, member.classic_session_timeout_ms)
    return [*classic.tombstone_records(), *records]


def _records(
    classic: ClassicGroup, group: ConsumerGroup, members: MembersWithTargets, image: MetadataImage
) -> list[CoordinatorRecord]:
    group_id, epoch = classic.group_id, classic.log.generation
    topics = frozenset().union(*(member.subscribed_topic_names for member, _ in members))
    return [
        *(member_record(group_id, member) for member, _ in members),
        epoch_record(group_id, epoch, group.hashes.of(topics, image) if _is_complete(members, topics, image) else 0),
        *(target_record(group_id, member.member_id, assignment) for member, assignment in members),
        target_epoch_record(group_id, epoch, NEVER_ASSIGNED_AT_MS),
        *(current_record(group_id, member) for member, _ in members),
    ]


def _is_complete(members: MembersWithTargets, topics: Set[str], image: MetadataImage) -> bool:
    """Whether all partitions have an owner. If not, the group's hash is not that of its topics.

    The group then computes a new target in any case. Apache Kafka does so only if the joining member changes the
    group's subscription. A static member that rejoins does not change it, and partitions added meanwhile have no owner
    there.
    """
    existing = [topic for name in topics if (topic := image.topics.by_name.get(name)) is not None]
    owned_count = sum(len(assignment.get(topic.topic_id, ())) for _, assignment in members for topic in existing)
    return owned_count == sum(len(topic.partitions) for topic in existing)


def _members(classic: ClassicGroup, image: MetadataImage) -> MembersWithTargets:
    """Return the members with their assignments."""
    protocol_name = classic.log.protocol_name
    if protocol_name is None or not classic.log.members.is_supported_by_all(protocol_name):
        protocol_name = classic.log.members.select_protocol()  # a member that joined since does not support it
    try:
        members = [_member(classic, member, protocol_name, image) for member in classic.log.members]
    except ProtocolError as error:
        raise _refused(classic, "the embedded consumer protocol is malformed.") from error
    _check_owners(classic, members)
    return members


def _check_owners(classic: ClassicGroup, members: MembersWithTargets) -> None:
    """Refuse a partition assigned to several members, as some assignors do on purpose. Apache Kafka fails there."""
    owners: set[tuple[Uuid, int]] = set()
    for _, assignment in members:
        for topic_id, partitions in assignment.items():
            for partition in partitions:
                if (topic_id, partition) in owners:
                    raise _refused(classic, "its assignor gives one partition to several members.")
                owners.add((topic_id, partition))


def _member(
    classic: ClassicGroup, member: ClassicMember, protocol_name: str, image: MetadataImage
) -> tuple[ConsumerMember, Assignment]:
    subscription = read_subscription(member.metadata(protocol_name))
    assignment = _assignment_of(classic, member, image)
    epoch = classic.log.generation
    converted = ConsumerMember(
        member.member_id,
        member_epoch=epoch,
        previous_member_epoch=epoch,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=frozenset(subscription.topics),
        assigned={topic_id: dict.fromkeys(partitions, epoch) for topic_id, partitions in assignment.items()},
        classic_metadata=ClassicMemberMetadata(
            member.session_timeout_ms,
            supported_protocols=[ClassicProtocol(name, metadata=metadata) for name, metadata in member.protocols],
        ),
    )
    return converted, assignment


def _assignment_of(classic: ClassicGroup, member: ClassicMember, image: MetadataImage) -> Assignment:
    """Return a member's assignment, empty if it has just joined. Raises ApiError, ProtocolError."""
    if not member.assignment:
        return EMPTY_ASSIGNMENT
    decoded = read_assignment(member.assignment)
    if decoded.user_data:
        raise _refused(
            classic,
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
            "assignor before re-attempting the upgrade.",
        )
    return by_topic_id(decoded.assigned_partitions, image)


def _refused(group: ClassicGroup, reason: str) -> ApiError:
    message = f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}"
    return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, message)
