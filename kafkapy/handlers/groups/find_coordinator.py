"""FindCoordinator 0-6: the broker that coordinates a group or a transactional id. The first request creates the topic.

v1: transaction coordinators, too. v4: several keys (KIP-699), each with its error code. v6: coordinators of share
groups, by `group id:topic id:partition` (KIP-932), which only brokers ask for. While the topic is being created, or its
partition has no leader, the response is COORDINATOR_NOT_AVAILABLE, and clients retry.

Deviation: Apache Kafka answers COORDINATOR_NOT_AVAILABLE at once if the topic is missing. Here the response waits for
its creation, a few milliseconds, or MAX_WAIT_MS if the broker has other work first, because a client's first commit is
else delayed by its retry backoff (librdkafka: two seconds).
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

from kafkapy.errors import ApiError
from kafkapy.handlers.cluster_view import ClusterView, endpoint_of
from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.handlers.stale_metadata import check_metadata_current
from kafkapy.handlers.topics.auto_create import create_topic
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse
from kafkapy.runtime.coordinators.group_coordinator import GroupCoordinator
from kafkapy.runtime.coordinators.transaction_coordinator import TransactionCoordinator
from kafkapy.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType

if TYPE_CHECKING:
    from kafkapy.runtime.coordinators.share_coordinator import ShareCoordinator

Coordinators: TypeAlias = "GroupCoordinator | ShareCoordinator | TransactionCoordinator"

GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2
BATCHED_SINCE: Final = 4
SHARE_SINCE: Final = 6
MAX_WAIT_MS: Final = 1000
NO_ERROR: Final = "NONE"
"""The error message of versions 1 to 3 without an error, as in Apache Kafka."""
NO_NODE: Final = (-1, "", -1)


async def handle(
    services: Services, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    check_metadata_current(services)
    if context.api_version >= BATCHED_SINCE:
        if request.key_type == SHARE and context.api_version >= SHARE_SINCE:
            refused = _share_refusal(services, context, request.coordinator_keys)
            if refused is not None:
                return refused
        keys = walk(services, context).over(request.coordinator_keys)
        found = [await _coordinator(services, context, request.key_type, key) async for key in keys]
        return FindCoordinatorResponse(coordinators=found)
    only = await _coordinator(services, context, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=ErrorCode(only.error_code).message if only.error_code else NO_ERROR,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _share_refusal(services: Services, context: RequestContext, keys: Iterable[str]) -> FindCoordinatorResponse | None:
    """Return the refusal of all keys, or None if authorized: only brokers may look up share coordinators."""
    authorize = services.authorizer.authorize
    if all(authorize(context, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME) for _ in keys):
        return None
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    node_id, host, port = NO_NODE
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key, node_id=node_id, host=host, port=port, error_code=code, error_message=code.message)
            for key in keys
        ]
    )


async def _coordinator(services: Services, context: RequestContext, key_type: int, key: str) -> Coordinator:
    code = ErrorCode.NONE
    try:
        node_id, host, port = await _find(services, context, key_type, key)
    except ApiError as error:
        (node_id, host, port), code = NO_NODE, ErrorCode(error.code)
    return Coordinator(key, node_id=node_id, host=host, port=port, error_code=code)


async def _find(services: Services, context: RequestContext, key_type: int, key: str) -> tuple[int, str, int]:
    """Return id, host and port of the broker. Raises ApiError."""
    _check_key(services, context, key_type, key)
    if key_type == SHARE:
        key = _share_partition_key(key)
    coordinator = _coordinator_of(services, key_type)
    if coordinator.topic not in services.metadata.image.topics.by_name:
        await create_topic(services, coordinator.topic)
    if not coordinator.is_hosted(key):  # otherwise the client would get NOT_COORDINATOR
        await services.metadata_changes.caught_up(MAX_WAIT_MS)
    image = services.metadata.image
    topic = image.topics.by_name.get(coordinator.topic)
    if topic is None:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    partition = topic.partitions.get(coordinator.partition_of(key))
    view = ClusterView(image.cluster, context.listener_name)
    if partition is None or partition.leader not in view.alive:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return partition.leader, *endpoint_of(view.alive[partition.leader], context.listener_name)


def _coordinator_of(services: Services, key_type: int) -> Coordinators:
    if key_type == SHARE:
        return services.share.coordinator
    return services.groups if key_type == GROUP else services.transactions


def _check_key(services: Services, context: RequestContext, key_type: int, key: str) -> None:
    authorize = services.authorizer.authorize
    if key_type == GROUP and not authorize(context, AclOperation.DESCRIBE, ResourceType.GROUP, key):
        raise ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if key_type == TRANSACTION and not authorize(context, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key):
        raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if key_type not in (GROUP, TRANSACTION, SHARE) or (key_type == SHARE and context.api_version < SHARE_SINCE):
        raise ApiError(ErrorCode.INVALID_REQUEST)


def _share_partition_key(key: str) -> str:
    """Return the key of a share partition as its coordinator is found by it. Raises ApiError INVALID_REQUEST."""
    from kafkapy.share.persister import parse_coordinator_key

    try:
        return parse_coordinator_key(key).coordinator_key
    except ValueError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error
