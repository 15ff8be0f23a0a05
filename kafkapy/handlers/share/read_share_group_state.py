"""ReadShareGroupState 0: the states of share partitions for a leader, which fences earlier ones. KIP-932."""

from typing import Any

from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.handlers.share.state_requests import respond
from kafkapy.protocol.messages.read_share_group_state_request import ReadShareGroupStateRequest
from kafkapy.share.persister import StateReadResult
from kafkapy.share.state_messages import READ


async def handle(services: Services, context: RequestContext, request: ReadShareGroupStateRequest) -> Any:
    ask = services.share.coordinator.read_states
    return await respond(services, context, walk(services, context), request, READ, ask, StateReadResult)
