"""InitializeShareGroupState 0: begin the states of share partitions again. KIP-932."""

from typing import Any

from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.handlers.share.state_requests import respond
from kafkapy.protocol.messages.initialize_share_group_state_request import InitializeShareGroupStateRequest
from kafkapy.share.persister import PartitionResult
from kafkapy.share.state_messages import INITIALIZE


async def handle(services: Services, context: RequestContext, request: InitializeShareGroupStateRequest) -> Any:
    ask = services.share.coordinator.initialize_states
    return await respond(services, context, walk(services, context), request, INITIALIZE, ask, PartitionResult)
