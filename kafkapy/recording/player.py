"""Sends the requests of a recording to another cluster, in their order, and compares what it answers.

After an error that says that the cluster is not ready yet (COORDINATOR_NOT_AVAILABLE and others) a request is repeated.
The response to a parked request (a JoinGroup, a long Fetch) is read at its place in the recording: requests that other
connections sent in between are sent in between again.
"""

import contextlib
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from kafkapy.cli.connection import Connection
from kafkapy.dataclass import dataclass
from kafkapy.errors import ProtocolError
from kafkapy.protocol.api import LOGIN_APIS, api_name
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.headers import RequestHeader
from kafkapy.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkapy.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from kafkapy.recording.compare import ERROR_FIELDS, JOIN_GROUP, Difference, differences
from kafkapy.recording.file import (
    BOOTSTRAP,
    REQUEST,
    Event,
    header_of,
    read_request,
    read_response,
    write_request,
)
from kafkapy.recording.memberships import HEARTBEATS, Memberships
from kafkapy.recording.roles import Roles
from kafkapy.recording.secrets import BODY, without_secrets_of_response

if TYPE_CHECKING:
    from kafkapy.cli.client_security import ConnectionSecurity

METADATA_VERSION: Final = 7
LIST_OFFSETS_VERSION: Final = 6
LATEST: Final = -1
CREATE_TOPICS: Final = 19
NOT_LED: Final = frozenset(
    (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
)
NOT_READY: Final = frozenset(
    (
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    )
)
"""Errors upon which clients send a request again, after a while: a coordinator that loads, markers that are written."""
ASKED_AGAIN: Final = frozenset((2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 22, 24, 25, 26, 28, 42, 68, 69, 76, 77, 88, 89))
"""ListOffsets, Metadata, and what coordinators answer: such an error has changed nothing."""
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
        self._memberships = Memberships(self._roles)
        self._connections: dict[int, Connection] = {}
        self._waiting: dict[tuple[int, int], tuple[int, RequestHeader, Event]] = {}
        """By connection and correlation id: number, header and event of what was sent and not answered."""
        self._early: dict[tuple[int, int], bytes] = {}
        """By the same: responses that came while another request of the connection was sent again."""
        self._nodes: dict[int, str] = {}
        """Address by id, in the order of the ids."""
        self.unsent = 0
        """Requests that were not sent: secrets were left out of them, or they have no header. Logins do not count."""

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
        if header is not None and header.api_key in LOGIN_APIS:  # the player logs in itself
            return
        if header is None or event.left_out:
            self.unsent += 1
            return
        frame = self._translated(header, event.frame)
        connection = self._connections.get(event.connection)
        if connection is None:
            address = self._address(event.node, recorded_nodes)
            connection = self._connections[event.connection] = self._connect(address)
        connection.send_frame(frame)
        self._waiting[(event.connection, header.correlation_id)] = (number, header, event)

    def _connect(self, servers: str) -> Connection:
        """Connect to one of the servers. Raises OSError, which names the servers."""
        try:
            return Connection.to_any(servers, security=self._security)
        except OSError as error:
            raise OSError(error.errno, error.strerror or str(error), servers) from error

    def _translated(self, header: RequestHeader, frame: bytes) -> bytes:
        """Return a recorded request with the values of now."""
        found = read_request(frame)
        if found is None:
            return frame
        fields = self._roles.translated(found[1], is_join=header.api_key == JOIN_GROUP)
        fields = self._memberships.with_epochs(fields)
        return frame if fields == found[1] else write_request(header, fields)

    def _address(self, node: int, recorded_nodes: list[int]) -> str:
        """Return the broker for a recorded one: as responses named it, else the one of its id, else of its place."""
        if node == BOOTSTRAP:
            return self._servers
        if not self._nodes:
            self._nodes = dict(sorted(_addresses(self._metadata()).items()))
        known = self._roles.now("node", node)
        if not self._nodes or known in self._nodes:
            return self._nodes.get(known, self._servers)
        return list(self._nodes.values())[recorded_nodes.index(node) % len(self._nodes)]

    def _receive(self, event: Event) -> ComparedResponse | None:
        correlation_id = int.from_bytes(event.frame[:4], "big", signed=True)
        waiting = self._waiting.pop((event.connection, correlation_id), None)
        if waiting is None:
            return None
        number, header, sent = waiting
        try:
            frame = self._ready_response(header, sent, event.frame)
            if header.api_key == CREATE_TOPICS:
                self._wait_until_led(sent, read_response(header, frame))
        except (OSError, ProtocolError) as error:
            found = [Difference("response", f"{len(event.frame)} bytes", f"none: {error}")]
            return ComparedResponse(number, header, event.connection, sent.at_ms, found)
        found = [] if BODY in event.left_out else self._compared(header, event.frame, frame)
        return ComparedResponse(number, header, event.connection, sent.at_ms, found)

    def _ready_response(self, header: RequestHeader, sent: Event, recorded: bytes) -> bytes:
        """Return the response; if the cluster is not ready, and was in the recording, a later one. Raises OSError."""
        frame = self._next_frame(sent.connection, header)
        if header.api_key not in ASKED_AGAIN:
            return frame
        before = read_response(header, recorded)
        end_s = time.monotonic() + READY_S
        while self._is_early(header, sent, before, read_response(header, frame)) and time.monotonic() < end_s:
            time.sleep(RETRY_S)
            self._connections[sent.connection].send_frame(self._translated(header, sent.frame))
            frame = self._next_frame(sent.connection, header)
        return frame

    def _wait_until_led(self, sent: Event, response: dict[str, Any] | None) -> None:
        """Wait until topics that were created now can be used: the client that was recorded took its time."""
        request = read_request(sent.frame)
        if response is None or request is None or request[1].get("validateOnly"):
            return
        names = [each["name"] for each in response["topics"] if not each["errorCode"]]
        end_s = time.monotonic() + READY_S
        with contextlib.suppress(OSError, ProtocolError):  # further requests will say what is wrong
            while names and not self._are_led(names) and time.monotonic() < end_s:
                time.sleep(RETRY_S)

    def _are_led(self, names: Iterable[str]) -> bool:
        """Return whether the leaders of all partitions of topics serve them."""
        found = self._metadata(names)
        addresses = _addresses(found)
        by_leader: dict[int, list[ListOffsetsTopic]] = {}
        for topic in found.topics:
            if topic.error_code in NOT_LED:
                return False
            for each in topic.partitions:
                wanted = ListOffsetsPartition(partition_index=each.partition_index, timestamp=LATEST)
                by_leader.setdefault(each.leader_id, []).append(ListOffsetsTopic(topic.name, partitions=[wanted]))
        return by_leader.keys() <= addresses.keys() and all(
            self._serves(addresses[leader], requested) for leader, requested in by_leader.items()
        )

    def _metadata(self, names: Iterable[str] = ()) -> Any:
        """Return the MetadataResponse of now: the brokers, and these topics."""
        request = MetadataRequest([MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False)
        with self._connect(self._servers) as connection:
            return connection.call(request, METADATA_VERSION)

    def _serves(self, address: str, topics: list[ListOffsetsTopic]) -> bool:
        with self._connect(address) as connection:
            found = connection.call(ListOffsetsRequest(-1, topics=topics), LIST_OFFSETS_VERSION)
        return not any(each.error_code in NOT_LED for topic in found.topics for each in topic.partitions)

    def _next_frame(self, connection: int, header: RequestHeader) -> bytes:
        """Return the response to a request, or a response that belongs to no request. Raises OSError."""
        key = (connection, header.correlation_id)
        while key not in self._early:
            frame = self._connections[connection].receive_frame(RESPONSE_S)
            came = (connection, int.from_bytes(frame[:4], "big", signed=True))
            if came != key and came not in self._waiting:
                return frame
            self._early[came] = frame
        return self._early.pop(key)

    def _is_early(
        self, header: RequestHeader, sent: Event, before: dict[str, Any] | None, now: dict[str, Any] | None
    ) -> bool:
        """Return whether a request of ASKED_AGAIN will have another response soon."""
        if header.api_key in HEARTBEATS and now is not None:
            self._memberships.learn(now)
        if before is None or now is None or _is_not_ready(before):
            return False
        if _is_not_ready(now):
            return True
        return (
            header.api_key in HEARTBEATS
            and self._memberships.is_behind(header, before, now)
            and _names_its_member(sent.frame)  # else it joins: once more makes another member
        )

    def _compared(self, header: RequestHeader, recorded: bytes, now: bytes) -> list[Difference]:
        if now[:4] != recorded[:4]:
            return [Difference("correlationId", recorded[:4].hex(), now[:4].hex())]
        before = read_response(header, recorded)
        after = read_response(header, without_secrets_of_response(header, now)[0])  # as the recording is without them
        if before is None or after is None:
            return [] if before is after else [Difference("response", _shown(before), _shown(after))]
        if header.api_key in ASKED_AGAIN and _is_not_ready(before):
            return []  # the client asked again
        if header.api_key in HEARTBEATS:
            before, after = self._memberships.cumulated(before, after)
        return differences(header, before, after, self._roles)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def __enter__(self) -> "Player":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _addresses(metadata: Any) -> dict[int, str]:
    return {each.node_id: f"{each.host}:{each.port}" for each in metadata.brokers}


def _names_its_member(frame: bytes) -> bool:
    """Return whether a heartbeat has a member id: in ConsumerGroupHeartbeat 0 the first response brings it."""
    found = read_request(frame)
    return found is not None and bool(found[1].get("memberId"))


def _is_not_ready(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_is_not_ready, value))
    if not isinstance(value, dict):
        return False
    return any(value.get(name) in NOT_READY for name in ERROR_FIELDS) or any(map(_is_not_ready, value.values()))


def _shown(fields: dict[str, Any] | None) -> str:
    return "cannot be read" if fields is None else "can be read"
