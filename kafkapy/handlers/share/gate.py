"""Checks that the cluster has share groups (the finalised level of share.version), and that a member id is valid."""

from typing import Final

from kafkapy.errors import ApiError
from kafkapy.handlers.context import Services
from kafkapy.protocol.error_code import ErrorCode

LONGEST_MEMBER_ID: Final = 36
"""The length of a UUID with hyphens."""


def is_member_id(member_id: str) -> bool:
    """Return whether a member id, which clients choose, is allowed: not empty, no longer than a UUID."""
    return 0 < len(member_id) <= LONGEST_MEMBER_ID


def has_share_groups(services: Services) -> bool:
    return services.metadata.image.features.has_share_groups


def check_share_groups(services: Services) -> None:
    """Raise UNSUPPORTED_VERSION unless the cluster has share groups."""
    if not has_share_groups(services):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, None)
