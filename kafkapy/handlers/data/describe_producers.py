"""DescribeProducers 0: the producers of a partition that have not expired, with their open transactions. KIP-664.

Any replica answers, not only the leader. Needs READ on the topic. Used to find hanging transactions.
"""

from kafkapy.errors import ApiError, repeated
from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.metadata.topic_names import invalid_topic_name_reason
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.describe_producers_request import DescribeProducersRequest
from kafkapy.protocol.messages.describe_producers_response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from kafkapy.replication.partition import Role
from kafkapy.runtime.turns import Walk
from kafkapy.security.authorizer import AclOperation, ResourceType
from kafkapy.storage.producers.entry import ProducerEntry


async def handle(
    services: Services, context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    response = DescribeProducersResponse()
    way = walk(services, context)
    # Deviation: Apache Kafka describes a partition as often as it is named. Here once, because it may have thousands of
    # producers.
    described: set[tuple[str, int]] = set()
    async for topic in way.over(request.topics):
        error = _topic_error(services, context, topic.name)
        indexes = [index for index in dict.fromkeys(topic.partition_indexes) if (topic.name, index) not in described]
        described.update((topic.name, index) for index in indexes)
        found = TopicResponse(topic.name)
        async for index in way.over(indexes):
            found.partitions.append(await _describe(services, topic.name, index, error, way))
            if error is not None and len(found.partitions) == 1:
                error = ApiError(error.code, repeated(error.message))
        response.topics.append(found)
    return response


def _topic_error(services: Services, context: RequestContext, topic: str) -> ApiError | None:
    reason = invalid_topic_name_reason(topic)
    if reason is not None:
        return ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
    if not services.authorizer.authorize(context, AclOperation.READ, ResourceType.TOPIC, topic):
        return ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED.message)
    if topic not in services.metadata.image.topics.by_name:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    return None


async def _describe(services: Services, topic: str, index: int, error: ApiError | None, way: Walk) -> PartitionResponse:
    if error is not None:
        return PartitionResponse(index, error_code=error.code, error_message=error.message)
    partitions = services.replica_manager.partitions
    partition = partitions.find(topic, index)
    if partition is None:
        return PartitionResponse(index, error_code=partitions.missing_code(topic, index))
    if partition.role is Role.OFFLINE or partition.log is None:
        return PartitionResponse(index, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    producers = partition.log.producer_state.active(services.clock.wall_ms())
    return PartitionResponse(index, active_producers=[_state(producer) async for producer in way.over(producers)])


def _state(producer: ProducerEntry) -> ProducerState:
    return ProducerState(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp_ms,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=producer.transaction_first_offset,
    )
