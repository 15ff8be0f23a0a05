"""Share groups for `kafkapy groups`: librdkafka's admin client neither lists nor describes them.

Versions: ListGroups 5, the first with types; FindCoordinator 1; ShareGroupDescribe 1; DescribeShareGroupOffsets 1, the
first with the lag. A broker that lacks them has no share groups.
"""

from typing import Any, Final

from kafkapy.cli.committed_offsets import GROUP_KEY_TYPE, BrokerCalls, CoordinatorError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.list_groups_request import ListGroupsRequest
from kafkapy.protocol.messages.metadata_request import MetadataRequest
from kafkapy.protocol.messages.share_group_describe_request import ShareGroupDescribeRequest

TYPE: Final = "Share"


def share_group_ids(brokers: BrokerCalls) -> dict[str, str]:
    """Return the state of each share group, by id; none of brokers that do not answer."""
    found: dict[str, str] = {}
    try:
        metadata = brokers.call(None, MetadataRequest(topics=[], allow_auto_topic_creation=False), 5)
    except CoordinatorError:
        return found
    for broker in metadata.brokers:
        try:
            listed = brokers.call(broker.node_id, ListGroupsRequest(types_filter=["share"]), 5)
        except CoordinatorError:
            continue
        found |= {each.group_id: each.group_state for each in listed.groups}
    return found


def describe_share_group(brokers: BrokerCalls, group_id: str) -> dict[str, Any] | None:
    """Return what `groups describe` shows of a share group; None if there is none with this id."""
    try:
        coordinator = brokers.call(None, FindCoordinatorRequest(key=group_id, key_type=GROUP_KEY_TYPE), 1)
        if coordinator.error_code:
            return None
        (group,) = brokers.call(coordinator.node_id, ShareGroupDescribeRequest([group_id]), 1).groups
        if group.error_code != ErrorCode.NONE:
            return None
        requested = DescribeShareGroupOffsetsRequestGroup(group_id, topics=None)
        answer = brokers.call(coordinator.node_id, DescribeShareGroupOffsetsRequest([requested]), 1)
    except CoordinatorError:
        return None
    partitions = [
        {"topic": topic.topic_name, "partition": each.partition_index, "start": each.start_offset, "lag": each.lag}
        for topic in answer.groups[0].topics
        for each in topic.partitions
    ]
    return {
        "group": group_id,
        "type": TYPE,
        "state": group.group_state,
        "assignor": group.assignor_name,
        "coordinator": f"{coordinator.host}:{coordinator.port}",
        "lag": sum(max(each["lag"], 0) for each in partitions),
        "partitions": sorted(partitions, key=lambda each: (each["topic"], each["partition"])),
        "members": [_member(each) for each in group.members],
    }


def _member(member: Any) -> dict[str, Any]:
    return {
        "member": member.member_id,
        "instance": None,
        "client": member.client_id,
        "host": member.client_host,
        "partitions": sum(len(topic.partitions) for topic in member.assignment.topic_partitions),
    }
