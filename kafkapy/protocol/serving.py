"""The types by which a connection, its driver, its login and the router of requests know each other."""

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from kafkapy.dataclass import dataclass
from kafkapy.named_tuple import NamedTuple
from kafkapy.protocol.traffic import ConnectionTraffic

if TYPE_CHECKING:
    from kafkapy.protocol.primitives import Writer


@dataclass(slots=True, frozen=True)
class ConnectionLimits:
    """The limits of one connection: Kafka's keys if they exist, otherwise constants with their reason."""

    max_frame_bytes: int = 104_857_600
    """socket.request.max.bytes."""
    unadmitted_frame_bytes: int = 524_288
    """No request before a login needs more (SASL tokens are the largest); Kafka's own bound for SASL frames.

    Where no login is required, max_frame_bytes is the limit of the first request, too: clients may begin with any
    request, also without ApiVersions. reactor/request_memory.py limits the memory of all connections' frames."""
    max_in_flight: int = 64
    """Maximum unanswered requests of one connection. Java clients have at most 5 by default."""
    max_output_bytes: int = 1_048_576
    """Unsent response bytes at which no further request is started."""
    coalesced_key: bytes = b"\0\0"
    """The API key, as it begins a frame, of the requests that Serving.coalesce may serve together: Produce."""


class ParkedFetch(Protocol):
    """A Fetch that waits for data (replication's DelayedFetch)."""

    def complete(self) -> bool:
        """End the wait: the Fetch is answered with what there is."""
        ...


@dataclass(slots=True, eq=False)
class ConnectionInfo:
    """The facts about a request's connection that a handler may read and set."""

    connection_id: str
    """`local host:port-peer host:port-processor-index`, as Kafka prints it."""
    listener_name: str
    security_protocol: str
    peer_host: str
    peer_port: int
    principal: str = "User:ANONYMOUS"
    software_name: str = "unknown"
    software_version: str = "unknown"
    is_authenticated: bool = True
    """False on SASL listeners until the login has succeeded."""
    is_by_token: bool = False
    """Whether the login used a delegation token (KIP-48)."""
    is_forwarded: bool = False
    """Whether a broker forwarded the request in an Envelope; principal and peer_host are then the client's."""
    is_replica: bool = False
    """Set by a handler: the connection is that of a follower, which fetches as a replica."""
    is_held: bool = False
    """Set by a handler before it is parked: no further request starts until it is answered. Reset by the driver."""
    is_frame_free: bool = False
    """Set before a request is parked: nothing refers to the request's frame any more. Reset by the driver, which then
    frees the request memory of the frame."""
    throttle_ms: int = 0
    """Set by a handler: mute the connection for so long once its response is queued (KIP-219). Reset by the driver."""
    is_closed: bool = False
    """Set by the driver: the connection has closed. Handlers that are under way continue, and begin nothing for it."""
    close_after_response: bool = False
    """Set by a handler: close the connection once its response is sent (failed login; a failed acks=0 produce)."""
    is_metered: bool = False
    """Whether a request of it was counted for a client quota, so that its throttles mute it from then on."""
    is_metered_producer: bool = False
    """Whether a Produce was."""
    traffic: ConnectionTraffic | None = None
    """Where to count, with an admin listener."""
    parked_fetch: ParkedFetch | None = None
    """Set by a handler while a consumer's Fetch waits for data: later responses of the connection wait for its own."""

    def end_parked_fetch(self) -> None:
        """End the wait of the parked Fetch, if there is one: it is answered now."""
        parked, self.parked_fetch = self.parked_fetch, None
        if parked is not None:
            parked.complete()


Route: TypeAlias = "Callable[[ConnectionInfo, memoryview], Coroutine[Any, Any, Writer | None]]"
"""Takes a request frame without its size prefix; returns the response frame without its size prefix, or None for no
response. Raising ProtocolError closes the connection."""


class Served(NamedTuple):
    """The result of serving several requests together: their responses in order, each with its size prefix.

    If the responses are not ready, `responses` is None and `wait(on_responses)` calls on_responses(responses) once they
    are, possibly before it returns. error_codes: of the partitions, once there are responses; empty if each request has
    one partition, without an error.
    """

    frame_count: int
    end_position: int
    responses: bytes | None
    wait: "Callable[[Callable[[bytes], None]], None] | None" = None
    error_codes: "Sequence[int]" = ()


Coalesce: TypeAlias = "Callable[[ConnectionInfo, bytes, int, int], Served | None]"
"""Takes received bytes, the position in them of a Produce request (at its size prefix), and the most frames to serve.

Serves as many consecutive requests together as it can; returns None if the first one must go through `Route`."""


def coalesce_nothing(_info: ConnectionInfo, _data: bytes, _position: int, _most: int) -> None:
    """The Coalesce that serves nothing: every request goes through Route."""


class Login(Protocol):
    """Handles a connection's requests until it is authenticated, and afterwards too if `is_used_further`."""

    @property
    def max_frame_bytes(self) -> int:
        """The largest frame accepted before authentication."""
        ...

    @property
    def timeout_ms(self) -> int:
        """How long the login may take."""
        ...

    @property
    def is_used_further(self) -> bool:
        """Whether requests still go through this object after the login, because the session can expire."""
        ...

    @property
    def route(self) -> Route: ...

    @property
    def coalesce(self) -> Coalesce: ...


NewLogin: TypeAlias = "Callable[[ConnectionInfo], Login]"


def no_login(_info: ConnectionInfo) -> Login:
    """The NewLogin of a reactor without SASL listeners."""
    raise AssertionError("a connection has to log in where nothing asks for it")


@dataclass(slots=True, frozen=True)
class Serving:
    """Serves the requests of a reactor's connections, and their logins on listeners that need one."""

    route: Route
    coalesce: Coalesce = coalesce_nothing
    new_login: NewLogin = no_login
