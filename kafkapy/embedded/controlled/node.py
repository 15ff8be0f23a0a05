"""The process of a node that a test's process controls over a channel.

It runs as `kafkapy start FILE` does, and stops as on SIGTERM when the other end of the channel is closed.
"""

import asyncio
import os
import signal
import socket
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from kafkapy.cli import start
from kafkapy.cli.start import NodeHooks
from kafkapy.embedded.controlled.channel import Begin, Channel, ChannelClosed, receive_first
from kafkapy.embedded.faults.rules import FaultError
from kafkapy.embedded.interception import intercept

if TYPE_CHECKING:
    from kafkapy.embedded.controlled.node_faults import NodeFaults, SentRequests
    from kafkapy.embedded.faults.faulty_disk import DiskState
    from kafkapy.embedded.faults.rules import FaultSpec
    from kafkapy.seams import Disk
    from kafkapy.server.broker import BrokerServer
    from kafkapy.server.run import NodeServer

ENDED: Final = 1
"""The exit status if the test's process ends before the start."""


class ControlledNode:
    """Does what the test's process asks of this node."""

    def __init__(self, end: socket.socket, begin: Begin) -> None:
        self._channel = Channel(end, self._serve, self._stop)
        self._has_disk_faults = begin.has_disk_faults
        self._specs: Sequence[FaultSpec] = begin.faults
        self._records = begin.records
        self._node_ids = set(begin.node_ids)
        self._server: BrokerServer | None = None
        self._faults: NodeFaults | None = None
        self._requests: SentRequests | None = None
        self._disk_state: DiskState | None = None

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """Return the node's loop, on which the channel is open from the beginning."""
        import uvloop

        loop = uvloop.new_event_loop()
        self._channel.open(loop)
        return loop

    def new_disk(self) -> "Disk":
        """Return the node's disk, with faults if the cluster has them."""
        from kafkapy.storage.system_disk import SystemDisk

        if not self._has_disk_faults:
            return SystemDisk()
        from kafkapy.embedded.faults.faulty_disk import DiskState, FaultyDisk

        self._disk_state = DiskState()
        return FaultyDisk(SystemDisk(), self._disk_state)

    def on_ready(self, server: "NodeServer") -> None:
        """Apply the faults that are set to requests."""
        if not server.config.is_broker:
            return
        self._server = cast("BrokerServer", server)
        if self._specs:
            self._match()
        if self._records:
            self._record()

    def _serve(self, name: str, *arguments: Any) -> Any:
        match name:
            case "run":
                return self._run(*arguments)
            case "faults":
                (self._specs,) = arguments
                if self._server is not None:  # else once it is ready
                    self._match()
            case "records":
                (self._records,) = arguments
                if self._server is not None:
                    self._record()
            case "nodes":
                self._node_ids.update(arguments[0])
            case "nearly_hit":
                return {} if self._faults is None else self._faults.nearly_hit()
            case "disk":
                self._disk.change(arguments[0])
            case "lose_unsynced":
                return self._lose_unsynced()
            case _:
                assert name == "flush", name
        return None

    def _run(self, event: str, *arguments: Any) -> Coroutine[Any, Any, Any]:
        from kafkapy.embedded.faults.events import EVENTS

        return EVENTS[event](self._running, *arguments)

    def _match(self) -> None:
        if self._faults is None:
            from kafkapy.embedded.controlled.node_faults import NodeFaults

            self._faults = NodeFaults(lambda matched: self._channel.call("draw", matched))
            self._intercept()
        self._faults.set(self._specs)

    def _record(self) -> None:
        if self._requests is None:
            from kafkapy.embedded.controlled.node_faults import SentRequests

            self._requests = SentRequests(self._channel.notify)
            self._intercept()
        self._requests.is_on = self._records

    def _intercept(self) -> None:
        intercept(self._running, self._faults, self._requests, self._node_ids)

    def _lose_unsynced(self) -> int:
        """Write no file any more, cut off what was not synced, return the bytes lost: then the node is killed."""
        disk = self._disk
        disk.change(("fail", ""))
        return disk.lose_unsynced()

    @property
    def _running(self) -> "BrokerServer":
        if self._server is None:
            raise FaultError("this node is no broker that has started")
        return self._server

    @property
    def _disk(self) -> "DiskState":
        if self._disk_state is None:
            raise FaultError("this needs Cluster(disk_faults=True), whose nodes look at each access to a file")
        return self._disk_state

    def _stop(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


def main(arguments: Sequence[str]) -> int:
    """Run the node until it stops; return the exit status."""
    descriptor, file = arguments
    os.set_inheritable(int(descriptor), False)  # a helper process of the node must not keep the channel open
    end = socket.socket(fileno=int(descriptor))
    try:
        begin = receive_first(end)
    except ChannelClosed:
        return ENDED
    node = ControlledNode(end, begin)
    return start.main([file], NodeHooks(node.new_loop, node.new_disk, node.on_ready))
