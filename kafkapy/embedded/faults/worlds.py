"""Implementations of World (actions.py): for one broker, and for clusters."""

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kafkapy.embedded.faults.events import EVENTS
from kafkapy.embedded.faults.rules import FaultError
from kafkapy.server.cluster.electing import elect
from kafkapy.server.cluster.moving import POLL_S, move, replicas_of
from kafkapy.server.cluster.queries import partitions

if TYPE_CHECKING:
    from kafkapy.embedded.faults.faulty_disk import DiskFault, DiskState
    from kafkapy.server.broker import BrokerServer
    from kafkapy.server.cluster.queries import Ask

NO_DISK_FAULTS: Final = "this needs Broker(disk_faults=True), which looks at each access to a file"
IN_PROCESS: Final = (
    "nodes of one process have no disk faults: Cluster(3, disk_faults=True), without in_process, has them"
)
LEADS_S: Final = 30.0
"""How long a replica that is not in sync may take to become so, and be elected."""


class ServersHere:
    """Brokers in this process: the common part of the World of one broker and that of a cluster."""

    def __init__(self, servers: "Callable[[], list[BrokerServer]]") -> None:
        """`servers`: those that run. May raise RuntimeError."""
        self._servers = servers

    def topics(self) -> list[str]:
        """Return the names of the topics that a broker knows, from any thread, also that of a broker's loop."""
        return sorted({name for server in self._servers() for name in server.node.controller.image.topics.by_name})

    def node_ids(self) -> list[int]:
        """Return the brokers that run."""
        return [server.node_id for server in self._servers()]

    def run_at(self, node_id: int, event: str, *arguments: Any) -> Any:
        """Run an event on the broker's loop, from another thread; return its result."""
        server = next(each for each in self._servers() if each.node_id == node_id)
        loop = server.node.loop
        if asyncio._get_running_loop() is loop:
            raise RuntimeError("this runs on the broker's event loop: await asyncio.to_thread(faults.METHOD, ...)")
        return asyncio.run_coroutine_threadsafe(EVENTS[event](server, *arguments), loop).result()


class OneBroker(ServersHere):
    """The World of a broker that is alone."""

    def __init__(
        self,
        servers: "Callable[[], list[BrokerServer]]",
        disk: "DiskState | None",
        kill: "Callable[[], None]",
        restart: "Callable[[], None]",
    ) -> None:
        super().__init__(servers)
        self._disk_state = disk
        self._kill = kill
        self._restart = restart

    def change_disk(self, node_id: int, fault: "DiskFault") -> None:
        """Change what is wrong with the disk. Raises FaultError without disk_faults."""
        self._disk.change(fault)

    def lose_unsynced(self, node_id: int) -> int:
        """Kill the broker, cut off what was not synced, start it again; return how many bytes were lost."""
        disk = self._disk
        self._kill()
        try:
            return disk.lose_unsynced()
        finally:
            self._restart()

    def move_leader(self, topic: str, partition: int, to: int | None) -> int:
        raise FaultError(f"{topic}-{partition} has no other replica to lead it: Cluster(3, in_process=True) has some")

    @property
    def _disk(self) -> "DiskState":
        if self._disk_state is None:
            raise FaultError(NO_DISK_FAULTS)
        return self._disk_state


class OneLoop(ServersHere):
    """The World of a cluster whose nodes share an event loop in a thread."""

    def __init__(self, servers: "Callable[[], list[BrokerServer]]", ask: "Callable[[], Ask]") -> None:
        """`ask`: returns what asks a broker."""
        super().__init__(servers)
        self._ask = ask

    def change_disk(self, node_id: int, fault: "DiskFault") -> None:
        raise FaultError(IN_PROCESS)

    def lose_unsynced(self, node_id: int) -> int:
        raise FaultError(IN_PROCESS)

    def move_leader(self, topic: str, partition: int, to: int | None) -> int:
        """The replicas in another order, then an election of the preferred leader."""
        return move_leader(self._ask(), topic, partition, to)


def move_leader(ask: "Ask", topic: str, partition: int, to: int | None) -> int:
    """Make another replica the preferred leader of a partition; return it once it leads. Raises FaultError."""
    replicas = replicas_of(ask, topic, [partition])[partition]
    if to is None:
        to = replicas[1 % len(replicas)]
    if to not in replicas or len(replicas) == 1:
        raise FaultError(f"{topic}-{partition} has its replicas on {replicas}: one of the others may lead it, not {to}")
    order = [to, *(replica for replica in replicas if replica != to)]
    for _ in move(ask, topic, {partition: order}):
        pass
    deadline = time.monotonic() + LEADS_S
    while partitions(ask).leaders[topic][partition] != to:
        _, refused = elect(ask, {topic: [partition]})  # a replica that is not in sync is refused
        if time.monotonic() > deadline:
            why = "; ".join(refused.values()) or "its election is not known yet"
            raise FaultError(f"broker {to} does not lead {topic}-{partition} after {LEADS_S:g} s: {why}")
        time.sleep(POLL_S)
    return to
