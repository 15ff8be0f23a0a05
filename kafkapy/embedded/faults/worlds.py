"""What one broker and a cluster have for events: the brokers, their topics, leaders that move."""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from kafkapy.embedded.faults.rules import FaultError
from kafkapy.server.cluster.moving import move, replicas_of

if TYPE_CHECKING:
    from kafkapy.embedded.faults.faulty_disk import DiskState
    from kafkapy.server.broker import BrokerServer
    from kafkapy.server.cluster.queries import Ask


def topics_of(servers: "Callable[[], Collection[BrokerServer]]") -> list[str]:
    """Return the names of the topics that a broker knows."""
    found: set[str] = set()
    for server in servers():
        found.update(server.node.controller.image.topics.by_name)
    return sorted(found)


class OneBroker:
    """The World of a broker that is alone."""

    def __init__(
        self,
        servers: "Callable[[], list[BrokerServer]]",
        disk: "DiskState | None",
        kill: "Callable[[], None]",
        restart: "Callable[[], None]",
    ) -> None:
        self.servers = servers
        self.disk = disk
        self._kill = kill
        self._restart = restart

    def restart_after(self, act: "Callable[[], int]") -> int:
        """Kill the broker, run `act` while it does not run, start it again; return the result of `act`."""
        self._kill()
        try:
            return act()
        finally:
            self._restart()

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
