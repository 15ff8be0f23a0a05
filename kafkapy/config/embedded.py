"""The default configuration of `kafkapy start` without a file, and of `kafkapy.Broker`.

One node that is broker and controller, on loopback. Internal topics have one replica, because there is one broker, and
a consumer group's first rebalance has no delay. Every key may be overridden.
"""

from collections.abc import Mapping
from typing import Final

from kafkapy.config.endpoints import SecurityProtocol

EMBEDDED_NODE_ID: Final = 1
CONTROLLER_LISTENER: Final = "CONTROLLER"

PROTOCOL_MAP: Final = ",".join(
    (f"{CONTROLLER_LISTENER}:PLAINTEXT", *(f"{name}:{name}" for name in SecurityProtocol.__members__))
)
"""Set because Kafka's default maps the controller listener only if no other listener is secured."""

ONE_NODE_DEFAULTS: Final[Mapping[str, str]] = {
    "process.roles": "broker,controller",
    "controller.listener.names": CONTROLLER_LISTENER,
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}

INTER_BROKER_KEYS: Final = frozenset({"inter.broker.listener.name", "security.inter.broker.protocol"})


def embedded_properties(
    data_dir: str,
    port: int = 9092,
    overrides: Mapping[str, str] | None = None,
    *,
    node_id: int = EMBEDDED_NODE_ID,
    has_static_voters: bool = False,
) -> dict[str, str]:
    """Return the properties of an embedded node with the log directory `data_dir`; `overrides` take precedence.

    Port 0 means any free port. The controller listener has port 0, since no other node connects to it; `listeners` in
    `overrides` may omit it. If the directory's quorum was formatted with static voters (kraft.version 0), they must be
    in the configuration, too (has_static_voters).
    """
    quorum_key = "controller.quorum.voters" if has_static_voters else "controller.quorum.bootstrap.servers"
    controller = f"{CONTROLLER_LISTENER}://127.0.0.1:0"
    properties = {
        **ONE_NODE_DEFAULTS,
        "listener.security.protocol.map": PROTOCOL_MAP,
        "node.id": str(node_id),
        "listeners": f"PLAINTEXT://127.0.0.1:{port},{controller}",
        quorum_key: f"{node_id}@127.0.0.1:0" if has_static_voters else "127.0.0.1:0",
        "log.dirs": data_dir,
        **(overrides or {}),
    }
    # an override of `listeners` is about clients: the controller's is added, and the first of theirs serves this node
    names = [listener.partition("://")[0].strip() for listener in properties["listeners"].split(",")]
    if properties["controller.listener.names"] == CONTROLLER_LISTENER and CONTROLLER_LISTENER not in names:
        properties["listeners"] += f",{controller}"
    if "PLAINTEXT" not in names and INTER_BROKER_KEYS.isdisjoint(overrides or {}):
        properties["inter.broker.listener.name"] = names[0]
    return properties
