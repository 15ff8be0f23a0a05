"""The arguments of a handler: the services of the broker, and the request's context."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kafkapy.dataclass import dataclass
from kafkapy.errors import ProtocolError
from kafkapy.handlers.encoded_responses import EncodedResponses, VersionResponses
from kafkapy.handlers.table import BROKER_APIS, CONTROLLER_APIS, ServedApi
from kafkapy.handlers.topics_in_creation import TopicsInCreation
from kafkapy.metadata.limits import ChargePartitions, charge_none
from kafkapy.protocol.headers import RequestHeader
from kafkapy.protocol.serving import ParkedFetch
from kafkapy.runtime.decoded_requests import DecodedRequests
from kafkapy.runtime.turns import Turns, Walk
from kafkapy.security.authorizer import Authorizer

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.config.dynamic import DynamicConfig
    from kafkapy.machine import Decided
    from kafkapy.metadata.controller import Controller
    from kafkapy.metadata.image import MetadataImage
    from kafkapy.replication.fetch_session import FetchSessionCache
    from kafkapy.replication.partition_read import PartitionRead
    from kafkapy.replication.replica_manager import ReplicaManager
    from kafkapy.runtime.broker.active_controller import ActiveController
    from kafkapy.runtime.broker.metadata_publisher import MetadataPublisher
    from kafkapy.runtime.broker.producer_ids import ProducerIdManager
    from kafkapy.runtime.client_telemetry import ClientTelemetry
    from kafkapy.runtime.controller.controller import MetadataRuntime
    from kafkapy.runtime.coordinators.group_coordinator import GroupCoordinator
    from kafkapy.runtime.coordinators.share_groups import ShareGroups
    from kafkapy.runtime.coordinators.transaction_coordinator import TransactionCoordinator
    from kafkapy.runtime.coordinators.transaction_verification import TransactionVerification
    from kafkapy.runtime.logs.flusher import LogFlusher
    from kafkapy.runtime.logs.log_dir_mover import LogDirMover
    from kafkapy.runtime.pool import HeavyWork
    from kafkapy.runtime.quorum.quorum import Quorum
    from kafkapy.runtime.share.share_partitions import SharePartitions
    from kafkapy.seams import Clock, IoPool, Random
    from kafkapy.security.quotas import ClientQuotas
    from kafkapy.storage.manager.log_manager import LogManager


R = TypeVar("R")


class CloseConnection(ProtocolError):
    """Close the connection without a response: Produce with acks=0 has none, and others may have no true one now."""


class Connection(Protocol):
    """The attributes of the connection that handlers read and set (implemented by the reactor's ConnectionInfo)."""

    connection_id: str
    listener_name: str
    security_protocol: str
    peer_host: str
    peer_port: int
    principal: str
    software_name: str
    software_version: str
    throttle_ms: int
    is_closed: bool
    is_held: bool
    is_frame_free: bool
    is_by_token: bool
    is_forwarded: bool
    is_metered: bool
    is_metered_producer: bool
    is_replica: bool
    parked_fetch: ParkedFetch | None

    def end_parked_fetch(self) -> None: ...


class Meter(Protocol):
    """Counts one request of a client with quotas; what handlers tell it and ask of it (serving/quotas.py)."""

    def timed(self, work: Callable[[], R]) -> Callable[[], R]:
        """Return `work` wrapped so that its time on a worker is added to the request's."""

    def exempt(self) -> None:
        """Exempt the request, which is a follower's, from quotas."""

    def refuse_node(self) -> None:
        """Count a request that only nodes may send as a client's: its sender is not authorized as a node."""

    def mutations(self, *, is_strict: bool) -> ChargePartitions:
        """Return the function that charges this request for the partitions that it creates or deletes."""

    def mutations_of_auto_creation(self, *, is_strict: bool) -> ChargePartitions:
        """Like `mutations`, for topics that are created because a client names them: no response has their throttle."""

    def max_fetch_bytes(self, max_bytes: int) -> int:
        """Return the maximum bytes of a Fetch: limited to what consumer_byte_rate allows in all windows together."""

    def throttle_fetch(
        self, responses: "Iterable[tuple[Any, PartitionRead]]", *, is_sent_throttled: bool = False
    ) -> int:
        """Count a Fetch response; return the throttle in ms, for which the connection is muted.

        A throttled response does not count unless it is sent all the same.
        """


class NodeRefusals(Protocol):
    """Logs what is refused to other nodes (handlers/node_refusals.py)."""

    def log(self, header: RequestHeader, connection: Connection, code: int) -> None:
        """Log an error of a whole request if an operator must know of it."""


class RequestContext:
    """One request's header and connection. Made for every request, so it stays small."""

    __slots__ = ("api_key", "api_version", "client_id", "connection", "correlation_id", "is_long")

    meter: Meter | None = None
    """Counts the request for its client's quotas; None if there are none. MeteredContext has it as a slot."""

    def __init__(self, header: RequestHeader, connection: Connection) -> None:
        self.api_key = header.api_key
        self.api_version = header.api_version
        self.correlation_id = header.correlation_id
        self.client_id = header.client_id
        self.connection = connection
        self.is_long = False
        """Whether the request took more than one turn of the loop. If so, a worker encodes its response."""

    def at_version(self, api_version: int) -> "RequestContext":
        """Return the context of the request at another version, for a handler that converts it."""
        header = RequestHeader(self.api_key, api_version, self.correlation_id, self.client_id)
        return RequestContext(header, self.connection)

    @property
    def principal(self) -> str:
        return self.connection.principal

    @property
    def listener_name(self) -> str:
        return self.connection.listener_name

    @property
    def security_protocol(self) -> str:
        return self.connection.security_protocol

    @property
    def client_host(self) -> str:
        return self.connection.peer_host

    @property
    def client(self) -> tuple[str, str]:
        """Who takes turns with others for what is scarce: the principal and the address, whatever its connections."""
        return self.connection.principal, self.connection.peer_host

    @property
    def connection_id(self) -> str:
        return self.connection.connection_id


class MeteredContext(RequestContext):
    """The context of a request whose client has quotas."""

    __slots__ = ("meter",)

    def __init__(self, header: RequestHeader, connection: Connection, meter: Meter) -> None:
        super().__init__(header, connection)
        self.meter = meter

    def at_version(self, api_version: int) -> RequestContext:
        header = RequestHeader(self.api_key, api_version, self.correlation_id, self.client_id)
        assert self.meter is not None
        return MeteredContext(header, self.connection, self.meter)


class MetadataView(Protocol):
    """The broker's view of the metadata: the last committed image that it has applied."""

    @property
    def image(self) -> "MetadataImage": ...


class MetadataChanges(Protocol):
    """Changes metadata by a decision of the controller.

    Returns once it is committed (ControllerChanges), or applied to this broker (MetadataPublisher).
    """

    async def change(self, decide: "Callable[[Controller, int], Decided[Any, R]]", *, timeout_ms: int = ...) -> "R": ...


@dataclass(slots=True, kw_only=True)
class ControllerServices:
    """The parts of a controller that the handlers of its listener use. A node without broker role has only these."""

    cluster_id: str
    node_id: int
    config: "BrokerConfig"
    dynamic_config: "DynamicConfig"
    clock: "Clock"
    random: "Random"
    io_pool: "IoPool"
    authorizer: Authorizer
    metadata: MetadataView
    controller: "MetadataRuntime"
    metadata_changes: "MetadataChanges"
    quorum: "Quorum"
    apis: Mapping[int, ServedApi] = field(default_factory=lambda: CONTROLLER_APIS)
    version_responses: VersionResponses = field(default_factory=VersionResponses)
    turns: Turns = field(default_factory=Turns)
    decoded: DecodedRequests = field(default_factory=DecodedRequests)
    client_quotas: "ClientQuotas | None" = None
    """As in Services; a combined node shares them with its broker."""
    telemetry: None = None
    """Clients push their metrics to brokers only."""


@dataclass(slots=True)
class Services:
    """The parts of a running broker that handlers use; built once by server/broker.py."""

    cluster_id: str
    node_id: int
    config: "BrokerConfig"
    dynamic_config: "DynamicConfig"
    clock: "Clock"
    random: "Random"
    io_pool: "IoPool"
    heavy_work: "HeavyWork"
    authorizer: Authorizer
    metadata: MetadataView
    controller: "MetadataRuntime"
    active_controller: "ActiveController"
    metadata_changes: "MetadataPublisher"
    quorum: "Quorum"
    log_manager: "LogManager"
    replica_manager: "ReplicaManager"
    log_dir_mover: "LogDirMover"
    log_flusher: "LogFlusher"
    fetch_sessions: "FetchSessionCache"
    producer_ids: "ProducerIdManager"
    groups: "GroupCoordinator"
    share: "ShareGroups"
    share_partitions: "Callable[[], SharePartitions]"
    """Returns those in use here, which are made for the first request."""
    transactions: "TransactionCoordinator"
    transaction_verification: "TransactionVerification"
    encoded_responses: EncodedResponses = field(default_factory=EncodedResponses)
    topics_in_creation: TopicsInCreation = field(default_factory=TopicsInCreation)
    apis: Mapping[int, ServedApi] = field(default_factory=lambda: BROKER_APIS)
    version_responses: VersionResponses = field(default_factory=VersionResponses)
    turns: Turns = field(default_factory=Turns)
    decoded: DecodedRequests = field(default_factory=DecodedRequests)
    client_quotas: "ClientQuotas | None" = None
    """None while no client quota is enforced."""
    telemetry: "ClientTelemetry | None" = None
    """None without a receiver of client metrics."""
    node_refusals: NodeRefusals | None = None
    """Logs fetches that name a replica which their sender is not; made for the first one."""


def mutation_quota(context: RequestContext, *, strict_since: int) -> ChargePartitions:
    """Return the function that charges controller_mutation_rate for the partitions of a request (KIP-599).

    Topics above the quota are refused from version `strict_since` of the API on; an older one is only throttled.
    serving/quotas.py has the implementation.
    """
    if context.meter is None:
        return charge_none
    return context.meter.mutations(is_strict=context.api_version >= strict_since)


def walk(services: Services | ControllerServices, context: RequestContext) -> Walk:
    """Return a Walk: iteration over possibly many entries of a request that yields to the event loop."""
    return Walk(services.turns, services.clock, context)
