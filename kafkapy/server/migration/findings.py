"""Findings for a migration: what prevents a cluster's nodes from being replaced by kafkapy's, one by one.

A finding BLOCKS if kafkapy would refuse to start, or would not do what the cluster relies on. It WAITS if it resolves
itself. A NOTE does not affect whether the migration works.
"""

from collections.abc import Iterator
from enum import Enum
from typing import Final

from kafkapy.config.broker import BrokerConfig
from kafkapy.config.endpoints import SecurityProtocol
from kafkapy.config.load import base_key, load
from kafkapy.dataclass import dataclass
from kafkapy.errors import ConfigError, first_of
from kafkapy.handlers.table import BROKER_APIS
from kafkapy.metadata.features import unserved_levels
from kafkapy.protocol.api import APIS
from kafkapy.security.jaas import LOGIN_MODULES
from kafkapy.server.login.authentication import NAMED_CLASSES
from kafkapy.server.migration.survey import HIDDEN, OFFLINE, Broker, Survey, Topic
from kafkapy.server.tls.key_stores import TYPES

NAMES_SHOWN: Final = 5
SERVED_GROUPS: Final = frozenset({"", "classic", "consumer", "share", "streams", "unknown"})
SASL: Final = (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)
MIN_VOTERS: Final = 3
"""With fewer controllers, the loss of one leaves no majority."""

NOT_DONE: Final = {
    "alter.config.policy.class.name": "no policy is loaded: configs that it refuses would be accepted",
    "config.providers": "values of the form ${provider:path:key} are not resolved",
    "create.topic.policy.class.name": "no policy is loaded: topics that it refuses would be created",
    "remote.log.storage.system.enable": "there is no remote storage",
    "ssl.engine.factory.class": "no class is loaded",
}
"""Keys that a cluster relies on and kafkapy does not support, unless they have their value in HARMLESS."""
HARMLESS: Final = {
    "remote.log.storage.system.enable": "false",
    "ssl.engine.factory.class": "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory",
}
WITHOUT_EFFECT: Final = (
    "background.threads",
    "group.coordinator.threads",
    "kafka.metrics.",
    "metric.reporters",
    "remote.",
    "rlmm.config.",
    "rsm.config.",
    "sasl.kerberos.",
)
"""Keys that are accepted but have no effect here; one that ends with a dot is a prefix."""


class Kind(Enum):
    BLOCKS = "in the way"
    WAITS = "to be waited for"
    NOTE = "to know"


@dataclass(frozen=True, slots=True)
class Finding:
    """`remedy`: what to do about it, with the command if there is one."""

    kind: Kind
    subject: str
    text: str
    remedy: str = ""


def findings_of(survey: Survey) -> list[Finding]:
    """Return all findings about a cluster, blocking ones first."""
    found = [*_of_features(survey), *_of_nodes(survey), *_of_topics(survey), *_of_groups(survey)]
    for broker in survey.brokers:
        found += _of_broker(broker)
    found += _of_apis(survey)
    order = list(Kind)
    return sorted(found, key=lambda each: order.index(each.kind))


def findings_of_properties(subject: str, properties: dict[str, str]) -> list[Finding]:
    """Return the findings about one server.properties: whether kafkapy starts with it, and what it ignores."""
    try:
        config, warnings = load(properties)
    except ConfigError as error:
        return [Finding(Kind.BLOCKS, subject, str(error))]
    found = [*_of_logins(subject, config), *_of_stores(subject, config), *_of_keys(subject, properties)]
    notes = [text for text in warnings if not text.startswith(tuple(f"{key} " for key in NOT_DONE))]
    return [*found, *(Finding(Kind.NOTE, subject, text) for text in notes)]


# -- the cluster ------------------------------------------------------------------------------------------------------


def _of_features(survey: Survey) -> Iterator[Finding]:
    levels = next((broker.features for broker in survey.brokers if broker.features), {})
    unserved = dict(sorted(unserved_levels(levels).items()))  # as the page shows them, whatever the broker's order
    lowered = " ".join(f"--feature {name}={highest}" for name, (_, highest) in unserved.items())
    for name, (level, highest) in unserved.items():
        text = f"finalized at level {level}, kafkapy serves {highest} at most"
        remedy = f"kafka-features.sh --bootstrap-server HOST downgrade {lowered}"
        yield Finding(Kind.BLOCKS, f"feature {name}", text, remedy)


def _of_nodes(survey: Survey) -> Iterator[Finding]:
    if not survey.voters:
        yield Finding(
            Kind.BLOCKS, "quorum", "the brokers report no KRaft quorum: brokers that use ZooKeeper cannot be migrated"
        )
        return
    if survey.leader_id < 0:
        yield Finding(Kind.WAITS, "quorum", "no controller is active")
    for voter in survey.voters:
        if not voter.is_caught_up:
            yield Finding(Kind.WAITS, f"controller {voter.node_id}", "it has not caught up with the active one")
    for node_id in survey.fenced:
        remedy = f"start it, or forget it: kafka-cluster.sh unregister --bootstrap-server HOST --id {node_id}"
        yield Finding(Kind.WAITS, f"broker {node_id}", "registered, but not alive", remedy)
    if len(survey.voters) < MIN_VOTERS:
        text = f"{len(survey.voters)} of them vote: while one is exchanged there is no active controller"
        yield Finding(Kind.NOTE, "controllers", text, "add controllers first, or accept the pause")


def _of_topics(survey: Survey) -> Iterator[Finding]:
    remote = [topic.name for topic in survey.topics if topic.is_remote]
    if remote:
        text = "remote.storage.enable=true: kafkapy reads local segments only"
        yield Finding(Kind.BLOCKS, f"topics {_shown(remote)}", text, "disable remote storage for them first")
    partitions = [partition for topic in survey.topics for partition in topic.partitions]
    leaderless = [p.name for p in partitions if p.leader_id == OFFLINE]
    yield from _partitions(Kind.WAITS, leaderless, "without a leader")
    behind = [p.name for p in partitions if set(p.isr) != set(p.replicas)]
    yield from _partitions(Kind.WAITS, behind, "under-replicated")
    yield from _partitions(Kind.WAITS, survey.reassigned, "being reassigned", "let it end, or cancel it")
    single = [p.name for p in partitions if len(p.replicas) == 1]
    yield from _partitions(Kind.NOTE, single, "of one replica: away while their node is exchanged")
    tight = [p.name for topic in survey.topics for p in topic.partitions if _is_tight(topic, len(p.replicas))]
    text = "with as many replicas as min.insync.replicas: acks=all has to wait while a node is exchanged"
    yield from _partitions(Kind.NOTE, tight, text)


def _is_tight(topic: Topic, replica_count: int) -> bool:
    return 1 < replica_count <= topic.min_insync_replicas


def _partitions(kind: Kind, names: list[str], text: str, remedy: str = "") -> Iterator[Finding]:
    if names:
        yield Finding(kind, f"{len(names)} partitions", f"{text}: {_shown(names)}", remedy)


def _of_groups(survey: Survey) -> Iterator[Finding]:
    by_type: dict[str, list[str]] = {}
    for broker in survey.brokers:
        for group, group_type in broker.group_types.items():
            by_type.setdefault(group_type.lower(), []).append(group)
    for group_type, names in sorted(by_type.items()):
        if group_type not in SERVED_GROUPS:
            text = f"of a kind that kafkapy does not serve: {group_type}"
            yield Finding(Kind.BLOCKS, f"groups {_shown(sorted(names))}", text, "stop their members, delete them")
    if survey.subscriptions:
        text = f"nodes take the metrics of clients only if a key says where they go: {_shown(survey.subscriptions)}"
        remedy = "set kafkapy.admin.listener or kafkapy.telemetry.otlp.endpoint"
        yield Finding(Kind.NOTE, "client-metrics subscriptions", text, remedy)


def _of_apis(survey: Survey) -> Iterator[Finding]:
    apis = frozenset[int]().union(*(broker.apis for broker in survey.brokers))
    names = sorted(APIS[key].name for key in apis - BROKER_APIS.keys() if key in APIS)
    if names:
        yield Finding(Kind.NOTE, "requests", f"not served by kafkapy: {', '.join(names)}")


# -- a node -----------------------------------------------------------------------------------------------------------


def _of_broker(broker: Broker) -> Iterator[Finding]:
    subject = f"broker {broker.node_id}"
    if broker.problem:
        yield Finding(Kind.WAITS, subject, broker.problem)
        return
    for path in broker.offline_log_dirs:
        text = f"log directory {path} is offline"
        yield Finding(Kind.BLOCKS, subject, text, "mend it, and restart the broker before it is exchanged")
    yield from findings_of_properties(subject, dict(broker.properties))


def _of_logins(subject: str, config: BrokerConfig) -> Iterator[Finding]:
    """Yield the SASL mechanisms and classes of SASL listeners that are not supported."""
    for endpoint in config.listeners:
        if endpoint.security_protocol not in SASL:
            continue
        mechanisms = config.listener_value(endpoint.listener, "sasl.enabled.mechanisms")
        assert isinstance(mechanisms, tuple)
        for mechanism in mechanisms:
            if mechanism not in LOGIN_MODULES:
                text = f"listener {endpoint.listener}: SASL mechanism {mechanism} is not built"
                yield Finding(Kind.BLOCKS, subject, text, f"one of {', '.join(LOGIN_MODULES)}")
                continue
            yield from _of_classes(subject, config, endpoint.listener, mechanism)


def _of_classes(subject: str, config: BrokerConfig, listener: str, mechanism: str) -> Iterator[Finding]:
    for key, known in NAMED_CLASSES.items():
        named = config.listener_value(listener, key, mechanism=mechanism)
        if named is not None and (mechanism, named) not in known:
            yield Finding(Kind.BLOCKS, subject, f"listener {listener}: {key}={named}: no class is loaded")


def _of_stores(subject: str, config: BrokerConfig) -> Iterator[Finding]:
    for endpoint in config.listeners:
        if endpoint.security_protocol not in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL):
            continue
        for key in ("ssl.keystore.type", "ssl.truststore.type"):
            named = config.listener_value(endpoint.listener, key)
            if isinstance(named, str) and named.upper() not in TYPES:
                text = f"listener {endpoint.listener}: {key}={named} cannot be read"
                yield Finding(Kind.BLOCKS, subject, text, f"one of {', '.join(TYPES)}")


def _of_keys(subject: str, properties: dict[str, str]) -> Iterator[Finding]:
    for key, value in sorted(properties.items()):
        reason = NOT_DONE.get(base_key(key))
        if reason is not None and value not in ("", HARMLESS.get(base_key(key))):
            yield Finding(Kind.BLOCKS, subject, f"{key}={value}: {reason}")
    idle = [key for key in sorted(properties) if _is_without_effect(key)]
    if idle:
        yield Finding(Kind.NOTE, subject, f"without effect: {', '.join(idle)}")
    hidden = [key for key, value in properties.items() if value == HIDDEN and key.startswith("listener.name.")]
    if hidden:
        yield Finding(
            Kind.NOTE,
            subject,
            f"not checked, as brokers do not return the values: {', '.join(sorted(hidden))}",
            "--config FILE",
        )


def _is_without_effect(key: str) -> bool:
    if key in NOT_DONE:
        return False
    return any(key == each or (each.endswith(".") and key.startswith(each)) for each in WITHOUT_EFFECT)


def _shown(names: list[str]) -> str:
    return first_of(names, NAMES_SHOWN)
