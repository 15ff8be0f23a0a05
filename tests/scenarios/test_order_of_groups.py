"""The order of groups and of their members in responses: that of Apache Kafka's hash maps. The literals are its own."""

from collections.abc import Iterator

import pytest

from kafkapy.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.list_groups_request import ListGroupsRequest
from kafkapy.protocol.messages.share_group_describe_request import ShareGroupDescribeRequest
from kafkapy.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from tests.scenarios.conftest import serving
from tests.support.client_requests import create_topic
from tests.support.offsets import commit, find_coordinator
from tests.support.wire import WireClient

GROUPS = [f"order-{number}" for number in range(20)]
LISTED = [1, 6, 13, 18, 11, 3, 16, 8, 17, 12, 7, 2, 19, 14, 5, 0, 9, 4, 15, 10]
MEMBERS = [f"member-{number}" for number in range(10)]
DESCRIBED = [3, 8, 0, 5, 2, 7, 4, 9, 1, 6]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WireClient]:
    """A broker that no other test gives groups."""
    with serving(tmp_path_factory, {"offsets.topic.num.partitions": "5"}) as bootstrap, WireClient(bootstrap) as client:
        create_topic(client, "topic", 1)
        find_coordinator(client, "order-0")
        yield client


def test_groups_are_listed_in_the_order_of_kafkas_maps(alone: WireClient) -> None:
    for group in GROUPS:
        commit(alone, group, "topic", 0)
    listed = [each.group_id for each in alone.call(ListGroupsRequest(), 5).groups if each.group_id in GROUPS]
    assert [int(each.removeprefix("order-")) for each in listed] == LISTED


def test_members_of_a_consumer_group_are_in_the_order_of_kafkas_map(alone: WireClient) -> None:
    find_coordinator(alone, "consumers")
    joining = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": ["topic"], "topic_partitions": []}
    for member in MEMBERS:
        request = ConsumerGroupHeartbeatRequest("consumers", member_id=member, member_epoch=0, **joining)
        assert alone.call(request, 1).error_code == 0
    (group,) = alone.call(ConsumerGroupDescribeRequest(group_ids=["consumers"]), 1).groups
    assert [int(each.member_id.removeprefix("member-")) for each in group.members] == DESCRIBED


def test_members_of_a_share_group_are_in_the_order_of_kafkas_map(alone: WireClient) -> None:
    find_coordinator(alone, "sharers")
    for member in MEMBERS:
        request = ShareGroupHeartbeatRequest(
            group_id="sharers", member_id=member, member_epoch=0, subscribed_topic_names=["topic"]
        )
        assert alone.call(request, 1).error_code == 0
    (group,) = alone.call(ShareGroupDescribeRequest(group_ids=["sharers"]), 1).groups
    assert [int(each.member_id.removeprefix("member-")) for each in group.members] == DESCRIBED
