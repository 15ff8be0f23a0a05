"""Puts the faults of a broker before its router, once there is one."""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from kafkapy.embedded.faults.injection import FaultInjector
from kafkapy.embedded.faults.rules import Faults

if TYPE_CHECKING:
    from kafkapy.handlers.context import Services
    from kafkapy.protocol.serving import Coalesce, Route
    from kafkapy.server.broker import BrokerServer


def install(server: "BrokerServer", faults: Faults, node_ids: Collection[int] = ()) -> None:
    """Let a running broker's requests meet the faults, but those of other nodes. Runs on the broker's loop."""
    names = {str(node_id) for node_id in node_ids}

    def intercepted(services: "Services", route: "Route", coalesce: "Coalesce") -> "tuple[Route, Coalesce]":
        injector = FaultInjector(faults, services, route, coalesce, lambda client_id: client_id in names)
        return injector.route, injector.coalesce

    server.intercept(intercepted)


def topics_of(servers: "Callable[[], Collection[BrokerServer]]") -> list[str]:
    """Return the names of the topics that a broker knows."""
    found: set[str] = set()
    for server in servers():
        found.update(server.node.controller.image.topics.by_name)
    return sorted(found)
