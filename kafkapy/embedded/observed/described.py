"""Groups as their coordinators describe them, each kind by its own APIs: classic, consumer, share and streams."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from kafkapy.dataclass import dataclass
from kafkapy.embedded.observed.fetching import offsets_of
from kafkapy.embedded.observed.nodes import Nodes, raise_error
from kafkapy.embedded.observed.waiting import ObservationError
from kafkapy.errors import unknown
from kafkapy.group.embedded import read_assignment
from kafkapy.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from kafkapy.protocol.messages.describe_groups_request import DescribeGroupsRequest
from kafkapy.protocol.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kafkapy.protocol.messages.list_groups_request import ListGroupsRequest
from kafkapy.protocol.messages.offset_fetch_request import OffsetFetchRequest
from kafkapy.protocol.messages.share_group_describe_request import ShareGroupDescribeRequest
from kafkapy.protocol.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from kafkapy.types import TopicPartition

CLASSIC: Final = "classic"
SHARE: Final = "share"
CONSUMER_PROTOCOL: Final = "consumer"
NO_OFFSET: Final = -1


@dataclass(slots=True, frozen=True)
class Member:
    """A member of a group. `instance_id`: of a static member; None for the others."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    assignment: tuple[TopicPartition, ...]

    def __str__(self) -> str:
        return f"{self.client_id} ({self.member_id}): {', '.join(map(str, self.assignment)) or 'nothing'}"


@dataclass(slots=True, frozen=True)
class Description:
    """A group at one moment. `state`: as Kafka names it, "Stable", "Empty", ...; `type`: classic, consumer, ..."""

    group_id: str
    type: str
    state: str
    members: tuple[Member, ...]
    coordinator: int

    @property
    def assigned(self) -> set[TopicPartition]:
        return {partition for member in self.members for partition in member.assignment}


def groups_of(nodes: Nodes) -> dict[str, tuple[int, str]]:
    """Return the coordinator and the type of each group. Raises ApiError while a coordinator loads its groups."""
    found: dict[str, tuple[int, str]] = {}
    for node_id in nodes.ids():
        response = nodes.ask(node_id, ListGroupsRequest())
        raise_error(response.error_code, f"node {node_id}")
        for group in response.groups:
            found[group.group_id] = (node_id, (group.group_type or CLASSIC).lower())
    return found


def describe(nodes: Nodes, group_id: str) -> Description:
    """Ask a group's coordinator for the group. Raises ObservationError if there is no such group, ApiError."""
    known = groups_of(nodes)
    if group_id not in known:
        raise ObservationError(unknown("group", group_id, known))
    coordinator, kind = known[group_id]
    if kind not in REQUESTS:
        raise ObservationError(f"group {group_id} is of the type {kind}, which is not looked at")
    new_request, members = REQUESTS[kind]
    found = nodes.ask(coordinator, new_request(group_id)).groups[0]
    raise_error(found.error_code, f"group {group_id}")
    return Description(group_id, kind, found.group_state, tuple(members(found)), coordinator)


def committed_offsets(nodes: Nodes, group: Description) -> dict[TopicPartition, int]:
    """Return the offsets that a group has committed; of a share group, the start offsets that are stored."""
    if group.type == SHARE:
        return {partition: start for partition, (start, _) in _share_offsets(nodes, group).items()}
    response = nodes.ask(group.coordinator, OffsetFetchRequest(group_id=group.group_id, topics=None))
    raise_error(response.error_code, f"group {group.group_id}")
    return {
        TopicPartition(topic.name, each.partition_index): each.committed_offset
        for topic in response.topics
        for each in topic.partitions
        if each.committed_offset != NO_OFFSET
    }


def lags_of(nodes: Nodes, group: Description) -> dict[TopicPartition, int]:
    """Return how many records of each partition a group has not finished; of a share group, as the broker counts them.

    Without a committed offset, all records of a partition that is assigned count.
    """
    if group.type == SHARE:
        return {partition: lag for partition, (_, lag) in _share_offsets(nodes, group).items()}
    committed = committed_offsets(nodes, group)
    partitions = sorted({*committed, *group.assigned})
    offsets = offsets_of(nodes, partitions)
    return {each: max(0, offsets[each].end - committed.get(each, offsets[each].start)) for each in partitions}


def _share_offsets(nodes: Nodes, group: Description) -> dict[TopicPartition, tuple[int, int]]:
    requested = DescribeShareGroupOffsetsRequestGroup(group_id=group.group_id, topics=None)
    response = nodes.ask(group.coordinator, DescribeShareGroupOffsetsRequest(groups=[requested])).groups[0]
    raise_error(response.error_code, f"group {group.group_id}")
    return {
        TopicPartition(topic.topic_name, each.partition_index): (each.start_offset, each.lag)
        for topic in response.topics
        for each in topic.partitions
        if each.start_offset != NO_OFFSET
    }


def _classic_members(group: Any) -> Iterator[Member]:
    is_consumer = group.protocol_type == CONSUMER_PROTOCOL
    for each in group.members:
        assigned: tuple[TopicPartition, ...] = ()
        if is_consumer and each.member_assignment:
            topics = read_assignment(each.member_assignment).assigned_partitions
            assigned = tuple(TopicPartition(topic.topic, number) for topic in topics for number in topic.partitions)
        yield Member(each.member_id, each.client_id, each.client_host, each.group_instance_id, tuple(sorted(assigned)))


def _modern_members(group: Any) -> Iterator[Member]:
    for each in group.members:
        topics = each.assignment.topic_partitions if each.assignment is not None else ()
        assigned = sorted(TopicPartition(topic.topic_name, number) for topic in topics for number in topic.partitions)
        yield Member(
            each.member_id, each.client_id, each.client_host, getattr(each, "instance_id", None), tuple(assigned)
        )


def _streams_members(group: Any) -> Iterator[Member]:
    """Yield members with the partitions that their active tasks read: of the topics of the tasks' subtopologies."""
    subtopologies = (group.topology.subtopologies or ()) if group.topology is not None else ()
    topics = {
        each.subtopology_id: [*each.source_topics, *(source.name for source in each.repartition_source_topics)]
        for each in subtopologies
    }
    for each in group.members:
        tasks = each.assignment.active_tasks if each.assignment is not None else ()
        assigned = sorted(
            TopicPartition(topic, number)
            for task in tasks
            for topic in topics.get(task.subtopology_id, ())
            for number in task.partitions
        )
        yield Member(each.member_id, each.client_id, each.client_host, each.instance_id, tuple(assigned))


REQUESTS: Final[dict[str, tuple[Callable[[str], Any], Callable[[Any], Iterator[Member]]]]] = {
    CLASSIC: (lambda group_id: DescribeGroupsRequest(groups=[group_id]), _classic_members),
    "consumer": (lambda group_id: ConsumerGroupDescribeRequest(group_ids=[group_id]), _modern_members),
    SHARE: (lambda group_id: ShareGroupDescribeRequest(group_ids=[group_id]), _modern_members),
    "streams": (lambda group_id: StreamsGroupDescribeRequest(group_ids=[group_id]), _streams_members),
}
