"""What is served for the metadata quorum: one handler, as the quorum's core answers all of it.

The controllers' listener serves all of these; brokers pass AddRaftVoter and RemoveRaftVoter on to the leader.

Vote 0-2, BeginQuorumEpoch 0-1, EndQuorumEpoch 0-1, Fetch 12-18 of `__cluster_metadata`, FetchSnapshot 0-1, AddRaftVoter
0-1, RemoveRaftVoter 0, UpdateRaftVoter 0. What each version changed is told in kafkapy.raft.wire. Another cluster's
id: INCONSISTENT_CLUSTER_ID; a request about anything but `__cluster_metadata-0`: INVALID_REQUEST. Replicas need
CLUSTER_ACTION; who adds or removes a voter needs ALTER.
"""

import asyncio
from typing import Final

from kafkapy.handlers.cluster_access import check_cluster
from kafkapy.handlers.context import ControllerServices, RequestContext, Services
from kafkapy.protocol.primitives import Message
from kafkapy.raft.messages import Response
from kafkapy.raft.wire import (
    ADD_RAFT_VOTER,
    REMOVE_RAFT_VOTER,
    PeerError,
    WirePeer,
    message_to_request,
    refusal,
    response_to_message,
)
from kafkapy.security.authorizer import AclOperation

VOTER_CHANGES: Final = (ADD_RAFT_VOTER, REMOVE_RAFT_VOTER)


async def handle(services: Services | ControllerServices, context: RequestContext, request: Message) -> Message:
    check_cluster(services, context, _operation(context.api_key))
    wire = WirePeer(services.cluster_id, _listener_name(services, context))
    try:
        asked = message_to_request(request, context.api_version, wire)
    except PeerError as error:
        return refusal(error, request)
    answered: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

    def reply(response: Response) -> None:
        if not answered.done():  # its connection may be closed by now
            answered.set_result(response)

    services.quorum.receive(asked, reply)
    return response_to_message(await answered, request, context.api_version, wire)


def _listener_name(services: Services | ControllerServices, context: RequestContext) -> str:
    """Return by which listener the other side is reached: voters to add by the one that controllers use."""
    if context.api_key in VOTER_CHANGES:
        return services.config.controller_listener_names[0]
    return context.listener_name


def _operation(api_key: int) -> AclOperation:
    return AclOperation.ALTER if api_key in VOTER_CHANGES else AclOperation.CLUSTER_ACTION
