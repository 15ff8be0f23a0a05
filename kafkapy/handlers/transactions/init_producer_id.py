"""InitProducerId 0-5: a producer id and epoch for an idempotent or transactional producer.

An idempotent producer gets an unused id at epoch 0. A transactional id keeps its producer id and gets the next epoch,
which fences earlier producers; an ongoing transaction is aborted first (CONCURRENT_TRANSACTIONS, and the client
retries). v3: a producer may name its current id and epoch (KIP-360), both or neither. v4: PRODUCER_FENCED instead of
INVALID_PRODUCER_EPOCH. v6 (two-phase commit) is unstable in 4.4.0 and not served.
"""

from kafkapy.errors import ApiError
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.init_producer_id_request import InitProducerIdRequest
from kafkapy.protocol.messages.init_producer_id_response import InitProducerIdResponse
from kafkapy.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType

NONE = -1


async def handle(services: Services, context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if not _is_authorized(services, context, request):
        if request.transactional_id is None:
            return _failed(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return _failed(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        return _failed(ErrorCode.INVALID_REQUEST)
    try:
        if request.transactional_id is not None:
            return await _of_transactional_id(services, context, request, request.transactional_id)
        return InitProducerIdResponse(producer_id=await services.producer_ids.next_id(), producer_epoch=0)
    except ApiError as failure:
        return _failed(ErrorCode(failure.code))


async def _of_transactional_id(
    services: Services, context: RequestContext, request: InitProducerIdRequest, transactional_id: str
) -> InitProducerIdResponse:
    """Return the response of the transactional id's coordinator. Raises ApiError."""
    from kafkapy.transaction.init_producer_id import check_init  # imported late: many nodes have no transactions

    refusal = check_init(request, services.dynamic_config.current.transaction)
    if refusal is not None:
        return _failed(refusal)
    version = context.api_version
    response: InitProducerIdResponse = await services.transactions.decide(
        transactional_id, lambda shard, now_ms: shard.init_producer_id(request, version, now_ms)
    )
    return response


def _is_authorized(services: Services, context: RequestContext, request: InitProducerIdRequest) -> bool:
    """Whether the producer is authorized. Idempotent: WRITE on any topic, or IDEMPOTENT_WRITE (before KIP-679)."""
    authorizer = services.authorizer
    if request.transactional_id is not None:
        return authorizer.authorize(
            context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id
        )
    return authorizer.authorize(
        context, AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME, log_if_denied=False
    ) or authorizer.authorize_by_resource_type(context, AclOperation.WRITE, ResourceType.TOPIC)


def _failed(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=NONE, producer_epoch=NONE)
