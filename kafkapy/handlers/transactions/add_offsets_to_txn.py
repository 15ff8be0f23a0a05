"""AddOffsetsToTxn 0-4: prepare a transaction to commit the offsets of a group.

Adds the group's partition of `__consumer_offsets` to the transaction. v2: PRODUCER_FENCED instead of
INVALID_PRODUCER_EPOCH. Clients of transaction version 2 do not send it: TxnOffsetCommit 5 adds the partition.
"""

from kafkapy.errors import ApiError
from kafkapy.group.settings import OFFSETS_TOPIC
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from kafkapy.protocol.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from kafkapy.security.authorizer import AclOperation, ResourceType
from kafkapy.types import TopicPartition


async def handle(
    services: Services, context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    transactional_id, version = request.transactional_id, context.api_version
    authorize = services.authorizer.authorize
    if not authorize(context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not authorize(context, AclOperation.READ, ResourceType.GROUP, request.group_id):
        raise ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not transactional_id:
        raise ApiError(ErrorCode.INVALID_REQUEST)
    offsets_partition = TopicPartition(OFFSETS_TOPIC, services.groups.partition_of(request.group_id))
    response: AddOffsetsToTxnResponse = await services.transactions.decide(
        transactional_id,
        lambda shard, now_ms: shard.add_offsets(request, version, now_ms, offsets_partition=offsets_partition),
    )
    return response
