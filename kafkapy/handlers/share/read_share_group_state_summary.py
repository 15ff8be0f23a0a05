"""ReadShareGroupStateSummary 0-1: the states of share partitions without their batches. KIP-932.

v1: how many records from the start offset on are done, for the lag (KIP-1226).
"""

from typing import Any

from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.handlers.share.state_requests import respond
from kafkapy.protocol.messages.read_share_group_state_summary_request import ReadShareGroupStateSummaryRequest
from kafkapy.share.persister import StateSummary
from kafkapy.share.state_messages import READ_SUMMARY


async def handle(services: Services, context: RequestContext, request: ReadShareGroupStateSummaryRequest) -> Any:
    ask = services.share.coordinator.read_summaries
    return await respond(services, context, walk(services, context), request, READ_SUMMARY, ask, StateSummary)
