"""AddPartitionsToTxn 0-5: add partitions to a transaction, all or none.

Clients send 0-3. v2: PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH. Brokers send 4 and 5, for several transactions;
with verify_only they only check whether partitions were added (KIP-890). If a partition cannot be added, it gets its
error code and the transaction's other partitions get OPERATION_NOT_ATTEMPTED.
"""

from collections.abc import Mapping
from typing import Final

from kafkapy.errors import ApiError
from kafkapy.handlers.cluster_access import check_cluster
from kafkapy.handlers.cluster_view import is_internal
from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.handlers.data_plane import TopicAccess
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTransaction,
)
from kafkapy.protocol.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from kafkapy.security.authorizer import AclOperation, ResourceType
from kafkapy.types import TopicPartition

FROM_BROKERS_SINCE: Final = 4


async def handle(
    services: Services, context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    if context.api_version < FROM_BROKERS_SINCE:
        only = AddPartitionsToTxnTransaction(
            request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            verify_only=False,
            topics=request.v3_and_below_topics,
        )
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=_topic_results(await _codes(services, context, only))
        )
    check_cluster(services, context, AclOperation.CLUSTER_ACTION)
    transactions = walk(services, context).over(request.transactions)
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                each.transactional_id, topic_results=_topic_results(await _codes(services, context, each))
            )
            async for each in transactions
        ]
    )


async def _codes(
    services: Services, context: RequestContext, transaction: AddPartitionsToTxnTransaction
) -> Mapping[TopicPartition, int]:
    """Return an error code for each partition of one transaction."""
    partitions = [
        TopicPartition(topic.name, partition) for topic in transaction.topics for partition in topic.partitions
    ]
    if context.api_version < FROM_BROKERS_SINCE and not services.authorizer.authorize(
        context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transaction.transactional_id
    ):
        return dict.fromkeys(partitions, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    refused = _refused(services, context, partitions)
    if refused:
        return {each: refused.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED) for each in partitions}
    if not transaction.transactional_id:
        return dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)
    try:
        return await _decide(services, context.api_version, transaction, partitions)
    except ApiError as error:
        return dict.fromkeys(partitions, error.code)


def _refused(
    services: Services, context: RequestContext, partitions: list[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Return the error codes of partitions that the client may not write, or that do not exist."""
    is_from_client = context.api_version < FROM_BROKERS_SINCE
    names = (topic for topic, _ in partitions if not is_internal(topic))
    access = TopicAccess(services, context, AclOperation.WRITE, names) if is_from_client else None
    topics = services.metadata.image.topics
    refused = {}
    for topic_partition in partitions:
        if access is not None and (is_internal(topic_partition.topic) or not access.allows(topic_partition.topic)):
            refused[topic_partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topics.partition(*topic_partition) is None:
            refused[topic_partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return refused


async def _decide(
    services: Services,
    version: int,
    transaction: AddPartitionsToTxnTransaction,
    partitions: list[TopicPartition],
) -> Mapping[TopicPartition, int]:
    transactional_id = transaction.transactional_id
    producer_id, producer_epoch = transaction.producer_id, transaction.producer_epoch
    if transaction.verify_only:
        return await services.transactions.read(
            transactional_id,
            lambda shard: shard.verify_partitions(transactional_id, producer_id, producer_epoch, partitions),
        )
    code: int = await services.transactions.decide(
        transactional_id,
        lambda shard, now_ms: shard.add_partitions(
            transactional_id, producer_id, producer_epoch, partitions, version, now_ms
        ),
    )
    return dict.fromkeys(partitions, code)


def _topic_results(codes: Mapping[TopicPartition, int]) -> list[AddPartitionsToTxnTopicResult]:
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    for (topic, partition), code in codes.items():
        result = topics.setdefault(topic, AddPartitionsToTxnTopicResult(topic, results_by_partition=[]))
        result.results_by_partition.append(
            AddPartitionsToTxnPartitionResult(partition_index=partition, partition_error_code=code)
        )
    return list(topics.values())
