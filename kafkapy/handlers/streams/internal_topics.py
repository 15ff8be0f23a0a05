"""Creates the missing internal topics of a streams group, with the rights of the member whose heartbeat needs them.

Which topics these are: group/streams/topic_configuration.py. The heartbeat does not wait for their creation; a later
one finds them. If a topic cannot be created, the error is cached for two heartbeat intervals. In that time the status
of heartbeats has it, and the topic is not requested again.
"""

from collections.abc import Mapping
from typing import Final

from kafkapy.group.streams.configured_topology import ConfiguredInternalTopic, StatusCode
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.handlers.data_plane import TopicAccess
from kafkapy.handlers.topics.auto_create import create_configured_topics_soon
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreatableTopicConfig
from kafkapy.protocol.messages.streams_group_heartbeat_response import Status
from kafkapy.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType

MAX_ERRORS_NAMED: Final = 3
"""Topics that a status names; it is sent with each heartbeat."""


def create_internal_topics(
    services: Services,
    context: RequestContext,
    topics: Mapping[str, ConfiguredInternalTopic],
    statuses: list[Status],
    cached_ms: int,
) -> None:
    """Request the creation of topics, without waiting for it. None is requested if the member may not create all.

    `statuses`, those of the response, get the missing right or the errors of earlier attempts. cached_ms: for how long
    an error is cached.
    """
    denied = _denied(services, context, topics)
    missing = next((each for each in statuses if each.status_code == StatusCode.MISSING_INTERNAL_TOPICS), None)
    if denied:
        text = f"Unauthorized to CREATE on topics {', '.join(denied)}."
        if missing is None:
            statuses.append(Status(int(StatusCode.MISSING_INTERNAL_TOPICS), status_detail=text))
        else:
            missing.status_detail += f"; {text}"
        return
    # All members' heartbeats name the same topics: those in creation, or with a cached error, are not requested again.
    in_creation, now_ms = services.topics_in_creation, services.clock.monotonic_ms()
    wanted = [_creatable(topic) for topic in topics.values() if not in_creation.cached_errors((topic.name,), now_ms)]
    create_configured_topics_soon(
        services,
        context,
        wanted,
        lambda name, reason: in_creation.cache_error(
            name, reason, now_ms=services.clock.monotonic_ms(), cached_ms=cached_ms
        ),
    )
    errors = in_creation.cached_errors(topics, now_ms)
    if missing is not None and errors:
        missing.status_detail += f"; Creation failed: {_summary(errors)}."


def _denied(services: Services, context: RequestContext, topics: Mapping[str, ConfiguredInternalTopic]) -> list[str]:
    if services.authorizer.authorize(
        context, AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, log_if_denied=False
    ):
        return []
    return TopicAccess(services, context, AclOperation.CREATE).denied(topics)


def _creatable(topic: ConfiguredInternalTopic) -> CreatableTopic:
    return CreatableTopic(
        topic.name,
        num_partitions=topic.number_of_partitions,
        replication_factor=topic.replication_factor or -1,
        configs=[CreatableTopicConfig(key, value=value) for key, value in topic.topic_configs.items()],
    )


def _summary(errors: Mapping[str, str]) -> str:
    texts = [f"{name} ({reason})" for name, reason in list(errors.items())[:MAX_ERRORS_NAMED]]
    more = len(errors) - MAX_ERRORS_NAMED
    return f"{', '.join(texts)} and {more} more" if more > 0 else ", ".join(texts)
