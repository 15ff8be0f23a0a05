"""Makes a broker's receiver of client metrics, if it has one: kafkapy.runtime.client_telemetry."""

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from kafkapy.server.stopping import StopOrder

if TYPE_CHECKING:
    from kafkapy.runtime.client_telemetry import ClientTelemetry
    from kafkapy.server.node import Node
    from kafkapy.timer.wheel import TimingWheel

logger = logging.getLogger(__name__)


def new_telemetry(node: "Node", wheel: "TimingWheel") -> "ClientTelemetry | None":
    """Return the receiver; None without an admin listener and without a collector to send to.

    Deviation: Apache Kafka's receiver is a metrics reporter that implements ClientTelemetry (metric.reporters). Here it
    is a key, because there are no Java classes.
    """
    endpoint = node.config.node.kafkapy_telemetry_otlp_endpoint
    if endpoint is None and not node.config.node.kafkapy_admin_listener:
        return None
    from kafkapy.runtime.client_telemetry import ClientTelemetry  # not needed by most brokers

    forwarder = None
    if endpoint is not None:
        from kafkapy.server.telemetry_forwarder import HttpForwarder

        forwarder = HttpForwarder(endpoint, broker_id=node.config.node_id)
        node.stops.add(StopOrder.TELEMETRY, partial(asyncio.to_thread, forwarder.close))
    return ClientTelemetry(
        wheel=wheel,
        new_uuid=node.random.uuid,
        max_bytes=node.config.metrics.telemetry_max_bytes,
        forwarder=forwarder,
        on_unusable=_warn,
    )


def _warn(name: str) -> None:
    logger.warning(
        "The client metrics subscription %s matches no client: RE2 cannot evaluate its patterns, or is not installed",
        name,
    )
