"""Topics that come into being because somebody asked for them (auto.create.topics.enable; internal topics).

Where another node is the active controller, a client's topics go to it in an Envelope with the client's principal;
internal ones, which a coordinator needs, as the broker's own request. So do Apache Kafka's brokers. A client's
topics count for its controller_mutation_rate as if it had asked by CreateTopics, which refuses what is beyond.
"""

import logging
from collections.abc import Sequence

from kafkapy.errors import ApiError
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.metadata.limits import count_none
from kafkapy.metadata.topics import INTERNAL_TOPICS
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
    """Have the controller create the topics for a client, without waiting for it; what fails is logged.

    One that another broker is already creating fails with TOPIC_ALREADY_EXISTS, which is no news.
    """
    # Kafka's brokers create __share_group_state themselves; here nothing uses it yet.
    under_way = services.topics_in_creation
    wanted = under_way.begin(name for name in names if name not in INTERNAL_TOPICS or name in _INTERNAL)
    if not wanted:
        return
    request = CreateTopicsRequest(topics=[creatable_topic(services, name) for name in wanted])

    def on_done(response: CreateTopicsResponse | BaseException) -> None:
        under_way.end(wanted)
        _log_failures(response)

    if services.active_controller.is_local:
        meter = context.meter
        count = count_none if meter is None else meter.mutations_apart(is_strict=True)
        services.active_controller.ask_soon(
            request,
            lambda controller, _: controller.topics.decide_create(request, count_partitions=count),
            on_done,
        )
        return
    from kafkapy.handlers.forwarding import forward_once  # a node alone forwards nothing

    header = RequestHeader(
        CREATE_TOPICS, APIS[CREATE_TOPICS].max_stable_version, context.correlation_id, context.client_id
    )
    under_way.run(forward_once(services, RequestContext(header, context.connection), request), on_done)


async def create_topic(services: Services, name: str) -> None:
    """Have the controller create the topic and wait until the metadata has it; what fails is logged."""
    request = CreateTopicsRequest(topics=[creatable_topic(services, name)])
    try:
        response = await services.active_controller.ask(
            request, lambda controller, _: controller.topics.decide_create(request)
        )
        _log_failures(response)
    except ApiError as error:
        _log_failures(error)


def creatable_topic(services: Services, name: str) -> CreatableTopic:
    """Return how a topic is created when only its name is known: what is set here counts, else the controller's."""
    if name == GROUP_METADATA_TOPIC:
        return _group_metadata_topic(services)
    if name == TRANSACTION_STATE_TOPIC:
        return _transaction_state_topic(services)
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
    return CreatableTopic(
        name=GROUP_METADATA_TOPIC,
        num_partitions=config.offsets_topic_num_partitions,
        replication_factor=config.offsets_topic_replication_factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
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
    return CreatableTopic(
        name=TRANSACTION_STATE_TOPIC,
        num_partitions=config.transaction_state_log_num_partitions,
        replication_factor=config.transaction_state_log_replication_factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )


_INTERNAL = frozenset((GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC))


def _log_failures(response: CreateTopicsResponse | BaseException) -> None:
    if isinstance(response, BaseException):
        log.warning("Topics were not created by themselves: %s", response)
        return
    for topic in response.topics:
        if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            name = ErrorCode(topic.error_code).name
            log.warning("Topic %s was not created by itself: %s (%s)", topic.name, name, topic.error_message)
