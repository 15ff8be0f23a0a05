"""Checks of member epochs, instance ids and group size of a KIP-848 group. Error messages are Kafka's."""

from kafkapy.errors import ApiError
from kafkapy.group.consumer.member import JOIN_EPOCH, LEAVE_STATIC_EPOCH, ConsumerMember
from kafkapy.group.consumer.reconcile import Reported
from kafkapy.group.consumer.state import ConsumerGroupLog
from kafkapy.group.settings import GroupSettings
from kafkapy.group.shared_rules import unreleased_instance
from kafkapy.protocol.error_code import ErrorCode


def check_member_epoch(member: ConsumerMember, received_epoch: int, reported: Reported | None) -> None:
    """Raise FENCED_MEMBER_EPOCH unless the received epoch is JOIN_EPOCH or the member's current epoch.

    The previous epoch is accepted if the reported partitions are part of the assignment: the response with the new
    epoch was lost.
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


def check_instance_is_free(existing: ConsumerMember, member_id: str) -> None:
    """Raise UNRELEASED_INSTANCE_ID unless a member of the consumer protocol may replace the static member.

    It may if that member has left temporarily, or is a classic member.
    """
    if existing.member_epoch == LEAVE_STATIC_EPOCH or existing.uses_classic_protocol:
        return
    raise unreleased_instance(existing, member_id)


def check_size(log: ConsumerGroupLog, settings: GroupSettings, member_id: str) -> None:
    """Raise GROUP_MAX_SIZE_REACHED if the group is full and the member is not in it yet."""
    limit = settings.config.group_consumer_max_size
    if len(log.members) >= limit and member_id not in log.members:
        raise ApiError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {limit} members.",
        )


def _has_all(member: ConsumerMember, reported: Reported | None) -> bool:
    if reported is None:
        return False
    return all(
        topic_id in member.assigned and partitions <= member.assigned[topic_id].keys()
        for topic_id, partitions in reported.items()
    )
