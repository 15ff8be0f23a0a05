"""CreateTopics 0 and 1, as version 2. v1: validate_only and error messages."""

from typing import Final

from kafkapy.handlers.context import RequestContext, Services
from kafkapy.handlers.topics import create_topics
from kafkapy.protocol.messages import create_topics_request as served
from kafkapy.protocol.messages import legacy_create_topics_request as legacy
from kafkapy.protocol.messages.legacy_create_topics_response import CreatableTopicResult, LegacyCreateTopicsResponse

OLDEST_SERVED: Final = 2


async def handle(
    services: Services, context: RequestContext, request: legacy.LegacyCreateTopicsRequest
) -> LegacyCreateTopicsResponse:
    converted = served.CreateTopicsRequest(
        topics=[_topic(topic) for topic in request.topics],
        timeout_ms=request.timeout_ms,
        validate_only=request.validate_only,
    )
    response = await create_topics.handle(services, context.at_version(OLDEST_SERVED), converted)
    return LegacyCreateTopicsResponse(
        [
            CreatableTopicResult(topic.name, error_code=topic.error_code, error_message=topic.error_message)
            for topic in response.topics
        ]
    )


def _topic(topic: legacy.CreatableTopic) -> served.CreatableTopic:
    return served.CreatableTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[
            served.CreatableReplicaAssignment(a.partition_index, broker_ids=a.broker_ids) for a in topic.assignments
        ],
        configs=[served.CreatableTopicConfig(config.name, value=config.value) for config in topic.configs],
    )
