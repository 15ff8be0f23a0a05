"""Whether this broker serves streams groups: streams.version, and group.coordinator.rebalance.protocols."""

from kafkapy.handlers.context import Services

STREAMS_PROTOCOL = "streams"


def is_protocol_enabled(services: Services) -> bool:
    """Return whether the cluster has streams.version 1, and group.coordinator.rebalance.protocols allows them here."""
    has_feature = services.metadata.image.features.has_streams_groups
    return has_feature and STREAMS_PROTOCOL in services.config.group.group_coordinator_rebalance_protocols
