"""What the processes of a simulated cluster hold in memory: bounded, accounted for, and given back.

A process's resident memory cannot be measured in a simulation. What it is made of can: received requests are within
queued.max.request.bytes and are exactly those of open connections and of waiting requests; fetch sessions are within
their slots; and a process that has been at work for the whole run has no more tasks, waiting requests and connections
in the end than one that has just started.
"""

from collections.abc import Iterator
from typing import Any, Final

from kafkapy.reactor.reactor import Reactor
from kafkapy.server.broker import BrokerServer
from tests.simulator.cluster_world import Computer

MAX_TASKS_AT_REST: Final = 60
MAX_CONNECTIONS_AT_REST: Final = 40
PROPERTIES: Final = {"socket_request_max_bytes": "100000", "queued_max_request_bytes": "100000"}
"""So that a few clients reach the bound."""


def unbounded(computer: Computer) -> Iterator[str]:
    """Yield what a process holds at any time beyond its bounds, or without an owner."""
    for reactor in reactors(computer):
        memory = reactor.request_memory
        if memory.bytes > memory.peak_bytes:
            yield f"{memory.bytes} bytes of requests are received, {memory.peak_bytes} may be"
        owned = sum(
            sum(link.unstarted_bytes for link in processor.links)
            + sum(pending.frame_bytes for pending in processor.pending_requests)
            for processor in reactor.processors
        )
        if memory.bytes != owned:
            yield f"{memory.bytes} bytes of requests are counted, connections and waiting requests hold {owned}"
    if isinstance(computer.server, BrokerServer) and (services := computer.server._services) is not None:
        sessions = services.fetch_sessions
        if len(sessions) > sessions._max_slots:
            yield f"there are {len(sessions)} fetch sessions, {sessions._max_slots} may be"


def held_at_rest(computer: Computer) -> Iterator[str]:
    """Yield what a process still holds although no client is there any more."""
    assert computer.life is not None
    tasks = [task for task in computer.life.tasks if not task.done()]
    if len(tasks) > MAX_TASKS_AT_REST:
        yield f"{len(tasks)} tasks are unfinished: {sorted({task.get_coro().__qualname__ for task in tasks})}"  # type: ignore[union-attr]
    connections = sum(len(processor.links) for reactor in reactors(computer) for processor in reactor.processors)
    if connections > MAX_CONNECTIONS_AT_REST:
        yield f"{connections} connections are open"
    if isinstance(computer.server, BrokerServer):
        waiting = computer.server._replica_manager.waiting_counts
        if waiting["Produce"] or waiting["DeleteRecords"]:
            yield f"requests wait for replicas: {waiting}"


def reactors(computer: Computer) -> Iterator[Reactor]:
    """Yield those of the listeners for clients and for controllers, as far as the node has them."""
    server: Any = computer.server
    if isinstance(server, BrokerServer):
        yield server._reactor
    of_controller = server.node.quorum_node._reactor
    if of_controller is not None:
        yield of_controller
