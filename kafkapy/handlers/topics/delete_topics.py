"""DeleteTopics 1-6: delete topics, by name or by id.

v3: delete.topic.enable=false gives TOPIC_DELETION_DISABLED, before v3 INVALID_REQUEST. v5: error messages, and
THROTTLING_QUOTA_EXCEEDED for topics above controller_mutation_rate (KIP-599). v6: topics by id (KIP-516): each has
either a name or an id.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from kafkapy.errors import ApiError
from kafkapy.handlers.context import RequestContext, Services, mutation_quota
from kafkapy.handlers.data_plane import TopicAccess
from kafkapy.machine import Decision
from kafkapy.metadata.controller import Controller
from kafkapy.named_tuple import NamedTuple
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.delete_topics_request import DeleteTopicsRequest
from kafkapy.protocol.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from kafkapy.seams import Random
from kafkapy.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType
from kafkapy.types import ZERO_UUID, Uuid

STRICT_SINCE: Final = 5
_MESSAGES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.UNKNOWN_TOPIC_ID: "This server does not host this topic ID.",
}
"""Apache Kafka's messages for these error codes."""


async def handle(services: Services, context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    # The right to delete the cluster covers all topics: then none is asked for by name.
    may_delete_all = services.authorizer.authorize(
        context, AclOperation.DELETE, ResourceType.CLUSTER, CLUSTER_NAME, log_if_denied=False
    )
    if not services.config.node.delete_topic_enable:
        return _all_failed(request, _deletion_disabled(context.api_version))
    results: list[DeletableTopicResult] = []
    requested = _requested(request, results)
    if not requested.names and not requested.ids:
        return DeleteTopicsResponse(responses=results)
    rights = None if may_delete_all else _Rights(services, context)
    charge = mutation_quota(context, strict_since=STRICT_SINCE)

    def decide(controller: Controller, now_ms: int) -> Decision[object, dict[Uuid, ApiError | None]]:
        found = _find(controller, requested, rights, results)
        decision = controller.topics.decide_delete(found, charge)
        results.extend(_result(found[topic_id], topic_id, error) for topic_id, error in decision.response.items())
        return decision

    try:
        await services.metadata_changes.change(decide, timeout_ms=request.timeout_ms)
    except ApiError as error:
        return _all_failed(request, error)
    shuffle(results, services.random)
    return DeleteTopicsResponse(responses=results)


class _Requested(NamedTuple):
    """The valid names and ids that are requested once, and the ids that are requested more than once."""

    names: list[str]
    ids: list[Uuid]
    duplicate_ids: list[Uuid]


class _Rights:
    """The client's rights to the topics of the request, if it has no DELETE on the cluster."""

    def __init__(self, services: Services, context: RequestContext) -> None:
        self._describable = TopicAccess(services, context, AclOperation.DESCRIBE)
        self._deletable = TopicAccess(services, context, AclOperation.DELETE)

    def check_all(self, names: Iterable[str]) -> None:
        """Check both rights for each topic, needed or not, as Apache Kafka does."""
        for name in names:
            self._describable.allows(name)
            self._deletable.allows(name)

    def may_describe(self, name: str) -> bool:
        return self._describable.allows(name)

    def may_delete(self, name: str) -> bool:
        return self._deletable.allows(name)


def shuffle(results: list[DeletableTopicResult], random: Random) -> None:
    """Shuffle in place, so that positions do not reveal which topics exist but are hidden from the client."""
    for last in range(len(results) - 1, 0, -1):
        other = random.randrange(0, last + 1)
        results[last], results[other] = results[other], results[last]


def _requested(request: DeleteTopicsRequest, results: list[DeletableTopicResult]) -> _Requested:
    """Return the valid entries of the request; add the errors of the others to `results`."""
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
    return _Requested(
        names=[name for name, count in names.items() if count == 1],
        ids=[topic_id for topic_id, count in ids.items() if count == 1],
        duplicate_ids=[topic_id for topic_id, count in ids.items() if count > 1],
    )


def _find(
    controller: Controller, requested: _Requested, rights: _Rights | None, results: list[DeletableTopicResult]
) -> dict[Uuid, str]:
    """Return the topics to delete, id -> name; add the errors of missing and unauthorized topics to `results`."""
    by_id = controller.topics.by_id
    if rights is not None:
        rights.check_all({*requested.names, *(by_id[topic_id].name for topic_id in requested.ids if topic_id in by_id)})
    found: dict[Uuid, str] = {}
    for topic_id in requested.ids:
        topic = by_id.get(topic_id)
        if topic is None:
            results.append(_error(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID))
        elif rights is None or rights.may_delete(topic.name):
            found[topic_id] = topic.name
        else:
            name = topic.name if rights.may_describe(topic.name) else None
            results.append(_error(name, topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    _find_named(controller, requested, rights, found, results)
    return found


def _find_named(
    controller: Controller,
    requested: _Requested,
    rights: _Rights | None,
    found: dict[Uuid, str],
    results: list[DeletableTopicResult],
) -> None:
    """Add the topics requested by name. One also requested by id is refused, and removed from `found`."""
    supplied = {*found, *requested.duplicate_ids}
    for name in requested.names:
        topic = controller.topics.by_name.get(name)
        if rights is not None and not rights.may_describe(name):
            results.append(_error(name, ZERO_UUID, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        elif topic is None:
            results.append(_error(name, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        elif rights is not None and not rights.may_delete(name):
            results.append(_error(name, ZERO_UUID, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        elif topic.topic_id in supplied:
            found.pop(topic.topic_id, None)
            message = "The provided topic name maps to an ID that was already supplied."
            results.append(_invalid(name, topic.topic_id, message))
        else:
            found[topic.topic_id] = name


def _deletion_disabled(api_version: int) -> ApiError:
    if api_version < 3:
        return ApiError(ErrorCode.INVALID_REQUEST, "This version does not support topic deletion.")
    return ApiError(ErrorCode.TOPIC_DELETION_DISABLED)


def _all_failed(request: DeleteTopicsRequest, error: ApiError) -> DeleteTopicsResponse:
    named = [(name, ZERO_UUID) for name in request.topic_names]
    requested = [*named, *((topic.name, topic.topic_id) for topic in request.topics)]
    return DeleteTopicsResponse(responses=[_result(name, topic_id, error) for name, topic_id in requested])


def _result(name: str | None, topic_id: Uuid, error: ApiError | None) -> DeletableTopicResult:
    if error is None:
        return DeletableTopicResult(name=name, topic_id=topic_id)
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=int(error.code), error_message=error.message)


def _error(name: str | None, topic_id: Uuid, error: ErrorCode) -> DeletableTopicResult:
    message = _MESSAGES.get(error, error.message)
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=error, error_message=message)


def _invalid(name: str | None, topic_id: Uuid, message: str) -> DeletableTopicResult:
    return _result(name, topic_id, ApiError(ErrorCode.INVALID_REQUEST, message))
