"""The World of a cluster whose nodes are processes."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from kafkapy.embedded.controlled.channel import ChannelClosed
from kafkapy.embedded.faults.worlds import move_leader
from kafkapy.server.cluster.plan import ClusterError

if TYPE_CHECKING:
    from kafkapy.embedded.faults.faulty_disk import DiskFault
    from kafkapy.embedded.observer import ClusterObserver


class Calls(Protocol):
    """Calls to the nodes (cluster.py)."""

    def node_ids(self) -> list[int]:
        """Return the brokers that run and are not paused. Raises ClusterError if there is none."""
        ...

    def call(self, node_id: int, name: str, *arguments: Any) -> Any:
        """Ask a node; return its result. Raises what it raises, ChannelClosed if it ends, ClusterError."""
        ...

    def restart_killed(self, node_id: int) -> None:
        """Kill a node, unless it has ended by itself, and start it again."""
        ...


class ProcessWorld:
    """Implements faults.actions.World by calls to the nodes."""

    def __init__(self, nodes: Calls, observer: "Callable[[], ClusterObserver]") -> None:
        self._nodes = nodes
        self._observer = observer

    def topics(self) -> list[str]:
        """Return the names of the topics that a broker knows."""
        found: set[str] = set()
        for node_id in self._nodes.node_ids():
            found.update(self.run_at(node_id, "topics"))
        return sorted(found)

    def node_ids(self) -> list[int]:
        """Return the brokers that run and are not paused. Raises ClusterError if there is none."""
        return self._nodes.node_ids()

    def run_at(self, node_id: int, event: str, *arguments: Any) -> Any:
        """Run an event in a broker's process; return its result. Raises ClusterError if the node ends."""
        return self._call(node_id, "run", event, *arguments)

    def change_disk(self, node_id: int, fault: "DiskFault") -> None:
        """Change what is wrong with a broker's disk. Raises FaultError without disk_faults."""
        self._call(node_id, "disk", fault)

    def lose_unsynced(self, node_id: int) -> int:
        """Kill a broker, cut off what was not synced, start it again; return how many bytes were lost."""
        lost: int = self._call(node_id, "lose_unsynced")
        self._nodes.restart_killed(node_id)
        return lost

    def move_leader(self, topic: str, partition: int, to: int | None) -> int:
        """The replicas in another order, then an election of the preferred leader."""
        return move_leader(self._observer().ask(), topic, partition, to)

    def _call(self, node_id: int, name: str, *arguments: Any) -> Any:
        try:
            return self._nodes.call(node_id, name, *arguments)
        except ChannelClosed:
            raise ClusterError(f"node {node_id} has ended meanwhile") from None
