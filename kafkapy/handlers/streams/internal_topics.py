"""Creates the internal topics of a streams group that are missing, with the rights of the member that asks for them.

Nothing waits for it: a later heartbeat finds the topics. An error is shown in the status of heartbeats for a while, and
the topic is tried again only after that.
"""

from collections.abc import Mapping
from typing import Final

from kafkapy.group.streams.configured_topology import ConfiguredInternalTopic, StatusCode
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.handlers.data_plane import TopicAccess
from kafkapy.handlers.topics.auto_create import create_soon
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreatableTopicConfig
from kafkapy.protocol.messages.streams_group_heartbeat_response import Status
from kafkapy.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType

MAX_ERRORS_TOLD: Final = 3


def create_internal_topics(
    services: Services,
    context: RequestContext,
    topics: Mapping[str, ConfiguredInternalTopic],
    statuses: list[Status],
    held_ms: int,
) -> None:
    """Start to create topics, none if the member may not create all; add what is in the way to the statuses.

    held_ms: for how long a topic that could not be created is not tried again.
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
    # each heartbeat of each member comes by here: what is being created, or has just failed, is not tried again
    in_creation, now_ms = services.topics_in_creation, services.clock.monotonic_ms()
    wanted = [_creatable(topic) for topic in topics.values() if not in_creation.errors_of((topic.name,), now_ms)]
    create_soon(
        services,
        context,
        wanted,
        lambda name, reason: in_creation.hold_error(
            name, reason, now_ms=services.clock.monotonic_ms(), held_ms=held_ms
        ),
    )
    errors = in_creation.errors_of(topics, now_ms)
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
    texts = [f"{name} ({reason})" for name, reason in list(errors.items())[:MAX_ERRORS_TOLD]]
    more = len(errors) - MAX_ERRORS_TOLD
    return f"{', '.join(texts)} and {more} more" if more > 0 else ", ".join(texts)
