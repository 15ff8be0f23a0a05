"""What librdkafka does not know: share groups (KIP-932), streams groups (KIP-1071), and groups of any type.

share_groups.py and streams_groups.py have more about them. Versions: ShareGroupDescribe 1, DescribeShareGroupOffsets 0
and 1 (with the lag), StreamsGroupDescribe 0 and 1 (with the assignor).
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kafkapy.cli.streams_groups import readers_of, task_ids
from kafkapy.console import groups
from kafkapy.console.brokers import Brokers, ClusterError, NotFound, check
from kafkapy.console.client import Clients, failures
from kafkapy.console.groups import MAX_OFFSETS, SHARE, STREAMS, Group, GroupRow, Member, offset_row
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.protocol.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.share_group_describe_request import ShareGroupDescribeRequest
from kafkapy.protocol.messages.streams_group_describe_request import StreamsGroupDescribeRequest

GROUP_KEY_TYPE: Final = 0
LAG_SINCE: Final = 1
ASSIGNOR_SINCE: Final = 1


def group_list(brokers: Brokers, clients: Clients) -> tuple[list[GroupRow], list[str]]:
    """Like groups.group_list, without a wait for each broker that hangs. Raises ClusterError."""
    brokers.find_silent([each.node_id for each in brokers.nodes()])
    return groups.group_list(clients)


def group(brokers: Brokers, clients: Clients, name: str) -> Group:
    """Return a share group or streams group. Raises ClusterError; NotFound if there is none of that name."""
    coordinator = coordinator_of(brokers, name)
    served = _served(brokers, coordinator)
    if ShareGroupDescribeRequest.API_KEY in served:
        (described,) = brokers.call(coordinator, ShareGroupDescribeRequest([name]), 1).groups
        if described.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
            check(described.error_code, described.error_message)
            return _share_group(brokers, clients, described, coordinator)
    if StreamsGroupDescribeRequest.API_KEY in served:
        version = min(ASSIGNOR_SINCE, served[StreamsGroupDescribeRequest.API_KEY])
        (described,) = brokers.call(coordinator, StreamsGroupDescribeRequest([name]), version).groups
        if described.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
            check(described.error_code, described.error_message)
            return _streams_group(clients, described, coordinator)
    raise NotFound(f"There is no group {name}.")


def any_group(brokers: Brokers, clients: Clients, name: str) -> Group:
    """Return a group of any kind. Raises ClusterError, NotFound."""
    try:
        return groups.group(clients, name)
    except NotFound:
        return group(brokers, clients, name)


def share_groups_of_topic(brokers: Brokers, topic: str, names: Iterable[str]) -> list[tuple[str, int | None]]:
    """Return the share groups of these that read a topic, with their lag there, None if it is not known."""
    found: list[tuple[str, int | None]] = []
    for name in names:
        try:
            described = _share_offsets(brokers, coordinator_of(brokers, name), name, topic)
        except ClusterError:
            continue  # without the right to it
        if described:
            lags = [lag for _, lag in described.values() if lag is not None]
            found.append((name, sum(lags) if len(lags) == len(described) else None))
    return found


def _share_group(brokers: Brokers, clients: Clients, described: Any, coordinator: int) -> Group:
    members = tuple(
        Member(each.member_id, "", each.client_id, each.client_host, _partitions(each.assignment))
        for each in described.members
    )
    offsets = _share_offsets(brokers, coordinator, described.group_id)
    readers: dict[tuple[str, int], list[str]] = {}
    for member in members:
        for partition in member.partitions:
            readers.setdefault(partition, []).append(member.client_id)
    wanted = sorted({*offsets, *readers})[:MAX_OFFSETS]
    with failures():
        ends = clients.offsets(described.group_id).ends_of_existing(wanted)
    rows = tuple(
        offset_row(each, start, ends, ", ".join(sorted(set(readers.get(each, ())))), lag)
        for each in wanted
        for start, lag in [offsets.get(each, (None, None))]
    )
    return Group(described.group_id, SHARE, described.group_state, described.assignor_name, coordinator, members, rows)


def _share_offsets(
    brokers: Brokers, coordinator: int, name: str, topic: str | None = None
) -> dict[tuple[str, int], tuple[int | None, int | None]]:
    """Return (start offset, lag) of each partition that the group has begun to read. Raises ClusterError."""
    version = min(LAG_SINCE, _served(brokers, coordinator).get(DescribeShareGroupOffsetsRequest.API_KEY, 0))
    topics = (
        None if topic is None else [DescribeShareGroupOffsetsRequestTopic(topic, partitions=_numbers(brokers, topic))]
    )
    request = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(name, topics=topics)])
    (described,) = brokers.call(coordinator, request, version).groups
    check(described.error_code, described.error_message)
    return {
        (of_topic.topic_name, each.partition_index): (each.start_offset, each.lag if each.lag >= 0 else None)
        for of_topic in described.topics
        for each in of_topic.partitions
        if not each.error_code and each.start_offset >= 0
    }


def _streams_group(clients: Clients, described: Any, coordinator: int) -> Group:
    """Its members have tasks; its partitions are those with committed offsets."""
    members = tuple(
        Member(each.member_id, each.instance_id or "", each.client_id, each.client_host, _tasks(each.assignment))
        for each in described.members
    )
    with failures():
        offsets = clients.offsets(described.group_id)
        committed = dict(sorted(offsets.committed().items())[:MAX_OFFSETS])
        ends = offsets.ends_of_existing(committed)
    readers = {each: member.client_id for each, member in readers_of(described).items()}
    rows = tuple(offset_row(each, at, ends, readers.get(each, "")) for each, at in committed.items())
    assignor = described.assignor_name or ""
    return Group(described.group_id, STREAMS, described.group_state, assignor, coordinator, members, rows, described)


def _partitions(assignment: Any) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((each.topic_name, one) for each in assignment.topic_partitions for one in each.partitions))


def _tasks(assignment: Any) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(task_ids(assignment.active_tasks)))


def _numbers(brokers: Brokers, topic: str) -> list[int]:
    return [each.partition_index for each in brokers.topic(topic).partitions]


def coordinator_of(brokers: Brokers, name: str) -> int:
    """Return the coordinator of a group. Raises ClusterError."""
    request = FindCoordinatorRequest(key_type=GROUP_KEY_TYPE, coordinator_keys=[name])
    (found,) = brokers.call(None, request, 4).coordinators
    check(found.error_code, found.error_message)
    return int(found.node_id)


def _served(brokers: Brokers, node_id: int) -> Mapping[int, int]:
    """Return the highest version of each API that a broker serves."""
    request = ApiVersionsRequest(client_software_name="kafkapy-console", client_software_version="1")
    response = brokers.call(node_id, request, 3)
    check(response.error_code)
    return {each.api_key: each.max_version for each in response.api_keys}
