"""DeleteShareGroupState 0: delete the states of share partitions. KIP-932."""

from typing import Any

from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.handlers.share.state_requests import respond
from kafkapy.protocol.messages.delete_share_group_state_request import DeleteShareGroupStateRequest
from kafkapy.share.persister import PartitionResult
from kafkapy.share.state_messages import DELETE


async def handle(services: Services, context: RequestContext, request: DeleteShareGroupStateRequest) -> Any:
    ask = services.share.coordinator.delete_states
    return await respond(services, context, walk(services, context), request, DELETE, ask, PartitionResult)
