"""ShareGroupHeartbeat and ShareGroupDescribe through their handlers, on a coordinator with a persister in memory."""

import pytest

from kafkapy.handlers.share import share_group_describe
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.share_group_describe_request import ShareGroupDescribeRequest
from kafkapy.protocol.messages.share_group_describe_response import DescribedGroup
from kafkapy.security.authorizer import AclOperation
from tests.simulator.loop import SimLoop
from tests.support.group_hosting import GROUP
from tests.support.hosting import topic_id
from tests.support.metadata_services import Deny, on_wire
from tests.support.share_hosting import ShareHosting, code_of
from tests.unit.runtime.broker.test_isr_updates import pass_ms

MEMBER = "m" * 36


def hosting_of(loop: SimLoop, partition_count: int = 2, share_version: int = 1) -> ShareHosting:
    hosting = ShareHosting(loop, share_version=share_version)
    hosting.create_offsets_topic()
    hosting.create_topic("orders", partition_count)
    return hosting


async def describe(hosting: ShareHosting, *group_ids: str, authorizer: Deny | None = None) -> list[DescribedGroup]:
    request = ShareGroupDescribeRequest(list(group_ids), include_authorized_operations=True)
    response = await share_group_describe.handle(hosting.services(authorizer), hosting.context(), request)
    return list(on_wire(response, 1).groups)


async def test_member_is_assigned_partitions_whose_states_the_coordinator_has_created(loop: SimLoop) -> None:
    hosting = hosting_of(loop)

    joined = await hosting.heartbeat(MEMBER, 0, ["orders"])

    assert (joined.member_epoch, joined.assignment.topic_partitions if joined.assignment else None) == (2, [])
    created = hosting.persister.states
    assert {key[1:]: (state.state_epoch, state.start_offset) for key, state in created.items()} == {
        (topic_id("orders"), 0): (2, -1),
        (topic_id("orders"), 1): (2, -1),
    }
    assert (await hosting.heartbeat(MEMBER, 2)).member_epoch == 2  # group.share.assignment.interval.ms is not over
    await pass_ms(loop, 1000)
    response = await hosting.heartbeat(MEMBER, 2)
    assert response.member_epoch == 3
    assert response.assignment is not None
    assert [topic.partitions for topic in response.assignment.topic_partitions] == [[0, 1]]


async def test_states_that_are_refused_are_created_after_a_next_heartbeat(
    loop: SimLoop, caplog: pytest.LogCaptureFixture
) -> None:
    hosting = hosting_of(loop)
    hosting.persister.refused[1] = ErrorCode.COORDINATOR_NOT_AVAILABLE
    await hosting.heartbeat(MEMBER, 0, ["orders"])
    assert caplog.messages == [
        "Could not create states of 2 partitions of share group readers (COORDINATOR_NOT_AVAILABLE), trying again with "
        "a next heartbeat"
    ]
    hosting.persister.refused.clear()

    await hosting.heartbeat(MEMBER, 2)

    assert len(hosting.persister.states) == 2
    states = (await hosting.groups.read(GROUP, lambda shard: shard.groups[GROUP])).log.states
    assert states is not None
    assert states.initialized[topic_id("orders")].partitions == {0, 1}
    assert not states.initializing


async def test_silent_member_is_removed(loop: SimLoop) -> None:
    hosting = hosting_of(loop)
    await hosting.heartbeat(MEMBER, 0, ["orders"])
    await pass_ms(loop, 46_000)
    (described,) = await describe(hosting, GROUP)
    assert (described.group_state, described.members) == ("Empty", [])


async def test_groups_survive_a_restart(loop: SimLoop) -> None:
    hosting = hosting_of(loop)
    await hosting.heartbeat(MEMBER, 0, ["orders"])
    hosting.restart()
    await pass_ms(loop, 1)
    (described,) = await describe(hosting, GROUP)
    assert [member.member_id for member in described.members] == [MEMBER]
    assert (await hosting.heartbeat(MEMBER, 2)).member_epoch == 2


async def test_nothing_is_answered_without_share_groups(loop: SimLoop) -> None:
    hosting = hosting_of(loop, share_version=0)
    assert await code_of(hosting.heartbeat(MEMBER, 0, ["orders"])) == (ErrorCode.UNSUPPORTED_VERSION, None)
    (described,) = await describe(hosting, GROUP)
    assert (described.error_code, described.members) == (ErrorCode.UNSUPPORTED_VERSION, [])


async def test_member_ids_are_no_longer_than_a_uuid(loop: SimLoop) -> None:
    hosting = hosting_of(loop)
    refused = (ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
    assert await code_of(hosting.heartbeat(MEMBER + "m", 0, ["orders"])) == refused
    assert await code_of(hosting.heartbeat("", 0, ["orders"])) == refused


async def test_rights(loop: SimLoop) -> None:
    hosting = hosting_of(loop)
    no_group = Deny((AclOperation.READ, GROUP), (AclOperation.DESCRIBE, GROUP))
    no_topic = Deny((AclOperation.DESCRIBE, "orders"))
    joining = hosting.heartbeat("", 0, ["orders"], authorizer=no_group)
    assert await code_of(joining) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, None)
    joining = hosting.heartbeat(MEMBER, 0, ["orders"], authorizer=no_topic)
    assert await code_of(joining) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    await hosting.heartbeat(MEMBER, 0, ["orders"])
    await pass_ms(loop, 1000)
    await hosting.heartbeat(MEMBER, 2)

    (denied,) = await describe(hosting, GROUP, authorizer=no_group)
    assert denied.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    (hidden,) = await describe(hosting, GROUP, authorizer=no_topic)
    assert (hidden.error_code, hidden.error_message, hidden.members) == (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "The group has described topic(s) that the client is not authorized to describe.",
        [],
    )


async def test_each_group_is_described_with_its_own_error(loop: SimLoop) -> None:
    hosting = hosting_of(loop)
    await hosting.heartbeat(MEMBER, 0, ["orders"])
    found, missing, unnamed = await describe(hosting, GROUP, "missing", "", GROUP)
    assert (found.error_code, found.group_state, found.assignor_name) == (0, "Stable", "simple")
    assert found.authorized_operations > 0
    assert (missing.error_code, missing.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group missing not found.")
    assert unnamed.error_code == ErrorCode.INVALID_GROUP_ID


async def test_many_members_are_described_in_parts(loop: SimLoop) -> None:
    hosting = hosting_of(loop)
    for number in range(150):
        await hosting.heartbeat(f"m{number:03}", 0, ["orders"])
    (described,) = await describe(hosting, GROUP)
    assert [member.member_id for member in described.members] == [f"m{number:03}" for number in range(150)]
