"""Groups of consumers described, deleted and moved, by their coordinator over connections of our own.

Not by librdkafka: if such a request has timed out, and its coordinator responds after all, as a suspended machine does,
an assertion ends the process by SIGABRT (librdkafka 2.16.0, rd_kafka_enq_once_del_source_return).

Versions: FindCoordinator 1, ConsumerGroupDescribe 0, DescribeGroups 4, DeleteGroups 1, OffsetCommit 2.
"""

from collections.abc import Mapping
from typing import Any, Final

from kafkapy.cli.addresses import host_port
from kafkapy.cli.committed_offsets import BrokerCalls, NoResponseError, Partition, ask_coordinator, check, described_by
from kafkapy.cli.deadline import TIMEOUT_S
from kafkapy.dataclass import dataclass
from kafkapy.errors import ProtocolError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from kafkapy.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from kafkapy.protocol.messages.delete_groups_request import DeleteGroupsRequest
from kafkapy.protocol.messages.describe_groups_request import DescribeGroupsRequest
from kafkapy.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

DEAD: Final = "Dead"
CONSUMER_PROTOCOL: Final = "consumer"
MEMBERS: Final = "it has members, stop them first"
VERSION_BYTES: Final = 2
"""Before an assignment of the consumer protocol."""


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """`instance_id`: "" unless the member is static; `partitions`: () if another protocol assigned what it works on."""

    member_id: str
    instance_id: str
    client_id: str
    host: str
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """`type`: Classic or Consumer (KIP-848); `state`: as Kafka names it, DEAD if there is no such group.

    `coordinator`: its id; `address`: HOST:PORT of it.
    """

    group_id: str
    type: str
    state: str
    assignor: str
    coordinator: int
    address: str
    members: tuple[ConsumerMember, ...]


def describe_consumers(brokers: BrokerCalls, group_id: str, timeout_s: float = TIMEOUT_S) -> ConsumerGroup:
    """Return a group of either protocol. Raises CoordinatorError.

    A group that is not there, or is a share group or a streams group, is Dead, as DescribeGroups has it. timeout_s: how
    long a coordinator that moves is looked for.
    """
    return ask_coordinator(
        brokers, group_id, lambda coordinator: described_at(brokers, coordinator, group_id), timeout_s
    )


def described_at(brokers: BrokerCalls, coordinator: Any, group_id: str) -> ConsumerGroup:
    """Like describe_consumers, of this coordinator: FindCoordinator's response. Raises CoordinatorError."""
    modern = described_by(brokers, coordinator.node_id, ConsumerGroupDescribeRequest([group_id]), 0)
    if modern is not None:
        return _of_modern(modern, coordinator)
    (classic,) = brokers.call(coordinator.node_id, DescribeGroupsRequest([group_id]), 4).groups
    check(classic.error_code, None)
    return _of_classic(classic, coordinator)


def delete_group(brokers: BrokerCalls, group_id: str, timeout_s: float = TIMEOUT_S) -> None:
    """Delete a group of any type that has no members. Raises CoordinatorError.

    timeout_s: how long a coordinator that moves is looked for.
    """
    may_be_done = False

    def ask(coordinator: Any) -> None:
        nonlocal may_be_done
        try:
            (result,) = brokers.call(coordinator.node_id, DeleteGroupsRequest([group_id]), 1).results
        except NoResponseError as error:
            may_be_done |= error.may_be_done
            raise
        if may_be_done and result.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return  # the request before, whose response was lost, has deleted it
        check(result.error_code, MEMBERS if result.error_code == ErrorCode.NON_EMPTY_GROUP else None)

    ask_coordinator(brokers, group_id, ask, timeout_s)


def commit_offsets(brokers: BrokerCalls, group_id: str, offsets: Mapping[Partition, int]) -> None:
    """Move a group that has no members to these offsets. Raises CoordinatorError for the first that is refused."""
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, number), offset in offsets.items():
        by_topic.setdefault(topic, []).append(OffsetCommitRequestPartition(number, committed_offset=offset))
    topics = [OffsetCommitRequestTopic(topic, partitions=partitions) for topic, partitions in by_topic.items()]

    def ask(coordinator: Any) -> None:
        response = brokers.call(coordinator.node_id, OffsetCommitRequest(group_id, topics=topics), 2)
        for topic in response.topics:
            for each in topic.partitions:
                has_members = each.error_code == ErrorCode.UNKNOWN_MEMBER_ID
                check(each.error_code, MEMBERS if has_members else None)

    ask_coordinator(brokers, group_id, ask)


def _of_modern(group: Any, coordinator: Any) -> ConsumerGroup:
    members = tuple(
        ConsumerMember(
            each.member_id,
            each.instance_id or "",
            each.client_id,
            each.client_host,
            tuple(
                sorted(
                    (topic.topic_name, one) for topic in each.assignment.topic_partitions for one in topic.partitions
                )
            ),
        )
        for each in group.members
    )
    return ConsumerGroup(group.group_id, "Consumer", group.group_state, group.assignor_name, *_at(coordinator), members)


def _of_classic(group: Any, coordinator: Any) -> ConsumerGroup:
    is_of_consumers = group.protocol_type == CONSUMER_PROTOCOL
    members = tuple(
        ConsumerMember(
            each.member_id,
            each.group_instance_id or "",
            each.client_id,
            each.client_host,
            _assigned(bytes(each.member_assignment)) if is_of_consumers else (),
        )
        for each in group.members
    )
    return ConsumerGroup(group.group_id, "Classic", group.group_state, group.protocol_data, *_at(coordinator), members)


def _at(coordinator: Any) -> tuple[int, str]:
    return coordinator.node_id, host_port(coordinator.host, coordinator.port)


def _assigned(assignment: bytes) -> tuple[Partition, ...]:
    """Return the partitions of a classic member; none if it is not assigned yet, or by bytes of no known form."""
    if len(assignment) < VERSION_BYTES:
        return ()
    version = min(int.from_bytes(assignment[:VERSION_BYTES], "big"), ConsumerProtocolAssignment.MAX_VERSION)
    try:
        found = ConsumerProtocolAssignment.read(assignment, VERSION_BYTES, version)[0]
    except ProtocolError:
        return ()
    return tuple(sorted((topic.topic, number) for topic in found.assigned_partitions for number in topic.partitions))
