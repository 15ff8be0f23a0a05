"""A share group whose coordinator, states and partitions are on three brokers, over a simulated network."""

import asyncio
from typing import Any

from kafkapy.group.settings import OFFSETS_TOPIC
from kafkapy.handlers.groups import delete_groups
from kafkapy.handlers.share import describe_share_group_offsets, share_group_heartbeat
from kafkapy.metadata.image import SHARE_VERSION
from kafkapy.metadata.topic_names import SHARE_STATE_TOPIC
from kafkapy.protocol.messages.delete_groups_request import DeleteGroupsRequest
from kafkapy.protocol.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kafkapy.protocol.messages.feature_level_record import FeatureLevelRecord
from kafkapy.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from kafkapy.share.persister import StateWrite
from tests.simulator.loop import SimLoop, run
from tests.support.hosting import batch, topic_id
from tests.support.linked_brokers import LinkedBrokers
from tests.support.share_hosting import share_context

GROUPS, STATES, LEADER = 1, 2, 3
ORDERS = topic_id("orders")


async def heartbeat(brokers: LinkedBrokers, epoch: int, topics: list[str] | None = None) -> Any:
    request = ShareGroupHeartbeatRequest("g", member_id="m", member_epoch=epoch, subscribed_topic_names=topics)
    response = await share_group_heartbeat.handle(brokers.nodes[GROUPS].services(), share_context(), request)
    await asyncio.sleep(1)
    return response


async def offsets(brokers: LinkedBrokers) -> dict[int, tuple[int, int, int]]:
    request = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup("g", topics=None)])
    services = brokers.nodes[GROUPS].services()
    response = await describe_share_group_offsets.handle(services, share_context(), request)
    return {
        each.partition_index: (each.start_offset, each.lag, each.error_code)
        for topic in response.groups[0].topics
        for each in topic.partitions
    }


async def go_through(brokers: LinkedBrokers) -> None:
    brokers.create_topic(OFFSETS_TOPIC, GROUPS)
    brokers.create_topic(SHARE_STATE_TOPIC, STATES)
    brokers.create_topic("orders", LEADER, 2)
    brokers.commit(FeatureLevelRecord(name=SHARE_VERSION, feature_level=1))
    await asyncio.sleep(1)

    assert (await heartbeat(brokers, 0, ["orders"])).member_epoch == 2
    response = await heartbeat(brokers, 2)
    assert response.member_epoch == 3
    assert [topic.partitions for topic in response.assignment.topic_partitions] == [[0, 1]]
    assert await offsets(brokers) == {0: (-1, -1, 0), 1: (-1, -1, 0)}

    brokers.nodes[LEADER].append(batch(b"a", b"b", b"c"))
    written = [StateWrite(ORDERS, 0, 2, 0, start_offset=1, delivery_complete_count=1)]
    (result,) = await brokers.nodes[LEADER].share.persister.write("g", written)
    assert result.error_code == 0
    assert await offsets(brokers) == {0: (1, 1, 0), 1: (-1, -1, 0)}

    await heartbeat(brokers, -1)
    services = brokers.nodes[GROUPS].services()
    deleted = await delete_groups.handle(services, share_context(), DeleteGroupsRequest(["g"]))
    assert deleted.results[0].error_code == 0
    (refused,) = await brokers.nodes[LEADER].share.persister.write("g", written)
    assert refused.error_code, "the state is gone"


def test_a_group_is_assigned_described_and_deleted_with_its_states() -> None:
    async def main(loop: SimLoop) -> None:
        brokers = LinkedBrokers(loop, 3)
        await go_through(brokers)
        await brokers.close()

    run(main)
