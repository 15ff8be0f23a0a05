"""Automatic topic creation: for clients (auto.create.topics.enable), of internal, dead-letter and streams' topics.

If another node is the active controller, the topics of a client are created by an Envelope with the client's principal,
and internal topics, which a coordinator needs, by the broker's own request. Apache Kafka's brokers do the same. A
client's topics count for its controller_mutation_rate like those of CreateTopics: topics above the quota are refused.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kafkapy.errors import ApiError
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.metadata.limits import charge_none
from kafkapy.metadata.topic_names import INTERNAL_TOPICS, SHARE_STATE_TOPIC
from kafkapy.protocol.api import APIS
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.headers import RequestHeader
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kafkapy.protocol.messages.create_topics_response import CreateTopicsResponse

GROUP_METADATA_TOPIC = "__consumer_offsets"
NUM_PARTITIONS = "num.partitions"
REPLICATION_FACTOR = "default.replication.factor"
CREATE_TOPICS = 19
TRANSACTION_STATE_TOPIC = "__transaction_state"

log = logging.getLogger(__name__)


def create_topics_soon(services: Services, context: RequestContext, names: Sequence[str]) -> None:
    """Start the creation of topics for a client, without waiting for it. Failures are logged.

    TOPIC_ALREADY_EXISTS is not logged: another broker created the topic at the same time.
    """
    possible = (name for name in names if name not in INTERNAL_TOPICS or name in _INTERNAL)
    wanted = services.topics_in_creation.begin(possible)
    if wanted:
        topics = [creatable_topic(services, name) for name in wanted]
        _send_soon(services, context, topics, lambda response: _log_failures(services, wanted, response))


def create_configured_topics_soon(
    services: Services,
    context: RequestContext,
    topics: Sequence[CreatableTopic],
    on_failed: Callable[[str, str], None],
) -> None:
    """Start the creation of these topics, with their configs. The caller has checked the right to create them.

    Topics in creation already are left out. `on_failed` gets the name of a topic that could not be created, and why.
    """
    wanted = services.topics_in_creation.begin(topic.name for topic in topics)
    if not wanted:
        return
    chosen = frozenset(wanted)

    def on_done(response: CreateTopicsResponse | BaseException) -> None:
        if isinstance(response, BaseException):
            failures = dict.fromkeys(wanted, str(response))
        else:
            failures = {
                topic.name: topic.error_message or ErrorCode(topic.error_code).name
                for topic in response.topics
                if topic.error_code
            }
        for name, reason in failures.items():
            on_failed(name, reason)

    _send_soon(services, context, [topic for topic in topics if topic.name in chosen], on_done)


def _send_soon(
    services: Services,
    context: RequestContext,
    topics: list[CreatableTopic],
    on_done: Callable[[CreateTopicsResponse | BaseException], None],
) -> None:
    """Send CreateTopics without waiting. On its response unmark the topics and call `on_done`."""
    under_way = services.topics_in_creation
    request = CreateTopicsRequest(topics=topics)

    def end(response: CreateTopicsResponse | BaseException) -> None:
        under_way.end(topic.name for topic in topics)
        on_done(response)

    if services.active_controller.is_local:
        meter = context.meter
        charge = charge_none if meter is None else meter.mutations_of_auto_creation(is_strict=True)
        services.active_controller.send_request_soon(
            request,
            lambda controller, _: controller.topics.decide_create(request, charge_partitions=charge),
            end,
        )
        return
    from kafkapy.handlers.forwarding import forward_once  # imported late: a single node forwards nothing

    header = RequestHeader(
        CREATE_TOPICS, APIS[CREATE_TOPICS].max_stable_version, context.correlation_id, context.client_id
    )
    forwarding = forward_once(services, RequestContext(header, context.connection), request)
    under_way.run(forwarding, end)


async def create_topic(services: Services, name: str) -> None:
    """Create a topic and wait until the metadata has it. Failures are logged."""
    request = CreateTopicsRequest(topics=[creatable_topic(services, name)])
    try:
        response = await services.active_controller.send_request(
            request, lambda controller, _: controller.topics.decide_create(request)
        )
        _log_failures(services, [name], response)
    except ApiError as error:
        _log_failures(services, [name], error)


async def create_dead_letter_topic(services: Services, name: str) -> tuple[int, str | None]:
    """Create a dead-letter topic of share groups; return error code and message."""
    request = dead_letter_topic_request(name)
    try:
        response = await services.active_controller.send_request(
            request, lambda controller, _: controller.topics.decide_create(request)
        )
    except ApiError as error:
        return error.code, error.message
    (created,) = response.topics
    return created.error_code, created.error_message


def dead_letter_topic_request(name: str) -> CreateTopicsRequest:
    """Return the request to create a dead-letter topic, with the controller's defaults."""
    configs = {"errors.deadletterqueue.group.enable": "true", "message.timestamp.type": "CreateTime"}
    return CreateTopicsRequest(topics=[_internal(name, -1, -1, configs)])


def creatable_topic(services: Services, name: str) -> CreatableTopic:
    """Return the request to create a topic by name, with this broker's defaults if set, else the controller's."""
    make = _INTERNAL.get(name)
    if make is not None:
        return make(services)
    given = services.config.originals
    partitions = services.config.node.num_partitions if NUM_PARTITIONS in given else -1
    factor = services.config.replication.default_replication_factor if REPLICATION_FACTOR in given else -1
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor)


def _group_metadata_topic(services: Services) -> CreatableTopic:
    config = services.config.group
    configs = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(config.offsets_topic_segment_bytes),
    }
    return _internal(
        GROUP_METADATA_TOPIC, config.offsets_topic_num_partitions, config.offsets_topic_replication_factor, configs
    )


def _transaction_state_topic(services: Services) -> CreatableTopic:
    config = services.config.transaction
    configs = {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": str(config.transaction_state_log_min_isr),
        "segment.bytes": str(config.transaction_state_log_segment_bytes),
        "unclean.leader.election.enable": "false",
    }
    return _internal(
        TRANSACTION_STATE_TOPIC,
        config.transaction_state_log_num_partitions,
        config.transaction_state_log_replication_factor,
        configs,
    )


def _share_state_topic(services: Services) -> CreatableTopic:
    config = services.config.share
    configs = {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "min.insync.replicas": str(config.share_coordinator_state_topic_min_isr),
        "retention.ms": "-1",
        "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
    }
    return _internal(
        SHARE_STATE_TOPIC,
        config.share_coordinator_state_topic_num_partitions,
        config.share_coordinator_state_topic_replication_factor,
        configs,
    )


def _internal(name: str, partition_count: int, replication_factor: int, configs: Mapping[str, str]) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partition_count,
        replication_factor=replication_factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )


_INTERNAL: Final[Mapping[str, Callable[[Services], CreatableTopic]]] = {
    GROUP_METADATA_TOPIC: _group_metadata_topic,
    TRANSACTION_STATE_TOPIC: _transaction_state_topic,
    SHARE_STATE_TOPIC: _share_state_topic,
}


def _log_failures(services: Services, names: Sequence[str], response: CreateTopicsResponse | BaseException) -> None:
    """Log the failures that are not logged yet: clients ask again until they give up."""
    under_way = services.topics_in_creation
    if isinstance(response, BaseException):
        if under_way.record_failure(", ".join(names), str(response)):
            log.warning("Auto topic creation failed for %s: %s", ", ".join(names), response)
        return
    for topic in response.topics:
        if topic.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            under_way.on_created(topic.name)
            continue
        reason = f"{ErrorCode(topic.error_code).name}: {topic.error_message}{_advice(topic.name, topic.error_code)}"
        if under_way.record_failure(topic.name, reason):
            log.warning("Auto topic creation failed for %s with error %s", topic.name, reason)


def _advice(name: str, code: int) -> str:
    """Return a log message if an internal topic lacks brokers: the effect on clients, and the remedy."""
    if code != ErrorCode.INVALID_REPLICATION_FACTOR or name not in _INTERNAL:
        return ""
    if name == GROUP_METADATA_TOPIC:
        waiting, key = "consumer groups", "offsets.topic.replication.factor"
    elif name == SHARE_STATE_TOPIC:
        waiting, key = "share consumers", "share.coordinator.state.topic.replication.factor"
    else:
        waiting, key = "transactional producers", "transaction.state.log.replication.factor"
    return f" Until then {waiting} wait until their time-out: start more brokers, or lower {key}."
