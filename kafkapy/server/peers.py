"""A node's connections to other nodes: plain or encrypted, as the target listener requires.

Controllers are reached by the first of controller.listener.names, brokers by the inter-broker listener.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kafkapy.config.dynamic import DynamicConfig
from kafkapy.version import __version__

if TYPE_CHECKING:
    from kafkapy import seams
    from kafkapy.protocol.client_login import NewLogin
    from kafkapy.protocol.traffic import OutboundTraffic
    from kafkapy.runtime.peer import Peer
    from kafkapy.server.login.node_token import NodeToken


BACKOFF_MAX_MS: Final = 50
RAFT_BACKOFF_MAX_MS: Final = 500
"""The longest waits before a connection is tried again, as in Apache Kafka, which has no keys for them."""


class Peers:
    """Creates connections to other nodes. Modules that they need are imported on first use.

    Raises ConfigError if a node without a controller listener has an invalid TLS configuration for controllers.
    """

    def __init__(
        self,
        dynamic_config: DynamicConfig,
        *,
        new_connector: "Callable[[asyncio.AbstractEventLoop], seams.Connector]",
        clock: "seams.Clock",
        random: "seams.Random",
        io_pool: "seams.IoPool",
    ) -> None:
        self._config = dynamic_config.static
        self._dynamic_config = dynamic_config
        self._new_connector = new_connector
        self._clock = clock
        self._random = random
        self._loop = asyncio.get_running_loop()
        self._io_pool = io_pool
        self._connectors: dict[str, seams.Connector] = {}
        self._tokens: dict[str, NodeToken] = {}
        if not self._config.is_controller:  # a controller's own listener has validated the keys
            self._check_tls()
        if not self._config.is_only_controller:
            self._obtain_tokens()

    def _check_tls(self) -> None:
        listener = self._config.controller_listener_names[0].upper()
        if self._config.listener_protocols[listener].uses_tls:
            from kafkapy.server.tls.listeners import ClientContexts

            ClientContexts(listener, self._config, lambda: self._config).current()

    def new_controller_peer(self, host: str, port: int) -> "Peer":
        """Return a new connection to the active controller."""
        return self._new_peer(self._config.controller_listener_names[0].upper(), host, port)

    def new_raft_peer(self, host: str, port: int, traffic: "OutboundTraffic | None" = None) -> "Peer":
        """Return a new connection of the metadata quorum, to a voter or a bootstrap server, counted in `traffic`."""
        listener = self._config.controller_listener_names[0].upper()
        return self._new_peer(listener, host, port, traffic, backoff_max_ms=RAFT_BACKOFF_MAX_MS)

    def new_broker_peer(self, host: str, port: int) -> "Peer":
        """Return a new connection to another broker."""
        return self._new_peer(self._config.inter_broker_listener_name, host, port)

    def _new_peer(
        self,
        listener: str,
        host: str,
        port: int,
        traffic: "OutboundTraffic | None" = None,
        *,
        backoff_max_ms: int = BACKOFF_MAX_MS,
    ) -> "Peer":
        from kafkapy.runtime.peer import Peer, PeerSettings

        network, replication = self._config.network, self._config.replication
        return Peer(
            host,
            port,
            connector=_counted(self._connector_to(listener), traffic),
            clock=self._clock,
            random=self._random,
            settings=PeerSettings(
                client_id=str(self._config.node_id),
                software_version=__version__,
                traffic=traffic,
                reconnect_backoff_max_ms=backoff_max_ms,
                connection_setup_timeout_ms=network.socket_connection_setup_timeout_ms,
                max_response_bytes=network.socket_request_max_bytes + replication.replica_fetch_response_max_bytes,
            ),
            new_login=self._login_to(listener),
        )

    def _login_to(self, listener: str) -> "NewLogin | None":
        """Return the factory of this node's logins to a listener; None if the listener needs no login."""
        if not self._config.listener_protocols[listener].uses_sasl:
            return None
        mechanism = self._mechanism_of(listener)
        if mechanism == "OAUTHBEARER":
            return lambda: self._token_of(listener).login()
        from kafkapy.server.login.node_login import node_login

        return lambda: node_login(self._dynamic_config.current, listener, mechanism, self._random)

    def _mechanism_of(self, listener: str) -> str:
        security = self._config.security
        if listener in (name.upper() for name in self._config.controller_listener_names):
            return security.sasl_mechanism_controller_protocol
        return security.sasl_mechanism_inter_broker_protocol

    def _obtain_tokens(self) -> None:
        """Begin to obtain the tokens of listeners to which this node logs in by OAUTHBEARER. Raises ConfigError."""
        config = self._config
        brokers = [config.inter_broker_listener_name] * config.is_broker
        for listener in (config.controller_listener_names[0].upper(), *brokers):
            if config.listener_protocols[listener].uses_sasl and self._mechanism_of(listener) == "OAUTHBEARER":
                self._token_of(listener)

    def _token_of(self, listener: str) -> "NodeToken":
        """Return the bearer token of this node's logins to a listener, kept for the next ones. Raises ConfigError."""
        if listener not in self._tokens:
            from kafkapy.server.login.node_token import NodeToken  # not needed by most nodes

            self._tokens[listener] = NodeToken(
                lambda: self._dynamic_config.current,
                listener,
                io_pool=self._io_pool,
                clock=self._clock,
                random=self._random,
            )
        return self._tokens[listener]

    def _connector_to(self, listener: str) -> "seams.Connector":
        if listener not in self._connectors:
            self._connectors[listener] = self._made_connector(listener)
        return self._connectors[listener]

    def _made_connector(self, listener: str) -> "seams.Connector":
        connector = self._new_connector(self._loop)
        if not self._config.listener_protocols[listener].uses_tls:
            return connector
        from kafkapy.reactor.tls_connector import TlsConnector
        from kafkapy.server.tls.listeners import ClientContexts

        contexts = ClientContexts(listener, self._dynamic_config.static, lambda: self._dynamic_config.current)
        timeout_ms = self._config.network.kafkapy_authentication_timeout_ms
        return TlsConnector(self._loop, connector, contexts.current, timeout_ms)


def _counted(connector: "seams.Connector", traffic: "OutboundTraffic | None") -> "seams.Connector":
    if traffic is None:
        return connector
    from kafkapy.reactor.counted_channel import CountedConnector  # most nodes count nothing

    return CountedConnector(connector, traffic)
