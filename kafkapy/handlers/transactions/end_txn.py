"""EndTxn 0-5: commit or abort a transaction.

Answered once the decision is committed and writing the markers was tried: after the response to a commit its records
are readable where this broker leads without other replicas, except in a partition that cannot take its marker now. To
other leaders the markers are only sent by then, and the record of the transaction's end may come later.

v2: PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH. v5: each end bumps the epoch, and the response has the next one
(KIP-890).
"""

from kafkapy.errors import ApiError
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.end_txn_request import EndTxnRequest
from kafkapy.protocol.messages.end_txn_response import EndTxnResponse
from kafkapy.security.authorizer import AclOperation, ResourceType


async def handle(services: Services, context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    transactional_id, version = request.transactional_id, context.api_version
    if not services.authorizer.authorize(context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not transactional_id:
        raise ApiError(ErrorCode.INVALID_REQUEST)
    response: EndTxnResponse = await services.transactions.decide(
        transactional_id, lambda shard, now_ms: shard.end_txn(request, version, now_ms)
    )
    return response
