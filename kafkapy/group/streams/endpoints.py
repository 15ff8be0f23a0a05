"""Which partitions the application answers interactive queries for at which endpoint (application.server)."""

from collections.abc import Iterable, Mapping

from kafkapy.group.streams.configured_topology import ConfiguredSubtopology, ConfiguredTopology
from kafkapy.group.streams.member import StreamsMember, UserEndpoint
from kafkapy.group.streams.tasks import Tasks
from kafkapy.metadata.image import MetadataImage
from kafkapy.protocol.messages.streams_group_heartbeat_response import Endpoint, EndpointToPartitions, TopicPartition


def endpoint_partitions(
    members: Iterable[StreamsMember], topology: ConfiguredTopology, image: MetadataImage
) -> list[EndpointToPartitions]:
    """Return the source partitions of the tasks of each member that has an endpoint.

    Deviation: Apache Kafka answers UNKNOWN_SERVER_ERROR as long as source topics are missing. Here the endpoints have
    no partitions then, because the member would not be told what is missing.
    """
    return [
        _of_member(member, member.user_endpoint, topology.subtopologies or {}, image)
        for member in members
        if member.user_endpoint is not None
    ]


def _of_member(
    member: StreamsMember,
    endpoint: UserEndpoint,
    subtopologies: Mapping[str, ConfiguredSubtopology],
    image: MetadataImage,
) -> EndpointToPartitions:
    assigned = member.assigned
    copies = {
        each: assigned.standby.get(each, frozenset()) | assigned.warmup.get(each, frozenset())
        for each in {**assigned.standby, **assigned.warmup}
    }
    return EndpointToPartitions(
        Endpoint(endpoint.host, port=endpoint.port),
        active_partitions=_partitions(assigned.active_partitions, subtopologies, image),
        standby_partitions=_partitions(copies, subtopologies, image),
    )


def _partitions(
    tasks: Tasks, subtopologies: Mapping[str, ConfiguredSubtopology], image: MetadataImage
) -> list[TopicPartition]:
    found = []
    for subtopology_id, numbers in tasks.items():
        subtopology = subtopologies.get(subtopology_id)
        if subtopology is None:
            continue
        for name in sorted(subtopology.source_topics | subtopology.repartition_source_topics.keys()):
            topic = image.topics.by_name.get(name)
            partitions = [] if topic is None else sorted(each for each in numbers if each < len(topic.partitions))
            if partitions:
                found.append(TopicPartition(name, partitions=partitions))
    return found
