"""DeleteTopics 0, as version 1."""

from typing import Final

from kafkapy.handlers.context import RequestContext, Services
from kafkapy.handlers.topics import delete_topics
from kafkapy.protocol.messages.delete_topics_request import DeleteTopicsRequest
from kafkapy.protocol.messages.legacy_delete_topics_request import LegacyDeleteTopicsRequest
from kafkapy.protocol.messages.legacy_delete_topics_response import DeletableTopicResult, LegacyDeleteTopicsResponse

OLDEST_SERVED: Final = 1


async def handle(
    services: Services, context: RequestContext, request: LegacyDeleteTopicsRequest
) -> LegacyDeleteTopicsResponse:
    converted = DeleteTopicsRequest(topic_names=request.topic_names, timeout_ms=request.timeout_ms)
    response = await delete_topics.handle(services, context.at_version(OLDEST_SERVED), converted)
    return LegacyDeleteTopicsResponse(
        [DeletableTopicResult(topic.name or "", error_code=topic.error_code) for topic in response.responses]
    )
