"""CreateTopics 2-7: new topics, each by partition count and replication factor or by a manual assignment.

v4: -1 for the broker's default count and factor (KIP-464). v5: the response has the count, the factor and all configs
of the topic (KIP-525). v6: topics above controller_mutation_rate get THROTTLING_QUOTA_EXCEEDED; before v6 they are
created and the client is throttled (KIP-599). v7: the response has the topic id.

A failure of the whole request, such as a time-out or too large an operation, is reported for every topic, also for
those refused before.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Final

from kafkapy.errors import ApiError
from kafkapy.handlers.context import RequestContext, Services, mutation_quota
from kafkapy.handlers.data_plane import TopicAccess
from kafkapy.metadata.topic_names import prohibited_name_error
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.create_topics_request import CreateTopicsRequest
from kafkapy.protocol.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from kafkapy.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType

STRICT_SINCE: Final = 6
CONFIGS_SINCE: Final = 5


async def handle(services: Services, context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    has_cluster = services.authorizer.authorize(
        context, AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, log_if_denied=False
    )
    counts = Counter([topic.name for topic in request.topics])
    refused = _refused(services, context, counts, may_create_all=has_cluster)
    describable = _describable(services, context, counts)
    accepted = request if not refused else _without(request, {result.name for result in refused})
    if not accepted.topics:
        return CreateTopicsResponse(topics=refused)
    charge = mutation_quota(context, strict_since=STRICT_SINCE)
    try:
        response = await services.metadata_changes.change(
            lambda controller, _: controller.topics.decide_create(accepted, describable, charge),
            timeout_ms=request.timeout_ms,
        )
    except ApiError as error:
        return CreateTopicsResponse(topics=_failed((topic.name for topic in request.topics), error))
    response.topics += refused
    return response


def _refused(
    services: Services, context: RequestContext, counts: Mapping[str, int], *, may_create_all: bool
) -> list[CreatableTopicResult]:
    """Return the results of topics that are refused before the controller decides."""
    creatable = None if may_create_all else TopicAccess(services, context, AclOperation.CREATE)
    results = []
    for name, count in counts.items():
        error = _refusal(name, count)
        if error is None and creatable is not None and not creatable.allows(name):
            error = ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
        if error is not None:
            results += _failed((name,), error)
    return results


def _refusal(name: str, count: int) -> ApiError | None:
    if count > 1:
        return ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    return prohibited_name_error(name)


def _describable(
    services: Services, context: RequestContext, counts: Mapping[str, int]
) -> Callable[[str], bool] | None:
    """Return whether the client may see a topic's configs; None if the response has no place for them.

    In every version, even topics that are refused are authorized, as by Apache Kafka.
    """
    has_configs = context.api_version >= CONFIGS_SINCE
    if not has_configs and services.authorizer.allows_everything:
        return None
    access = TopicAccess(services, context, AclOperation.DESCRIBE_CONFIGS, log_if_denied=False)
    for name, count in counts.items():
        if _refusal(name, count) is None:
            access.allows(name)
    return access.allows if has_configs else None


def _without(request: CreateTopicsRequest, names: Set[str]) -> CreateTopicsRequest:
    """Return the request without these topics."""
    return CreateTopicsRequest(
        topics=[topic for topic in request.topics if topic.name not in names],
        timeout_ms=request.timeout_ms,
        validate_only=request.validate_only,
    )


def _failed(names: Iterable[str], error: ApiError) -> list[CreatableTopicResult]:
    return [CreatableTopicResult(name=name, error_code=int(error.code), error_message=error.message) for name in names]
