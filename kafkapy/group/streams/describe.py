"""A streams group as StreamsGroupDescribe shows it."""

from collections.abc import Iterable, Sequence

from kafkapy.group.hash_order import natural_order
from kafkapy.group.streams.assignor_spec import TaskOffsets
from kafkapy.group.streams.configured_topology import ConfiguredInternalTopic, ConfiguredTopology
from kafkapy.group.streams.group import StreamsGroup
from kafkapy.group.streams.member import StreamsMember
from kafkapy.group.streams.task_offsets import MemberTaskOffsets
from kafkapy.group.streams.tasks import EMPTY_TASKS, TasksTuple, task_ids
from kafkapy.group.streams.topology import StreamsTopology
from kafkapy.protocol.messages.streams_group_describe_response import (
    Assignment,
    DescribedGroup,
    Endpoint,
    KeyValue,
    Member,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    Topology,
)
from kafkapy.protocol.messages.streams_group_topology_value import TopicInfo as StoredTopic


def described_group(
    group: StreamsGroup, members: Iterable[StreamsMember], assignor_name: str, *, has_topology: bool
) -> DescribedGroup:
    """Return the group with some of its members. It may be described in parts, of which one has its topology."""
    log = group.log
    topology = _topology(group) if has_topology else None
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=log.group_epoch,
        assignment_epoch=log.assignment_epoch,
        topology=topology,
        assignor_name=assignor_name,
        members=[
            _member(member, log.targets.get(member.member_id, EMPTY_TASKS), group.offsets_of(member.member_id))
            for member in members
        ],
    )


def _topology(group: StreamsGroup) -> Topology | None:
    """Return the configured topology, else the one that members sent. Cached: it may have 1,000 subtopologies."""
    configured = group.configured
    source = configured if configured is not None and configured.is_ready else group.log.topology
    if source is None:
        return None
    kept = group.described_topology
    if kept is None or kept[0] is not source:
        made = _configured(source) if isinstance(source, ConfiguredTopology) else _stored(source)
        kept = group.described_topology = source, made
    return kept[1]


def topics_of(group: DescribedGroup) -> set[str]:
    """Return all topics that a described group names. A client needs DESCRIBE on all of them."""
    if group.topology is None:
        return set()
    names: set[str] = set()
    for each in group.topology.subtopologies or ():
        names.update(each.source_topics, each.repartition_sink_topics)
        names.update(topic.name for topic in (*each.repartition_source_topics, *each.state_changelog_topics))
    return names


def _member(member: StreamsMember, target: TasksTuple, offsets: MemberTaskOffsets) -> Member:
    endpoint, assigned = member.user_endpoint, member.assigned
    return Member(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else Endpoint(endpoint.host, port=endpoint.port),
        client_tags=[KeyValue(key, value=value) for key, value in member.client_tags.items()],
        task_offsets=_offsets(offsets.offsets),
        task_end_offsets=_offsets(offsets.end_offsets),
        assignment=Assignment(
            task_ids(TaskIds, assigned.active_partitions),
            standby_tasks=task_ids(TaskIds, assigned.standby),
            warmup_tasks=task_ids(TaskIds, assigned.warmup),
        ),
        target_assignment=Assignment(
            task_ids(TaskIds, target.active),
            standby_tasks=task_ids(TaskIds, target.standby),
            warmup_tasks=task_ids(TaskIds, target.warmup),
        ),
    )


def _offsets(offsets: TaskOffsets) -> list[TaskOffset]:
    return [
        TaskOffset(subtopology_id, partition=partition, offset=offset)
        for subtopology_id in sorted(offsets, key=natural_order)
        for partition, offset in sorted(offsets[subtopology_id].items())
    ]


def _configured(topology: ConfiguredTopology) -> Topology:
    return Topology(
        topology.topology_epoch,
        subtopologies=[
            Subtopology(
                subtopology_id,
                source_topics=sorted(each.source_topics, key=natural_order),
                repartition_sink_topics=sorted(each.repartition_sink_topics, key=natural_order),
                state_changelog_topics=_internal_topics(each.state_changelog_topics.values()),
                repartition_source_topics=_internal_topics(each.repartition_source_topics.values()),
            )
            for subtopology_id, each in (topology.subtopologies or {}).items()
        ],
    )


def _internal_topics(topics: Iterable[ConfiguredInternalTopic]) -> list[TopicInfo]:
    return [
        TopicInfo(
            topic.name,
            partitions=topic.number_of_partitions,
            replication_factor=topic.replication_factor or 0,
            topic_configs=[KeyValue(key, value=value) for key, value in topic.topic_configs.items()],
        )
        for topic in sorted(topics, key=lambda topic: natural_order(topic.name))
    ]


def _stored(topology: StreamsTopology) -> Topology:
    """Return the topology as members sent it, whose internal topics have no number of partitions yet."""
    return Topology(
        topology.topology_epoch,
        subtopologies=[
            Subtopology(
                subtopology_id,
                source_topics=sorted(each.source_topics, key=natural_order),
                repartition_sink_topics=sorted(each.repartition_sink_topics, key=natural_order),
                state_changelog_topics=_stored_topics(each.state_changelog_topics),
                repartition_source_topics=_stored_topics(each.repartition_source_topics),
            )
            for subtopology_id, each in sorted(topology.subtopologies.items(), key=lambda item: natural_order(item[0]))
        ],
    )


def _stored_topics(topics: Sequence[StoredTopic]) -> list[TopicInfo]:
    return [
        TopicInfo(
            topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[KeyValue(each.key, value=each.value) for each in topic.topic_configs],
        )
        for topic in sorted(topics, key=lambda topic: natural_order(topic.name))
    ]
