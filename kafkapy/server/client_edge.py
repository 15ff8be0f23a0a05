"""The edge between a broker and its clients: the reactor with the client listeners, the router, logins and limits."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkapy.protocol.serving import Coalesce, Route, Serving
from kafkapy.reactor.reactor import Reactor
from kafkapy.server import listeners
from kafkapy.server.limits import changed_limits, limits_at_start
from kafkapy.server.measuring import measured
from kafkapy.server.stopping import StopOrder
from kafkapy.serving.router import Router

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.handlers.context import Services
    from kafkapy.server.node import Node


class ClientEdge:
    """Created, bound and updated by the broker, which starts and stops `reactor`."""

    def __init__(self, node: "Node") -> None:
        """Needs the quorum's metadata and the dynamic configuration. Raises ConfigError, OSError."""
        self._dynamic_config = node.dynamic_config
        config = node.dynamic_config.current
        self._router = Router()
        self._limits = limits_at_start(node.config, config)
        self._logins = listeners.new_logins(
            config,
            node.config.broker_listeners,
            image=lambda: node.controller.image,
            random=node.random,
            io_pool=node.io_pool,
            cluster_id=node.cluster_id,
        )
        if self._logins is not None:
            node.dynamic_config.add_check(self._logins.check)
            node.stops.add(StopOrder.LOGINS, self._logins.close)
            self._logins.start()
        self._clock = node.clock
        self._route, self._coalesce = route, coalesce = measured(self._router, node.counts)
        self.reactor = Reactor(
            node.loop,
            self._limits,
            serving=Serving(route, coalesce, listeners.new_login(self._logins, route, coalesce, node.clock)),
            io_pool=node.io_pool,
            listen=node.network.listen,
        )
        if node.counts is not None:
            self.reactor.traffic = node.counts.connections
        self.addresses: dict[str, tuple[str, int]] = {}
        """Host and port by listener, as bound."""

    def bind(self) -> None:
        """Bind the client listeners, without accepting yet. Raises ConfigError, OSError."""
        self.addresses = listeners.bind(self.reactor, self._dynamic_config)

    def serve(self, services: "Services") -> None:
        """Let handlers use the services; call it once, before the reactor starts."""
        self._router.serve(services)

    def intercept(self, intercepted: "Callable[[Route, Coalesce], tuple[Route, Coalesce]]") -> None:
        """Let what `intercepted` makes of the router's functions serve all connections: for faults in tests."""
        route, coalesce = intercepted(self._route, self._coalesce)
        new_login = listeners.new_login(self._logins, route, coalesce, self._clock)
        self.reactor.serve_by(Serving(route, coalesce, new_login))

    def update(self, before: "BrokerConfig", config: "BrokerConfig") -> None:
        """Apply the limits and logins of a configuration that changed at run time."""
        self._limits = changed_limits(self._limits, before, config)
        self.reactor.update_connection_limits(self._limits)
        if self._logins is not None:
            self._logins.update(config)
