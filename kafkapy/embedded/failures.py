"""Failures of an embedded broker: it stops, and the calls of its user raise the reason."""

import asyncio
import contextlib
import errno
import logging
from collections.abc import Iterator

from kafkapy.server.broker import BrokerServer

logger = logging.getLogger("kafkapy.server")


async def stop_when_failed(server: BrokerServer) -> None:
    """Stop a node that has failed: it would accept requests without executing them."""
    assert server.failed is not None
    await asyncio.wait((server.failed,))
    logger.critical("Stopping after a fatal error: %s", server.failed.result())
    with contextlib.suppress(Exception):  # already logged; the node's own failure matters
        await server.stop()


async def stop(server: BrokerServer, watch: "asyncio.Task[None]") -> None:
    """Stop a node, unless its failure has stopped it or is stopping it."""
    assert server.failed is not None
    if server.failed.done():
        await watch
        return
    watch.cancel()
    await server.stop()


def check_not_failed(server: BrokerServer) -> None:
    if server.failed is not None and server.failed.done():
        error = server.failed.result()
        raise RuntimeError(f"this broker could not go on: {error}") from error


@contextlib.contextmanager
def naming_port(port: int) -> Iterator[None]:
    """Name the argument in the error of a port that is in use."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EADDRINUSE or not port:
            raise
        message = f"port={port} is in use: another one, or 0 for a free one, is needed"
        raise OSError(errno.EADDRINUSE, message) from error
