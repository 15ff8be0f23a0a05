"""The rules between the keys of a configuration: those of KafkaConfig.validateValues.

A rule raises ConfigRuleError, which names the keys, or yields warnings. Messages are Kafka's.
"""

from collections.abc import Iterator
from typing import Final

from kafkapy.config import topic
from kafkapy.config.broker import WILDCARD_HOST, BrokerConfig
from kafkapy.config.endpoints import SecurityProtocol
from kafkapy.config.validators import HOST_AND_PORT, ConfigRuleError
from kafkapy.types import INT32_MAX

MEBIBYTE = 1 << 20
DEFAULT_PRINCIPAL_BUILDER = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_ASSIGNORS: Final = {"group.consumer.assignors": ("uniform", "range"), "group.share.assignors": ("simple",)}
"""The assignors that are known here, by the key that names them: by their own name, or by that of Kafka's class."""


def check(config: BrokerConfig) -> list[str]:
    """Return warnings; raise ConfigRuleError for the first rule that is violated."""
    _check_identity(config)
    _check_log(config)
    _check_replication(config)
    _check_quorum(config)
    _check_roles(config)
    if config.is_broker:
        _check_broker_listeners(config)
        _check_cordoned_log_dirs(config)
    _check_advertised_hosts(config)
    _check_early_start_listeners(config)
    _check_authorizer(config)
    _check_replica_selector(config)
    _check_security(config)
    _check_node_logins(config)
    _check_connections(config)
    _check_group_protocols(config)
    return list(_warnings(config))


def _require(is_fulfilled: bool, key: str, config: BrokerConfig, message: str) -> None:
    if not is_fulfilled:
        raise ConfigRuleError(key, config.originals.get(key), message)


def _int(config: BrokerConfig, key: str) -> int:
    value = config.value(key)
    assert isinstance(value, int)
    return value


def _check_identity(config: BrokerConfig) -> None:
    is_same = config.node_id == config.value("broker.id")
    _require(is_same, "broker.id", config, "You must set `node.id` to the same value as `broker.id`.")


def _check_log(config: BrokerConfig) -> None:
    roll_ms, jitter_ms, retention_ms = topic.roll_ms(config), topic.roll_jitter_ms(config), topic.retention_ms(config)
    _require(roll_ms >= 1, "log.roll.ms", config, "log.roll.ms must be greater than or equal to 1")
    _require(jitter_ms >= 0, "log.roll.jitter.ms", config, "log.roll.jitter.ms must be greater than or equal to 0")
    _require(
        retention_ms >= 1 or retention_ms == -1,
        "log.retention.ms",
        config,
        "log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
    )
    buffer_bytes, thread_count = _int(config, "log.cleaner.dedupe.buffer.size"), _int(config, "log.cleaner.threads")
    # With 0 cleaner threads Kafka fails with a division by zero; here the check refuses them.
    _require(
        thread_count > 0 and buffer_bytes // thread_count > MEBIBYTE,
        "log.cleaner.dedupe.buffer.size",
        config,
        "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
    )


def _check_replication(config: BrokerConfig) -> None:
    wait_ms = _int(config, "replica.fetch.wait.max.ms")
    _require(
        wait_ms <= _int(config, "replica.socket.timeout.ms"),
        "replica.socket.timeout.ms",
        config,
        "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms to prevent unnecessary socket "
        "timeouts",
    )
    _require(
        wait_ms <= _int(config, "replica.lag.time.max.ms"),
        "replica.fetch.wait.max.ms",
        config,
        "replica.fetch.wait.max.ms should always be less than or equal to replica.lag.time.max.ms to prevent frequent "
        "changes in ISR",
    )


def _check_quorum(config: BrokerConfig) -> None:
    _require(
        bool(config.quorum_voters or config.quorum_bootstrap_servers),
        "controller.quorum.bootstrap.servers",
        config,
        "If using process.roles, either controller.quorum.bootstrap.servers must contain the set of bootstrap "
        "controllers or controller.quorum.voters must contain a parseable set of controllers.",
    )


def _check_roles(config: BrokerConfig) -> None:
    if config.is_controller:
        _check_controller(config)
        if not config.is_broker:
            _check_controller_only(config)
    else:
        _check_broker_only(config)


def _check_controller(config: BrokerConfig) -> None:
    names, key = config.controller_listener_names, "controller.listener.names"
    bound_names = {endpoint.listener for endpoint in config.listeners}
    voter_ids = set(config.quorum_voters)
    _require(
        not voter_ids or config.node_id in voter_ids,
        "controller.quorum.voters",
        config,
        f"If process.roles contains the 'controller' role, the node id {config.node_id} must be included in the set "
        f"of voters controller.quorum.voters={_shown(voter_ids)}",
    )
    _require(
        bool(config.advertised_controller_listeners),
        key,
        config,
        f"{key} must contain at least one value appearing in the 'listeners' configuration when running the KRaft "
        "controller role",
    )
    _require(
        all(name in bound_names for name in names),
        key,
        config,
        f"{key} must only contain values appearing in the 'listeners' configuration when running the KRaft "
        "controller role",
    )


def _check_controller_only(config: BrokerConfig) -> None:
    names, key = config.controller_listener_names, "controller.listener.names"
    _require(
        len(config.advertised_controller_listeners) == len(config.listeners),
        "listeners",
        config,
        f"The listeners config must only contain KRaft controller listeners from {key} when process.roles=controller",
    )
    inter_broker_key = "inter.broker.listener.name"
    _require(
        config.value(inter_broker_key) is None or config.inter_broker_listener_name not in names,
        key,
        config,
        f"{key} must not contain an explicitly set {inter_broker_key} configuration value when "
        "process.roles=controller'",
    )


def _check_broker_only(config: BrokerConfig) -> None:
    # the words are Apache Kafka's: operators search for them
    voter_ids, key = set(config.quorum_voters), "controller.listener.names"
    _require(
        config.node_id not in voter_ids,
        "controller.quorum.voters",
        config,
        f"If process.roles contains just the 'broker' role, the node id {config.node_id} must not be included in the "
        f"set of voters controller.quorum.voters={_shown(voter_ids)}",
    )
    _require(
        not config.controller_listeners,
        key,
        config,
        f"{key} must not contain a value appearing in the 'listeners' configuration when running KRaft with just the "
        "broker role",
    )
    for name in config.controller_listener_names:
        _require(
            name.upper() in config.listener_protocols,
            key,
            config,
            f"Controller listener with name {name.upper()} defined in {key} not found in "
            "listener.security.protocol.map  (an explicit security mapping for each controller listener is required "
            "if listener.security.protocol.map is non-empty, or if there are security protocols other than PLAINTEXT "
            "in use)",
        )
    auto_join_key = "controller.quorum.auto.join.enable"
    _require(
        not config.value(auto_join_key),
        auto_join_key,
        config,
        f"{auto_join_key} is only supported when process.roles contains the 'controller' role.",
    )


def _check_broker_listeners(config: BrokerConfig) -> None:
    advertised = [endpoint.listener for endpoint in config.advertised_listeners]
    bound = [endpoint.listener for endpoint in config.listeners]
    _require(
        bool(advertised),
        "advertised.listeners",
        config,
        "There must be at least one broker advertised listener. Perhaps all listeners appear in "
        "controller.listener.names?",
    )
    _require(
        config.inter_broker_listener_name in advertised,
        "inter.broker.listener.name",
        config,
        "inter.broker.listener.name must be a listener name defined in advertised.listeners. The valid options based "
        f"on currently configured listeners are {','.join(advertised)}",
    )
    _require(
        set(advertised) <= set(bound),
        "advertised.listeners",
        config,
        "advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. Found "
        f"{','.join(advertised)}. The valid options based on the current configuration are {','.join(bound)}",
    )


def _check_cordoned_log_dirs(config: BrokerConfig) -> None:
    key = "cordoned.log.dirs"
    cordoned = config.value(key)
    assert isinstance(cordoned, tuple)
    if "*" in cordoned:
        _require(len(cordoned) == 1, key, config, f"When {key} is set to *, it must not contain other values")
        return
    missing = [directory for directory in cordoned if directory not in config.log_dirs]
    _require(
        not missing,
        key,
        config,
        f"All entries in {key} must be present in log.dirs or log.dir. Missing entries : {', '.join(missing)}",
    )


def _check_advertised_hosts(config: BrokerConfig) -> None:
    endpoints = (*config.advertised_listeners, *config.advertised_controller_listeners)
    _require(
        all(endpoint.host != WILDCARD_HOST for endpoint in endpoints),
        "advertised.listeners",
        config,
        "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address.",
    )


def _check_early_start_listeners(config: BrokerConfig) -> None:
    key = "early.start.listeners"
    names = config.value(key)
    bound = {endpoint.listener for endpoint in config.listeners}
    for name in names if isinstance(names, tuple) else ():
        _require(
            name in bound,
            key,
            config,
            f"{key} contains listener {name}, but this is not contained in listeners or controller.listener.names",
        )


def _check_authorizer(config: BrokerConfig) -> None:
    """Only Kafka's own class names are accepted, since no class is loaded by name; any other stops the start."""
    _require(
        config.security.authorizer_class_name in ("", STANDARD_AUTHORIZER),
        "authorizer.class.name",
        config,
        f"authorizer.class.name can only be {STANDARD_AUTHORIZER}: no other authorizer is known here",
    )
    _require(
        config.security.principal_builder_class == DEFAULT_PRINCIPAL_BUILDER,
        "principal.builder.class",
        config,
        f"principal.builder.class can only be {DEFAULT_PRINCIPAL_BUILDER}: no other builder is known here",
    )
    _require(
        not config.value("client.quota.callback.class"),
        "client.quota.callback.class",
        config,
        "client.quota.callback.class must be unset: no class is known here that could decide on quotas",
    )
    key = "group.streams.topology.description.plugin.class"
    _require(not config.value(key), key, config, f"{key} must be unset: no class is known here that could be loaded")
    for user in config.security.super_users.split(";"):
        _require(
            not user.strip() or ":" in user,
            "super.users",
            config,
            f"super.users: expected a string in format principalType:principalName but got {user.strip()}",
        )


def _check_replica_selector(config: BrokerConfig) -> None:
    """Only the class name that Kafka 4.4.0 provides is accepted (KIP-392); any other stops the start."""
    _require(
        config.replication.replica_selector_class in (None, RACK_AWARE_SELECTOR),
        "replica.selector.class",
        config,
        f"replica.selector.class can only be {RACK_AWARE_SELECTOR}: no other selector is known here",
    )


def _check_security(config: BrokerConfig) -> None:
    _require(
        not config.security.security_providers,
        "security.providers",
        config,
        "security.providers names classes, which cannot be loaded here",
    )
    if config.inter_broker_security_protocol not in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL):
        return
    key = "sasl.mechanism.inter.broker.protocol"
    enabled = config.listener_value(config.inter_broker_listener_name, "sasl.enabled.mechanisms")
    assert isinstance(enabled, tuple)
    _require(
        config.value(key) in enabled,
        key,
        config,
        f"{key} must be included in sasl.enabled.mechanisms when SASL is used for inter-broker communication",
    )


NODE_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
"""The SASL mechanisms by which nodes can log in to each other."""


def _check_node_logins(config: BrokerConfig) -> None:
    """Check that a node of a larger cluster can log in to the other nodes.

    Deviation: Apache Kafka also supports GSSAPI, and starts several controllers that log in to each other by SCRAM.
    Here both stop the start, because GSSAPI is not there, and such controllers wait for ever: the credentials are in
    the metadata, which needs an elected leader.
    """
    if config.is_only_controller:
        return
    for listener in (*config.controller_listener_names[:1], *([config.inter_broker_listener_name] * config.is_broker)):
        is_controllers = listener in config.controller_listener_names
        key = f"sasl.mechanism.{'controller' if is_controllers else 'inter.broker'}.protocol"
        mechanism = config.value(key)
        if not config.listener_protocols[listener.upper()].uses_sasl:
            continue
        known = ", ".join(NODE_MECHANISMS)
        _require(mechanism in NODE_MECHANISMS, key, config, f"{key}: nodes log in to each other by one of {known} here")
        _require(
            not (is_controllers and config.is_controller and str(mechanism).startswith("SCRAM-")),
            key,
            config,
            f"{key}: SCRAM credentials are in the metadata, which controllers have only once they have elected a "
            "leader: use PLAIN or SSL with ssl.client.auth=required between them",
        )


def _check_connections(config: BrokerConfig) -> None:
    queued_bytes = _int(config, "queued.max.request.bytes")
    _require(
        queued_bytes <= 0 or queued_bytes >= _int(config, "socket.request.max.bytes"),
        "queued.max.request.bytes",
        config,
        "queued.max.request.bytes must be larger or equal to socket.request.max.bytes",
    )
    overrides = connections_per_ip_overrides(config)
    _require(
        _int(config, "max.connections.per.ip") != 0 or bool(overrides),
        "max.connections.per.ip",
        config,
        "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set.",
    )
    delay_ms, idle_ms = (
        _int(config, "connection.failed.authentication.delay.ms"),
        _int(config, "connections.max.idle.ms"),
    )
    _require(
        idle_ms < 0 or delay_ms < idle_ms,
        "connection.failed.authentication.delay.ms",
        config,
        f"connection.failed.authentication.delay.ms={delay_ms} should always be less than "
        f"connections.max.idle.ms={idle_ms} to prevent failed authentication responses from timing out",
    )


def connections_per_ip_overrides(config: BrokerConfig) -> dict[str, int]:
    """Return host or address -> connection limit from max.connections.per.ip.overrides. Raises ConfigRuleError."""
    key = "max.connections.per.ip.overrides"
    text = config.value(key)
    assert isinstance(text, str)
    overrides = {}
    for pair in filter(None, map(str.strip, text.split(","))):
        host, colon, count = pair.rpartition(":")
        _require(bool(colon), key, config, f"{key}: {pair} is not of the form host:count")
        _require(
            HOST_AND_PORT.fullmatch(f"{host}:1") is not None, key, config, f"{key} contains invalid addresses : {host}"
        )
        _require(_is_count(count.strip()), key, config, f"{key}: {count} in {pair} is not a number of connections")
        overrides[host.strip().removeprefix("[").removesuffix("]")] = int(count)
    return overrides


def _is_count(text: str) -> bool:
    """Whether it is a number from 0 to the largest int32, as which Apache Kafka reads it."""
    return text.isdecimal() and len(text) <= len(str(INT32_MAX)) and int(text) <= INT32_MAX


def _check_group_protocols(config: BrokerConfig) -> None:
    key = "group.coordinator.rebalance.protocols"
    protocols = config.value(key)
    assert isinstance(protocols, tuple)
    _require("classic" in protocols, key, config, "Disabling the 'classic' protocol is not supported.")
    key = "group.streams.assignors"
    _require(config.value(key) == ("sticky",), key, config, f"{key}: sticky is the only assignor that is known here")
    for key, known in _ASSIGNORS.items():
        classes = {f"org.apache.kafka.coordinator.group.assignor.{name.capitalize()}Assignor" for name in known}
        named = config.value(key)
        assert isinstance(named, tuple)
        other = next((name for name in named if name not in {*known, *classes}), None)
        _require(other is None, key, config, f"{key}: {other} is not known here, only {' and '.join(known)}")


_WRITTEN_BY_ALL: Final = (
    (
        "transaction.state.log",
        "no transaction can be coordinated, and transactional producers wait until their time-out",
    ),
    ("share.coordinator.state.topic", "no state of a queue can be kept, and share consumers get no records"),
)
"""What follows if the topic of a coordinator needs each of its replicas in sync, and one of them is not."""


def _warnings(config: BrokerConfig) -> Iterator[str]:
    heartbeat_ms, session_ms = _int(config, "broker.heartbeat.interval.ms"), _int(config, "broker.session.timeout.ms")
    if heartbeat_ms * 2 > session_ms:
        yield (
            f"broker.heartbeat.interval.ms ({heartbeat_ms} ms) must be less than or equal to half of the "
            f"broker.session.timeout.ms ({session_ms} ms), else a broker that misses one heartbeat loses its lease"
        )
    if not config.is_controller and len(config.controller_listener_names) > 1:
        yield "controller.listener.names has several entries; a broker uses the first only"
    for prefix, consequence in _WRITTEN_BY_ALL:
        factor_key, min_isr_key = f"{prefix}.replication.factor", f"{prefix}.min.isr"
        factor, min_isr = _int(config, factor_key), _int(config, min_isr_key)
        if min_isr > factor > 1:
            yield (
                f"{min_isr_key} ({min_isr}) is more than {factor_key} ({factor}) and counts as {factor}: "
                f"while one of {factor} replicas is away, {consequence}"
            )
    if config.value("remote.log.storage.system.enable"):
        yield (
            "remote.log.storage.system.enable has no effect: tiered storage is not supported, all records stay in "
            "log.dirs. Set it to false"
        )
    if "group.coordinator.rebalance.protocols" in config.originals:
        yield "group.coordinator.rebalance.protocols is deprecated and will be removed in Kafka 5.0"


def _shown(voter_ids: set[int]) -> str:
    return f"Set({', '.join(map(str, sorted(voter_ids)))})"
