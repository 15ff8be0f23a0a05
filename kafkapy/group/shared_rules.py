"""Rules that hold for groups of consumers, share groups and streams groups alike. Error messages are Kafka's."""

from typing import Final, Protocol, TypeVar

from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode

NO_ASSIGNMENT_EPOCH: Final = -1
"""The assignment epoch of a share or streams group that is being deleted."""
NEVER_ASSIGNED_AT_MS: Final = 0
"""The assignment timestamp of a group that was converted or is empty: the target may be recomputed at once."""
FENCE_RETRY_MS: Final = 500
"""When to retry the removal of an expired member, in case its tombstones could not be written."""


def may_assign(last_ms: int, wall_ms: int, interval_ms: int) -> bool:
    """Whether a target assignment that was last computed at last_ms may be recomputed yet.

    Deviation: Apache Kafka waits for a last time in the future, by the clock of another coordinator. Here that is
    not waited for, because the group would get no assignment until this clock is as far.
    """
    return last_ms == NEVER_ASSIGNED_AT_MS or not last_ms <= wall_ms < last_ms + interval_ms


class StaticMember(Protocol):
    """What is read of a member that may have an instance id."""

    @property
    def member_id(self) -> str: ...
    @property
    def instance_id(self) -> str | None: ...


StaticMemberT = TypeVar("StaticMemberT", bound=StaticMember)


def check_static_member(member: StaticMemberT | None, member_id: str, instance_id: str) -> StaticMemberT:
    """Return the static member if it has this member id. Raises UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
    if member is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    check_fenced(member, member_id, instance_id)
    return member


def check_fenced(member: StaticMember, member_id: str, instance_id: str) -> None:
    """Raise FENCED_INSTANCE_ID if another member has the instance id now."""
    if member.member_id != member_id:
        raise ApiError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )


def unreleased_instance(existing: StaticMember, member_id: str) -> ApiError:
    return ApiError(
        ErrorCode.UNRELEASED_INSTANCE_ID,
        f"Static member {member_id} with instance id {existing.instance_id} cannot join the group because the "
        f"instance id is owned by {existing.member_id} member.",
    )


def unknown_member(group_id: str, member_id: str | None) -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")
