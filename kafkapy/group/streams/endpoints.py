"""The partitions by endpoint (application.server) at which a Streams application answers interactive queries."""

from collections.abc import Iterable, Mapping

from kafkapy.group.streams.configured_topology import ConfiguredSubtopology, ConfiguredTopology
from kafkapy.group.streams.member import StreamsMember, UserEndpoint
from kafkapy.group.streams.tasks import AssignedTasks, Tasks
from kafkapy.metadata.image import TopicsImage
from kafkapy.protocol.messages.streams_group_heartbeat_response import Endpoint, EndpointToPartitions, TopicPartition


class Endpoints:
    """The endpoints of a group's members, cached until a member's tasks, the topology or the topics change."""

    def __init__(self) -> None:
        self._topology: ConfiguredTopology | None = None
        self._topics: TopicsImage | None = None
        self._made: dict[str, tuple[AssignedTasks, EndpointToPartitions]] = {}
        """By member id: its tasks, and the endpoint for them."""

    def of(
        self, members: Iterable[StreamsMember], topology: ConfiguredTopology, topics: TopicsImage
    ) -> list[EndpointToPartitions]:
        """Return the source partitions of the tasks of each member that has an endpoint.

        Deviation: Apache Kafka answers UNKNOWN_SERVER_ERROR as long as source topics are missing. Here the endpoints
        have no partitions then, because the member would not learn what is missing.
        """
        before = self._made if self._topology is topology and self._topics is topics else {}
        self._topology, self._topics, self._made = topology, topics, {}
        subtopologies = topology.subtopologies or {}
        for member in members:
            endpoint = member.user_endpoint
            if endpoint is not None:
                made = _of_member(member, endpoint, subtopologies, topics, before.get(member.member_id))
                self._made[member.member_id] = member.assigned, made
        return [endpoint for _, endpoint in self._made.values()]


def _of_member(
    member: StreamsMember,
    endpoint: UserEndpoint,
    subtopologies: Mapping[str, ConfiguredSubtopology],
    topics: TopicsImage,
    made: tuple[AssignedTasks, EndpointToPartitions] | None,
) -> EndpointToPartitions:
    """Return a member's endpoint: `made`, the cached one, if that still fits."""
    assigned = member.assigned
    if made is not None and made[0] is assigned:
        cached = made[1].user_endpoint
        if (cached.host, cached.port) == (endpoint.host, endpoint.port):
            return made[1]
    copies = {
        each: assigned.standby.get(each, frozenset()) | assigned.warmup.get(each, frozenset())
        for each in {**assigned.standby, **assigned.warmup}
    }
    return EndpointToPartitions(
        Endpoint(endpoint.host, port=endpoint.port),
        active_partitions=_partitions(assigned.active_partitions, subtopologies, topics),
        standby_partitions=_partitions(copies, subtopologies, topics),
    )


def _partitions(
    tasks: Tasks, subtopologies: Mapping[str, ConfiguredSubtopology], topics: TopicsImage
) -> list[TopicPartition]:
    found = []
    for subtopology_id, numbers in tasks.items():
        subtopology = subtopologies.get(subtopology_id)
        if subtopology is None:
            continue
        for name in sorted(subtopology.source_topics | subtopology.repartition_source_topics.keys()):
            topic = topics.by_name.get(name)
            partitions = [] if topic is None else sorted(each for each in numbers if each < len(topic.partitions))
            if partitions:
                found.append(TopicPartition(name, partitions=partitions))
    return found
