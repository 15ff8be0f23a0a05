"""Describe, Alter, DeleteShareGroupOffsets and DeleteGroups: outcomes as of Apache Kafka 4.4.0."""

from typing import Any

from kafkapy.group.offsets import offset_record
from kafkapy.group.settings import OFFSETS_TOPIC
from kafkapy.group.share.decision import ShareDecision
from kafkapy.group.share.states import GroupStates
from kafkapy.handlers.groups import delete_groups
from kafkapy.handlers.share import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
)
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from kafkapy.protocol.messages.delete_groups_request import DeleteGroupsRequest
from kafkapy.protocol.messages.delete_share_group_offsets_request import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from kafkapy.protocol.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from kafkapy.protocol.messages.offset_commit_value import OffsetCommitValue
from kafkapy.protocol.messages.partition_change_record import PartitionChangeRecord
from kafkapy.security.authorizer import AclOperation
from kafkapy.share.persister import StateSummary
from tests.simulator.loop import SimLoop
from tests.support.group_hosting import GROUP
from tests.support.hosting import batch, topic_id
from tests.support.metadata_services import Deny, on_wire
from tests.support.share_hosting import ShareHosting, code_of

ORDERS = topic_id("orders")
NO_TOPIC = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
NO_RIGHT = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")


def hosting_of(loop: SimLoop, *, broker_count: int = 1) -> ShareHosting:
    """Return a coordinator that leads the two partitions of the topic orders."""
    found = ShareHosting(loop, broker_count=broker_count)
    found.create_offsets_topic(replicas=range(1, broker_count + 1), isr=[1])
    found.create_topic("orders", 2)
    return found


async def alter(
    hosting: ShareHosting, topics: dict[str, dict[int, int]], *, group_id: str = GROUP, authorizer: Any = None
) -> dict[tuple[str, int], tuple[int, str | None]]:
    requested = [
        AlterShareGroupOffsetsRequestTopic(
            name,
            partitions=[
                AlterShareGroupOffsetsRequestPartition(partition_index=partition, start_offset=offset)
                for partition, offset in offsets.items()
            ],
        )
        for name, offsets in topics.items()
    ]
    request = AlterShareGroupOffsetsRequest(group_id, topics=requested)
    services = hosting.services(authorizer)
    response = on_wire(await alter_share_group_offsets.handle(services, hosting.context(0), request), 0)
    return {
        (topic.topic_name, each.partition_index): (each.error_code, each.error_message)
        for topic in response.responses
        for each in topic.partitions
    }


async def delete(
    hosting: ShareHosting, *names: str, group_id: str = GROUP, authorizer: Any = None
) -> dict[str, tuple[int, str | None]]:
    request = DeleteShareGroupOffsetsRequest(
        group_id, topics=[DeleteShareGroupOffsetsRequestTopic(name) for name in names]
    )
    services = hosting.services(authorizer)
    response = on_wire(await delete_share_group_offsets.handle(services, hosting.context(0), request), 0)
    return {topic.topic_name: (topic.error_code, topic.error_message) for topic in response.responses}


async def describe(
    hosting: ShareHosting, topics: dict[str, list[int]] | None, *, version: int = 1, authorizer: Any = None
) -> dict[tuple[str, int], tuple[int, int, int, int]]:
    """Return start offset, leader epoch, lag and error code by topic and partition."""
    named = (
        None
        if topics is None
        else [DescribeShareGroupOffsetsRequestTopic(name, partitions=numbers) for name, numbers in topics.items()]
    )
    request = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(GROUP, topics=named)])
    services = hosting.services(authorizer)
    response = on_wire(await describe_share_group_offsets.handle(services, hosting.context(version), request), version)
    (group,) = response.groups
    assert (group.group_id, group.error_code) == (GROUP, 0)
    return {
        (topic.topic_name, each.partition_index): (each.start_offset, each.leader_epoch, each.lag, each.error_code)
        for topic in group.topics
        for each in topic.partitions
    }


async def delete_group(hosting: ShareHosting) -> int:
    response = await delete_groups.handle(hosting.services(), hosting.context(2), DeleteGroupsRequest([GROUP]))
    return int(response.results[0].error_code)


async def states_of(hosting: ShareHosting) -> GroupStates:
    found: GroupStates | None = await hosting.groups.read(GROUP, lambda shard: shard.groups[GROUP].log.states)
    assert found is not None
    return found


# -- alter ----------------------------------------------------------------------------------------------------------


async def test_altered_offsets_are_where_a_new_group_begins(loop: SimLoop) -> None:
    hosting = hosting_of(loop)
    altered = await alter(hosting, {"orders": {0: 5, 1: 7, 2: 1}, "none": {0: 1}})

    assert altered == {
        ("orders", 0): (0, None),
        ("orders", 1): (0, None),
        ("orders", 2): NO_TOPIC,
        ("none", 0): NO_TOPIC,
    }
    created = {key[2]: (state.start_offset, state.state_epoch) for key, state in hosting.persister.states.items()}
    assert created == {0: (5, 1), 1: (7, 1)}
    states = await states_of(hosting)
    assert (states.initialized[ORDERS].partitions, states.initializing) == ({0, 1}, {})
    joined = await hosting.heartbeat("m", 0, ["orders"])
    assert joined.assignment is not None
    assert [topic.partitions for topic in joined.assignment.topic_partitions] == [[0, 1]]


async def test_each_partition_has_its_own_error_if_its_state_is_refused(loop: SimLoop) -> None:
    hosting = hosting_of(loop)
    hosting.persister.refused[1] = ErrorCode.FENCED_STATE_EPOCH
    altered = await alter(hosting, {"orders": {0: 5, 1: 7}})
    assert altered == {("orders", 0): (0, None), ("orders", 1): (ErrorCode.FENCED_STATE_EPOCH, "refused")}
    assert (await states_of(hosting)).initializing[ORDERS].partitions == {0, 1}


async def test_a_topic_that_is_named_twice_has_all_its_partitions_recorded(loop: SimLoop) -> None:
    hosting = hosting_of(loop)
    hosting.persister.refused.update({0: ErrorCode.FENCED_STATE_EPOCH, 1: ErrorCode.FENCED_STATE_EPOCH})
    requested = [
        AlterShareGroupOffsetsRequestTopic(
            "orders", partitions=[AlterShareGroupOffsetsRequestPartition(partition_index=partition, start_offset=5)]
        )
        for partition in (0, 1)
    ]
    request = AlterShareGroupOffsetsRequest(GROUP, topics=requested)
    await alter_share_group_offsets.handle(hosting.services(), hosting.context(0), request)
    assert (await states_of(hosting)).initializing[ORDERS].partitions == {0, 1}


async def test_offsets_of_a_group_with_members_are_not_altered(loop: SimLoop) -> None:
    hosting = hosting_of(loop)
    await hosting.heartbeat("m", 0, ["orders"])
    refused = (ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
    assert await code_of(alter(hosting, {"orders": {0: 5}})) == refused
    assert await code_of(delete(hosting, "orders")) == refused
    assert await delete_group(hosting) == ErrorCode.NON_EMPTY_GROUP


async def test_other_groups_are_not_altered(loop: SimLoop) -> None:
    hosting = hosting_of(loop)
    await hosting.groups.call(
        GROUP,
        lambda shard, token, now_ms: ShareDecision(0, [offset_record(GROUP, "orders", 0, OffsetCommitValue(5))]),
    )
    refused = (ErrorCode.GROUP_ID_NOT_FOUND, f"Group {GROUP} is not a share group.")
    assert await code_of(alter(hosting, {"orders": {0: 5}})) == refused
    assert await code_of(delete(hosting, "orders")) == refused
    assert (await code_of(alter(hosting, {}, group_id="")))[0] == ErrorCode.INVALID_GROUP_ID
    assert (await code_of(delete(hosting, group_id="")))[0] == ErrorCode.INVALID_GROUP_ID


# -- delete ---------------------------------------------------------------------------------------------------------


async def test_deleted_offsets_are_forgotten_topic_by_topic(loop: SimLoop) -> None:
    hosting = hosting_of(loop)
    hosting.create_topic("other")
    assert await code_of(delete(hosting, "orders")) == (ErrorCode.GROUP_ID_NOT_FOUND, f"Group {GROUP} not found.")
    await alter(hosting, {"orders": {0: 5, 1: 7}})

    deleted = await delete(hosting, "orders", "other", "none")

    nothing = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no offset information to delete.")
    assert deleted == {"orders": (0, None), "other": nothing, "none": NO_TOPIC}
    assert not hosting.persister.states
    states = await states_of(hosting)
    assert (states.initialized, states.deleting) == ({}, frozenset())


async def test_deletion_that_failed_is_tried_again(loop: SimLoop) -> None:
    hosting = hosting_of(loop)
    await alter(hosting, {"orders": {0: 5}})
    hosting.persister.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await delete(hosting, "orders") == {"orders": (ErrorCode.COORDINATOR_NOT_AVAILABLE, "refused")}
    assert (await states_of(hosting)).deleting == {ORDERS}
    hosting.persister.error_code = 0

    assert await delete(hosting, "orders") == {"orders": (0, None)}

    assert sorted(partition for _, partition in hosting.persister.deletions) == [0, 1], "all, as the first is unknown"
    assert not (await states_of(hosting)).deleting


async def test_each_topic_has_its_own_outcome_of_a_deletion(loop: SimLoop) -> None:
    hosting = hosting_of(loop)
    hosting.create_topic("other")
    await alter(hosting, {"orders": {0: 5, 1: 7}, "other": {0: 1}})
    hosting.persister.refused[1] = ErrorCode.UNKNOWN_SERVER_ERROR

    deleted = await delete(hosting, "other", "none", "orders")

    refused = (ErrorCode.UNKNOWN_SERVER_ERROR, "refused")
    assert list(deleted.items()) == [("other", (0, None)), ("none", NO_TOPIC), ("orders", refused)]
    states = await states_of(hosting)
    assert (states.initialized, states.deleting) == ({}, {ORDERS})
    assert await delete(hosting) == {}, "a request that names no topic"


async def test_deletion_of_a_group_that_moves_meanwhile_is_to_be_tried_again_there(loop: SimLoop) -> None:
    hosting = hosting_of(loop, broker_count=2)
    await alter(hosting, {"orders": {0: 5}})
    moved = PartitionChangeRecord(partition_id=0, topic_id=topic_id(OFFSETS_TOPIC), leader=2)
    hosting.persister.on_deleted = lambda: hosting.commit(moved)
    assert await code_of(delete(hosting, "orders")) == (ErrorCode.NOT_COORDINATOR, None)


async def test_group_is_deleted_with_its_states(loop: SimLoop) -> None:
    hosting = hosting_of(loop)
    await alter(hosting, {"orders": {0: 5, 1: 7}})
    hosting.persister.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await delete_group(hosting) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (await states_of(hosting)).deleting == {ORDERS}
    hosting.persister.error_code = 0

    assert await delete_group(hosting) == 0

    assert not hosting.persister.states
    assert not await hosting.groups.read(GROUP, lambda shard: list(shard.groups))
    assert await delete_group(hosting) == ErrorCode.GROUP_ID_NOT_FOUND


async def test_each_group_has_its_own_outcome_of_a_deletion(loop: SimLoop) -> None:
    hosting = hosting_of(loop)
    await alter(hosting, {"orders": {0: 5, 1: 7}}, group_id="refused")
    await alter(hosting, {"orders": {0: 5}}, group_id="deleted")
    await hosting.commit_offset(5, group_id="classic")
    await hosting.heartbeat("m", 0, ["orders"])
    hosting.persister.refused[1] = ErrorCode.UNKNOWN_SERVER_ERROR
    request = DeleteGroupsRequest(["refused", "deleted", "classic", "nowhere", GROUP])

    response = await delete_groups.handle(hosting.services(), hosting.context(2), request)

    assert [(result.group_id, result.error_code) for result in response.results] == [
        ("refused", ErrorCode.UNKNOWN_SERVER_ERROR),
        ("deleted", ErrorCode.NONE),
        ("classic", ErrorCode.NONE),
        ("nowhere", ErrorCode.GROUP_ID_NOT_FOUND),
        (GROUP, ErrorCode.NON_EMPTY_GROUP),
    ]
    assert {key[0] for key in hosting.persister.states} == {"refused", GROUP}


# -- describe -------------------------------------------------------------------------------------------------------


async def test_offsets_are_described_with_their_lag(loop: SimLoop) -> None:
    hosting = hosting_of(loop)
    hosting.append(batch(b"a", b"b", b"c"))
    await alter(hosting, {"orders": {0: 1}})
    assert await describe(hosting, None) == {("orders", 0): (-1, 0, -1, 0)}
    hosting.persister.summaries = {
        (ORDERS, 0): StateSummary(ORDERS, 0, leader_epoch=4, start_offset=1, delivery_complete_count=1),
        (ORDERS, 1): StateSummary(ORDERS, 1, leader_epoch=4, start_offset=1),
    }

    assert await describe(hosting, None) == {("orders", 0): (1, 4, 3 - 1 - 1, 0)}
    assert await describe(hosting, {"orders": [1, 0], "none": [3]}) == {
        ("orders", 1): (1, 4, -1, 0),
        ("orders", 0): (1, 4, 1, 0),
        ("none", 3): (-1, 0, -1, 0),
    }
    hosting.persister.refused[0] = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await describe(hosting, {"orders": [0]}) == {("orders", 0): (-1, 0, -1, 0)}
    assert await describe(hosting, {"orders": [0]}, version=0) == {("orders", 0): (-1, 0, -1, 0)}


async def test_lag_is_an_error_if_the_end_of_the_partition_cannot_be_read(loop: SimLoop) -> None:
    hosting = hosting_of(loop, broker_count=2)
    hosting.create_topic("elsewhere", replicas=[2])
    elsewhere = topic_id("elsewhere")
    await alter(hosting, {"elsewhere": {0: 1}})
    hosting.persister.summaries = {
        (elsewhere, 0): StateSummary(elsewhere, 0, start_offset=1, delivery_complete_count=1)
    }

    for topics in (None, [DescribeShareGroupOffsetsRequestTopic("elsewhere", partitions=[0])]):
        request = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(GROUP, topics=topics)])
        response = await describe_share_group_offsets.handle(hosting.services(), hosting.context(1), request)

        (partition,) = on_wire(response, 1).groups[0].topics[0].partitions
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (partition.error_code, partition.error_message) == (code, code.message)


async def test_groups_without_offsets_have_no_error(loop: SimLoop) -> None:
    hosting = hosting_of(loop)
    assert await describe(hosting, None) == {}
    assert await describe(hosting, {}) == {}


# -- rights ---------------------------------------------------------------------------------------------------------


async def test_rights(loop: SimLoop) -> None:
    hosting = hosting_of(loop)
    denied = Deny(*((operation, GROUP) for operation in AclOperation))
    refused = (ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed.")
    assert await code_of(alter(hosting, {}, authorizer=denied)) == refused
    assert await code_of(delete(hosting, authorizer=denied)) == refused
    hidden = Deny(*((operation, "orders") for operation in AclOperation))
    assert await alter(hosting, {"orders": {0: 5}}, authorizer=hidden) == {("orders", 0): NO_RIGHT}
    await alter(hosting, {"orders": {0: 5}})
    assert await delete(hosting, "orders", authorizer=hidden) == {"orders": NO_RIGHT}
    assert await describe(hosting, None, authorizer=hidden) == {}
    assert await describe(hosting, {"orders": [0]}, authorizer=hidden) == {
        ("orders", 0): (-1, 0, -1, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    }


async def test_nothing_is_answered_without_share_groups(loop: SimLoop) -> None:
    hosting = ShareHosting(loop, share_version=0)
    hosting.create_offsets_topic()
    assert (await code_of(alter(hosting, {})))[0] == ErrorCode.UNSUPPORTED_VERSION
    assert (await code_of(delete(hosting)))[0] == ErrorCode.UNSUPPORTED_VERSION
    request = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(GROUP)])
    response = await describe_share_group_offsets.handle(hosting.services(), hosting.context(1), request)
    assert response.groups[0].error_code == ErrorCode.UNSUPPORTED_VERSION
