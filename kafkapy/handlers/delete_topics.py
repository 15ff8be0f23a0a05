"""DeleteTopics 1-6: topics to delete, by name or by id.

v3: delete.topic.enable=false answers TOPIC_DELETION_DISABLED, before it INVALID_REQUEST. v5: error messages (KIP-599).
v6: topics by id (KIP-516): either a name or an id each.
"""

from collections import Counter
from collections.abc import Iterable

from kafkapy.errors import ApiError
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.machine import Decision
from kafkapy.metadata.controller import Controller
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.delete_topics_request import DeleteTopicsRequest
from kafkapy.protocol.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from kafkapy.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType
from kafkapy.types import ZERO_UUID, Uuid

_MESSAGES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.UNKNOWN_TOPIC_ID: "This server does not host this topic ID.",
}
"""What clients of Apache Kafka read here, in its words."""


async def handle(services: Services, context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    if not services.config.node.delete_topic_enable:
        return _all_failed(request, _deletion_disabled(context.api_version))
    results: list[DeletableTopicResult] = []
    names, ids = _asked(request, results)

    def decide(controller: Controller, now_ms: int) -> Decision[object, dict[Uuid, ApiError | None]]:
        found = _find(services, context, controller, names, ids, results)
        decision = controller.topics.decide_delete(found)
        results.extend(_result(found[topic_id], topic_id, error) for topic_id, error in decision.response.items())
        return decision

    try:
        await services.follower.change(decide, timeout_ms=request.timeout_ms)
    except ApiError as error:
        return _all_failed(request, error)
    return DeleteTopicsResponse(responses=results)


def _asked(request: DeleteTopicsRequest, results: list[DeletableTopicResult]) -> tuple[list[str], list[Uuid]]:
    """Return the names and the ids that are asked for once and properly; answer the others."""
    names, ids = Counter(request.topic_names), Counter[Uuid]()
    for topic in request.topics:
        if topic.name is None and topic.topic_id == ZERO_UUID:
            results.append(_invalid(None, ZERO_UUID, "Neither topic name nor id were specified."))
        elif topic.name is not None and topic.topic_id != ZERO_UUID:
            results.append(_invalid(topic.name, topic.topic_id, "You may not specify both topic name and topic id."))
        elif topic.name is not None:
            names[topic.name] += 1
        else:
            ids[topic.topic_id] += 1
    results += [_invalid(name, ZERO_UUID, "Duplicate topic name.") for name, count in names.items() if count > 1]
    results += [_invalid(None, topic_id, "Duplicate topic id.") for topic_id, count in ids.items() if count > 1]
    return [name for name, count in names.items() if count == 1], [key for key, count in ids.items() if count == 1]


def _find(
    services: Services,
    context: RequestContext,
    controller: Controller,
    names: Iterable[str],
    ids: Iterable[Uuid],
    results: list[DeletableTopicResult],
) -> dict[Uuid, str]:
    """Return the topics to delete, id -> name; answer those that do not exist or are not the client's to delete."""
    found: dict[Uuid, str] = {}
    for topic_id in ids:
        topic = controller.topics.by_id.get(topic_id)
        error = ErrorCode.UNKNOWN_TOPIC_ID if topic is None else _denial(services, context, topic.name)
        if topic is None or error != ErrorCode.NONE:
            may_know = topic is not None and _may(services, context, AclOperation.DESCRIBE, topic.name)
            results.append(_error(topic.name if topic is not None and may_know else None, topic_id, error))
        else:
            found[topic_id] = topic.name
    for name in names:
        topic = controller.topics.by_name.get(name)
        error = _denial(services, context, name)
        if not _may(services, context, AclOperation.DESCRIBE, name) or (topic is not None and error != ErrorCode.NONE):
            results.append(_error(name, ZERO_UUID, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        elif topic is None:
            results.append(_error(name, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        elif topic.topic_id in found:
            del found[topic.topic_id]
            message = "The provided topic name maps to an ID that was already supplied."
            results.append(_invalid(name, topic.topic_id, message))
        else:
            found[topic.topic_id] = name
    return found


def _denial(services: Services, context: RequestContext, name: str) -> ErrorCode:
    is_allowed = _may(services, context, AclOperation.DELETE, name)
    return ErrorCode.NONE if is_allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _may(services: Services, context: RequestContext, operation: AclOperation, name: str) -> bool:
    authorize = services.authorizer.authorize
    return authorize(context, AclOperation.DELETE, ResourceType.CLUSTER, CLUSTER_NAME) or authorize(
        context, operation, ResourceType.TOPIC, name
    )


def _deletion_disabled(api_version: int) -> ApiError:
    if api_version < 3:
        return ApiError(ErrorCode.INVALID_REQUEST, "This version does not support topic deletion.")
    return ApiError(ErrorCode.TOPIC_DELETION_DISABLED)


def _all_failed(request: DeleteTopicsRequest, error: ApiError) -> DeleteTopicsResponse:
    named = [(name, ZERO_UUID) for name in request.topic_names]
    asked = [*named, *((topic.name, topic.topic_id) for topic in request.topics)]
    return DeleteTopicsResponse(responses=[_result(name, topic_id, error) for name, topic_id in asked])


def _result(name: str | None, topic_id: Uuid, error: ApiError | None) -> DeletableTopicResult:
    if error is None:
        return DeletableTopicResult(name=name, topic_id=topic_id)
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=int(error.code), error_message=error.message)


def _error(name: str | None, topic_id: Uuid, error: ErrorCode) -> DeletableTopicResult:
    message = _MESSAGES.get(error, error.message)
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=error, error_message=message)


def _invalid(name: str | None, topic_id: Uuid, message: str) -> DeletableTopicResult:
    return _result(name, topic_id, ApiError(ErrorCode.INVALID_REQUEST, message))
