"""Builds what writes the dead letters of a broker's share groups, when the first share partition is used."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kafkapy.config.share import ShareConfig
from kafkapy.errors import ConfigError
from kafkapy.handlers.data.own_produce import write_own
from kafkapy.handlers.topics.auto_create import create_dead_letter_topic, dead_letter_topic_request
from kafkapy.runtime.broker_channels import BrokerChannels
from kafkapy.runtime.share.dead_letter_outbox import DeadLetterOutbox, Destination, Outcome
from kafkapy.runtime.share.dead_letters import DeadLetters, LetterParts

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.handlers.context import Services
    from kafkapy.metrics.shares import ShareCounts
    from kafkapy.runtime.peer import Peer
    from kafkapy.seams import Random


NO_DEAD_LETTERS: Final = frozenset(("", "org.apache.kafka.server.share.dlq.NoOpShareGroupDLQManager"))


def has_dead_letters(config: ShareConfig) -> bool:
    """Whether dead letters are written at all; else what is given up is archived without one, as in Apache Kafka."""
    return config.group_share_dlq_manager_class_name not in NO_DEAD_LETTERS


def can_log_in(config: "BrokerConfig", random: "Random") -> bool:
    """Whether this broker can log in to its own listener, or need not: else ACLs have no principal to be about."""
    listener = config.inter_broker_listener_name
    mechanism = config.security.sasl_mechanism_inter_broker_protocol
    if not config.listener_protocols[listener].uses_sasl or mechanism == "OAUTHBEARER":
        return True
    from kafkapy.server.login.node_login import node_login  # most brokers have no authorizer

    try:
        node_login(config, listener, mechanism, random)
    except ConfigError:
        return False
    return True


def new_dead_letters(
    services: "Services", new_peer: "Callable[[str, int], Peer]", counts: "ShareCounts | None" = None
) -> DeadLetters:
    """Return the DeadLetters of a broker. `new_peer` makes a connection to another node; `counts`: the metrics."""
    config = services.dynamic_config
    partitions = services.replica_manager.partitions
    is_guarded = not services.authorizer.allows_everything and can_log_in(config.current, services.random)
    outbox = _new_outbox(services, new_peer, is_guarded=is_guarded)

    async def create(topic: str) -> Outcome:
        if is_guarded:
            return await outbox.create_topic(dead_letter_topic_request(topic))
        return Outcome(*await create_dead_letter_topic(services, topic))

    return DeadLetters(
        LetterParts(
            image=lambda: partitions.newest_image,
            config=lambda: config.current.share,
            message_max_bytes=lambda: config.current.node.message_max_bytes,
            replica_manager=services.replica_manager,
            create_topic=create,
            outbox=outbox,
            listener_name=config.static.inter_broker_listener_name,
            clock=services.clock,
            random=services.random,
            io_pool=services.io_pool,
            counts=counts,
        )
    )


def _new_outbox(services: "Services", new_peer: "Callable[[str, int], Peer]", *, is_guarded: bool) -> DeadLetterOutbox:
    """Return what sends dead letters; if the cluster is guarded, also those that this broker could write itself."""
    partitions, config = services.replica_manager.partitions, services.dynamic_config.static

    async def write_here(destination: Destination, batch: bytes, timeout_ms: int) -> Outcome:
        return Outcome(*await write_own(services, destination.topic_id, destination.partition, batch, timeout_ms))

    def new_channels() -> BrokerChannels:
        # a dead-letter topic's leader may be this node or another: the newest image is asked for each batch
        return BrokerChannels(
            image=lambda: partitions.newest_image,
            listener_name=config.inter_broker_listener_name,
            new_peer=new_peer,
        )

    write = None if is_guarded else write_here
    return DeadLetterOutbox(services.node_id, write, new_channels, config.node.request_timeout_ms)
