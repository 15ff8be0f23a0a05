"""Whether the cluster has share groups: the finalised level of share.version decides."""

from kafkapy.errors import ApiError
from kafkapy.handlers.context import Services
from kafkapy.metadata.image import SHARE_VERSION
from kafkapy.protocol.error_code import ErrorCode


def has_share_groups(services: Services) -> bool:
    return services.metadata.image.features.levels.get(SHARE_VERSION, 0) >= 1


def check_share_groups(services: Services) -> None:
    """Raise UNSUPPORTED_VERSION unless the cluster has share groups."""
    if not has_share_groups(services):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, None)
