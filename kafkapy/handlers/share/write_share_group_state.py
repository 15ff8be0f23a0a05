"""WriteShareGroupState 0-1: what has changed in the states of share partitions. KIP-932.

v1: how many records from the start offset on are done, for the lag (KIP-1226).
"""

from typing import Any

from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.handlers.share.state_requests import respond
from kafkapy.protocol.messages.write_share_group_state_request import WriteShareGroupStateRequest
from kafkapy.share.persister import PartitionResult
from kafkapy.share.state_messages import WRITE


async def handle(services: Services, context: RequestContext, request: WriteShareGroupStateRequest) -> Any:
    ask = services.share.coordinator.write_states
    return await respond(services, context, walk(services, context), request, WRITE, ask, PartitionResult)
