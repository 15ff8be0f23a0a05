"""A node as the process: until a signal asks it to stop, or it cannot go on."""

import asyncio
import gc
import logging
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from kafkapy.config.broker import BrokerConfig
from kafkapy.server.limits import raise_open_file_limit
from kafkapy.server.system_clock import SystemClock, SystemRandom
from kafkapy.storage.system_disk import SystemDisk

if TYPE_CHECKING:
    from kafkapy.seams import Connector, IoPool
    from kafkapy.server.broker import BrokerServer
    from kafkapy.server.controller import ControllerServer

NewConnector: TypeAlias = "Callable[[asyncio.AbstractEventLoop, IoPool], Connector]"
NodeServer: TypeAlias = "BrokerServer | ControllerServer"

logger = logging.getLogger("kafkapy.server")


def run_node(
    config: BrokerConfig,
    *,
    on_ready: Callable[[NodeServer], None],
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
) -> int:
    """Run a node until SIGTERM, SIGINT or SIGHUP, then stop it in order; return the exit status. Raises as `start`."""
    _freeze_heap()
    raise_open_file_limit()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(_serve(new_node(config), on_ready))


def new_node(config: BrokerConfig, *, new_connector: "NewConnector | None" = None) -> NodeServer:
    """Return a node of the configured roles, on the system's disk, clocks and entropy; on its sockets, too, unless
    `new_connector(loop, io_pool)` makes the connections to other nodes.
    """
    disk, clock, random = SystemDisk(), SystemClock(), SystemRandom()
    if not config.is_broker:
        from kafkapy.server.controller import ControllerServer

        return ControllerServer(config, disk=disk, clock=clock, random=random, new_connector=new_connector)
    from kafkapy.server.broker import BrokerServer  # with all of a broker, which a controller does not need

    return BrokerServer(config, disk=disk, clock=clock, random=random, new_connector=new_connector)


async def _serve(server: NodeServer, on_ready: Callable[[NodeServer], None]) -> int:
    loop = asyncio.get_running_loop()
    asked_to_stop = loop.create_future()

    def stop(name: str) -> None:
        logger.info("Terminating process due to signal %s", name)
        if not asked_to_stop.done():
            asked_to_stop.set_result(None)

    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if each != signal.SIGHUP or signal.getsignal(each) != signal.SIG_IGN:  # ignored under nohup: as a JVM does
            loop.add_signal_handler(each, stop, each.name)
    await server.start()
    _freeze_heap()
    assert server.failed is not None
    on_ready(server)
    await asyncio.wait((asked_to_stop, server.failed), return_when=asyncio.FIRST_COMPLETED)
    if server.failed.done():
        logger.critical("Stopping: %s", server.failed.result())
    try:
        await server.stop()
    except Exception as error:
        logger.critical("The stop was not clean: %s", error)
        return 1
    return 1 if server.failed.done() else 0


def _freeze_heap() -> None:
    """Take what a node consists of out of later collections: all that was imported, then what the start made.

    Nothing is collected first: of 44,000 objects 49 are garbage, and to look for them takes 15 ms. Only here: embedded
    brokers come and go.
    """
    gc.freeze()
    gc.enable()
