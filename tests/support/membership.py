"""Requests of the classic group protocol in one line, for tests that speak to a broker through a WireClient.

A Member has a connection of its own, as a consumer has: a broker answers nothing else on it while a JoinGroup or
SyncGroup waits.
"""

from typing import Any

from kafkapy.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from kafkapy.protocol.messages.consumer_protocol_assignment import TopicPartition as AssignedTopic
from kafkapy.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from kafkapy.protocol.messages.describe_groups_request import DescribeGroupsRequest
from kafkapy.protocol.messages.heartbeat_request import HeartbeatRequest
from kafkapy.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from kafkapy.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from kafkapy.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support.client_requests import until
from tests.support.offsets import commit
from tests.support.wire import WireClient

MEMBER_ID_REQUIRED = 79
MEMBER_ID_REQUIRED_SINCE = 4
JOIN, SYNC, HEARTBEAT, LEAVE = 9, 5, 4, 5


def subscription(*topics: str) -> bytes:
    """Return what a consumer says of itself when it joins."""
    return b"\0\0" + ConsumerProtocolSubscription(list(topics)).encode(0)


def assignment(topic: str, *partitions: int) -> bytes:
    """Return what a consumer is assigned."""
    return b"\0\0" + ConsumerProtocolAssignment([AssignedTopic(topic, partitions=list(partitions))]).encode(0)


def join_request(group_id: str, member_id: str = "", **fields: Any) -> JoinGroupRequest:
    """`protocols` is name to metadata; `instance_id` makes a static member."""
    protocols = fields.pop("protocols", {"range": subscription(group_id)})
    fields["group_instance_id"] = fields.pop("instance_id", None)
    fields = {"session_timeout_ms": 20_000, "rebalance_timeout_ms": 30_000, "protocol_type": "consumer", **fields}
    listed = [JoinGroupRequestProtocol(name, metadata=metadata) for name, metadata in protocols.items()]
    return JoinGroupRequest(group_id, member_id=member_id, protocols=listed, **fields)


def leave(client: WireClient, group_id: str, *members: tuple[str, str | None], version: int = LEAVE) -> Any:
    """Have members leave, given as member id and instance id; return the response."""
    if version < 3:
        ((member_id, _),) = members
        return client.call(LeaveGroupRequest(group_id, member_id=member_id), version)
    return client.call(
        LeaveGroupRequest(
            group_id, members=[MemberIdentity(each, group_instance_id=instance_id) for each, instance_id in members]
        ),
        version,
    )


def describe_group(client: WireClient, group_id: str, version: int = 6) -> Any:
    (group,) = client.call(DescribeGroupsRequest(groups=[group_id]), version).groups
    return group


def wait_for_state(client: WireClient, group_id: str, state: str) -> None:
    until(lambda: describe_group(client, group_id).group_state == state)


class Member:
    """A member of a group, or somebody who wants to be; `fields` are those of its JoinGroup."""

    def __init__(self, client: WireClient, group_id: str, **fields: Any) -> None:
        self.client = client
        self.group_id = group_id
        self.instance_id: str | None = fields.get("instance_id")
        self.fields = fields
        self.member_id = ""
        self.generation = -1
        self.is_leader = False

    # -- joining --------------------------------------------------------------------------------------------------

    def send_join(self, version: int = JOIN, **fields: Any) -> None:
        """Send a JoinGroup, whose response `receive_join` takes; `fields` are other than before from now on."""
        self.fields = {**self.fields, **fields}
        self.client.send(join_request(self.group_id, self.member_id, **self.fields), version)

    def receive_join(self) -> Any:
        response = self.client.receive()
        if response.error_code in (0, MEMBER_ID_REQUIRED):
            self.member_id, self.generation = response.member_id, response.generation_id
        self.is_leader = response.error_code == 0 and response.leader == response.member_id
        return response

    def join(self, version: int = JOIN, **fields: Any) -> Any:
        """Join once and return the response, whatever it is."""
        self.send_join(version, **fields)
        return self.receive_join()

    def get_id(self, version: int = JOIN) -> str:
        """Have a member id given out."""
        response = self.join(version)
        assert response.error_code == MEMBER_ID_REQUIRED, response
        return self.member_id

    # -- being a member -------------------------------------------------------------------------------------------

    def send_sync(self, assignments: dict[str, bytes] | None = None, version: int = SYNC, **fields: Any) -> None:
        listed = [SyncGroupRequestAssignment(to, assignment=what) for to, what in (assignments or {}).items()]
        named = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
        values = {
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id if version >= 3 else None,
            "assignments": listed,
            **named,
            **fields,
        }
        self.client.send(SyncGroupRequest(self.group_id, **values), version)

    def sync(self, assignments: dict[str, bytes] | None = None, version: int = SYNC, **fields: Any) -> Any:
        self.send_sync(assignments, version, **fields)
        return self.client.receive()

    def heartbeat(self, version: int = HEARTBEAT, *, generation: int | None = None) -> int:
        """Return the error code of a Heartbeat."""
        instance_id = self.instance_id if version >= 3 else None
        used = self.generation if generation is None else generation
        response = self.client.call(
            HeartbeatRequest(
                self.group_id, generation_id=used, member_id=self.member_id, group_instance_id=instance_id
            ),
            version,
        )
        return int(response.error_code)

    def leave(self, version: int = LEAVE) -> Any:
        return leave(self.client, self.group_id, (self.member_id, self.instance_id), version=version)

    def commit(self, topic: str, offset: int = 1, version: int = 9, **fields: Any) -> int:
        """Commit an offset of partition 0 as this member and return the error code."""
        values = {
            "generation_id_or_member_epoch": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            **fields,
        }
        (code,) = commit(self.client, self.group_id, topic, offset, version=version, **values)
        return code


def join_together(first: Member, *others: Member, version: int = JOIN) -> list[Any]:
    """Have new members join an empty group, into one generation; return its responses, in their order."""
    if version >= MEMBER_ID_REQUIRED_SINCE and first.instance_id is None:
        first.get_id(version)
    response = first.join(version)
    if not others:
        return [response]
    for member in others:
        if version >= MEMBER_ID_REQUIRED_SINCE and member.instance_id is None:
            member.get_id(version)
        member.send_join(version)
    until(lambda: len(describe_group(first.client, first.group_id).members) == 1 + len(others))
    first.send_join(version)
    return [member.receive_join() for member in (first, *others)]


def stabilize(*members: Member, version: int = JOIN) -> None:
    """Bring members into one stable generation; each is assigned the partition of its place among them."""
    join_together(*members, version=version)
    assignments = {member.member_id: assignment(member.group_id, n) for n, member in enumerate(members)}
    leader = next(member for member in members if member.is_leader)
    leader.send_sync(assignments)
    followers = [member for member in members if member is not leader]
    assert leader.client.receive().error_code == 0
    for follower in followers:
        assert follower.sync().error_code == 0
