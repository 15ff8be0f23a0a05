"""BrokerConfig: the complete configuration of a node, and values derived from it.

Immutable; built by `kafkapy.config.load.load`, which checks every key. The typed models of the subsystems are built on
first access (`config.replication.replica_lag_time_max_ms`). Values that depend on several keys are properties here
(`config.log_dirs`, `config.listeners`, `config.log_config`). A dynamic change builds a new BrokerConfig.
"""

from collections.abc import Mapping
from functools import cached_property
from posixpath import normpath
from typing import TYPE_CHECKING, TypeVar

from kafkapy.config.definitions import Value, broker_definitions
from kafkapy.config.endpoints import Endpoint, SecurityProtocol, parse_endpoints, parse_protocol_map
from kafkapy.config.validators import HOST_AND_PORT, ConfigRuleError, parse_quorum_voters

if TYPE_CHECKING:
    from kafkapy.config.group import GroupCoordinatorConfig
    from kafkapy.config.log import LogConfig
    from kafkapy.config.log_defaults import LogDefaults
    from kafkapy.config.metrics import MetricsConfig
    from kafkapy.config.network import NetworkConfig
    from kafkapy.config.node import NodeConfig
    from kafkapy.config.quorum import QuorumConfig
    from kafkapy.config.quota import QuotaConfig
    from kafkapy.config.remote import RemoteStorageConfig
    from kafkapy.config.replication import ReplicationConfig
    from kafkapy.config.section import Section
    from kafkapy.config.security import SecurityConfig
    from kafkapy.config.share import ShareConfig
    from kafkapy.config.tls import TlsConfig
    from kafkapy.config.transaction import TransactionConfig

SectionT = TypeVar("SectionT", bound="Section")
WILDCARD_HOST = "0.0.0.0"
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")


class BrokerConfig:
    """One node's configuration. Two are equal if they were built from the same properties."""

    def __init__(self, originals: Mapping[str, str], values: Mapping[str, Value]) -> None:
        """`originals`: the operator's properties, with prefixed and unknown keys; `values`: every known key, typed."""
        self.originals = dict(originals)
        self._values = dict(values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BrokerConfig) and other.originals == self.originals

    def __hash__(self) -> int:
        return hash(frozenset(self.originals.items()))

    def __repr__(self) -> str:
        return f"BrokerConfig(node.id={self.node_id}, {len(self.originals)} keys set)"

    def value(self, key: str) -> Value:
        """Return the typed value of a known key (dotted name), the default if it is not set."""
        return self._values[key]

    def listener_value(self, listener: str, key: str, *, mechanism: str | None = None) -> Value:
        """Return a listener's value of `key`: listener.name.<listener>[.<mechanism>].<key>, else the plain key.

        `mechanism`: the SASL mechanism, for keys that may be set per mechanism, such as sasl.jaas.config.
        """
        prefix = f"listener.name.{listener.lower()}."
        names = [f"{prefix}{mechanism.lower()}.{key}"] if mechanism is not None else []
        for name in (*names, f"{prefix}{key}"):
            if name in self.originals:
                return broker_definitions()[key].parse(self.originals[name])
        return self._values[key]

    # -- the subsystems -------------------------------------------------------------------------------------------

    @cached_property
    def node(self) -> "NodeConfig":
        from kafkapy.config.node import NodeConfig

        return self._section(NodeConfig)

    @cached_property
    def network(self) -> "NetworkConfig":
        from kafkapy.config.network import NetworkConfig

        return self._section(NetworkConfig)

    @cached_property
    def log(self) -> "LogDefaults":
        from kafkapy.config.log_defaults import LogDefaults

        return self._section(LogDefaults)

    @cached_property
    def replication(self) -> "ReplicationConfig":
        from kafkapy.config.replication import ReplicationConfig

        return self._section(ReplicationConfig)

    @cached_property
    def quorum(self) -> "QuorumConfig":
        from kafkapy.config.quorum import QuorumConfig

        return self._section(QuorumConfig)

    @cached_property
    def group(self) -> "GroupCoordinatorConfig":
        from kafkapy.config.group import GroupCoordinatorConfig

        return self._section(GroupCoordinatorConfig)

    @cached_property
    def share(self) -> "ShareConfig":
        from kafkapy.config.share import ShareConfig

        return self._section(ShareConfig)

    @cached_property
    def transaction(self) -> "TransactionConfig":
        from kafkapy.config.transaction import TransactionConfig

        return self._section(TransactionConfig)

    @cached_property
    def security(self) -> "SecurityConfig":
        from kafkapy.config.security import SecurityConfig

        return self._section(SecurityConfig)

    @cached_property
    def tls(self) -> "TlsConfig":
        from kafkapy.config.tls import TlsConfig

        return self._section(TlsConfig)

    def listener_tls(self, listener: str) -> "TlsConfig":
        """Return the ssl.* keys of one listener: with its prefix, else without prefix.

        On a SASL_SSL listener ssl.client.auth counts only with the listener's prefix (KIP-684).
        """
        from kafkapy.config.tls import TlsConfig

        values = {key: self.listener_value(listener, key) for key in [*TlsConfig.keys()]}
        own_key = f"listener.name.{listener.lower()}.ssl.client.auth"
        if self.listener_protocols[listener].uses_sasl and own_key not in self.originals:
            values["ssl.client.auth"] = "none"
        return TlsConfig.from_values(values)

    @cached_property
    def quota(self) -> "QuotaConfig":
        from kafkapy.config.quota import QuotaConfig

        return self._section(QuotaConfig)

    @cached_property
    def remote(self) -> "RemoteStorageConfig":
        from kafkapy.config.remote import RemoteStorageConfig

        return self._section(RemoteStorageConfig)

    @cached_property
    def metrics(self) -> "MetricsConfig":
        from kafkapy.config.metrics import MetricsConfig

        return self._section(MetricsConfig)

    def _section(self, section_type: type[SectionT]) -> SectionT:
        return section_type.from_values(self._values)

    # -- identity and directories ---------------------------------------------------------------------------------

    @property
    def node_id(self) -> int:
        node_id = self._values["node.id"]
        assert isinstance(node_id, int)
        return node_id

    @property
    def process_roles(self) -> frozenset[str]:
        return frozenset(self._list("process.roles"))

    @property
    def is_broker(self) -> bool:
        return "broker" in self.process_roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.process_roles

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """The log directories: log.dirs, else log.dir."""
        return self._list("log.dirs") or self._list("log.dir")

    @property
    def metadata_log_dir(self) -> str:
        """The directory of __cluster_metadata-0: metadata.log.dir, spelled as in log.dirs, else the first log dir."""
        named = self._text("metadata.log.dir") or self.log_dirs[0]
        return next((path for path in self.log_dirs if normpath(path) == normpath(named)), named)

    @cached_property
    def log_config(self) -> "LogConfig":
        """The configuration of a topic without overrides on this broker."""
        from kafkapy.config.topic import log_config

        return log_config({}, self)

    # -- listeners ------------------------------------------------------------------------------------------------

    @cached_property
    def listener_protocols(self) -> dict[str, SecurityProtocol]:
        """Listener name -> security protocol.

        Without a map, controller listeners are PLAINTEXT, unless a listener in use is named after a secure protocol.
        """
        key = "listener.security.protocol.map"
        protocols = parse_protocol_map(key, self._text(key) or "")
        names = {name.upper() for name in self.controller_listener_names}
        used = names | {entry.partition(":")[0].upper() for entry in self._list("listeners")}
        is_secured = any(name in used for name in ("SSL", "SASL_SSL", "SASL_PLAINTEXT"))
        if key not in self.originals and not is_secured:
            protocols.update(dict.fromkeys(names - {"PLAINTEXT"}, SecurityProtocol.PLAINTEXT))
        return protocols

    @property
    def controller_listener_names(self) -> tuple[str, ...]:
        return self._list("controller.listener.names")

    @cached_property
    def listeners(self) -> tuple[Endpoint, ...]:
        """The endpoints that this node binds, including controller listeners."""
        return parse_endpoints("listeners", self._list("listeners"), self.listener_protocols)

    @property
    def broker_listeners(self) -> tuple[Endpoint, ...]:
        return self._without_controllers(self.listeners)

    @property
    def controller_listeners(self) -> tuple[Endpoint, ...]:
        return tuple(endpoint for endpoint in self.listeners if endpoint.listener in self.controller_listener_names)

    @cached_property
    def advertised_listeners(self) -> tuple[Endpoint, ...]:
        """The endpoints that clients get. An empty host means this machine's name, port 0 the bound port."""
        return self._without_controllers(self._advertised or self.listeners)

    @cached_property
    def advertised_controller_listeners(self) -> tuple[Endpoint, ...]:
        """The endpoints that other controllers get, in the order of controller.listener.names.

        An advertised endpoint, else the listener's. If the first listener has no address of its own, this node's
        address in controller.quorum.voters is used.
        """
        found = (self._advertised_controller(name, is_first=index == 0) for index, name in self._numbered_controllers)
        return tuple(endpoint for endpoint in found if endpoint is not None)

    @property
    def inter_broker_listener_name(self) -> str:
        return self._inter_broker[0]

    @property
    def inter_broker_security_protocol(self) -> SecurityProtocol:
        return self._inter_broker[1]

    @property
    def quorum_voters(self) -> dict[int, tuple[str, int]]:
        """controller.quorum.voters as voter id -> (host, port); empty if the quorum's voters are in its log."""
        return parse_quorum_voters(self._list("controller.quorum.voters"))

    @property
    def quorum_bootstrap_servers(self) -> tuple[tuple[str, int], ...]:
        matches = (HOST_AND_PORT.match(server) for server in self._list("controller.quorum.bootstrap.servers"))
        return tuple((matched[1], int(matched[2])) for matched in matches if matched is not None)

    @property
    def is_only_controller(self) -> bool:
        """Whether the configuration names no controller other than this node."""
        if self.quorum_voters or not self.is_controller:
            return set(self.quorum_voters) == {self.node_id}
        own = (*self.controller_listeners, *self.advertised_controller_listeners)
        endpoints = {(host, endpoint.port) for endpoint in own for host in (endpoint.host, *LOOPBACK_HOSTS)}
        return endpoints.issuperset(self.quorum_bootstrap_servers)

    @property
    def _advertised(self) -> tuple[Endpoint, ...]:
        key = "advertised.listeners"
        entries = self._list(key)
        return parse_endpoints(key, entries, self.listener_protocols, require_distinct_ports=False) if entries else ()

    @property
    def _numbered_controllers(self) -> list[tuple[int, str]]:
        return list(enumerate(name.upper() for name in self.controller_listener_names))

    def _advertised_controller(self, name: str, *, is_first: bool) -> Endpoint | None:
        for endpoint in self._advertised:
            if endpoint.listener == name:
                return endpoint
        bound = next((endpoint for endpoint in self.controller_listeners if endpoint.listener == name), None)
        if bound is None or bound.host not in ("", WILDCARD_HOST):
            return bound
        voter = self.quorum_voters.get(self.node_id) if is_first else None
        host, port = voter or ("", bound.port)
        return Endpoint(name, host, port, bound.security_protocol)

    @cached_property
    def _inter_broker(self) -> tuple[str, SecurityProtocol]:
        name_key, protocol_key = "inter.broker.listener.name", "security.inter.broker.protocol"
        name = self._text(name_key)
        if name is None:
            protocol = SecurityProtocol[self._text(protocol_key) or "PLAINTEXT"]
            return protocol.value, protocol
        if protocol_key in self.originals:
            raise ConfigRuleError(name_key, name, f"Only one of {name_key} and {protocol_key} should be set.")
        if name.upper() not in self.listener_protocols:
            message = f"Listener with name {name.upper()} defined in {name_key} not found in"
            raise ConfigRuleError(name_key, name, f"{message} listener.security.protocol.map.")
        return name.upper(), self.listener_protocols[name.upper()]

    def _without_controllers(self, endpoints: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
        return tuple(endpoint for endpoint in endpoints if endpoint.listener not in self.controller_listener_names)

    def _list(self, key: str) -> tuple[str, ...]:
        value = self._values[key]
        assert value is None or isinstance(value, tuple)
        return value or ()

    def _text(self, key: str) -> str | None:
        value = self._values[key]
        assert value is None or isinstance(value, str)
        return value
