"""StreamsGroupHeartbeat 0-1: join, stay in, and leave a streams group; the response has the tasks to run. KIP-1071.

v1: client tags that are missing for rack-aware standbys (status 6), AcceptableRecoveryLag as int64 (KIP-1071 of 4.4).
The member needs DESCRIBE on all topics of its topology, and CREATE on internal topics that are missing.
"""

from typing import Final

from kafkapy.errors import ApiError
from kafkapy.group.decision import Client
from kafkapy.group.streams.decision import HeartbeatResult
from kafkapy.group.streams.topology import check_bounds, check_topic_names, topics_of_request
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.handlers.data_plane import TopicAccess
from kafkapy.handlers.streams.gate import is_protocol_enabled
from kafkapy.handlers.streams.internal_topics import create_internal_topics
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest
from kafkapy.protocol.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse
from kafkapy.security.authorizer import AclOperation, ResourceType

CACHED_HEARTBEATS: Final = 2
"""For so many heartbeat intervals the error of a topic's creation is cached; then the creation is tried again."""


async def handle(
    services: Services, context: RequestContext, request: StreamsGroupHeartbeatRequest
) -> StreamsGroupHeartbeatResponse:
    if not is_protocol_enabled(services):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, None)
    if not services.authorizer.authorize(context, AclOperation.READ, ResourceType.GROUP, request.group_id):
        raise ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED, None)
    if request.topology is not None:
        check_bounds(request.topology)
        names = topics_of_request(request.topology)
        check_topic_names(names)
        if TopicAccess(services, context, AclOperation.DESCRIBE, names).denied(names):
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    client = Client(context.client_id or "", f"/{context.client_host}")
    version = context.api_version
    result: HeartbeatResult = await services.groups.decide_long(
        request.group_id,
        lambda shard, now_ms, gives_way, results: shard.streams.heartbeat(
            request, version, client, now_ms, gives_way=gives_way, results=results
        ),
    )
    if result.topics_to_create:
        cached_ms = CACHED_HEARTBEATS * result.response.heartbeat_interval_ms
        create_internal_topics(services, context, result.topics_to_create, result.response.status or [], cached_ms)
    return result.response
