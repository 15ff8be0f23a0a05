"""Metadata 0-13: brokers, topics, partitions, leaders; may create topics that do not exist.

v0: an empty list of topics means all; an offline replica gives REPLICA_NOT_AVAILABLE. v1: null means all, empty none;
controller id, internal flag. v4: allow_auto_topic_creation. v5: offline replicas. v6: LISTENER_NOT_FOUND. v7: leader
epochs. v8-10: cluster authorized operations, v8: topic authorized operations. v9: flexible; clients trust leader epochs
from here on. v10: topic ids in responses. v12: topics requested by id (KIP-516). v13: top-level error code.

A topic that this request creates is answered with UNKNOWN_TOPIC_OR_PARTITION, as in Apache Kafka: clients retry.
"""

import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from kafkapy.errors import ApiError
from kafkapy.handlers.cluster_view import (
    ClusterView,
    endpoint_of,
    is_internal,
    missing_topic_error,
    random_alive_broker,
)
from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.handlers.data_plane import TopicAccess
from kafkapy.handlers.encoded_responses import EncodedResponse
from kafkapy.handlers.stale_metadata import check_metadata_current
from kafkapy.handlers.topics.auto_create import create_topics_soon
from kafkapy.handlers.topics.topic_pieces import PIECE_TOPICS, TopicPieces
from kafkapy.metadata.image import MetadataImage, TopicImage
from kafkapy.metadata.registrations import PartitionRegistration
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.metadata_request import MetadataRequest
from kafkapy.protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafkapy.runtime.pool import run_in_pool
from kafkapy.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType, authorized_operations
from kafkapy.types import ZERO_UUID, Uuid

logger = logging.getLogger(__name__)

SMALL_COUNT: Final = 1_000
"""Topics and partitions that may be encoded on the event loop at once: a partition takes 3 us."""
PIECE_WEIGHT: Final = 200
"""Topics and partitions that are encoded together: they take about a millisecond."""
MAX_CREATED: Final = 5_000
"""The number of topics that one request may create: with a partition each, they take the 10,000 records of one change.

If more are missing, none is created: Apache Kafka's controller would refuse such a change.
"""


def prepare(services: Services, context: RequestContext, request: MetadataRequest) -> None:
    """Prepare a large request before it is split: drop duplicates, and limit the topics to create."""
    topics = list({(topic.name, topic.topic_id): topic for topic in request.topics or ()}.values())
    if context.api_version >= 12 and any(topic.topic_id != ZERO_UUID for topic in topics):
        topics = [topic for topic in topics if topic.topic_id != ZERO_UUID]  # names only count if no topic has an id
    request.topics = topics
    if _may_be_created(services, request):
        known = services.metadata.image.topics.by_name
        missing_count = sum(topic.name not in known for topic in topics)
        if missing_count > MAX_CREATED:
            logger.warning(
                "Not creating topics for connection %s: its request names %d that do not exist, more than the %d that "
                "one request may create",
                context.connection_id,
                missing_count,
                MAX_CREATED,
            )
            request.allow_auto_topic_creation = False


async def handle(
    services: Services, context: RequestContext, request: MetadataRequest
) -> MetadataResponse | EncodedResponse:
    check_metadata_current(services)
    try:
        _check(context, request)
    except ApiError as error:
        return _failed(request, ErrorCode(error.code))
    image = services.metadata.image
    if not _is_for_all(context, request):
        access = TopicAccess(services, context, AclOperation.DESCRIBE)
        response = _head(services, context, request, image, random_alive_broker(image.cluster, services.random))
        unfilled: list[tuple[MetadataResponseTopic, TopicImage]] = []
        response.topics = _topics(services, context, request, image, access, unfilled)
        if unfilled:
            await _fill(services, context, image, unfilled)
        return response
    return await _all_topics(services, context, request, image)


async def _all_topics(
    services: Services, context: RequestContext, request: MetadataRequest, image: MetadataImage
) -> EncodedResponse:
    """Return all topics that the client may describe; the same response as before, if it is cached."""
    authorizer, responses, version = services.authorizer, services.encoded_responses, context.api_version
    controller_id = random_alive_broker(image.cluster, services.random)
    who = () if authorizer.allows_everything else (context.principal, context.client_host)
    key = (context.listener_name, controller_id, *who)
    is_shared = _is_shared(request)
    if is_shared and not authorizer.logs_what_it_allows:
        found = responses.find(image, version, key)
        if found is not None:
            return found
    access = TopicAccess(services, context, AclOperation.DESCRIBE, log_if_denied=False)

    async def make() -> bytes:
        response = _head(services, context, request, image, controller_id)
        if _is_small(image):
            return await _with_all_topics(services, context, request, image, access, response)
        await responses.lane.enter(0, context.client)
        try:
            return await _with_all_topics(services, context, request, image, access, response)
        finally:
            responses.lane.leave(0)

    if not is_shared:
        return EncodedResponse(await make())
    if authorizer.logs_what_it_allows:
        await access.authorize_all(image.topics.by_name)  # each request has its lines in the audit log
    if _is_small(image):  # others rarely ask before it is made
        return responses.find(image, version, key) or responses.keep(image, version, key, await make())
    return await responses.get_or_make_in_turns(image, version, key, make)


async def _with_all_topics(
    services: Services,
    context: RequestContext,
    request: MetadataRequest,
    image: MetadataImage,
    access: TopicAccess,
    response: MetadataResponse,
) -> bytes:
    """Return the response with all topics that the client may describe, yielding to the event loop."""
    view = ClusterView(image.cluster, context.listener_name)
    pieces = TopicPieces(response, context.api_version)
    way = walk(services, context)
    topics: list[MetadataResponseTopic] = []
    weight = 0
    async for topic in way.over(image.topics.by_name.values()):
        if not access.allows(topic.name):
            continue
        described = _topic(view, topic, context, ())
        async for partition_id, partition in way.over(topic.partitions.items()):
            described.partitions.append(_partition(view, partition_id, partition, context.api_version))
        if request.include_topic_authorized_operations and context.api_version >= 8:
            _add_authorized_operations(services, context, [described])
        topics.append(described)
        weight += 1 + len(described.partitions)
        if weight >= PIECE_WEIGHT or len(topics) == PIECE_TOPICS:
            await _add_piece(services, pieces, topics, weight)
            topics, weight = [], 0
    await _add_piece(services, pieces, topics, weight)
    return pieces.joined()


async def _add_piece(services: Services, pieces: TopicPieces, topics: list[MetadataResponseTopic], weight: int) -> None:
    """Encode topics; a worker does it if one of them has so many partitions that it would hold the loop."""
    if weight <= SMALL_COUNT:
        pieces.add(topics)
    else:
        await run_in_pool(services.io_pool, lambda: pieces.add(topics))


def _is_small(image: MetadataImage) -> bool:
    """Whether all topics can be answered in a few milliseconds."""
    topics = image.topics.by_name
    return len(topics) <= SMALL_COUNT and sum(len(topic.partitions) for topic in topics.values()) <= SMALL_COUNT


def _is_shared(request: MetadataRequest) -> bool:
    """Whether a request for all topics has the same response for all clients of a listener with the same rights."""
    return not request.include_cluster_authorized_operations and not request.include_topic_authorized_operations


def _head(
    services: Services, context: RequestContext, request: MetadataRequest, image: MetadataImage, controller_id: int
) -> MetadataResponse:
    """Return the response without topics."""
    view = ClusterView(image.cluster, context.listener_name)
    response = MetadataResponse(
        brokers=_brokers(view, context.listener_name),
        cluster_id=services.cluster_id,
        controller_id=controller_id,
    )
    if 8 <= context.api_version <= 10 and request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = _cluster_operations(services, context)
    return response


def _is_for_all(context: RequestContext, request: MetadataRequest) -> bool:
    return request.topics is None or (context.api_version == 0 and not request.topics)


def _check(context: RequestContext, request: MetadataRequest) -> None:
    """Raise INVALID_REQUEST for null names and topic ids before v12: v10 and v11 have the fields but no support."""
    if context.api_version >= 12:
        return
    for topic in request.topics or ():
        if topic.name is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Topic name can not be null for version {context.api_version}")
        if topic.topic_id != ZERO_UUID:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"Topic IDs are not supported in requests for version {context.api_version}"
            )


def _failed(request: MetadataRequest, error: ErrorCode) -> MetadataResponse:
    topics = [_topic_error(topic.name or "", error, topic.topic_id) for topic in request.topics or ()]
    return MetadataResponse(error_code=error, topics=topics)


def _brokers(view: ClusterView, listener_name: str) -> list[MetadataResponseBroker]:
    brokers = []
    for broker in view.alive.values():
        host, port = endpoint_of(broker, listener_name)
        brokers.append(MetadataResponseBroker(node_id=broker.id, host=host, port=port, rack=broker.rack))
    return brokers


def _topics(
    services: Services,
    context: RequestContext,
    request: MetadataRequest,
    image: MetadataImage,
    access: TopicAccess,
    unfilled: list[tuple[MetadataResponseTopic, TopicImage]],
) -> list[MetadataResponseTopic]:
    """Return the responses for the topics that the request names.

    Topics that have more than SMALL_COUNT partitions together get none yet: `_fill` adds them. Then each response is
    put into `unfilled`, with its topic.
    """
    ids = list(dict.fromkeys(topic.topic_id for topic in request.topics or () if topic.topic_id != ZERO_UUID))
    names = _requested_names(request, image, ids)
    denied = access.denied(names)
    allowed = [name for name in names if access.allows(name)] if denied else names
    missing = [name for name in allowed if name not in image.topics.by_name]
    refused = _not_creatable(services, context, request, missing) if missing else []
    view = ClusterView(image.cluster, context.listener_name)
    found = [image.topics.by_name[name] for name in allowed if name in image.topics.by_name]
    if sum([len(topic.partitions) for topic in found]) <= SMALL_COUNT:
        topics = [_topic(view, topic, context) for topic in found]
    else:
        topics = [_topic(view, topic, context, ()) for topic in found]  # partitions follow in steps: others take turns
        unfilled += zip(topics, found, strict=True)
    topics += _missing(
        services, context, request, [name for name in missing if name not in refused] if refused else missing
    )
    if request.include_topic_authorized_operations and context.api_version >= 8:
        _add_authorized_operations(services, context, topics)
    # in the order of Apache Kafka's KafkaApis
    return [*_unknown_ids(image, ids), *topics, *_refused(refused), *_denied(image, denied, by_id=bool(ids))]


async def _fill(
    services: Services,
    context: RequestContext,
    image: MetadataImage,
    unfilled: Iterable[tuple[MetadataResponseTopic, TopicImage]],
) -> None:
    """Add the partitions to the responses that `_topics` left without, yielding to the event loop.

    The response of a request that has yielded is encoded by a worker.
    """
    view = ClusterView(image.cluster, context.listener_name)
    way = walk(services, context)
    for response, topic in unfilled:
        async for partition_id, partition in way.over(topic.partitions.items()):
            response.partitions.append(_partition(view, partition_id, partition, context.api_version))


def _requested_names(request: MetadataRequest, image: MetadataImage, ids: Sequence[Uuid]) -> list[str]:
    """Return each requested name once; if topics are requested by id, the names of those that exist."""
    if ids:
        return [image.topics.by_id[topic_id].name for topic_id in ids if topic_id in image.topics.by_id]
    return list(dict.fromkeys(topic.name for topic in request.topics or () if topic.name is not None))


def _add_authorized_operations(
    services: Services, context: RequestContext, topics: Iterable[MetadataResponseTopic]
) -> None:
    for topic in topics:
        topic.topic_authorized_operations = authorized_operations(
            services.authorizer, context, ResourceType.TOPIC, topic.name or ""
        )


def _unknown_ids(image: MetadataImage, ids: Iterable[Uuid]) -> list[MetadataResponseTopic]:
    unknown = [topic_id for topic_id in ids if topic_id not in image.topics.by_id]
    return [_topic_error(None, ErrorCode.UNKNOWN_TOPIC_ID, topic_id) for topic_id in unknown]


def _refused(names: Iterable[str]) -> list[MetadataResponseTopic]:
    """Return the responses for topics that the client may not create."""
    return [_topic_error(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for name in names]


def _topic(
    view: ClusterView,
    topic: TopicImage,
    context: RequestContext,
    partitions: Iterable[tuple[int, PartitionRegistration]] | None = None,
) -> MetadataResponseTopic:
    """Return the response for a topic, with `partitions` or, if None, all its partitions."""
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=[
            _partition(view, partition_id, partition, context.api_version)
            for partition_id, partition in (topic.partitions.items() if partitions is None else partitions)
        ],
    )


def _partition(
    view: ClusterView, partition_id: int, partition: PartitionRegistration, api_version: int
) -> MetadataResponsePartition:
    error = view.leader_error(partition, has_listener_error=api_version >= 6)
    replicas, isr = list(partition.replicas), list(partition.isr)
    if api_version == 0:
        replicas = [replica for replica in replicas if replica in view.alive]
        isr = [replica for replica in isr if replica in view.alive]
        has_all = len(replicas) == len(partition.replicas) and len(isr) == len(partition.isr)
        if error == ErrorCode.NONE and not has_all:
            error = ErrorCode.REPLICA_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=error,
        partition_index=partition_id,
        leader_id=view.leader_id(partition),
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=view.offline_replicas(partition),
    )


def _may_be_created(services: Services, request: MetadataRequest) -> bool:
    may_be_created = request.allow_auto_topic_creation and services.config.node.auto_create_topics_enable
    return may_be_created and request.topics is not None


def _not_creatable(
    services: Services, context: RequestContext, request: MetadataRequest, missing: Sequence[str]
) -> Collection[str]:
    """Return the missing topics that would be created if the client were authorized."""
    if not _may_be_created(services, request):
        return ()
    if services.authorizer.authorize(
        context, AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, log_if_denied=False
    ):
        return ()
    return dict.fromkeys(TopicAccess(services, context, AclOperation.CREATE).denied(missing))


def _missing(
    services: Services, context: RequestContext, request: MetadataRequest, names: Sequence[str]
) -> list[MetadataResponseTopic]:
    """Return the responses for missing topics, and start the creation of those that may be created."""
    if names and _may_be_created(services, request):
        create_topics_soon(
            services,
            context,
            [name for name in names if missing_topic_error(name) != ErrorCode.INVALID_TOPIC_EXCEPTION],
        )
    return [_topic_error(name, missing_topic_error(name)) for name in names]


def _denied(image: MetadataImage, names: Iterable[str], *, by_id: bool) -> list[MetadataResponseTopic]:
    """Return the responses for denied topics: no id if requested by name, no name if by id, so that neither leaks."""
    if by_id:
        ids = [image.topics.by_name[name].topic_id for name in names]
        return [_topic_error(None, ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic_id) for topic_id in ids]
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return [MetadataResponseTopic(error_code=error, name=name, topic_id=ZERO_UUID) for name in names]


def _topic_error(name: str | None, error: ErrorCode, topic_id: Uuid = ZERO_UUID) -> MetadataResponseTopic:
    internal = name is not None and is_internal(name)
    return MetadataResponseTopic(error_code=error, name=name, topic_id=topic_id, is_internal=internal)


def _cluster_operations(services: Services, context: RequestContext) -> int:
    if not services.authorizer.authorize(context, AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return authorized_operations(services.authorizer, context, ResourceType.CLUSTER, CLUSTER_NAME)
