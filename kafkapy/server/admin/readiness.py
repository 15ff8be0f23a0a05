"""The conditions that a node still lacks to serve clients: for /readyz, and for systemd's status during the start."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kafkapy.server.node import Node

NODE_CONDITIONS: Final = ("directories", "metadata", "listeners")
BROKER_CONDITIONS: Final = (*NODE_CONDITIONS, "logs", "coordinators", "registration")
NOT_REACHED: Final = "the start has not come to it yet"


def missing_of(node: "Node") -> dict[str, str]:
    """Return the reasons why the node is not ready, by condition; empty if it is ready."""
    if node.stops.has_begun:
        return {"stop": "the node is stopping"}
    missing: dict[str, str] = {}
    for name in BROKER_CONDITIONS if node.config.is_broker else NODE_CONDITIONS:
        condition = node.conditions.get(name)
        reason = condition() if condition is not None else NOT_REACHED
        if reason is not None:
            missing[name] = reason
    return missing
