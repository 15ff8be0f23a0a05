"""Limits that the configuration sets: on connections, buffers and open files."""

import logging
import resource
from collections.abc import Mapping
from typing import Final

from kafkapy.config.broker import BrokerConfig
from kafkapy.config.checks import connections_per_ip_overrides
from kafkapy.protocol.serving import ConnectionLimits
from kafkapy.reactor.limits import ReactorLimits
from kafkapy.reactor.socket_channel import kept_descriptors, resolve_overrides

logger = logging.getLogger("kafkapy.server")


def limits_at_start(static: BrokerConfig, current: BrokerConfig) -> ReactorLimits:
    """Return the limits at the start: dynamic configs override static ones.

    Raises OSError for an unknown host name in the static configuration; one in a dynamic config is only logged.
    """
    try:
        return _limits(current, _resolved_overrides(current))
    except OSError as error:
        logger.error(
            "Using max.connections.per.ip.overrides of the configuration file, not the dynamic ones: %s", error
        )
        return _limits(current, _resolved_overrides(static))


def limits_of_controllers(config: BrokerConfig) -> ReactorLimits:
    """Return the limits of the controller listeners; max.connections.per.ip.overrides applies to clients only."""
    return _limits(config, {})


def changed_limits(limits: ReactorLimits, before: BrokerConfig, config: BrokerConfig) -> ReactorLimits:
    """Return the limits that replace `limits` (made from `before`) after a configuration change.

    Host names in max.connections.per.ip.overrides are resolved only if that key changed, as resolving blocks the loop.
    """
    overrides = limits.max_connections_per_ip_overrides
    if config.network.max_connections_per_ip_overrides != before.network.max_connections_per_ip_overrides:
        try:
            overrides = _resolved_overrides(config)
        except OSError as error:
            logger.error("Keeping the former max.connections.per.ip.overrides: %s", error)
    return _limits(config, overrides)


def _resolved_overrides(config: BrokerConfig) -> dict[str, int]:
    """Return max.connections.per.ip.overrides by address. Raises OSError."""
    return resolve_overrides(connections_per_ip_overrides(config))


def _limits(config: BrokerConfig, overrides: Mapping[str, int]) -> ReactorLimits:
    """Return the configuration's limits on connections, requests and buffers; `overrides` are by address."""
    network = config.network

    def by_listener(key: str) -> dict[str, int]:
        """Return each listener's own limit; without one the broker's applies."""
        names = (endpoint.listener for endpoint in config.broker_listeners)
        return {name: int(str(config.listener_value(name, key))) for name in names}

    return ReactorLimits(
        num_network_threads=network.num_network_threads,
        socket_listen_backlog_size=network.socket_listen_backlog_size,
        socket_send_buffer_bytes=network.socket_send_buffer_bytes,
        socket_receive_buffer_bytes=network.socket_receive_buffer_bytes,
        queued_max_requests=network.queued_max_requests,
        queued_max_request_bytes=network.queued_max_request_bytes,
        connections_max_idle_ms=network.connections_max_idle_ms,
        authentication_timeout_ms=network.kafkapy_authentication_timeout_ms,
        max_connections=network.max_connections,
        max_connections_per_ip=network.max_connections_per_ip,
        max_connections_per_ip_overrides=overrides,
        listener_max_connections=by_listener("max.connections"),
        max_connection_creation_rate=network.max_connection_creation_rate,
        listener_max_connection_creation_rate=by_listener("max.connection.creation.rate"),
        inter_broker_listener_name=config.inter_broker_listener_name,
        quota_window_num=config.quota.quota_window_num,
        quota_window_ms=config.quota.quota_window_size_seconds * 1000,
        connection=ConnectionLimits(max_frame_bytes=network.socket_request_max_bytes),
    )


MIN_OPEN_FILES: Final = 64  # however few descriptors there are: with less, nearly each append would open its files
MAX_OPEN_FILES: Final = 100_000
"""Segment and index files that are open at a time. Beyond it, an append to a closed file costs an open and a close (25
us). Kafka's documentation advises 100,000 descriptors."""

MACOS_OPEN_MAX: Final = 10_240


def open_file_capacity(node_count: int = 1) -> int:
    """Return how many log files stay open: two thirds of the process's descriptors, less those that sockets never get.

    Log files are opened before connections come, and so are what those find taken: a third is for sockets.

    node_count: how many nodes of this process share them; each gets its part.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    whole = MAX_OPEN_FILES
    if soft != resource.RLIM_INFINITY:
        whole = min(max(soft * 2 // 3 - kept_descriptors(soft), MIN_OPEN_FILES), MAX_OPEN_FILES)
    return whole // node_count


def raise_open_file_limit() -> None:
    """Raise the soft limit of file descriptors as far as the system permits: segments, indexes and sockets need them.

    macOS reports no limit but refuses to set "unlimited"; it grants OPEN_MAX.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (hard, max(soft, MACOS_OPEN_MAX)):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (ValueError, OSError):
            continue
        return
