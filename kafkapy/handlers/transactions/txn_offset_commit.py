"""TxnOffsetCommit 0-6: commit a group's offsets as part of a transaction.

First the `__consumer_offsets` partition is verified with the transaction coordinator, then the group checks the member.
The offsets are pending until the transaction's marker. v2: leader epochs; v3: member, generation and instance id
(KIP-447); v4: TRANSACTION_ABORTABLE; v5: adds the partition to the transaction (KIP-890). v6, as in Apache Kafka 4.4.0:
topics by id, UNKNOWN_TOPIC_ID, GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH (KIP-1319).
"""

from typing import Final

from kafkapy.errors import ApiError
from kafkapy.group.settings import OFFSETS_TOPIC
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.handlers.data_plane import TopicAccess, merge_topics
from kafkapy.metadata.image import TopicImage
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
)
from kafkapy.protocol.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kafkapy.record.batch import NO_SEQUENCE
from kafkapy.runtime.coordinators.transaction_verification import TransactionalProducer
from kafkapy.runtime.coordinators.writer import TransactionalWrite
from kafkapy.security.authorizer import AclOperation, ResourceType

LOADING_KNOWN_SINCE: Final = 2
"""Clients of older versions crash on COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""
ABORTABLE_SINCE: Final = 4
ADDING_SINCE: Final = 5
TOPIC_IDS_SINCE: Final = 6

_TRANSLATED: Final = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
"""Error codes of the verification, and what clients of the group coordinator get instead."""


async def handle(
    services: Services, context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    authorize = services.authorizer.authorize
    if not authorize(context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return _all_failed(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not authorize(context, AclOperation.READ, ResourceType.GROUP, request.group_id):
        return _all_failed(request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    refused = TxnOffsetCommitResponse()
    request.topics = _committable(services, context, request.topics, refused)
    if not request.topics:
        return refused
    try:
        response = await _commit(services, context, request)
    except ApiError as error:
        response = _all_failed(request, _as_client_knows(error.code, context.api_version))
    merge_topics(response.topics, refused.topics)
    return response


async def _commit(
    services: Services, context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    """Verify the partition with the transaction coordinator, then commit in the group. Raises ApiError."""
    if not request.group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID)
    write = await _verified(services, context, request)
    version = context.api_version
    response: TxnOffsetCommitResponse = await services.groups.call(
        request.group_id, lambda shard, token, now_ms: shard.offsets.commit_in_transaction(request, version), write
    )
    return response


async def _verified(services: Services, context: RequestContext, request: TxnOffsetCommitRequest) -> TransactionalWrite:
    partition_id = services.groups.partition_of(request.group_id)
    partitions = services.replica_manager.partitions
    partition = partitions.find(OFFSETS_TOPIC, partition_id)
    if partition is None:
        code = partitions.missing_code(OFFSETS_TOPIC, partition_id)
        raise ApiError(_TRANSLATED[ErrorCode(code)])
    producer = TransactionalProducer(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        adds_partitions=context.api_version >= ADDING_SINCE,
        knows_transaction_abortable=context.api_version >= ABORTABLE_SINCE,
    )
    verified = (await services.transaction_verification.verify(producer, {partition: NO_SEQUENCE}))[partition]
    if verified.code != ErrorCode.NONE:
        code = ErrorCode(verified.code)
        raise ApiError(_TRANSLATED.get(code, code))
    return TransactionalWrite(request.producer_id, request.producer_epoch, verified.guard)


def _as_client_knows(code: int, version: int) -> int:
    if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < LOADING_KNOWN_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


def _committable(
    services: Services,
    context: RequestContext,
    topics: list[TxnOffsetCommitRequestTopic],
    refused: TxnOffsetCommitResponse,
) -> list[TxnOffsetCommitRequestTopic]:
    """Return the topics, by name and existing partitions; add the errors of the others to `refused`.

    Older versions than TOPIC_IDS_SINCE commit without topic ids, as in Apache Kafka.
    """
    images = services.metadata.image.topics
    uses_ids = context.api_version >= TOPIC_IDS_SINCE
    if uses_ids:
        for topic in topics:
            found: TopicImage | None = images.by_id.get(topic.topic_id)
            topic.name = "" if found is None else found.name  # rights are by name, so the id is looked up first
    access = TopicAccess(services, context, AclOperation.READ, (topic.name for topic in topics))
    committable = []
    for topic in topics:
        image: TopicImage | None = images.by_name.get(topic.name)
        if uses_ids and not topic.name:
            refused.topics.append(_failed(topic, ErrorCode.UNKNOWN_TOPIC_ID))
            continue
        if not access.allows(topic.name):
            refused.topics.append(_failed(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        unknown = [each for each in topic.partitions if image is None or each.partition_index not in image.partitions]
        if unknown:
            of_unknown = TxnOffsetCommitRequestTopic(topic.name, topic_id=topic.topic_id, partitions=unknown)
            refused.topics.append(_failed(of_unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        known = [each for each in topic.partitions if image is not None and each.partition_index in image.partitions]
        if known:
            committable.append(TxnOffsetCommitRequestTopic(topic.name, topic_id=topic.topic_id, partitions=known))
    return committable


def _all_failed(request: TxnOffsetCommitRequest, code: int) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(topics=[_failed(topic, code) for topic in request.topics])


def _failed(topic: TxnOffsetCommitRequestTopic, code: int) -> TxnOffsetCommitResponseTopic:
    partitions = [
        TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
        for each in topic.partitions
    ]
    return TxnOffsetCommitResponseTopic(topic.name, topic_id=topic.topic_id, partitions=partitions)
