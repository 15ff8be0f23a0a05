"""CreateTopics 2-7: new topics, each by partition count and replication factor or by a manual assignment.

v4: -1 for the broker's default count and factor (KIP-464). v5: answers the count, the factor and all configs that the
topic has (KIP-525). v6: THROTTLING_QUOTA_EXCEEDED (KIP-599; no quota exists here yet). v7: answers the topic id.
"""

from collections import Counter
from collections.abc import Iterable

from kafkapy.errors import ApiError
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.create_topics_request import CreateTopicsRequest
from kafkapy.protocol.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from kafkapy.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType
from kafkapy.types import METADATA_PARTITION


async def handle(services: Services, context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    refused = _refused(services, context, request)
    names = {result.name for result in refused}
    accepted = CreateTopicsRequest(
        topics=[topic for topic in request.topics if topic.name not in names],
        timeout_ms=request.timeout_ms,
        validate_only=request.validate_only,
    )

    def is_describable(name: str) -> bool:
        return services.authorizer.authorize(context, AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name)

    try:
        response = await services.follower.change(
            lambda controller, _: controller.topics.decide_create(accepted, is_describable),
            timeout_ms=request.timeout_ms,
        )
    except ApiError as error:
        response = CreateTopicsResponse(topics=_failed((topic.name for topic in accepted.topics), error))
    response.topics += refused
    return response


def _refused(services: Services, context: RequestContext, request: CreateTopicsRequest) -> list[CreatableTopicResult]:
    """Return the results of topics that do not even reach the controller."""
    counts = Counter(topic.name for topic in request.topics)
    results = []
    for name, count in counts.items():
        error = _refusal(services, context, name, count)
        if error is not None:
            results += _failed((name,), error)
    return results


def _refusal(services: Services, context: RequestContext, name: str, count: int) -> ApiError | None:
    if count > 1:
        return ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    if name == METADATA_PARTITION.topic:
        return ApiError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
    authorize = services.authorizer.authorize
    is_allowed = authorize(context, AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME) or authorize(
        context, AclOperation.CREATE, ResourceType.TOPIC, name
    )
    return None if is_allowed else ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")


def _failed(names: Iterable[str], error: ApiError) -> list[CreatableTopicResult]:
    return [CreatableTopicResult(name=name, error_code=int(error.code), error_message=error.message) for name in names]
