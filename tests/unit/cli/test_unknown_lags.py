"""The lag of a group is unknown, not less, if the leader of a partition that it reads does not answer."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from kafkapy.__main__ import main
from kafkapy.cli.committed_offsets import BrokerConnections
from kafkapy.cli.share_groups import ShareOffsets, describe_share_group
from kafkapy.console import other_groups
from kafkapy.console.brokers import Brokers
from kafkapy.console.client import Clients
from kafkapy.console.groups import group, groups_of_topic, lags_of
from kafkapy.console.lags import LagSamples, LagWatch
from kafkapy.console.settings import Settings
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse, DescribedGroup
from kafkapy.protocol.messages.describe_share_group_offsets_response import DescribeShareGroupOffsetsResponse
from kafkapy.protocol.messages.describe_share_group_offsets_response import (
    DescribeShareGroupOffsetsResponseGroup as OfGroup,
)
from kafkapy.protocol.messages.describe_share_group_offsets_response import (
    DescribeShareGroupOffsetsResponsePartition as OfPartition,
)
from kafkapy.protocol.messages.describe_share_group_offsets_response import (
    DescribeShareGroupOffsetsResponseTopic as OfTopic,
)
from kafkapy.protocol.messages.list_groups_response import ListedGroup, ListGroupsResponse
from kafkapy.protocol.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kafkapy.protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafkapy.protocol.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from kafkapy.protocol.messages.share_group_describe_response import DescribedGroup as SharingGroup
from kafkapy.protocol.messages.share_group_describe_response import ShareGroupDescribeResponse
from tests.support.scripted_broker import ScriptedBroker, scripted

pytest.importorskip("confluent_kafka")
NOWHERE = 1
"""A port at which nobody listens."""


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    """Node 1 leads orders-0 and clicks-0, of ten records each; node 2, which is silent, orders-1. gone is deleted.

    The group readers has committed offset 4 of each.
    """

    def metadata(request: Any, version: int) -> MetadataResponse:
        leaders = {"orders": [1, 2], "clicks": [1]}
        wanted = list(leaders) if request.topics is None else [each.name for each in request.topics]
        topics = [
            MetadataResponseTopic(
                name=name,
                error_code=0 if name in leaders else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                topic_id=bytes(16),
                partitions=[
                    MetadataResponsePartition(
                        0, partition_index=number, leader_id=leader, replica_nodes=[], isr_nodes=[]
                    )
                    for number, leader in enumerate(leaders.get(name, []))
                ],
            )
            for name in wanted
        ]
        nodes = [
            MetadataResponseBroker(1, host=it.host, port=it.port),
            MetadataResponseBroker(2, host="127.0.0.1", port=NOWHERE),
        ]
        return MetadataResponse(brokers=nodes, cluster_id="scripted", controller_id=1, topics=topics)

    def committed(request: Any, version: int) -> OffsetFetchResponse:
        partitions = {"orders": 2, "clicks": 1, "gone": 1}
        topics = [
            OffsetFetchResponseTopic(
                name,
                partitions=[
                    OffsetFetchResponsePartition(number, committed_offset=4, metadata="") for number in range(count)
                ],
            )
            for name, count in partitions.items()
        ]
        return OffsetFetchResponse(topics=topics)

    def ends(request: Any, version: int) -> ListOffsetsResponse:
        found = [
            ListOffsetsTopicResponse(
                topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=each.partition_index, offset=10)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return ListOffsetsResponse(topics=found)

    def described(request: Any, version: int) -> ConsumerGroupDescribeResponse:
        groups = [DescribedGroup(group_id=each, group_state="Empty") for each in request.group_ids]
        return ConsumerGroupDescribeResponse(groups=groups)

    def listed(request: Any, version: int) -> ListGroupsResponse:
        groups = [ListedGroup("readers", protocol_type="consumer", group_state="Empty", group_type="consumer")]
        return ListGroupsResponse(groups=groups)

    with scripted(
        Metadata=metadata,
        OffsetFetch=committed,
        ListOffsets=ends,
        ConsumerGroupDescribe=described,
        ListGroups=listed,
        ShareGroupDescribe=described_sharing,
        DescribeShareGroupOffsets=share_offsets,
    ) as it:
        yield it


def described_sharing(request: Any, version: int) -> ShareGroupDescribeResponse:
    groups = [SharingGroup(group_id=each, group_state="Empty") for each in request.group_ids]
    return ShareGroupDescribeResponse(groups=groups)


def share_offsets(request: Any, version: int) -> DescribeShareGroupOffsetsResponse:
    """The coordinator knows the lag of orders-0, not of orders-1; the leader of clicks-0 refuses to answer it."""
    orders = [OfPartition(0, start_offset=4, lag=6), OfPartition(1, start_offset=4, lag=-1)]
    clicks = [OfPartition(0, error_code=ErrorCode.LEADER_NOT_AVAILABLE)]
    topics = [OfTopic("orders", partitions=orders), OfTopic("clicks", partitions=clicks)]
    groups = [OfGroup(each.group_id, topics=topics) for each in request.groups]
    return DescribeShareGroupOffsetsResponse(groups=groups)


@pytest.fixture
def brokers(broker: ScriptedBroker) -> Iterator[Brokers]:
    brokers = Brokers(Settings(servers=broker.address))
    yield brokers
    brokers.close()


@pytest.fixture
def clients(broker: ScriptedBroker, brokers: Brokers) -> Clients:
    return Clients(Settings(servers=broker.address), brokers)


def test_the_lag_of_a_topic_is_unknown_without_a_leader_of_it(clients: Clients) -> None:
    assert lags_of(clients, "readers") == {"orders": None, "clicks": 6, "gone": 0}
    assert groups_of_topic(clients, "orders", ["readers"]) == [("readers", None)]
    assert groups_of_topic(clients, "clicks", ["readers"]) == [("readers", 6)]


def test_the_page_of_a_group_does_not_show_a_lag_that_is_too_small(clients: Clients) -> None:
    found = group(clients, "readers")
    assert {(each.topic, each.partition): each.lag for each in found.offsets} == {
        ("clicks", 0): 6,
        ("gone", 0): None,
        ("orders", 0): 6,
        ("orders", 1): None,
    }
    assert found.lag is None


def test_a_lag_that_is_not_known_is_no_point_of_the_chart(clients: Clients) -> None:
    lags = LagSamples()
    LagWatch(clients, lags).measure()
    assert lags.all() == {}


def test_groups_list_and_describe_show_no_lag(broker: ScriptedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["groups", "list", "--json", "-b", broker.address]) == 1  # the silent node may have groups, too
    assert json.loads(capsys.readouterr().out)[0]["lag"] is None
    assert main(["groups", "describe", "readers", "-b", broker.address]) == 0
    assert "lag unknown" in capsys.readouterr().out


def test_the_lag_of_a_share_group_is_unknown_if_its_coordinator_does_not_know_it(broker: ScriptedBroker) -> None:
    with BrokerConnections({"bootstrap.servers": broker.address}) as connections:
        described = describe_share_group(connections, "workers")
        started = ShareOffsets(connections, "workers").committed()
    assert described is not None
    assert described["lag"] is None
    assert [(each["topic"], each["partition"], each["start"], each["lag"]) for each in described["partitions"]] == [
        ("clicks", 0, None, None),
        ("orders", 0, 4, 6),
        ("orders", 1, 4, None),
    ]
    assert started == {("orders", 0): 4, ("orders", 1): 4}, "a shift of clicks-0 would begin at 0"


def test_the_page_of_a_share_group_shows_no_lag_that_is_too_small(brokers: Brokers, clients: Clients) -> None:
    assert other_groups.group(brokers, clients, "workers").lag is None
    assert other_groups.share_groups_of_topic(brokers, "orders", ["workers"]) == [("workers", None)]
