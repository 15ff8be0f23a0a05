"""CreatePartitions 0-3: add partitions to existing topics. Each topic succeeds or fails on its own.

v2: flexible. v3: topics above controller_mutation_rate get THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from collections import Counter
from typing import Final

from kafkapy.errors import ApiError
from kafkapy.handlers.context import RequestContext, Services, mutation_quota
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.create_partitions_request import CreatePartitionsRequest
from kafkapy.protocol.messages.create_partitions_response import CreatePartitionsResponse, CreatePartitionsTopicResult
from kafkapy.security.authorizer import AclOperation, ResourceType

STRICT_SINCE: Final = 3


async def handle(
    services: Services, context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    refused = _refused(services, context, request)
    names = {result.name for result in refused}
    accepted = CreatePartitionsRequest(
        topics=[topic for topic in request.topics if topic.name not in names],
        timeout_ms=request.timeout_ms,
        validate_only=request.validate_only,
    )
    if not accepted.topics:
        return CreatePartitionsResponse(results=refused)
    charge = mutation_quota(context, strict_since=STRICT_SINCE)
    try:
        response = await services.metadata_changes.change(
            lambda controller, _: controller.topics.decide_create_partitions(accepted, charge),
            timeout_ms=request.timeout_ms,
        )
    except ApiError as error:
        return CreatePartitionsResponse(
            results=[_result(topic.name, int(error.code), error.message) for topic in request.topics]
        )
    response.results = [*refused, *response.results]
    return response


def _refused(
    services: Services, context: RequestContext, request: CreatePartitionsRequest
) -> list[CreatePartitionsTopicResult]:
    """Return the results of topics that are refused before the controller decides."""
    results = []
    for name, count in Counter(topic.name for topic in request.topics).items():
        if count > 1:
            results.append(_result(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
        elif not services.authorizer.authorize(context, AclOperation.ALTER, ResourceType.TOPIC, name):
            results.append(_result(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None))
    return results


def _result(name: str, error_code: int, message: str | None) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=error_code, error_message=message)
