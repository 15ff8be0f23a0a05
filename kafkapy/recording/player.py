"""Sends the requests of a recording to another cluster, in their order, and compares what it answers.

A cluster that is not ready yet (COORDINATOR_NOT_AVAILABLE and others) is asked again, as the client did in its time.
A request that a broker keeps waiting (a JoinGroup, a long Fetch) is sent, and its response is taken where the recording
has it: what other connections did meanwhile is done meanwhile, too.
"""

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from kafkapy.cli.connection import Connection
from kafkapy.dataclass import dataclass
from kafkapy.errors import ProtocolError
from kafkapy.protocol.api import LOGIN_APIS, api_name
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.headers import RequestHeader
from kafkapy.protocol.messages.metadata_request import MetadataRequest
from kafkapy.recording.compare import JOIN_GROUP, Difference, differences
from kafkapy.recording.file import (
    BOOTSTRAP,
    REQUEST,
    Event,
    header_of,
    read_request,
    read_response,
    write_request,
)
from kafkapy.recording.roles import Roles

if TYPE_CHECKING:
    from kafkapy.cli.client_security import ConnectionSecurity

METADATA_VERSION: Final = 7
NOT_READY: Final = frozenset(
    (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE)
)
"""Errors upon which clients send a request again, after a while."""
ASKED_AGAIN: Final = frozenset((2, 3, 9, 10, 22))
"""ListOffsets, Metadata, OffsetFetch, FindCoordinator, InitProducerId: once more changes nothing."""
READY_S: Final = 20.0
RETRY_S: Final = 0.1
RESPONSE_S: Final = 70.0
"""More than a broker keeps a request of librdkafka's or Java's waiting."""


@dataclass(frozen=True, slots=True)
class ComparedResponse:
    """A response that was compared: the request's number in the recording, and how the response differs."""

    number: int
    header: RequestHeader
    connection: int
    at_ms: int
    found: list[Difference]

    @property
    def title(self) -> str:
        name, version = api_name(self.header.api_key), self.header.api_version
        return f"request {self.number}, {name} v{version} of connection {self.connection} at {self.at_ms} ms"


class Player:
    """A context manager. `servers`: the cluster to send to. Methods raise OSError, ProtocolError, KafkapyError."""

    def __init__(self, servers: str, security: "ConnectionSecurity | None" = None) -> None:
        self._servers = servers
        self._security = security
        self._roles = Roles()
        self._connections: dict[int, Connection] = {}
        self._waiting: dict[tuple[int, int], tuple[int, RequestHeader, Event, bytes]] = {}
        """By connection and correlation id: number, header, event and frame of what was sent and not answered."""
        self._nodes: list[str] = []

    def play(self, events: Iterable[Event]) -> Iterator[ComparedResponse]:
        """Yield each response that was compared."""
        number = 0
        recorded_nodes: list[int] = []
        for event in events:
            if event.node not in (BOOTSTRAP, *recorded_nodes):
                recorded_nodes = sorted((*recorded_nodes, event.node))
            if event.kind == REQUEST:
                number += 1
                self._send(number, event, recorded_nodes)
            else:
                response = self._receive(event)
                if response is not None:
                    yield response

    def _send(self, number: int, event: Event, recorded_nodes: list[int]) -> None:
        header = header_of(event.frame)
        if header is None or header.api_key in LOGIN_APIS:  # the player logs in itself
            return
        frame = event.frame
        found = read_request(frame)
        if found is not None:
            fields = self._roles.translated(found[1], is_join=header.api_key == JOIN_GROUP)
            if fields != found[1]:
                frame = write_request(header, fields)
        connection = self._connections.get(event.connection)
        if connection is None:
            address = self._address(event.node, recorded_nodes)
            connection = self._connections[event.connection] = Connection.to_any(address, security=self._security)
        connection.send_frame(frame)
        self._waiting[(event.connection, header.correlation_id)] = (number, header, event, frame)

    def _address(self, node: int, recorded_nodes: list[int]) -> str:
        """Return the broker that stands for a recorded one: the one of its id, else of its place."""
        if node == BOOTSTRAP:
            return self._servers
        if not self._nodes:
            with Connection.to_any(self._servers, security=self._security) as connection:
                brokers = connection.call(MetadataRequest([]), METADATA_VERSION).brokers
            self._nodes = [f"{each.host}:{each.port}" for each in sorted(brokers, key=lambda each: each.node_id)]
        place = recorded_nodes.index(node)
        return self._nodes[place % len(self._nodes)] if self._nodes else self._servers

    def _receive(self, event: Event) -> ComparedResponse | None:
        correlation_id = int.from_bytes(event.frame[:4], "big", signed=True)
        waiting = self._waiting.pop((event.connection, correlation_id), None)
        if waiting is None:
            return None
        number, header, sent, request = waiting
        try:
            frame = self._ready_response(self._connections[event.connection], header, request, event.frame)
        except (OSError, ProtocolError) as error:
            found = [Difference("answer", f"{len(event.frame)} bytes", f"none: {error}")]
            return ComparedResponse(number, header, event.connection, sent.at_ms, found)
        return ComparedResponse(
            number, header, event.connection, sent.at_ms, self._compared(header, event.frame, frame)
        )

    def _ready_response(self, connection: Connection, header: RequestHeader, request: bytes, recorded: bytes) -> bytes:
        """Return the response; if the cluster is not ready, and was in the recording, a later one. Raises OSError."""
        frame = connection.receive_frame(RESPONSE_S)
        end_s = time.monotonic() + READY_S
        while (
            header.api_key in ASKED_AGAIN
            and _is_not_ready(read_response(header, frame))
            and not _is_not_ready(read_response(header, recorded))
            and time.monotonic() < end_s
        ):
            time.sleep(RETRY_S)
            connection.send_frame(request)
            frame = connection.receive_frame(RESPONSE_S)
        return frame

    def _compared(self, header: RequestHeader, recorded: bytes, now: bytes) -> list[Difference]:
        if now[:4] != recorded[:4]:
            return [Difference("correlationId", recorded[:4].hex(), now[:4].hex())]
        before, after = read_response(header, recorded), read_response(header, now)
        if before is None or after is None:
            return [] if before is after else [Difference("answer", _shown(before), _shown(after))]
        if header.api_key in ASKED_AGAIN and _is_not_ready(before):
            return []  # the client asked again
        return differences(header, before, after, self._roles)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def __enter__(self) -> "Player":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_not_ready(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_is_not_ready, value))
    if not isinstance(value, dict):
        return False
    return value.get("errorCode") in NOT_READY or any(map(_is_not_ready, value.values()))


def _shown(fields: dict[str, Any] | None) -> str:
    return "cannot be read" if fields is None else "can be read"
