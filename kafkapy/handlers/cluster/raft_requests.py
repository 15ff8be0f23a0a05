"""The requests of the metadata quorum: one handler, because the quorum's core answers all of them.

The controller listener serves all of these; brokers forward AddRaftVoter and RemoveRaftVoter to the leader.

Vote 0-2, BeginQuorumEpoch 0-1, EndQuorumEpoch 0-1, Fetch 12-18 of `__cluster_metadata`, FetchSnapshot 0-1, AddRaftVoter
0-1, RemoveRaftVoter 0, UpdateRaftVoter 0. kafkapy.raft.wire has the changes of each version. A request with another
cluster id gets INCONSISTENT_CLUSTER_ID, one for another partition than `__cluster_metadata-0` INVALID_REQUEST. Only an
UpdateRaftVoter that is refused so gets the leader as well. Replicas need CLUSTER_ACTION; adding and removing voters
needs ALTER.
"""

import asyncio
from typing import Final

from kafkapy.handlers.cluster_access import check_cluster
from kafkapy.handlers.context import ControllerServices, RequestContext, Services
from kafkapy.protocol.primitives import Message
from kafkapy.raft.messages import Response, VoterChangeResponse
from kafkapy.raft.wire import (
    ADD_RAFT_VOTER,
    REMOVE_RAFT_VOTER,
    UPDATE_RAFT_VOTER,
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
        requested = message_to_request(request, context.api_version, wire)
    except PeerError as error:
        if context.api_key != UPDATE_RAFT_VOTER:
            return refusal(error, request)
        quorum = services.quorum
        refused = VoterChangeResponse(
            error=error.code,
            leader_epoch=quorum.leader_epoch,
            leader_id=quorum.leader_id,
            leader_endpoints=quorum.leader_endpoints,
        )
        return response_to_message(refused, request, context.api_version, wire)
    answered: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

    def respond(response: Response) -> None:
        if not answered.done():  # the connection may be closed
            answered.set_result(response)

    services.quorum.receive(requested, respond)
    return response_to_message(await answered, request, context.api_version, wire)


def _listener_name(services: Services | ControllerServices, context: RequestContext) -> str:
    """Return the listener of the peer's endpoints: for voter changes the controllers' own, else the request's."""
    if context.api_key in VOTER_CHANGES:
        return services.config.controller_listener_names[0]
    return context.listener_name


def _operation(api_key: int) -> AclOperation:
    return AclOperation.ALTER if api_key in VOTER_CHANGES else AclOperation.CLUSTER_ACTION
