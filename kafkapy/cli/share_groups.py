"""Share groups for `kafkapy groups` and the console: librdkafka's admin client has no requests for them.

Versions: FindCoordinator 1; ShareGroupDescribe 1; DescribeShareGroupOffsets 1, the first with the lag;
AlterShareGroupOffsets 0, DeleteShareGroupOffsets 0. A broker that lacks them has no share groups.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from kafkapy.cli.committed_offsets import BrokerCalls, Partition, ask_coordinator, check, described_by
from kafkapy.cli.deadline import TIMEOUT_S
from kafkapy.cli.group_names import SHARE
from kafkapy.protocol.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from kafkapy.protocol.messages.delete_share_group_offsets_request import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from kafkapy.protocol.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kafkapy.protocol.messages.share_group_describe_request import ShareGroupDescribeRequest


def describe_share_group(brokers: BrokerCalls, group_id: str, timeout_s: float = TIMEOUT_S) -> dict[str, Any] | None:
    """Return the output of `groups describe` for a share group; None if there is none with this id.

    timeout_s: how long its coordinator is looked for. Raises CoordinatorError.
    """
    return ask_coordinator(
        brokers, group_id, lambda coordinator: _described_at(brokers, coordinator, group_id), timeout_s
    )


def _described_at(brokers: BrokerCalls, coordinator: Any, group_id: str) -> dict[str, Any] | None:
    group = _described(brokers, coordinator.node_id, group_id)
    if group is None:
        return None
    offsets = _offsets(brokers, coordinator.node_id, group_id)
    partitions: list[dict[str, Any]] = [
        {"topic": name, "partition": number, "start": start, "lag": lag}
        for (name, number), (start, lag) in sorted(offsets.items())
    ]
    return {
        "group": group_id,
        "type": SHARE,
        "state": group.group_state,
        "assignor": group.assignor_name,
        "coordinator": f"{coordinator.host}:{coordinator.port}",
        "lag": _sum_of(lag for _, lag in offsets.values()),
        "partitions": partitions,
        "members": [_member(each) for each in group.members],
    }


def member_names(brokers: BrokerCalls, group_id: str) -> dict[str, str] | None:
    """Return `client id (host)` of each member of a share group by its id; None if there is no such group.

    Raises CoordinatorError.
    """
    group = ask_coordinator(brokers, group_id, lambda coordinator: _described(brokers, coordinator.node_id, group_id))
    if group is None:
        return None
    return {member.member_id: f"{member.client_id} ({member.client_host})" for member in group.members}


class ShareOffsets:
    """The start offsets of a share group: a group_offsets.OffsetStore. Methods raise CoordinatorError."""

    def __init__(self, brokers: BrokerCalls, group_id: str) -> None:
        self._brokers = brokers
        self._group_id = group_id

    def committed(self) -> dict[Partition, int]:
        """Return the start offset of each partition that the group has begun to read."""
        offsets = ask_coordinator(
            self._brokers,
            self._group_id,
            lambda coordinator: _offsets(self._brokers, coordinator.node_id, self._group_id),
        )
        return {partition: start for partition, (start, _) in offsets.items() if start is not None and start >= 0}

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Begin to read at these offsets. A group with members is refused by its coordinator."""
        topics: dict[str, AlterShareGroupOffsetsRequestTopic] = {}
        for (name, number), offset in offsets.items():
            topic = topics.setdefault(name, AlterShareGroupOffsetsRequestTopic(name, partitions=[]))
            topic.partitions.append(AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=offset))
        response = self._asked(AlterShareGroupOffsetsRequest(self._group_id, topics=[*topics.values()]))
        for of_topic in response.responses:
            for each in of_topic.partitions:
                check(each.error_code, each.error_message, f"{of_topic.topic_name}-{each.partition_index}: ")

    def delete(self, topics: Iterable[str]) -> None:
        """Forget where the group is in topics: it begins there again by share.auto.offset.reset."""
        requested = [DeleteShareGroupOffsetsRequestTopic(name) for name in topics]
        response = self._asked(DeleteShareGroupOffsetsRequest(self._group_id, topics=requested))
        for each in response.responses:
            check(each.error_code, each.error_message, f"{each.topic_name}: ")

    def _asked(self, request: Any) -> Any:
        """Return the coordinator's response of version 0, which has no error of the whole group."""

        def ask(coordinator: Any) -> Any:
            response = self._brokers.call(coordinator.node_id, request, 0)
            check(response.error_code, response.error_message)
            return response

        return ask_coordinator(self._brokers, self._group_id, ask)


def _described(brokers: BrokerCalls, node_id: int, group_id: str) -> Any:
    """Return ShareGroupDescribe's group; None if there is none. Raises CoordinatorError."""
    return described_by(brokers, node_id, ShareGroupDescribeRequest([group_id]), 1)


def _offsets(brokers: BrokerCalls, node_id: int, group_id: str) -> dict[Partition, tuple[int | None, int | None]]:
    """Return (start offset, lag) of each partition: -1 if the group has not begun to read it, None if it is not known.

    Raises CoordinatorError.
    """
    requested = DescribeShareGroupOffsetsRequestGroup(group_id, topics=None)
    (response,) = brokers.call(node_id, DescribeShareGroupOffsetsRequest([requested]), 1).groups
    check(response.error_code, response.error_message)
    return {
        (topic.topic_name, each.partition_index): _known(each) for topic in response.topics for each in topic.partitions
    }


def _known(partition: Any) -> tuple[int | None, int | None]:
    if partition.error_code:  # its leader does not answer the coordinator; the response's start offset is 0 then
        return None, None
    return partition.start_offset, None if partition.lag < 0 <= partition.start_offset else partition.lag


def _sum_of(lags: Iterable[int | None]) -> int | None:
    """Return the lag of all partitions, None if that of one is not known."""
    known = [*lags]
    return None if None in known else sum(max(lag or 0, 0) for lag in known)


def _member(member: Any) -> dict[str, Any]:
    return {
        "member": member.member_id,
        "instance": None,
        "client": member.client_id,
        "host": member.client_host,
        "partitions": sum(len(topic.partitions) for topic in member.assignment.topic_partitions),
    }
