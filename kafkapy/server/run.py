"""Runs a node as a process, until a signal arrives or the node fails.

Exit status: 0 stopped on request and cleanly, also during the start; 1 it could not start or continue, or its stop was
not clean; 2 wrong command line; 3 the stop timed out. After 1 and 3 the next start recovers what had not been flushed.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

from kafkapy.config.broker import BrokerConfig
from kafkapy.server.limits import raise_open_file_limit
from kafkapy.server.process.heap import FrozenMetadata, freeze_heap
from kafkapy.server.process.system_clock import SystemRandom, clock_of_environment
from kafkapy.storage.system_disk import SystemDisk

if TYPE_CHECKING:
    from kafkapy.seams import Clock, Connector, Disk, HelperProcess
    from kafkapy.server.broker import BrokerServer
    from kafkapy.server.controller import ControllerServer
    from kafkapy.server.process.systemd import Supervisor
    from kafkapy.server.stopping import Stops

NewConnector: TypeAlias = "Callable[[asyncio.AbstractEventLoop], Connector]"
NewHelper: TypeAlias = "Callable[[asyncio.AbstractEventLoop], HelperProcess]"
NodeServer: TypeAlias = "BrokerServer | ControllerServer"

STOP_TIMED_OUT: Final = 3
SHOWN_CALLS: Final = 6
"""How many calls of each thread are logged if the stop times out."""

logger = logging.getLogger("kafkapy.server")


def run_node(
    config: BrokerConfig,
    *,
    on_ready: Callable[[NodeServer], None],
    stop_timeout_s: float,
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    disk: "Disk | None" = None,
) -> int:
    """Run a node until SIGTERM, SIGINT or SIGHUP, then stop it in order; return the exit status. Raises as `start`.

    A signal during the start cancels the start. A stop that takes longer than `stop_timeout_s` ends the process.
    """
    raise_open_file_limit()
    server = new_node(config, disk=disk)
    freeze_heap()  # after the imports, before a start that may recover logs for long
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(_serve(server, on_ready, stop_timeout_s))


def new_node(
    config: BrokerConfig,
    *,
    new_connector: "NewConnector | None" = None,
    clock: "Clock | None" = None,
    new_helper: "NewHelper | None" = None,
    disk: "Disk | None" = None,
) -> NodeServer:
    """Return a node of the configured roles on the system's disk, clocks and entropy.

    It uses the system's sockets, unless `new_connector(loop)` makes the connections to other nodes; a clock, helper
    processes and a disk of its own, if they are given.
    """
    disk, random = SystemDisk() if disk is None else disk, SystemRandom()
    clock = clock_of_environment() if clock is None else clock
    from kafkapy.server.quorum_node import SOCKETS, Network

    network = SOCKETS if new_connector is None else Network(new_connector=new_connector)
    if not config.is_broker:
        from kafkapy.server.controller import ControllerServer

        return ControllerServer(config, disk=disk, clock=clock, random=random, network=network)
    from kafkapy.server.broker import BrokerServer  # imports everything of a broker

    return BrokerServer(config, disk=disk, clock=clock, random=random, network=network, new_helper=new_helper)


async def _serve(server: NodeServer, on_ready: Callable[[NodeServer], None], stop_timeout_s: float) -> int:
    stop_requested = _stop_signals(server.node.stops)
    supervisor = _supervisor(server)
    if supervisor is not None:
        stop_requested.add_done_callback(lambda _: supervisor.stopping())
    server.node.set_heap_growth(FrozenMetadata())
    if not await _started(server, stop_requested, stop_timeout_s):
        return 0
    freeze_heap()
    assert server.failed is not None
    on_ready(server)
    if supervisor is not None:
        supervisor.ready(f"Serving on {server.bootstrap_servers}, cluster {server.cluster_id}")
    await asyncio.wait((stop_requested, server.failed), return_when=asyncio.FIRST_COMPLETED)
    if server.failed.done():
        logger.critical("Stopping after a fatal error: %s", server.failed.result())
        if supervisor is not None:
            supervisor.stopping()
    freeze_heap()  # a full collection of 20,000 logs held the loop of a stop for 55 ms; soon the process is gone
    return await _stopped(server, stop_timeout_s) or int(server.failed.done())


def _stop_signals(stops: "Stops") -> "asyncio.Future[None]":
    """Return a future that is completed by the first signal that asks to stop.

    A SIGINT (Ctrl-C) after it makes the stop hurry, which Apache Kafka's does not: it waits up to five minutes for a
    controller, which is in vain if a whole cluster is stopped.
    """
    loop = asyncio.get_running_loop()
    stop_requested: asyncio.Future[None] = loop.create_future()

    def stop(name: str) -> None:
        logger.info("Terminating process due to signal %s", name)
        if not stop_requested.done():
            stop_requested.set_result(None)
        elif name == "SIGINT":
            stops.hurry()

    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if each != signal.SIGHUP or signal.getsignal(each) != signal.SIG_IGN:  # as a JVM under nohup
            loop.add_signal_handler(each, stop, each.name)
    return stop_requested


async def _started(server: NodeServer, stop_requested: "asyncio.Future[None]", stop_timeout_s: float) -> bool:
    """Start the node; return whether it serves: not if it was asked to stop before. Raises as `start`.

    A start may wait for other nodes or recover logs for long, so a stop does not wait for its end.
    """
    start = asyncio.get_running_loop().create_task(server.start())
    await asyncio.wait((start, stop_requested), return_when=asyncio.FIRST_COMPLETED)
    if not start.done():
        with _limited(server.node.stops, stop_timeout_s):
            start.cancel()
            await asyncio.wait((start,))
        if start.cancelled():
            logger.info("The start was canceled")
            return False
    await start
    return True


async def _stopped(server: NodeServer, timeout_s: float) -> int:
    """Stop the node; return 1 if the stop was not clean. Does not return if the stop times out."""
    directories = server.node.log_manager.directories
    offline_before = directories.offline_paths
    with _limited(server.node.stops, timeout_s):
        try:
            await server.stop()
        except Exception as error:
            logger.critical("The shutdown was not clean; the next start recovers the logs: %s", error)
            return 1
    failed = [path for path in directories.offline_paths if path not in offline_before]
    if failed:
        logger.critical("The shutdown was not clean; the next start recovers the logs in %s", ", ".join(failed))
    return int(bool(failed))


@contextlib.contextmanager
def _limited(stops: "Stops", timeout_s: float) -> "Iterator[None]":
    """End the process if the block takes longer."""
    limit = threading.Timer(timeout_s, _end_at_once, (stops, timeout_s))
    limit.daemon = True
    limit.start()
    try:
        yield
    finally:
        limit.cancel()


def _end_at_once(stops: "Stops", timeout_s: float) -> None:
    """End the process, whatever blocks the stop (for example a disk that hangs). No clean-shutdown file is written."""
    logger.critical(
        "The shutdown took longer than %g s and was cut off in its step %s; the next start recovers the logs",
        timeout_s,
        stops.current.name if stops.current is not None else "before the first",
    )
    for thread in threading.enumerate():
        if thread.ident != threading.get_ident():
            logger.critical("Thread %s was in %s", thread.name, _innermost(thread.ident))
    logging.shutdown()
    os._exit(STOP_TIMED_OUT)


def _innermost(thread_id: int | None) -> str:
    """Return the innermost calls of a thread, the last one first, in one line."""
    frame = sys._current_frames().get(thread_id or 0)
    calls: list[str] = []
    while frame is not None and len(calls) < SHOWN_CALLS:
        calls.append(f"{frame.f_code.co_qualname} ({frame.f_code.co_filename}:{frame.f_lineno})")
        frame = frame.f_back
    return ", called by ".join(calls) or "no Python code"


def _supervisor(server: NodeServer) -> "Supervisor | None":
    """Return the systemd notifier, or None if systemd does not run this process."""
    if not os.environ.get("NOTIFY_SOCKET"):
        return None
    from kafkapy.server.process.systemd import Supervisor

    return Supervisor(server.node, os.environ)
