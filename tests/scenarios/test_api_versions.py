"""ApiVersions is three special cases in one, and what it lists is a contract. KIP-511."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.protocol.messages.api_versions_response import ApiVersionsResponse
from kafkapy.protocol.messages.describe_cluster_request import DescribeClusterRequest
from kafkapy.protocol.messages.produce_request import ProduceRequest
from tests.support.client_requests import metadata
from tests.support.wire import WireClient

FACTS = Path(__file__).parent.parent / "golden" / "api_versions.tsv"
CLIENT = ApiVersionsRequest(client_software_name="wire-client", client_software_version="1.2.3")
UNSUPPORTED_V0 = bytes.fromhex("0000002a 0023 00000001 0012 0000 0005")
"""Correlation id 42, UNSUPPORTED_VERSION, one row: key 18, versions 0 to 5."""


def header(api_key: int, version: int, *, correlation_id: int = 42, tags: bytes = b"") -> bytes:
    name = b"\x00\x01x"
    return b"".join(number.to_bytes(2, "big", signed=True) for number in (api_key, version)) + (
        correlation_id.to_bytes(4, "big") + name + tags
    )


@pytest.mark.parametrize("version", range(6))
def test_every_version_has_a_response_header_without_tagged_fields(client: WireClient, version: int) -> None:
    """One byte more, and librdkafka took the error code for the length of an array."""
    body = CLIENT.encode(version)
    client.send_frame(header(18, version, tags=b"\0" if version >= 3 else b"") + body)
    frame = client.receive_frame()
    assert frame[:4] == bytes.fromhex("0000002a")
    response = ApiVersionsResponse.decode(frame[4:], version)
    assert response.error_code == 0
    assert {18, 3, 0, 1} <= {row.api_key for row in response.api_keys}


@pytest.mark.parametrize("version", [6, 99, 32767, -1])
def test_an_unknown_version_is_answered_in_version_0_with_its_own_row(client: WireClient, version: int) -> None:
    """Whatever the body is: its format is not known. The client asks again, on the same connection."""
    client.send_frame(header(18, version, tags=b"\0") + b"\xff\xff what is this")
    response = client.receive_frame()
    assert response == UNSUPPORTED_V0
    assert client.call(CLIENT, 4).error_code == 0


@pytest.mark.parametrize(
    ("name", "version"), [("", "1"), ("a", ""), ("-a", "1"), ("a b", "1"), ("a", "1_0"), ("a.", "1"), ("é", "1")]
)
def test_a_clients_software_must_be_named_in_plain_letters(client: WireClient, name: str, version: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    response = client.call(request, 3)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert client.call(CLIENT, 3).error_code == 0


def test_a_client_that_means_another_broker_is_sent_to_its_bootstrap_servers(client: WireClient) -> None:
    """KIP-1242."""
    cluster = client.call(DescribeClusterRequest(), 0)
    node_id = metadata(client).brokers[0].node_id

    def code(cluster_id: str | None, node_id: int) -> int:
        named = ApiVersionsRequest(
            client_software_name="a", client_software_version="1", cluster_id=cluster_id, node_id=node_id
        )
        response = client.call(named, 5)
        assert bool(response.api_keys) == (response.error_code == 0)
        return int(response.error_code)

    assert code(None, -1) == ErrorCode.NONE
    assert code(cluster.cluster_id, node_id) == ErrorCode.NONE
    assert code(cluster.cluster_id, node_id + 1) == ErrorCode.REBOOTSTRAP_REQUIRED
    assert code("another", node_id) == ErrorCode.REBOOTSTRAP_REQUIRED
    assert code(None, node_id) == ErrorCode.INVALID_REQUEST
    assert code(cluster.cluster_id, -1) == ErrorCode.INVALID_REQUEST
    assert code(None, -1) == ErrorCode.NONE, "the connection goes on"


def test_features_with_a_minimum_of_0_are_kept_from_version_3(client: WireClient) -> None:
    """Java clients before 3.9 fail on them. KIP-1022."""
    assert all(feature.min_version > 0 for feature in client.call(CLIENT, 3).supported_features)
    names = {feature.name: feature.min_version for feature in client.call(CLIENT, 4).supported_features}
    assert names["kraft.version"] == 0
    assert names["metadata.version"] > 0


def test_finalized_features_come_with_the_epoch_that_they_are_as_of(client: WireClient) -> None:
    response = client.call(CLIENT, 4)
    assert response.finalized_features_epoch >= 0
    assert "metadata.version" in {feature.name for feature in response.finalized_features}
    assert not response.zk_migration_ready


def test_rows_rise_and_name_only_what_kafka_has_for_clients(client: WireClient) -> None:
    """No unstable version, nothing of the controllers, no telemetry without a receiver."""
    rows = client.call(CLIENT, 4).api_keys
    keys = [row.api_key for row in rows]
    assert keys == sorted(set(keys))
    with FACTS.open() as facts:
        kafka = {int(row["api_key"]): row for row in csv.DictReader(facts, delimiter="\t")}
    for row in rows:
        known = kafka[row.api_key]
        assert "BROKER" in known["listeners"], known
        assert row.max_version <= int(known["max_stable_version"]), known
        assert row.min_version == (0 if row.api_key == 0 else int(known["min_version"])), known
    assert not {71, 72} & set(keys)


def test_produce_is_listed_from_0_though_0_to_2_are_refused(connect: Callable[[], WireClient]) -> None:
    """Without 0 to 2 librdkafka sends uncompressed and says nothing. KAFKA-18659."""
    (row,) = (row for row in connect().call(CLIENT, 4).api_keys if row.api_key == 0)
    assert (row.min_version, row.max_version) == (0, 13)
    for version in range(3):
        refused = connect()
        refused.send_frame(header(0, version) + bytes.fromhex("0001 00007530 00000000"))
        assert refused.is_closed()
    assert connect().call(ProduceRequest(acks=1, timeout_ms=100), 3).responses == []


UNREADABLE = {
    "a version too new": header(3, 14, tags=b"\0"),
    "a version too old": header(1, 3),
    "a negative version": header(3, -1),
    "a key that no api has": header(999, 0),
    "a negative key": header(-1, 0),
    "an api of controllers": header(52, 0),
    "a body cut short": header(3, 1) + b"\0\0",
    "no body": header(3, 1),
    "a header cut short": b"\0\x03\0",
    "nothing at all": b"",
}


@pytest.mark.parametrize("frame", UNREADABLE.values(), ids=UNREADABLE)
def test_what_cannot_be_served_closes_its_own_connection_only(connect: Callable[[], WireClient], frame: bytes) -> None:
    neighbour, refused = connect(), connect()
    assert metadata(neighbour).brokers
    refused.send_frame(frame)
    assert refused.is_closed()
    assert metadata(neighbour).brokers


@pytest.mark.parametrize("size", [-1, 2**31 - 1, 104_857_601], ids=["negative", "the largest", "over the limit"])
def test_a_frame_of_impossible_size_closes_its_connection_at_once(connect: Callable[[], WireClient], size: int) -> None:
    neighbour, refused = connect(), connect()
    refused.send_bytes(size.to_bytes(4, "big", signed=True) + b"\0\x12\0\x03")
    assert refused.is_closed()
    assert metadata(neighbour).brokers


def test_responses_before_a_frame_that_cannot_be_read_still_arrive(client: WireClient) -> None:
    client.send(CLIENT, 3)
    client.send_frame(header(999, 0))
    assert client.receive().error_code == 0
    assert client.is_closed()
