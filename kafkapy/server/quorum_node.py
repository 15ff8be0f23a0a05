"""A node's part in the metadata quorum: the quorum, the controller on top of it, and the connections to other nodes.

Every node has one. A controller votes and serves other nodes on a controller listener; a broker without that role
follows the log as an observer. Modules that talk to other nodes are imported on first use, which a quorum of one never
makes.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kafkapy.config.dynamic import DynamicConfig
from kafkapy.config.rules import DynamicConfigRules
from kafkapy.errors import ApiError
from kafkapy.handlers.context import ControllerServices
from kafkapy.metadata.features import MV_3_7_IV0, unserved_levels
from kafkapy.metadata.image import METADATA_VERSION
from kafkapy.named_tuple import NamedTuple
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.serving import Serving, coalesce_nothing
from kafkapy.raft.voters import Endpoint, VoterSet, static_voter
from kafkapy.reactor.limits import ReactorLimits
from kafkapy.reactor.reactor import Reactor
from kafkapy.reactor.socket_channel import listen
from kafkapy.runtime.broker.active_controller import ActiveController
from kafkapy.runtime.controller.controller import ControllerChanges, MetadataRuntime
from kafkapy.runtime.controller.settings import ControllerSettings
from kafkapy.runtime.quorum.hand_over import hand_over
from kafkapy.runtime.quorum.identity import MetadataDirectory, QuorumIdentity
from kafkapy.runtime.quorum.quorum import Quorum
from kafkapy.security.authorizer import Authorizer
from kafkapy.server import listeners
from kafkapy.server.formatted import bootstrap_records
from kafkapy.server.measuring import measured
from kafkapy.server.peers import Peers
from kafkapy.serving.router import Router
from kafkapy.types import Uuid
from kafkapy.version import __version__

if TYPE_CHECKING:
    from kafkapy import seams
    from kafkapy.metadata.delta import MetadataDelta
    from kafkapy.metadata.image import MetadataImage
    from kafkapy.metrics.registry import NodeCounts
    from kafkapy.raft.messages import Request, Response
    from kafkapy.raft.voters import Voter
    from kafkapy.runtime.broker.controller_channel import ControllerChannel
    from kafkapy.runtime.peer import Peer
    from kafkapy.runtime.quorum.exchange import KraftVersions
    from kafkapy.runtime.quorum.transport import NetworkRaftTransport
    from kafkapy.server.login.authentication import Logins

FIRST_BOOTSTRAP_ID: Final = -2
"""Bootstrap servers have the node ids -2, -3, ..., as in Apache Kafka."""
RETRY_S: Final = 0.1
EXPLANATION_S: Final = 5.0
GOODBYE_S: Final = 1.0
"""How long a stopping leader of the metadata quorum waits for another one."""

logger = logging.getLogger("kafkapy.server")


class NodeIdentity(NamedTuple):
    """A node's identity: its cluster, its metadata directory, this run of its process."""

    cluster_id: str
    directory_id: Uuid
    incarnation_id: Uuid


def _new_socket_connector(loop: asyncio.AbstractEventLoop) -> "seams.Connector":
    from kafkapy.reactor.connector import SocketConnector  # a single node needs none

    return SocketConnector(loop)


class Network(NamedTuple):
    """A node's functions to listen, as reactor.socket_channel.listen, and to connect to other nodes."""

    listen: "Callable[..., seams.Listener]" = listen
    new_connector: "Callable[[asyncio.AbstractEventLoop], seams.Connector]" = _new_socket_connector


SOCKETS: Final = Network()


class ControllerEdge(NamedTuple):
    """Settings of the controller listeners. counts: what requests are counted in, None without an admin listener."""

    limits: ReactorLimits
    authorizer: Authorizer
    counts: "NodeCounts | None"


class Failures(NamedTuple):
    """Called with the reason if the node cannot continue: one for the quorum and its directory, one for other parts."""

    on_quorum_failed: Callable[[BaseException], None]
    on_fatal: Callable[[BaseException], None]


class QuorumNode:
    """`quorum`, `controller` (this node's) and `active` (the cluster's active controller) are used by other parts."""

    def __init__(
        self,
        dynamic_config: DynamicConfig,
        identity: NodeIdentity,
        directory: MetadataDirectory,
        *,
        system: "seams.System",
        network: Network,
        edge: ControllerEdge,
        failures: Failures,
    ) -> None:
        self._config = config = dynamic_config.static
        self._identity = identity
        self._dynamic_config = dynamic_config
        self._edge = edge
        disk, clock, random, io_pool = system
        self._clock, self._random, self._io_pool = clock, random, io_pool
        self._loop = asyncio.get_running_loop()
        self.peers = Peers(
            dynamic_config, new_connector=network.new_connector, clock=clock, random=random, io_pool=io_pool
        )
        self._channels: list[ControllerChannel] = []
        self._registration: asyncio.Task[None] | None = None
        self._router = Router()
        self.services: ControllerServices | None = None
        """The services of the handlers on the controller listeners; None on a node without such listeners."""
        self._reactor: Reactor | None = None
        self._logins: Logins | None = None
        self._waiting_listeners: frozenset[str] = frozenset()
        """The controller listeners that do not accept before the ACLs are loaded."""
        self._transport = _Transport(self._new_transport)
        bootstrap = bootstrap_records(disk, config.metadata_log_dir)  # may fail, so before anything is bound
        self.endpoints = self._bind(network) if config.is_controller else ()
        """The endpoints of this controller, with the bound ports."""
        self.quorum = self._new_quorum(directory, system, failures)
        self.controller = MetadataRuntime(
            quorum=self.quorum,
            settings=ControllerSettings(config, DynamicConfigRules(dynamic_config), bootstrap),
            clock=clock,
            random=random,
            on_fatal=failures.on_fatal,
            counts=None if edge.counts is None else edge.counts.operations,
        )
        self.active = ActiveController(self.controller, self.new_channel)

    def _new_quorum(self, directory: MetadataDirectory, system: "seams.System", failures: Failures) -> Quorum:
        """Return the quorum of this node, once its endpoints are known: they go into its identity."""
        return Quorum(
            identity=self._identity_in_quorum(),
            directory=directory,
            config=self._config.quorum,
            system=system,
            on_fatal=failures.on_quorum_failed,
            transport=self._transport,
            counts=None if self._edge.counts is None else self._edge.counts.quorum,
        )

    async def start(self) -> None:
        """Recover the metadata and join the quorum. A quorum of one has elected itself when this returns."""
        if self._reactor is not None:
            self.services = self._new_services()
            self._router.serve(self.services)
            if self._logins is not None:
                self._logins.start()
            self._reactor.start(self._early_listeners())
        await self.quorum.start()
        self.controller.start()
        if self.controller.is_active:
            await self._register_controller()
        elif self._config.is_controller:
            self._registration = self._loop.create_task(self._register_controller())
        if self._config.is_controller:
            self.controller.add_image_listener(self._on_image)

    def _on_image(self, delta: "MetadataDelta", image: "MetadataImage") -> None:
        """Register this controller if it was removed, or metadata.version rises to a level with such registrations."""
        node_id = self._config.node_id
        is_known = node_id in image.cluster.controllers
        level = delta.feature_changes.get(METADATA_VERSION, 0)
        is_registering = self._registration is not None and not self._registration.done()
        is_removed = delta.controller_changes.get(node_id, True) is None
        if (level >= MV_3_7_IV0 or is_removed) and not is_known and not is_registering:
            self._registration = self._loop.create_task(self._register_controller())

    def acls_are_loaded(self) -> None:
        """Start to accept on the listeners that are not in early.start.listeners."""
        if self._waiting_listeners and self._reactor is not None:
            self._reactor.start(self._waiting_listeners)
            logger.info("The ACLs are loaded: accepting on %s", ", ".join(sorted(self._waiting_listeners)))
        self._waiting_listeners = frozenset()

    def missing_listeners(self) -> str | None:
        """Return why a controller listener does not accept yet, or None."""
        names = ", ".join(sorted(self._waiting_listeners))
        return f"not in early.start.listeners, so waiting for the ACLs: {names}" if names else None

    def _early_listeners(self) -> frozenset[str]:
        """Return the controller listeners that accept at once; the others wait for acls_are_loaded.

        Without an authorizer all do. Client listeners always wait: a broker accepts once it is unfenced.
        """
        names = frozenset(endpoint.listener for endpoint in self._config.controller_listeners)
        early = self._config.network.early_start_listeners
        if early is None or self._edge.authorizer.allows_everything:
            return names
        self._waiting_listeners = names.difference(early)
        if self._waiting_listeners:
            logger.warning(
                "Not accepting on %s until the ACLs are loaded (early.start.listeners). Controllers that all wait "
                "cannot elect a leader",
                ", ".join(sorted(self._waiting_listeners)),
            )
        return names.intersection(early)

    async def caught_up_to(self, offset: int) -> None:
        """Return once the image contains the record at `offset` of the metadata log."""
        await self.quorum.wait_until(lambda: self.controller.committed_offset >= offset)

    async def explained_refusal(self, error: ApiError) -> ApiError:
        """Return an error that says which feature levels this broker does not support and how to lower them.

        The controller's response has only a code, but the metadata has the levels. Returns `error` if they are not
        known within EXPLANATION_S.
        """

        def unserved() -> dict[str, tuple[int, int]]:
            return unserved_levels(self.controller.image.features.levels)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EXPLANATION_S):
                await self.quorum.wait_until(lambda: bool(unserved()))
        if not unserved():
            return error
        where = ",".join(f"{each.host}:{each.port}" for each in self.quorum.leader_endpoints) or "HOST:PORT"
        found = ", ".join(
            f"{name} at level {level} (this broker serves {highest} at most)"
            for name, (level, highest) in unserved().items()
        )
        options = " ".join(f"--feature {name}={highest}" for name, (_, highest) in unserved().items())
        lower = f"kafka-features.sh --bootstrap-controller {where} downgrade {options}"
        return ApiError(ErrorCode.UNSUPPORTED_VERSION, f"The cluster has finalized {found}. To lower: {lower}")

    async def close_controller(self) -> None:
        """Stop the controller's tasks; pending writes fail."""
        if self._registration is not None:
            self._registration.cancel()
            await asyncio.gather(self._registration, return_exceptions=True)
        await self.controller.close()

    async def close_quorum(self) -> None:
        """Resign, close the metadata log and all connections. Raises StorageError."""
        try:
            election_timeout_s = self._config.quorum.controller_quorum_election_timeout_ms / 1000
            await hand_over(self.quorum, min(GOODBYE_S, election_timeout_s))
            await self.quorum.close()
        finally:
            self.close_network()

    def close_network(self) -> None:
        for channel in self._channels:
            channel.close()
        self._transport.close()
        if self._reactor is not None:
            self._reactor.close()
        if self._logins is not None:
            self._logins.close()

    def new_channel(self) -> "ControllerChannel":
        """Return a new connection to the active controller."""
        return self._new_channel(self._config.replication.controller_socket_timeout_ms)

    def new_heartbeat_channel(self) -> "ControllerChannel":
        """Return one for registration and heartbeats, which gives up in time to try again before the session expires.

        Deviation: Apache Kafka gives up after broker.heartbeat.interval.ms. Here after half of
        broker.session.timeout.ms, because busy cores may take as long.
        """
        limit_ms = self._config.quorum.broker_session_timeout_ms // 2
        return self._new_channel(min(self._config.replication.controller_socket_timeout_ms, limit_ms))

    def _new_channel(self, timeout_ms: int) -> "ControllerChannel":
        from kafkapy.runtime.broker.controller_channel import ControllerChannel

        channel = ControllerChannel(
            leader=self._other_leader,
            listener_name=self._config.controller_listener_names[0],
            new_peer=self.peers.new_controller_peer,
            timeout_ms=timeout_ms,
        )
        self._channels.append(channel)
        return channel

    # ---- the controllers' listener

    def _bind(self, network: Network) -> tuple[Endpoint, ...]:
        """Bind the controller listeners; return this controller's endpoints."""
        self._logins = listeners.new_logins(
            self._config,
            self._config.controller_listeners,
            image=lambda: self.controller.image,
            random=self._random,
            io_pool=self._io_pool,
            cluster_id=self._identity.cluster_id,
        )
        route, _ = measured(self._router, self._edge.counts, are_fetches_of_followers=True)
        self._reactor = Reactor(
            self._loop,
            self._edge.limits,
            serving=Serving(route, new_login=listeners.new_login(self._logins, route, coalesce_nothing, self._clock)),
            io_pool=self._io_pool,
            listen=network.listen,
        )
        try:
            return listeners.bind_controllers(self._reactor, self._dynamic_config)
        except BaseException:
            self._reactor.close()
            raise

    def _new_services(self) -> ControllerServices:
        return ControllerServices(
            cluster_id=self._identity.cluster_id,
            node_id=self._config.node_id,
            config=self._config,
            dynamic_config=self._dynamic_config,
            clock=self._clock,
            random=self._random,
            io_pool=self._io_pool,
            authorizer=self._edge.authorizer,
            metadata=self.controller,
            controller=self.controller,
            metadata_changes=ControllerChanges(self.controller),
            quorum=self.quorum,
        )

    async def _register_controller(self) -> None:
        """Register this controller in the metadata log, if the metadata.version has such registrations (KIP-919)."""
        request = listeners.controller_registration(self._config, self._identity.incarnation_id, self.endpoints)
        while True:
            registered = self.controller.image.cluster.controllers.get(self._config.node_id)
            if registered is not None and registered.incarnation_id == self._identity.incarnation_id:
                return
            try:
                await self.active.send_request(
                    request, lambda controller, _: controller.decide_register_controller(request)
                )
                return
            except ApiError as error:
                if error.code == ErrorCode.UNSUPPORTED_VERSION:
                    return
                if error.code not in (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT):
                    raise
            await asyncio.sleep(RETRY_S)

    # ---- other nodes

    def _identity_in_quorum(self) -> QuorumIdentity:
        return QuorumIdentity(
            self._identity.cluster_id,
            self._config.node_id,
            self._identity.directory_id,
            self.endpoints,
            self._static_voters(),
            bootstrap_ids=tuple(self._bootstrap_servers()),
            can_become_voter=self._config.is_controller,
        )

    def _static_voters(self) -> VoterSet:
        name = self._config.controller_listener_names[0]
        return VoterSet(
            static_voter(voter_id, Endpoint(name, host, port))
            for voter_id, (host, port) in self._config.quorum_voters.items()
        )

    def _bootstrap_servers(self) -> dict[int, tuple[str, int]]:
        servers = self._config.quorum_bootstrap_servers
        return {FIRST_BOOTSTRAP_ID - index: address for index, address in enumerate(servers)}

    def _other_leader(self, refused_count: int) -> tuple[int, tuple[Endpoint, ...]]:
        """Return the leader's id and endpoints; (-1, ()) if this node leads but its controller is not active yet.

        A node without room on its disk cannot take part in an election, and so does not learn who was elected. It tries
        the other voters in turn, because the active controller has to be told that it gives its replicas away.
        """
        leader_id = self.quorum.leader_id
        if self.quorum.effects.waiting:
            others = [voter for voter in self.quorum.voters if voter.node_id != self._config.node_id]
            if others:
                others.sort(key=lambda voter: voter.node_id != leader_id)  # if one was known, it comes first
                tried = others[refused_count % len(others)]
                return tried.node_id, tried.endpoints
        return (-1, ()) if leader_id == self._config.node_id else (leader_id, self.quorum.leader_endpoints)

    def _new_raft_peer(self, host: str, port: int) -> "Peer":
        traffic = None if self._edge.counts is None else self._edge.counts.raft_channel
        return self.peers.new_raft_peer(host, port, traffic)

    def _new_transport(self) -> "NetworkRaftTransport":
        from kafkapy.raft.wire import WirePeer
        from kafkapy.runtime.quorum.transport import NetworkRaftTransport

        return NetworkRaftTransport(
            wire=WirePeer(self._identity.cluster_id, self._config.controller_listener_names[0]),
            new_peer=self._new_raft_peer,
            request_timeout_ms=self._config.quorum.controller_quorum_request_timeout_ms,
            bootstrap_servers=self._bootstrap_servers(),
            software_version=__version__,
        )


class _Transport:
    """A RaftTransport (runtime/quorum/exchange.py) that is created when the first message is sent."""

    def __init__(self, new_transport: "Callable[[], NetworkRaftTransport]") -> None:
        self._new_transport = new_transport
        self._made: NetworkRaftTransport | None = None

    def send(
        self,
        node_id: int,
        endpoints: tuple[Endpoint, ...],
        request: "Request",
        on_response: "Callable[[Response | None], None]",
    ) -> None:
        if self._made is None:
            self._made = self._new_transport()
        self._made.send(node_id, endpoints, request, on_response)

    def query_kraft_versions(self, voter: "Voter", on_versions: "Callable[[KraftVersions], None]") -> None:
        if self._made is None:
            self._made = self._new_transport()
        self._made.query_kraft_versions(voter, on_versions)

    def close(self) -> None:
        if self._made is not None:
            self._made.close()
