"""What clients read in Metadata and believe: leader epochs, addresses, null and empty lists."""

import socket
from pathlib import Path

import pytest

from kafkapy import Broker
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from kafkapy.protocol.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.support.client_requests import (
    EARLIEST,
    LATEST,
    batch_of,
    batches_in,
    create_topic,
    describe_topic,
    fetch,
    list_offset,
    metadata,
    produce,
)
from tests.support.wire import WireClient

NOT_ASKED = -(2**31)


@pytest.mark.parametrize("version", range(7, 14))
def test_leader_epochs_are_the_real_ones(client: WireClient, topic: str, version: int) -> None:
    """From version 9 on, Java clients refuse metadata that goes back in epoch. KAFKA-9212."""
    create_topic(client, topic, 2)
    known = {each.partition_index: each.leader_epoch for each in describe_topic(client, topic).partitions}
    assert all(leader_epoch >= 0 for leader_epoch in known.values())
    (response,) = metadata(client, topic, version=version).topics
    assert {each.partition_index: each.leader_epoch for each in response.partitions} == known


def test_records_offsets_and_epoch_ends_name_the_epoch_of_the_metadata(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    leader_epoch = metadata(client, topic).topics[0].partitions[0].leader_epoch
    produce(client, topic, batch_of(3))
    assert batches_in(fetch(client, topic))[0].partition_leader_epoch == leader_epoch
    assert list_offset(client, topic, LATEST).leader_epoch == leader_epoch
    assert list_offset(client, topic, EARLIEST).leader_epoch == leader_epoch
    assert end_of_epoch(client, topic, leader_epoch) == (0, leader_epoch, 3)


def end_of_epoch(client: WireClient, topic: str, leader_epoch: int, *, current: int = -1) -> tuple[int, int, int]:
    partition = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=leader_epoch)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic, partitions=[partition])])
    response = client.call(request, 4).topics[0].partitions[0]
    return response.error_code, response.leader_epoch, response.end_offset


def test_the_end_of_an_epoch_that_never_was_is_unknown(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    leader_epoch = metadata(client, topic).topics[0].partitions[0].leader_epoch
    assert end_of_epoch(client, topic, leader_epoch + 7) == (0, -1, -1)
    assert end_of_epoch(client, topic, 0, current=leader_epoch + 1) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)


@pytest.mark.ours
def test_leader_epochs_only_rise_and_old_ones_are_fenced(directory: Path, topic: str) -> None:
    """A client that still holds the epoch of before the restart must hear of it, also in Fetch and ListOffsets."""
    with Broker(data_dir=directory) as broker, WireClient(broker.bootstrap_servers) as client:
        create_topic(client, topic)
        before = metadata(client, topic).topics[0].partitions[0].leader_epoch
        produce(client, topic, batch_of())
    with Broker(data_dir=directory) as broker, WireClient(broker.bootstrap_servers) as client:
        now = metadata(client, topic).topics[0].partitions[0].leader_epoch
        assert now > before
        produce(client, topic, batch_of())
        for stale_or_new, code in (
            (before, ErrorCode.FENCED_LEADER_EPOCH),
            (now + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
            (now, 0),
            (-1, 0),
            (-5, 0),
        ):
            requested = {"current_leader_epoch": stale_or_new}
            assert fetch(client, topic, **requested).error_code == code
            assert list_offset(client, topic, LATEST, **requested).error_code == code
            assert end_of_epoch(client, topic, now, current=stale_or_new)[0] == code
        assert end_of_epoch(client, topic, before) == (0, before, 1)
        assert [batch.partition_leader_epoch for batch in batches_in(fetch(client, topic))] == [before, now]
        assert list_offset(client, topic, EARLIEST).leader_epoch == before


# -- lists that are null, lists that are empty ----------------------------------------------------------------------


def names_of(client: WireClient, topics: list[MetadataRequestTopic] | None, version: int) -> set[str]:
    return {topic.name for topic in client.call(MetadataRequest(topics=topics), version).topics}


def test_version_0_requests_all_with_an_empty_list_and_later_ones_with_null(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    assert topic in names_of(client, [], 0)
    for version in range(1, 14):
        assert names_of(client, [], version) == set()
        assert topic in names_of(client, None, version)


def test_each_requested_topic_is_answered_once(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    response = metadata(client, topic, f"{topic}-missing", "not/a/name", topic)
    codes = sorted((each.name, each.error_code) for each in response.topics)
    assert codes == sorted(
        [
            (topic, 0),
            (f"{topic}-missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("not/a/name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ]
    )


# -- values that are not zero ---------------------------------------------------------------------------------------


def test_operations_that_were_not_requested_are_the_smallest_integer(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    for version in (8, 10, 13):
        response = metadata(client, topic, version=version)
        assert response.topics[0].topic_authorized_operations == NOT_ASKED
        if version <= 10:
            assert response.cluster_authorized_operations == NOT_ASKED


def test_requested_operations_are_returned(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)],
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    response = client.call(request, 10)
    read, write, describe = 1 << 3, 1 << 4, 1 << 8
    assert response.topics[0].topic_authorized_operations & (read | write | describe) == read | write | describe
    assert response.cluster_authorized_operations > 0


def test_the_controller_is_a_broker_that_lives(client: WireClient) -> None:
    for version in range(1, 14):
        response = metadata(client, version=version)
        assert response.controller_id in {node.node_id for node in response.brokers}


# -- topics that come into being ------------------------------------------------------------------------------------


def test_a_metadata_request_creates_a_topic_only_where_that_is_allowed(client: WireClient, topic: str) -> None:
    for version in range(4, 14):
        (response,) = metadata(client, topic, version=version, is_creation_allowed=False).topics
        assert response.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (first,) = metadata(client, topic, is_creation_allowed=True).topics
    assert first.error_code in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE)
    while (found := metadata(client, topic).topics[0]).error_code != 0:
        assert found.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE)
    assert found.partitions[0].leader_id >= 0


def test_a_version_without_allow_auto_topic_creation_creates_the_topic(client: WireClient, topic: str) -> None:
    client.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 1)
    while metadata(client, topic).topics[0].error_code != 0:
        pass


@pytest.mark.ours
def test_auto_create_topics_enable_has_the_last_word(topic: str) -> None:
    no_creation = {"auto.create.topics.enable": False}
    with Broker(properties=no_creation) as broker, WireClient(broker.bootstrap_servers) as client:
        (response,) = metadata(client, topic, is_creation_allowed=True).topics
        assert response.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert metadata(client).topics == []


def test_the_offsets_topic_is_internal_wherever_it_is_named(client: WireClient) -> None:
    (response,) = metadata(client, "__consumer_offsets").topics
    assert response.is_internal


# -- where the broker says it is ------------------------------------------------------------------------------------


@pytest.mark.ours
def test_localhost_answers_whatever_family_it_resolves_to_first() -> None:
    """`localhost` may be ::1 first; a client that tries it must not be refused when it goes on to 127.0.0.1."""
    with Broker(properties={"listeners": "PLAINTEXT://localhost:0,CONTROLLER://localhost:0"}) as broker:
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        with WireClient(f"localhost:{port}") as client:
            (node,) = metadata(client).brokers
        socket.create_connection((node.host, node.port), timeout=60).close()
        with WireClient(f"127.0.0.1:{port}") as client:
            assert metadata(client).brokers == [node]


def test_the_advertised_address_leads_back_to_the_broker(client: WireClient) -> None:
    (node,) = metadata(client).brokers
    with WireClient(f"{node.host}:{node.port}") as found:
        assert metadata(found).cluster_id == metadata(client).cluster_id
