"""A node's listeners: binding them, their logins, and the addresses that other nodes and clients get."""

import errno
import logging
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from kafkapy.config.broker import BrokerConfig
from kafkapy.config.endpoints import Endpoint as ConfigEndpoint
from kafkapy.metadata.brokers import controller_features
from kafkapy.metadata.registrations import Endpoint
from kafkapy.protocol.messages.controller_registration_request import (
    ControllerRegistrationRequest,
    Feature,
    Listener,
)
from kafkapy.protocol.serving import Coalesce, NewLogin, Route, no_login
from kafkapy.raft.voters import Endpoint as RaftEndpoint
from kafkapy.reactor.reactor import Reactor
from kafkapy.types import Uuid

if TYPE_CHECKING:
    from kafkapy.config.dynamic import DynamicConfig
    from kafkapy.metadata.image import MetadataImage
    from kafkapy.reactor.tls_admission import ServerTls
    from kafkapy.seams import Clock, IoPool, Random
    from kafkapy.server.login.authentication import Logins
    from kafkapy.server.tls.listeners import TlsListeners

logger = logging.getLogger("kafkapy.server")


def bind_controllers(reactor: Reactor, dynamic_config: "DynamicConfig") -> tuple[RaftEndpoint, ...]:
    """Bind the controller listeners; return this node's endpoints. Raises ConfigError, OSError."""
    ports = {}
    config = dynamic_config.static
    tls = tls_listeners(config.controller_listeners, dynamic_config)
    for endpoint in config.controller_listeners:
        ports[endpoint.listener] = bind(reactor, endpoint, secured(tls, config, endpoint))[1]
    return tuple(
        RaftEndpoint(each.listener, each.host or socket.getfqdn(), each.port or ports[each.listener])
        for each in config.advertised_controller_listeners
        if each.listener in ports
    )


def tls_listeners(endpoints: Iterable[ConfigEndpoint], dynamic_config: "DynamicConfig") -> "TlsListeners | None":
    """Return the TLS settings of the listeners among `endpoints`, updated with the config; None if none uses TLS."""
    if not any(each.security_protocol.uses_tls for each in endpoints):
        return None
    from kafkapy.server.tls.listeners import TlsListeners  # not needed without TLS

    tls = TlsListeners(dynamic_config.static)
    dynamic_config.add_check(tls.check)
    dynamic_config.add_reader(tls.update)
    return tls


def secured(tls: "TlsListeners | None", config: BrokerConfig, endpoint: ConfigEndpoint) -> "ServerTls | None":
    """Return the TLS settings of a listener that is bound at the start, None without TLS. Raises ConfigError."""
    return tls.secure(config, endpoint) if tls is not None and endpoint.security_protocol.uses_tls else None


def new_logins(
    config: BrokerConfig,
    endpoints: tuple[ConfigEndpoint, ...],
    *,
    image: "Callable[[], MetadataImage]",
    random: "Random",
    io_pool: "IoPool",
    cluster_id: str,
    is_running: bool = False,
) -> "Logins | None":
    """Return the login settings of the SASL listeners among `endpoints`; None if none uses SASL. Raises ConfigError.

    is_running: the broker serves requests already.
    """
    if not any(each.security_protocol.uses_sasl for each in endpoints):
        return None
    from kafkapy.server.login.authentication import Logins  # not needed by most brokers

    return Logins(
        config, endpoints, image=image, random=random, io_pool=io_pool, cluster_id=cluster_id, is_running=is_running
    )


def new_login(logins: "Logins | None", route: Route, coalesce: Coalesce, clock: "Clock") -> NewLogin:
    """Return the function that starts the login of a new connection."""
    return no_login if logins is None else logins.gate(route, coalesce, clock).new_login


def bind(reactor: Reactor, endpoint: ConfigEndpoint, tls: "ServerTls | None") -> tuple[str, int]:
    """Bind one listener; return its address. Raises OSError with a hint for the user."""
    if endpoint.port < 0:  # valid in `listeners`, as in Apache Kafka; a socket would raise OverflowError
        raise OSError(errno.EINVAL, f"cannot listen on {endpoint}: a port is within 0 and 65535")
    try:
        protocol = endpoint.security_protocol.value
        return reactor.bind(endpoint.listener, protocol, endpoint.host, endpoint.port, tls)
    except OSError as error:
        where = f"{endpoint.host or '0.0.0.0'}:{endpoint.port}"
        hint = " (--port takes another one, 0 a free one)" if error.errno == errno.EADDRINUSE else ""
        raise OSError(error.errno, f"cannot listen on {where}: {error.strerror}{hint}") from error


def advertised(config: BrokerConfig, addresses: Mapping[str, tuple[str, int]]) -> dict[str, Endpoint]:
    """Return the advertised listeners: this host's name and the bound port where none are configured."""
    return {each.listener: _advertised(each, addresses[each.listener][1]) for each in config.advertised_listeners}


def _advertised(endpoint: ConfigEndpoint, bound_port: int) -> Endpoint:
    host = endpoint.host if endpoint.host not in ("", "0.0.0.0", "::") else socket.getfqdn()
    return Endpoint(host, endpoint.port or bound_port, endpoint.security_protocol.code)


def controller_registration(
    config: BrokerConfig, incarnation_id: Uuid, endpoints: Iterable[RaftEndpoint]
) -> ControllerRegistrationRequest:
    """Return the registration request of the node's controller: its endpoints and supported features (KIP-919)."""
    protocols = config.listener_protocols
    return ControllerRegistrationRequest(
        controller_id=config.node_id,
        incarnation_id=incarnation_id,
        listeners=[
            Listener(each.name, host=each.host, port=each.port, security_protocol=protocols[each.name].code)
            for each in endpoints
        ],
        features=[
            Feature(name, min_supported_version=lowest, max_supported_version=highest)
            for name, (lowest, highest) in controller_features().items()
        ],
    )
