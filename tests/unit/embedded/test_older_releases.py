"""Broker(version="3.9"): what a broker of that release lists, serves and refuses."""

from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kafkapy import Broker
from kafkapy.cli.connection import Connection
from kafkapy.errors import ProtocolError
from kafkapy.handlers.imitated import VERSIONS, ranges_of
from kafkapy.handlers.table import BROKER_APIS
from kafkapy.protocol.api import API_VERSIONS
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.protocol.messages.api_versions_response import ApiVersionsResponse
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.metadata_request import MetadataRequest
from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.client_requests import batch_of

RELEASES = (*VERSIONS, "4.4")


def api_versions(broker: Broker, version: int = 3):
    with Connection.to_any(broker.bootstrap_servers) as connection:
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        return connection.call(request, version)


@pytest.mark.parametrize("release", RELEASES)
def test_a_release_lists_its_versions_and_serves_clients(release: str):
    with Broker(version=release) as broker:
        listed = {row.api_key: (row.min_version, row.max_version) for row in api_versions(broker).api_keys}
        ranges = ranges_of(release) or {}
        for key, (first, last) in ranges.items():
            if key in BROKER_APIS and not BROKER_APIS[key].is_telemetry:
                assert listed[key][1] == min(last, BROKER_APIS[key].max_version), key
                assert listed[key][0] >= first, key
        assert not ranges or listed.keys() <= ranges.keys()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("orders", 1)])["orders"].result()
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
        producer.produce("orders", b"1")
        assert producer.flush(60) == 0
        group = {"group.id": "g", "auto.offset.reset": "earliest"}
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, **group})
        consumer.subscribe(["orders"])
        assert consumer.poll(60).value() == b"1"
        consumer.close()


@pytest.mark.parametrize(("release", "last"), [("2.8", 3), ("3.9", 4), ("4.3", 4), ("4.4", 5)])
def test_a_client_that_is_newer_learns_the_versions_to_ask_with(release: str, last: int):
    """Java's clients from 3.9 on ask ApiVersions 4 first, and again with what the response lists (KIP-511)."""
    with Broker(version=release) as broker, Connection.to_any(broker.bootstrap_servers) as connection:
        connection.send_frame(bytes.fromhex("0012 0009 0000002a ffff 00"))  # version 9
        response = ApiVersionsResponse.decode(connection.receive_frame(30)[4:], 0)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [(row.api_key, row.max_version) for row in response.api_keys] == [(API_VERSIONS, last)]


def test_what_a_release_had_not_is_refused():
    with (
        Broker(version="2.8") as broker,
        Connection.to_any(broker.bootstrap_servers) as connection,
        pytest.raises((ProtocolError, OSError)),
    ):
        connection.call(MetadataRequest([]), 12)
    with Broker(version="2.8") as broker, Connection.to_any(broker.bootstrap_servers) as connection:
        assert connection.call(FindCoordinatorRequest("g"), 3).error_code in (0, 15)
    with Broker(version="3.9") as broker, Connection.to_any(broker.bootstrap_servers) as connection:
        assert connection.call(MetadataRequest([]), 12).brokers


def test_a_small_produce_is_held_to_the_release_too():
    topic = TopicProduceData("orders", partition_data=[PartitionProduceData(0, records=batch_of())])
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
    with Broker(version="3.9") as broker:
        broker.create_topics("orders")
        with Connection.to_any(broker.bootstrap_servers) as connection:
            for base_offset in range(2):  # a log's first batch is not appended by the way for small ones
                (response,) = connection.call(request, 11).responses[0].partition_responses
                assert response.base_offset == base_offset
            with pytest.raises((ProtocolError, OSError)):
                connection.call(request, 12)


def test_versions_that_kafka_4_removed_are_there_again():
    with Broker(version="3.9") as broker:
        listed = {row.api_key: row.min_version for row in api_versions(broker).api_keys}
    assert (listed[0], listed[1], listed[2]) == (0, 0, 0), "Produce, Fetch, ListOffsets"


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("2.8", {}),
        ("3.9", {"metadata.version": 21, "kraft.version": 1}),
        (
            "4.1",
            {
                "metadata.version": 27,
                "kraft.version": 1,
                "transaction.version": 2,
                "group.version": 1,
                "eligible.leader.replicas.version": 1,
            },
        ),
    ],
)
def test_a_release_has_its_features(release: str, expected: dict[str, int]):
    with Broker(version=release) as broker:
        response = api_versions(broker)
        assert {each.name: each.max_version_level for each in response.finalized_features} == expected
        supported = {
            each.name: each.max_version
            for each in api_versions(broker, 4 if release != "2.8" else 3).supported_features
        }
    assert supported == expected | ({"share.version": 1} if release == "4.1" else {}), "supported, not finalized"


def test_an_api_that_a_release_had_not_is_refused():
    """As by a broker of 2.8: the connection ends."""
    with (
        Broker(version="2.8") as broker,
        Connection.to_any(broker.bootstrap_servers) as connection,
        pytest.raises((ProtocolError, OSError)),
    ):
        connection.call(ConsumerGroupHeartbeatRequest("g"), 0)


def test_a_directory_keeps_its_level_under_another_version(tmp_path: Path):
    with Broker(tmp_path, version="3.9"):
        pass
    with Broker(tmp_path) as broker:
        levels = {each.name: each.max_version_level for each in api_versions(broker).finalized_features}
    assert levels["metadata.version"] == 21


def test_another_version_is_refused_by_name(tmp_path: Path):
    with pytest.raises(ValueError, match=r"version='3.5': a broker can look like 2.8, 3.9, 4.1, 4.3, 4.4"):
        Broker(tmp_path, version="3.5")
