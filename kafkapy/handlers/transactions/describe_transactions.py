"""DescribeTransactions 0: state, producer, time-out and partitions of transactional ids (KIP-664).

Each id has its own error code: TRANSACTIONAL_ID_NOT_FOUND, or that this broker is not its coordinator. Topics that the
client may not describe are left out.
"""

from kafkapy.errors import ApiError
from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.handlers.data_plane import TopicAccess
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from kafkapy.protocol.messages.describe_transactions_response import DescribeTransactionsResponse, TransactionState
from kafkapy.security.authorizer import AclOperation, ResourceType


async def handle(
    services: Services, context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    # Deviation: Apache Kafka describes a transaction as often as it is named. Here once, because it may have thousands
    # of partitions.
    ids = walk(services, context).over(dict.fromkeys(request.transactional_ids))
    return DescribeTransactionsResponse(
        transaction_states=[await _describe(services, context, each) async for each in ids]
    )


async def _describe(services: Services, context: RequestContext, transactional_id: str) -> TransactionState:
    if not services.authorizer.authorize(
        context, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id
    ):
        return TransactionState(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, transactional_id=transactional_id)
    if not transactional_id:
        return TransactionState(ErrorCode.INVALID_REQUEST, transactional_id=transactional_id)
    try:
        state = await services.transactions.read(transactional_id, lambda shard: shard.describe(transactional_id))
    except ApiError as error:
        return TransactionState(error.code, transactional_id=transactional_id)
    access = TopicAccess(services, context, AclOperation.DESCRIBE, (topic.topic for topic in state.topics))
    state.topics = [topic for topic in state.topics if access.allows(topic.topic)]
    return state
