"""Puts the faults of a broker before its router, once there is one; what one broker and a cluster have for events."""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from kafkapy.embedded.faults.injection import FaultInjector
from kafkapy.embedded.faults.rules import FaultError, Faults
from kafkapy.server.cluster.moving import move, replicas_of

if TYPE_CHECKING:
    from kafkapy.handlers.context import Services
    from kafkapy.protocol.serving import Coalesce, Route
    from kafkapy.server.broker import BrokerServer
    from kafkapy.server.cluster.queries import Ask


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


class OneBroker:
    """The World of a broker that is alone."""

    def __init__(self, servers: "Callable[[], list[BrokerServer]]") -> None:
        self.servers = servers

    def move_leader(self, topic: str, partition: int, to: int | None) -> int:
        raise FaultError(f"{topic}-{partition} has no other replica to lead it: Cluster(3, in_process=True) has some")


def move_leader(ask: "Ask", topic: str, partition: int, to: int | None) -> int:
    """Make another replica the preferred leader of a partition, and elect it; return it. Raises FaultError."""
    replicas = replicas_of(ask, topic, [partition])[partition]
    if to is None:
        to = replicas[1 % len(replicas)]
    if to not in replicas or len(replicas) == 1:
        raise FaultError(f"{topic}-{partition} has its replicas on {replicas}: one of the others may lead it, not {to}")
    order = [to, *(replica for replica in replicas if replica != to)]
    for _ in move(ask, topic, {partition: order}):
        pass
    return to
