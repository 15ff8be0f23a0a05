"""The share coordinator, asked as brokers ask it: the states of share partitions, and what they leave in its topic."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkapy import Broker
from kafkapy.metadata.topic_names import SHARE_STATE_TOPIC
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.share.persister import SharePartitionKey, StateBatch, TopicIdPartition
from kafkapy.share.state_messages import DELETE, READ_SUMMARY, WRITE
from kafkapy.share.state_records import ShareSnapshot, ShareTombstone, ShareUpdate, decode_record
from tests.support.client_requests import (
    EARLIEST,
    LATEST,
    batches_in,
    create_topic,
    delete_topic,
    describe_topic,
    fetch,
    list_offset,
    until,
)
from tests.support.share_states import SHARE, StateClient
from tests.support.wire import WireClient

PARTITIONS = 50
NONE, INVALID_REQUEST = ErrorCode.NONE, ErrorCode.INVALID_REQUEST


@pytest.fixture
def state(client: WireClient, topic: str) -> StateClient:
    """A share partition of a new topic, whose coordinator is there; it has no state yet."""
    found = StateClient(client, topic, create_topic(client, topic))
    found.find()
    until(lambda: found.summary().error_code == 0)  # Apache Kafka's coordinator may have to load, or lack the topic yet
    return found


def records_of(client: WireClient, key: SharePartitionKey) -> Iterator[Any]:
    """Yield what the topic has of a share partition."""
    for partition in range(PARTITIONS):
        start = list_offset(client, SHARE_STATE_TOPIC, EARLIEST, partition=partition).offset
        if list_offset(client, SHARE_STATE_TOPIC, LATEST, partition=partition).offset == start:
            continue
        for batch in batches_in(fetch(client, SHARE_STATE_TOPIC, start, partition=partition)):
            assert (batch.base_sequence, batch.producer_id) == (0, -1)
            for record in batch.records():
                decoded = decode_record(record.key, record.value)
                if decoded is not None and decoded.key == key:
                    yield decoded


# -- the coordinator and its topic ------------------------------------------------------------------------------------


def test_the_first_lookup_creates_the_topic(client: WireClient, state: StateClient) -> None:
    topic = describe_topic(client, SHARE_STATE_TOPIC)
    assert (len(topic.partitions), topic.is_internal) == (PARTITIONS, True)
    request = DescribeConfigsRequest(resources=[DescribeConfigsResource(2, resource_name=SHARE_STATE_TOPIC)])
    (result,) = client.call(request, 4).results
    of_topic = {config.name: config.value for config in result.configs if config.config_source == 1}
    assert of_topic == {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "min.insync.replicas": "1",
        "retention.ms": "-1",
        "segment.bytes": "104857600",
    }


@pytest.mark.parametrize("key", ["", "g", "g:AAAAAAAAAAAAAAAAAAAAAQ", ":AAAAAAAAAAAAAAAAAAAAAQ:0", "g:x:0", "g:x:y"])
def test_a_coordinator_is_looked_up_by_group_topic_id_and_partition(client: WireClient, key: str) -> None:
    (found,) = client.call(FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key]), 6).coordinators
    assert (found.error_code, found.node_id) == (INVALID_REQUEST, -1)


def test_share_coordinators_are_looked_up_from_version_6_on(client: WireClient) -> None:
    key = "g:AAAAAAAAAAAAAAAAAAAAAQ:0"
    (found,) = client.call(FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key]), 5).coordinators
    assert found.error_code == INVALID_REQUEST


# -- states -----------------------------------------------------------------------------------------------------------


def test_a_state_is_initialised_written_read_and_deleted(state: StateClient) -> None:
    assert state.initialize(state_epoch=1) == NONE
    assert state.read(leader=3).start_offset == -1
    assert state.write((10, 14, 2, 1), (15, 19, 0, 1), epoch=1, leader=3, start=10, count=5) == NONE
    assert state.write((15, 15, 2, 2), epoch=1, leader=3, start=10, count=6) == NONE

    read = state.read(leader=3)
    assert (read.state_epoch, read.start_offset) == (1, 10)
    assert read.state_batches == [StateBatch(10, 14, 2, 1), StateBatch(15, 15, 2, 2), StateBatch(16, 19, 0, 1)]
    summary = state.summary()
    assert (summary.start_offset, summary.delivery_complete_count, summary.leader_epoch) == (10, 6, 3)

    assert state.delete() == NONE
    assert state.read(leader=3).error_code == INVALID_REQUEST
    assert state.summary().start_offset == -1
    assert state.delete() == NONE


def test_what_is_written_are_a_snapshot_updates_and_a_tombstone(client: WireClient, state: StateClient) -> None:
    state.initialize(state_epoch=1, start_offset=5)
    state.read(leader=2)
    state.write((5, 9, 2, 1), epoch=1, leader=2, start=5, count=5)
    state.delete()
    key = SharePartitionKey(state.group, state.topic_id, 0)
    snapshot, *others = records_of(client, key)
    assert isinstance(snapshot, ShareSnapshot)
    assert snapshot.create_timestamp_ms == snapshot.write_timestamp_ms > 1_600_000_000_000
    assert (snapshot.snapshot_epoch, snapshot.state_epoch, snapshot.start_offset) == (0, 1, 5)
    assert others == [
        ShareUpdate(key, 0, 2, 5, 0, []),
        ShareUpdate(key, 0, 2, 5, 5, [StateBatch(5, 9, 2, 1)]),
        ShareTombstone(key),
    ]


def test_earlier_leaders_and_states_are_fenced(state: StateClient) -> None:
    state.initialize(state_epoch=2)
    state.read(leader=5)
    assert state.read(leader=4).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert state.write(epoch=2, leader=4) == ErrorCode.FENCED_LEADER_EPOCH
    assert state.write(epoch=1, leader=5) == ErrorCode.FENCED_STATE_EPOCH
    assert state.initialize(state_epoch=1) == ErrorCode.FENCED_STATE_EPOCH


def test_a_state_that_is_not_there_is_an_invalid_request(state: StateClient) -> None:
    assert state.read().error_code == INVALID_REQUEST
    assert state.write() == INVALID_REQUEST


def test_partitions_that_are_not_there_are_refused(client: WireClient, state: StateClient) -> None:
    state.partition = 7
    assert state.initialize() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert state.summary().error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert state.delete() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    state.partition = -1
    assert state.initialize() == INVALID_REQUEST
    assert state.read().error_code == INVALID_REQUEST


def test_negative_epochs_are_refused(state: StateClient) -> None:
    assert state.initialize(state_epoch=-1) == INVALID_REQUEST
    state.initialize()
    assert state.write(leader=-1) == INVALID_REQUEST
    assert state.write(epoch=-1) == INVALID_REQUEST
    assert state.read(leader=-1).error_code == INVALID_REQUEST


def test_requests_without_a_group_or_partitions_get_no_results(client: WireClient, state: StateClient) -> None:
    partition = TopicIdPartition(state.topic_id, 0)
    for request, version in (
        (DELETE.request_of("", [partition]), 0),
        (READ_SUMMARY.request_of("", [partition]), 1),
        (WRITE.request_of("g", []), 1),
    ):
        assert client.call(request, version).results == []
    request = DELETE.request_of("g", [partition])
    request.topics[0].partitions.clear()  # type: ignore[attr-defined]
    assert client.call(request, 0).results == []


def test_several_partitions_of_a_request_each_have_a_result(client: WireClient, topic: str) -> None:
    topic_id = create_topic(client, topic, 3)
    state = StateClient(client, topic, topic_id)
    state.find()
    until(lambda: state.summary().error_code == 0)
    for partition in (0, 1):
        state.partition = partition
        until(lambda: state.initialize() == NONE)
    partitions = [TopicIdPartition(topic_id, partition) for partition in (0, 1, 2, 9)]
    until(lambda: _codes(client, topic, partitions) == {0: 0, 1: 0, 2: 0, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    results = DELETE.results_of(client.call(DELETE.request_of(topic, partitions), 0))
    assert {each.partition: each.error_code for each in results} == {0: 0, 1: 0, 2: 0, 9: 3}


def _codes(client: WireClient, group: str, partitions: list[TopicIdPartition]) -> dict[int, int]:
    results = READ_SUMMARY.results_of(client.call(READ_SUMMARY.request_of(group, partitions), 1))
    return {each.partition: each.error_code for each in results}


def test_the_states_of_a_deleted_topic_go_with_it(client: WireClient, state: StateClient, topic: str) -> None:
    state.initialize()
    delete_topic(client, topic)
    key = SharePartitionKey(state.group, state.topic_id, 0)
    until(lambda: isinstance(list(records_of(client, key))[-1], ShareTombstone))


# -- a node that comes back -------------------------------------------------------------------------------------------


@pytest.mark.ours
def test_states_are_there_after_a_restart_and_the_log_is_pruned(directory: Path) -> None:
    keys = {
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.snapshot.update.records.per.snapshot": "3",
    }
    with Broker(directory, properties=keys) as broker, WireClient(broker.bootstrap_servers) as client:
        state = StateClient(client, "g", create_topic(client, "t"))
        state.find()
        state.initialize()
        for number in range(20):
            assert state.write((0, number, 2, 1), count=number + 1) == NONE
    with Broker(directory, properties=keys) as broker, WireClient(broker.bootstrap_servers) as client:
        state.client = client
        state.find()
        until(lambda: state.read().error_code == 0)
        assert state.read().state_batches == [StateBatch(0, 19, 2, 1)]
        assert state.summary().delivery_complete_count == 20
        written = list(records_of(client, SharePartitionKey("g", state.topic_id, 0)))
        assert [type(each) for each in written[:5]] == [ShareSnapshot, *[ShareUpdate] * 3, ShareSnapshot]
