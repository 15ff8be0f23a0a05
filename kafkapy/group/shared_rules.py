"""Rules that hold for groups of consumers, share groups and streams groups alike."""

from typing import Final

from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode

NO_ASSIGNMENT_EPOCH: Final = -1
"""The assignment epoch of a share or streams group that is being deleted."""
NEVER_ASSIGNED_AT_MS: Final = 0
"""The assignment timestamp of a group that was converted or is empty: the target may be recomputed at once."""


def may_assign(last_ms: int, wall_ms: int, interval_ms: int) -> bool:
    """Whether a target assignment that was last computed at last_ms may be recomputed yet.

    Deviation: Apache Kafka waits for a last time in the future, by the clock of another coordinator. Here that is
    not waited for, because the group would get no assignment until this clock is as far.
    """
    return last_ms == NEVER_ASSIGNED_AT_MS or not last_ms <= wall_ms < last_ms + interval_ms


def unknown_member(group_id: str, member_id: str | None) -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")
