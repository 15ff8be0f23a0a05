"""InitProducerId 0-5: a producer id and epoch 0 for an idempotent producer.

With a transactional id it answers COORDINATOR_NOT_AVAILABLE until transactions exist here: clients retry it until their
own time-out. v3: a producer may name the id and epoch it has (KIP-360); either both or neither. v6 (two-phase commit)
is unstable in 4.3.1 and not served.
"""

from kafkapy.errors import ApiError
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.init_producer_id_request import InitProducerIdRequest
from kafkapy.protocol.messages.init_producer_id_response import InitProducerIdResponse
from kafkapy.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType

NONE = -1


async def handle(services: Services, context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    error = _refusal(services, context, request)
    if error is not None:
        return _failed(error)
    try:
        return InitProducerIdResponse(producer_id=await services.producer_ids.next_id(), producer_epoch=0)
    except ApiError as failure:
        return _failed(ErrorCode(failure.code))


def _refusal(services: Services, context: RequestContext, request: InitProducerIdRequest) -> ErrorCode | None:
    if not _is_authorized(services, context, request):
        if request.transactional_id is None:
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if (request.producer_id == NONE) != (request.producer_epoch == NONE) or request.transactional_id == "":
        return ErrorCode.INVALID_REQUEST
    if request.transactional_id is not None:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return None


def _is_authorized(services: Services, context: RequestContext, request: InitProducerIdRequest) -> bool:
    """An idempotent producer needs the right to write to any topic, or IDEMPOTENT_WRITE (before KIP-679)."""
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
