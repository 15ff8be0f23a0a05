"""The test's end of the channels to the nodes of a `Cluster`: sends faults and events, receives hits and requests."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkapy.embedded.controlled.channel import Begin, Channel, ChannelClosed, send_first
from kafkapy.embedded.loop_thread import LoopThread, refuse_in_child
from kafkapy.server.cluster.plan import ClusterError

if TYPE_CHECKING:
    from kafkapy.embedded.faults.actions import ActingFaults
    from kafkapy.embedded.faults.rules import Fault, FaultSpec, Hit
    from kafkapy.embedded.observed.observation import Observation
    from kafkapy.embedded.observed.requests import Request, Requests
    from kafkapy.embedded.observer import ClusterObserver
    from kafkapy.server.cluster.local import LocalCluster

RESPONSE_TIMEOUT_S: Final = 60.0
"""A node that is asked answers within milliseconds; one that was stopped by a signal never does."""
ELSEWHERE: Final = "node {0} was started by another process, which alone has its channel: restart({0}) starts it here"


class ControlledNodes:
    """Implements NodeChannels of server/cluster/processes.py, Elsewhere of the faults, and Calls of world.py.

    Channels are read from the first fault, event or record of requests on: until then a cluster has no thread for them.
    """

    MODULE = "kafkapy.embedded.controlled.node_main"

    def __init__(self, cluster: "LocalCluster", paused: Collection[int], *, has_disk_faults: bool) -> None:
        """`paused`: the nodes that are paused, at any time."""
        self._has_disk_faults = has_disk_faults
        self._pid = os.getpid()
        self._ends: dict[int, socket.socket] = {}
        """The sockets of channels that are not read yet."""
        self._channels: dict[int, Channel] = {}
        self._thread: LoopThread | None = None
        self._cluster: LocalCluster | None = cluster
        self._paused = paused
        self._faults: ActingFaults | None = None
        self._requests: Requests | None = None
        self._observation: Observation | None = None

    def open(self, node_id: int) -> int:
        """Return the descriptor of the node's end of a new channel, which the caller closes."""
        ours, theirs = socket.socketpair()
        node_ids = self._planned_ids() | {node_id}
        is_recording = self._requests is not None and self._requests.is_on
        send_first(ours, Begin(tuple(node_ids), _specs(self._faults or ()), is_recording, self._has_disk_faults))
        before = self._ends.pop(node_id, None)
        if before is not None:
            before.close()
        self._ends[node_id] = ours
        if self._thread is not None:
            self._thread.run_soon(self._open_all)
            self._thread.run_soon(lambda: self._notify_all("nodes", tuple(node_ids)))
        return theirs.detach()

    def close(self) -> None:
        """Close all channels. The nodes that still run stop."""
        self._cluster = None
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.run_soon(self._close_all)
            thread.close()
        for end in self._ends.values():
            end.close()
        self._ends.clear()

    # -- what a test sees -----------------------------------------------------------------------------------------

    def faults(self, observer: "Callable[[], ClusterObserver]") -> "ActingFaults":
        """Faults by name, of all brokers. Requests of nodes to each other are not hit."""
        if self._faults is None:
            from kafkapy.embedded.controlled.world import ProcessWorld
            from kafkapy.embedded.faults.actions import ActingFaults

            self._faults = ActingFaults(lambda: None, ProcessWorld(self, observer), self)
        return self._faults

    def observation(
        self, observer: "Callable[[], ClusterObserver]", registry: Callable[[], str | None]
    ) -> "Observation":
        """Return the observation of all brokers. `registry`: returns the URL of the schema registry, if any."""
        if self._observation is None:
            from kafkapy.embedded.observed.observation import of_processes
            from kafkapy.embedded.observed.requests import Requests

            self._requests = Requests(self._record, self._flush)
            self._observation = of_processes(lambda: observer().addresses(), self._requests, registry)
        return self._observation

    def collect_nearly_hit(self) -> None:
        """Fetch from the nodes what they did not match, before they end."""
        if self._faults is not None:
            self._faults.collect_nearly_hit()

    def check_hit(self) -> None:
        """Raise FaultNeverHit if there is a fault that has hit nothing."""
        if self._faults is not None:
            self._faults.check_hit()

    # -- faults.rules.Elsewhere -----------------------------------------------------------------------------------

    def publish(self, faults: "Sequence[Fault]") -> None:
        """Set these faults on all brokers before returning; on paused ones when they have `resumed`."""
        self._all_brokers("faults", _specs(faults))

    def nearly_hit(self) -> dict[int, list[str]]:
        """Return the requests that the nodes' copies nearly matched, by the fault's number."""
        found: dict[int, list[str]] = {}
        for of_node in self._all_brokers("nearly_hit"):
            for number, texts in of_node.items():
                found.setdefault(number, []).extend(texts)
        return found

    # -- calls ----------------------------------------------------------------------------------------------------

    def node_ids(self) -> list[int]:
        """Return the brokers that run and are not paused. Raises ClusterError if there is none."""
        found = self._brokers()
        if not found:
            raise ClusterError("no broker runs")
        return found

    def call(self, node_id: int, name: str, *arguments: Any) -> Any:
        """Ask a node; return its result. Raises what it raises, ChannelClosed if it ends, ClusterError."""
        self._start_thread()
        assert self._thread is not None
        channel = self._channels.get(node_id)
        if channel is None:
            raise ClusterError(ELSEWHERE.format(node_id))

        async def call() -> Any:
            async with asyncio.timeout(RESPONSE_TIMEOUT_S):
                return await channel.call(name, *arguments)

        try:
            return self._thread.call(call)
        except TimeoutError:
            raise ClusterError(f"node {node_id} does not answer within {RESPONSE_TIMEOUT_S:.0f} s") from None

    def resumed(self, node_id: int) -> None:
        """Return when a node that was paused knows of all that was asked of it meanwhile."""
        if self._thread is not None and node_id in self._channels:
            with contextlib.suppress(ChannelClosed):
                self.call(node_id, "flush")

    def restart_killed(self, node_id: int) -> None:
        """Kill a node, unless it has ended by itself, and start it again."""
        assert self._cluster is not None
        with contextlib.suppress(ClusterError):
            self._cluster.kill(node_id)
        self._cluster.processes[node_id].wait_until_ended()
        self._cluster.start(node_id)

    def _all_brokers(self, name: str, *arguments: Any) -> list[Any]:
        """Ask all brokers that run; return the results. What is paused is asked, and not waited for."""
        if self._cluster is None:  # it has ended
            return []
        self._start_thread()
        assert self._thread is not None
        paused = [node_id for node_id in self._paused if node_id in self._channels]
        self._thread.run_soon(lambda: self._notify_each(paused, name, arguments))
        found = []
        for node_id in self._brokers():
            with contextlib.suppress(ChannelClosed):
                found.append(self.call(node_id, name, *arguments))
        return found

    def _brokers(self) -> list[int]:
        cluster = self._cluster
        if cluster is None:
            return []
        return [
            node.node_id
            for node in cluster.plan.brokers
            if node.node_id not in self._paused and cluster.is_running(node.node_id)
        ]

    def _planned_ids(self) -> set[int]:
        """Return the ids of all nodes, whether they run or not."""
        return set() if self._cluster is None else {node.node_id for node in self._cluster.plan.nodes}

    def _record(self) -> None:
        assert self._requests is not None
        self._all_brokers("records", self._requests.is_on)

    def _flush(self) -> None:
        self._all_brokers("flush")

    # -- on the thread of the channels ----------------------------------------------------------------------------

    def _start_thread(self) -> None:
        refuse_in_child(self._pid)  # two processes would each read a part of what nodes send
        if self._thread is None:
            self._thread = LoopThread()
            self._thread.run_soon(self._open_all)

    def _open_all(self) -> None:
        while self._ends:
            self._open_channel(*self._ends.popitem())

    def _open_channel(self, node_id: int, end: socket.socket) -> None:
        before = self._channels.pop(node_id, None)
        if before is not None:
            before.close()
        channel = Channel(end, self._serve, lambda: self._forget(node_id, channel))
        self._channels[node_id] = channel
        channel.open(asyncio.get_running_loop())

    def _forget(self, node_id: int, channel: Channel) -> None:
        if self._channels.get(node_id) is channel:
            del self._channels[node_id]

    def _close_all(self) -> None:
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def _notify_all(self, name: str, *arguments: Any) -> None:
        self._notify_each(list(self._channels), name, arguments)

    def _notify_each(self, node_ids: Sequence[int], name: str, arguments: tuple[Any, ...]) -> None:
        for node_id in node_ids:
            self._channels[node_id].notify(name, *arguments)

    def _serve(self, name: str, *arguments: Any) -> Any:
        if name == "draw":
            return self._drawn(*arguments)
        assert name == "requested", name
        self._add_request(*arguments)
        return None

    def _drawn(self, matched: "list[tuple[int, Hit]]") -> tuple[list[int], list[int]]:
        """Return the numbers of the faults that hit a request, and of those that will hit no other."""
        assert self._faults is not None
        known = {number: self._faults.numbered(number) for number, _ in matched}
        hits = self._faults.draw([(fault, hit) for number, hit in matched if (fault := known[number]) is not None])
        over = [number for number, fault in known.items() if fault is None or fault.is_over]
        return [fault.number for fault in hits], over

    def _add_request(self, request: "Request") -> None:
        if self._requests is not None:
            self._requests.add(request)


def _specs(faults: "Iterable[Fault]") -> "tuple[FaultSpec, ...]":
    """Return the data of which nodes make their copies, for the faults that may still hit."""
    return tuple(fault.spec for fault in faults if not fault.is_over)
