"""ConsumerGroupHeartbeat 0-1: join, stay in, and leave a KIP-848 group; the response has the assignment.

v1: the member generates its own id (KIP-1082); topics by regular expression (SubscribedTopicRegex).
The member needs DESCRIBE on all topics that it names. Matches of its expression without DESCRIBE are left out.
"""

from collections.abc import Set

from kafkapy.errors import ApiError
from kafkapy.group.decision import Client, GroupDecision
from kafkapy.group.shard import GroupShard
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.handlers.data_plane import TopicAccess
from kafkapy.metadata.image import GROUP_VERSION
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from kafkapy.security.authorizer import AclOperation, ResourceType

CONSUMER_PROTOCOL = "consumer"


async def handle(
    services: Services, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    if not is_protocol_enabled(services):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, None)
    if not services.authorizer.authorize(context, AclOperation.READ, ResourceType.GROUP, request.group_id):
        raise ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED, None)

    if request.subscribed_topic_names:
        named = TopicAccess(services, context, AclOperation.DESCRIBE)
        if named.denied(request.subscribed_topic_names):
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    client = Client(context.client_id or "", f"/{context.client_host}")
    version = context.api_version

    due_regexes: Set[str] = frozenset()

    def decide(shard: GroupShard, token: int, now_ms: int) -> GroupDecision:
        nonlocal due_regexes
        decision = shard.consumer.heartbeat(request, version, client, now_ms)
        due_regexes = decision.due_regexes
        return decision

    response: ConsumerGroupHeartbeatResponse = await services.groups.call(request.group_id, decide)
    # In the background: a regular expression is matched with all topics that the client may describe.
    if due_regexes:
        matched = TopicAccess(services, context, AclOperation.DESCRIBE, log_if_denied=False)
        services.groups.match_regexes(request.group_id, due_regexes, matched.allows)
    return response


def is_protocol_enabled(services: Services) -> bool:
    """Return whether the cluster has group.version 1 and the broker group.coordinator.rebalance.protocols allows it."""
    has_feature = services.metadata.image.features.levels.get(GROUP_VERSION, 0) >= 1
    return has_feature and CONSUMER_PROTOCOL in services.config.group.group_coordinator_rebalance_protocols
