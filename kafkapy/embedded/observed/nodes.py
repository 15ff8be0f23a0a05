"""Sends requests to brokers, past logins, rights, quotas, faults and the record of requests.

A broker in this process serves the request by a separate router, whose services allow everything; clients do not
notice. A broker in another process is asked at its listener for other nodes, which has no login.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Final, Protocol

from kafkapy.dataclass import dataclass
from kafkapy.embedded.responses import decoded
from kafkapy.errors import ApiError, ProtocolError
from kafkapy.protocol.api import APIS
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.headers import write_request_header
from kafkapy.protocol.primitives import Message, Writer
from kafkapy.protocol.response_error import response_error
from kafkapy.protocol.serving import ConnectionInfo
from kafkapy.server.cluster import queries

if TYPE_CHECKING:
    from kafkapy.server.broker import BrokerServer

PRODUCE: Final = 0
FETCH: Final = 1
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
NEWEST: Final = {PRODUCE: 12, FETCH: 12, OFFSET_FETCH: 7, FIND_COORDINATOR: 3}
"""By API: the newest version that is used, at which topics have names, and a request is about one group."""
RESPONSE_TIMEOUT_S: Final = 30.0
BLOCKING: Final = "this runs on the broker's event loop: await asyncio.to_thread(...) with it"


class Nodes(Protocol):
    """The brokers that run."""

    def ids(self) -> list[int]:
        """Return the node ids. Raises ApiError, RuntimeError or ClusterError if there is none."""
        ...

    def ask(self, node_id: int, request: Message) -> Any:
        """Return a broker's response. Raises ApiError, OSError, ProtocolError, RuntimeError, ClusterError."""
        ...


@dataclass(slots=True, frozen=True)
class Sources:
    """The sources from which topics and groups are read.

    `report`: returns the last records of a topic (None: of several topics), groups and requests, for a message.
    """

    nodes: Nodes
    report: Callable[[str | None], str]


class NodesHere:
    """Brokers in this process, each on an event loop of another thread."""

    def __init__(self, servers: "Callable[[], Sequence[BrokerServer]]") -> None:
        """`servers`: those that run. May raise RuntimeError."""
        self._servers = servers

    def ids(self) -> list[int]:
        found = [server.node_id for server in self._servers()]
        if not found:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "no broker runs")
        return found

    def ask(self, node_id: int, request: Message) -> Any:
        server = next((each for each in self._servers() if each.node_id == node_id), None)
        if server is None:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"node {node_id} does not run")
        loop = server.node.loop
        if asyncio._get_running_loop() is loop:
            raise RuntimeError(BLOCKING)
        response = asyncio.run_coroutine_threadsafe(_routed(server, request), loop)
        try:
            return response.result(RESPONSE_TIMEOUT_S)
        except TimeoutError:
            response.cancel()
            raise TimeoutError(
                f"node {node_id} did not answer {type(request).__name__} within {RESPONSE_TIMEOUT_S} s"
            ) from None


class NodesElsewhere:
    """Brokers that are processes. `running`: their addresses by node id; may raise ClusterError."""

    def __init__(self, running: Callable[[], dict[int, queries.Address]]) -> None:
        self._running = running

    def ids(self) -> list[int]:
        return list(self._running())

    def ask(self, node_id: int, request: Message) -> Any:
        address = self._running().get(node_id)
        if address is None:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"node {node_id} does not run")
        return queries.query(address, request, timeout_s=RESPONSE_TIMEOUT_S, max_version=_newest(request))


def ask_any(nodes: Nodes, request: Message) -> Any:
    """Return the response of the first broker that has one: one whose disk is full may know nothing of the metadata.

    Raises as Nodes.ask.
    """
    *others, last = nodes.ids()
    for node_id in others:
        with contextlib.suppress(OSError, ProtocolError):
            return nodes.ask(node_id, request)
    return nodes.ask(last, request)


def raise_error(code: int, about: str) -> None:
    """Raise ApiError for the error code of a response, unless it is 0."""
    if code:
        raise response_error(code, about)


async def _routed(server: "BrokerServer", request: Message) -> Any:
    """Serve a request by a router whose services allow everything and count nothing. Raises ApiError, ProtocolError."""
    from kafkapy.security.authorizer import AllowAll
    from kafkapy.serving.router import Router

    services = copy(server.services)
    assert services is not None, "a broker that has started"
    services.authorizer = AllowAll()
    services.client_quotas = None
    api_key, version = _key(request), _version_here(server, request)
    frame = Writer()
    write_request_header(frame, api_key=api_key, api_version=version, correlation_id=1, client_id=queries.CLIENT_ID)
    frame += request.encode(version)
    listener = server.config.broker_listeners[0].listener  # whose addresses the responses name
    info = ConnectionInfo("observing", listener, "PLAINTEXT", "127.0.0.1", 0)
    response = await Router(services).route(info, memoryview(bytearray(frame)))
    if response is None:
        raise ProtocolError(f"no response to {type(request).__name__}")
    return decoded(response, api_key, version)


def _version_here(server: "BrokerServer", request: Message) -> int:
    """Return the version at which a broker, which may look like an older one, serves a request."""
    newest = _newest(request)
    release = server.config.node.kafkapy_imitated_release
    if release is not None:
        from kafkapy.handlers.imitated import narrowed
        from kafkapy.handlers.table import BROKER_APIS

        served = narrowed(BROKER_APIS, release).get(_key(request))
        if served is None:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"Kafka {release} has no {APIS[_key(request)].name}")
        newest = min(newest, served.max_version)
    return newest


def _newest(request: Message) -> int:
    api_key = _key(request)
    return min(APIS[api_key].max_version, NEWEST.get(api_key, APIS[api_key].max_version))


def _key(request: Message) -> int:
    assert request.API_KEY is not None
    return request.API_KEY
