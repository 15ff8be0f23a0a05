"""The edge between a broker and its clients: the reactor with the client listeners, the router, logins and limits."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkapy.errors import ConfigError
from kafkapy.protocol.serving import Coalesce, Route, Serving
from kafkapy.reactor.reactor import Reactor
from kafkapy.server import listeners
from kafkapy.server.limits import changed_limits, limits_at_start
from kafkapy.server.measuring import measured
from kafkapy.server.stopping import StopOrder
from kafkapy.serving.router import Router

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.config.endpoints import Endpoint
    from kafkapy.handlers.context import Services
    from kafkapy.reactor.tls_admission import ServerTls
    from kafkapy.server.login.authentication import Logins
    from kafkapy.server.node import Node
    from kafkapy.server.tls.listeners import TlsListeners

logger = logging.getLogger("kafkapy.server")


class ClientEdge:
    """Created, bound and updated by the broker, which starts and stops `reactor`."""

    def __init__(self, node: "Node") -> None:
        """Needs the quorum's metadata and the dynamic configuration. Raises ConfigError, OSError."""
        self._node = node
        self._dynamic_config = node.dynamic_config
        self._applied = config = node.dynamic_config.current
        self._router = Router()
        self._limits = limits_at_start(node.config, config)
        self._tls: TlsListeners | None = None
        self._logins: Logins | None = None
        self._is_bound = False
        """Whether the listeners of the start are bound: what comes later is added while the broker runs."""
        self._add_logins(config, self._not_removed(config))
        self._served = route, coalesce = self._measured = measured(self._router, node.counts)
        self.reactor = Reactor(
            node.loop,
            self._limits,
            serving=Serving(route, coalesce, listeners.new_login(self._logins, route, coalesce, node.clock)),
            io_pool=node.io_pool,
            listen=node.network.listen,
        )
        if node.counts is not None:
            self.reactor.traffic = node.counts.connections
        self._bound: set[str] = set()
        self.addresses = {each.listener: (each.host, each.port) for each in node.config.broker_listeners}
        """Host and port by listener, as bound; also of listeners that were removed."""

    @property
    def first_address(self) -> tuple[str, int]:
        """Host and port of the first listener that is bound, in the order of the configuration as it is now."""
        names = [each.listener for each in (*self._applied.broker_listeners, *self._node.config.broker_listeners)]
        return self.addresses[next((name for name in names if name in self._bound), names[0])]

    def bind(self) -> None:
        """Bind the client listeners, without accepting yet. Raises ConfigError, OSError.

        Those of the configuration file must succeed, unless a change at run time that is kept in the metadata has
        removed them: what they need may have changed since. One that such a change has added is logged if it fails, as
        it was when it was added.
        """
        current = self._applied
        kept = self._not_removed(current)
        self._tls = listeners.tls_listeners(kept, self._dynamic_config)
        for endpoint in kept:
            self._bind(endpoint, listeners.secured(self._tls, current, endpoint))
        self._change_listeners(current)
        if self._logins is not None:
            self._logins.start()
        self._is_bound = True

    def serve(self, services: "Services") -> None:
        """Give handlers the services; call it once, before the reactor starts."""
        self._router.serve(services)

    def intercept(self, intercepted: "Callable[[Route, Coalesce], tuple[Route, Coalesce]]") -> None:
        """Serve all connections by what `intercepted` makes of the router's functions: for faults in tests."""
        self._served = intercepted(*self._measured)
        self._serve_by_logins()

    def update(self, config: "BrokerConfig") -> None:
        """Apply the limits, logins and listeners of a configuration that changed at run time, or since the bind."""
        before, self._applied = self._applied, config
        if config is before:
            return
        self._limits = changed_limits(self._limits, before, config)
        self.reactor.update_connection_limits(self._limits)
        if self._logins is not None:
            self._logins.update(config)
        if config.broker_listeners != before.broker_listeners and not self._node.stops.has_begun:
            self.reactor.start(self._change_listeners(config))

    def _not_removed(self, config: "BrokerConfig") -> "tuple[Endpoint, ...]":
        """Return the listeners of the configuration file that `config` has, too, with the address that they have there.

        A port that was changed while the broker ran holds from the next start on, before the file's, as in Apache
        Kafka. Port 0, any free one, leaves the file's, and so does one that is none, which would keep it from starting.
        """
        wanted = {each.listener: each for each in config.broker_listeners}
        kept = [each for each in self._dynamic_config.static.broker_listeners if each.listener in wanted]
        return tuple(wanted[each.listener] if wanted[each.listener].port > 0 else each for each in kept)

    def _change_listeners(self, config: "BrokerConfig") -> list[str]:
        """Remove and add listeners, so that those of `config` are bound; return the names of those added."""
        wanted = {each.listener: each for each in config.broker_listeners}
        for name in sorted(self._bound - wanted.keys()):
            logger.info("Removing the listener %s", name)
            self.reactor.remove_listener(name)
            self._forget(name)
        return [name for name, endpoint in wanted.items() if name not in self._bound and self._add(config, endpoint)]

    def _add(self, config: "BrokerConfig", endpoint: "Endpoint") -> bool:
        """Bind a listener that is not in the configuration file; return whether it could be bound."""
        protocol, secured = endpoint.security_protocol, None
        try:
            if protocol.uses_tls:
                if self._tls is None:
                    self._tls = listeners.tls_listeners([endpoint], self._dynamic_config)
                assert self._tls is not None
                secured = self._tls.add(config, endpoint)
            if protocol.uses_sasl:
                self._add_logins(config, (endpoint,))
                self._serve_by_logins()
            self._bind(endpoint, secured)
        except (ConfigError, OSError) as error:
            logger.error("Cannot add the listener %s: %s", endpoint.listener, error)
            self._forget(endpoint.listener)
            return False
        return True

    def _bind(self, endpoint: "Endpoint", secured: "ServerTls | None") -> None:
        address = listeners.bind(self.reactor, endpoint, secured)
        self._bound.add(endpoint.listener)
        self.addresses[endpoint.listener] = address
        logger.info("Awaiting socket connections on %s:%d.", *address[:2])

    def _forget(self, listener: str) -> None:
        self._bound.discard(listener)
        if self._tls is not None:
            self._tls.remove(listener)
        if self._logins is not None:
            self._logins.remove(listener)

    def _add_logins(self, config: "BrokerConfig", endpoints: "tuple[Endpoint, ...]") -> None:
        """Serve the logins of the SASL listeners among `endpoints`. Raises ConfigError."""
        if self._logins is not None:
            for endpoint in endpoints:
                self._logins.add(config, endpoint, is_running=self._is_bound)
            return
        node = self._node
        self._logins = listeners.new_logins(
            config,
            endpoints,
            image=lambda: node.controller.image,
            random=node.random,
            io_pool=node.io_pool,
            cluster_id=node.cluster_id,
            is_running=self._is_bound,
        )
        if self._logins is not None:
            node.dynamic_config.add_check(self._logins.check)
            node.stops.add(StopOrder.LOGINS, self._logins.close)
            if self._is_bound:
                self._logins.start()

    def _serve_by_logins(self) -> None:
        new_login = listeners.new_login(self._logins, *self._served, self._node.clock)
        self.reactor.serve_by(Serving(*self._served, new_login))
