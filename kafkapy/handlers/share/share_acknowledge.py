"""ShareAcknowledge 1-2: a member of a share group accepts, releases, rejects or renews what it has acquired. KIP-932.

The request is one of a session, and counts in its epochs; the last one (-1) also ends it. The member is not looked up.
v2  renewal of acquisition locks (KIP-1222): IsRenewAck; the response has the time for which records are locked.
"""

from kafkapy.errors import ApiError
from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.handlers.data_plane import TopicAccess
from kafkapy.handlers.share.acknowledgements import (
    Outcomes,
    acknowledge,
    acknowledgements_of,
    leaders_of,
    max_type_of,
    names_of,
    session_key_of,
)
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.share_acknowledge_request import ShareAcknowledgeRequest
from kafkapy.protocol.messages.share_acknowledge_response import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from kafkapy.security.authorizer import AclOperation
from kafkapy.share.session import FINAL_EPOCH


async def handle(
    services: Services, context: RequestContext, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse:
    key = session_key_of(services, context, request.group_id, request.member_id)
    shares = services.share_partitions()
    code = shares.sessions.acknowledge(key, request.share_session_epoch)
    if code != ErrorCode.NONE:
        raise ApiError(code, None)
    acknowledgements = acknowledgements_of(request.topics)
    access = TopicAccess(services, context, AclOperation.READ, names_of(services, acknowledgements))
    way, max_type = walk(services, context), max_type_of(context, is_renewing=request.is_renew_ack)
    pending = await acknowledge(services, way, shares, key, acknowledgements, access, max_type)
    outcomes = await pending.outcomes()
    if request.share_session_epoch == FINAL_EPOCH:
        shares.end_session(key)
    lock_ms = shares.settings(key.group_id).partition.record_lock_duration_ms
    return _respond(services, context, outcomes, lock_ms)


def _respond(services: Services, context: RequestContext, outcomes: Outcomes, lock_ms: int) -> ShareAcknowledgeResponse:
    named, leaders = leaders_of(services, context, {each: outcomes[each].error_code for each in outcomes})
    topics: dict[bytes, ShareAcknowledgeTopicResponse] = {}
    for partition, outcome in outcomes.items():
        topic = topics.setdefault(partition.topic_id, ShareAcknowledgeTopicResponse(partition.topic_id))
        leader_id, leader_epoch = named.get(partition, (0, 0))
        topic.partitions.append(
            PartitionData(
                partition.partition,
                error_code=outcome.error_code,
                error_message=outcome.message,
                current_leader=LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch),
            )
        )
    endpoints = [] if leaders is None else leaders.endpoints()
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=lock_ms,
        responses=[*topics.values()],
        node_endpoints=[NodeEndpoint(id_, host=host, port=port, rack=rack) for id_, host, port, rack in endpoints],
    )
