"""Opens a node's admin listener at its start."""

from kafkapy.server.admin.listener import AdminListener
from kafkapy.server.node import Node
from kafkapy.server.stopping import StopOrder


def serve_admin(node: Node) -> None:
    """Serve health and metrics at kafkapy.admin.listener until the node stops. Raises OSError, ConfigError."""
    assert node.counts is not None, "made with the listener"
    node.stops.add(StopOrder.ADMIN, AdminListener(node, node.counts).close)
