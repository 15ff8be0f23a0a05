"""kafkapy.admin.listener: /metrics, /livez, /readyz and /buildinfo. Deviation: Apache Kafka has JMX alone. Here there
is HTTP, because Python has no JMX.

    /livez      200 if the node's event loop answers within LOOP_TIMEOUT_S, else 503
    /readyz     200 if nothing is missing, else 503; JSON says what: {"missing": {"logs": "recovering 37 of 120 logs"},
                "status": "not ready"}
    /metrics    Prometheus' text format, or OpenMetrics if requested
    /buildinfo  versions and ids, as JSON

It serves from before the first directory is opened until everything is closed. There is no encryption and no
authentication: bind it to an address that only authorized users can reach.
"""

import asyncio
import concurrent.futures
import json
import platform
import socket
import sys
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

from kafkapy.config.endpoints import host_and_port
from kafkapy.gauge import Gauge, Measured
from kafkapy.server.admin.filters import SeriesFilter
from kafkapy.server.admin.http import PLAIN, HttpServer, Response, logger
from kafkapy.server.admin.loop_watch import LoopWatch
from kafkapy.server.admin.metrics import Exposition
from kafkapy.server.admin.readiness import missing_of
from kafkapy.version import __version__

if TYPE_CHECKING:
    from kafkapy.metrics.registry import NodeCounts
    from kafkapy.server.admin.rules import Rules
    from kafkapy.server.node import Node

LOOP_TIMEOUT_S: Final = 3.0
"""How long the event loop may take to answer."""
STEPS_AT_ONCE: Final = 150
"""Gauges or rows of them that are read before the event loop runs other tasks: at most a millisecond."""
PAUSE_S: Final = 0.0002
"""A pause after each step of rendering. Only then can the event loop's thread have the interpreter lock at once; it
would else wait for the switch interval, 5 ms."""
KEY: Final = "kafkapy.admin.listener"
BACKLOG: Final = 128
"""Twice MAX_CONNECTIONS of http.py: what is queued is answered within the same second."""
JSON: Final = "application/json"

R = TypeVar("R")


class AdminListener:
    """Serves from construction, on the node's event loop, to close()."""

    def __init__(self, node: "Node", counts: "NodeCounts") -> None:
        """Raises OSError if the address cannot be bound, ConfigError for invalid kafkapy.metrics keys."""
        self._node = node
        self._loop = asyncio.get_running_loop()
        config = node.config.node
        shown = SeriesFilter(config.kafkapy_metrics_topics, config.kafkapy_metrics_groups)
        self._exposition = Exposition(config.kafkapy_metrics_names, shown, _rules_of(config.kafkapy_metrics_rules))
        self._scrape = asyncio.Lock()
        """Held by one scrape at a time: they share the exposition."""
        listening = _bound(config.kafkapy_admin_listener or "")
        host, port = listening.getsockname()[:2]
        self.port: int = port
        pages = {"/livez": self._live, "/readyz": self._ready, "/metrics": self._metrics, "/buildinfo": self._build}
        self._server = HttpServer(listening, pages)
        self._watch = LoopWatch(self._loop, counts)
        logger.info("Serving %s on %s:%d", ", ".join(pages), f"[{host}]" if ":" in host else host, port)

    async def close(self) -> None:
        """Stop serving."""
        self._watch.stop()
        await asyncio.to_thread(self._server.close)

    async def _live(self, _accept: str) -> Response:
        try:
            await self._on_loop(lambda: None)
        except TimeoutError:
            return Response(HTTPStatus.SERVICE_UNAVAILABLE, PLAIN, f"{_held_up()}\n".encode())
        return Response(HTTPStatus.OK, PLAIN, b"ok\n")

    async def _ready(self, _accept: str) -> Response:
        try:
            missing = await self._on_loop(lambda: missing_of(self._node))
        except TimeoutError:
            missing = {"event loop": _held_up()}
        status = HTTPStatus.SERVICE_UNAVAILABLE if missing else HTTPStatus.OK
        return _json({"missing": missing, "status": "not ready" if missing else "ready"}, status)

    async def _metrics(self, accept: str) -> Response:
        async with self._scrape:
            try:
                measured = await self._collect_gauges()
            except TimeoutError:
                return Response(HTTPStatus.SERVICE_UNAVAILABLE, PLAIN, f"{_held_up()}\n".encode())
            exposition = self._exposition
            for _ in exposition.render([*measured, *self._of_process()], accept, time.monotonic()):
                time.sleep(PAUSE_S)  # not asyncio's, which rounds up to a millisecond
                await asyncio.sleep(0)  # other requests to this listener
            return Response(HTTPStatus.OK, exposition.content_type, exposition.body)

    def _of_process(self) -> Iterator[Gauge]:
        """Yield the values that this thread reads itself; it may wait for the disk."""
        from kafkapy.server.admin.own_gauges import disk_io_gauges, process_gauges, space_gauges

        yield from process_gauges()
        if self._node.config.is_broker:
            yield from disk_io_gauges("KafkaServer")
        if self._node.config.is_controller:
            yield from disk_io_gauges("ControllerServer")
        log_manager = getattr(self._node, "log_manager", None)  # none before the directories are opened
        if log_manager is not None:
            yield from space_gauges(log_manager)

    async def _build(self, _accept: str) -> Response:
        config = self._node.config
        return _json(
            {
                "version": __version__,
                "implementation": "kafkapy",
                "python": platform.python_version(),
                "platform": f"{sys.platform} {platform.machine()}",
                "node_id": config.node_id,
                "process_roles": list(config.node.process_roles),
                "cluster_id": self._node.cluster_id or None,
            }
        )

    async def _collect_gauges(self) -> list[Measured]:
        """Return the node's gauges, read on its event loop in parts. Raises TimeoutError."""
        steps = await self._on_loop(lambda: iter(self._node.gauges()))
        gauges: list[Measured] = []
        is_done = False
        while not is_done:
            found = await self._on_loop(lambda: list(islice(steps, STEPS_AT_ONCE)))
            gauges += [gauge for gauge in found if gauge is not None]
            is_done = len(found) < STEPS_AT_ONCE
        return gauges

    async def _on_loop(self, call: Callable[[], R]) -> R:
        """Run `call` on the node's event loop; return its result. Raises TimeoutError, and what it raises."""
        requested: concurrent.futures.Future[R] = concurrent.futures.Future()

        def respond() -> None:
            if requested.set_running_or_notify_cancel():
                try:
                    requested.set_result(call())
                except Exception as error:
                    requested.set_exception(error)

        self._loop.call_soon_threadsafe(respond)
        async with asyncio.timeout(LOOP_TIMEOUT_S):
            return await asyncio.wrap_future(requested)


def _rules_of(path: str | None) -> "Rules | None":
    if path is None:
        return None
    from kafkapy.server.admin.rules import Rules  # not needed by most nodes

    return Rules(path)


def _bound(text: str) -> socket.socket:
    """Return a socket that listens on host:port; an empty host means all addresses. Raises OSError."""
    try:
        host, port = host_and_port(text)
        family, *_, address = socket.getaddrinfo((host or "0.0.0.0").encode(), port, type=socket.SOCK_STREAM)[0]
        listening = socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        raise OSError(error.errno, f"cannot serve {KEY}={text}: {error.strerror}") from error
    listening.setblocking(False)
    return listening


def _held_up() -> str:
    return f"the event loop has not answered within {LOOP_TIMEOUT_S:g} s"


def _json(value: object, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(status, JSON, json.dumps(value, sort_keys=True).encode() + b"\n")
