"""A directory of Apache Kafka 3.3's level, raised level by level to the newest while the broker runs."""

import os
from pathlib import Path
from typing import Any, TypeVar

import pytest

from harness.servers import ApacheKafka, Kafkapy, Server, free_port
from kafkapy.metadata.record_serde import decode_record
from kafkapy.protocol.messages.describe_cluster_request import DescribeClusterRequest
from kafkapy.protocol.messages.register_broker_record import RegisterBrokerRecord
from kafkapy.protocol.messages.register_controller_record import RegisterControllerRecord
from kafkapy.protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from kafkapy.record.batches import batches
from tests.support.client_requests import EARLIEST, batch_of, create_topic, list_offset, local_voter, produce, until
from tests.support.features import feature_levels
from tests.support.wire import WireClient

KIND = ApacheKafka if os.environ.get("KAFKAPY_COMPAT_SERVER") == "apache" else Kafkapy
FIRST, LAST = 7, 33
T = TypeVar("T")


def formatted(directory: Path) -> Server:
    server = KIND(directory)
    controller_port = free_port()
    server.properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://127.0.0.1:{server.port},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "controller.quorum.bootstrap.servers": "",
        "controller.listener.names": "CONTROLLER",
        "offsets.topic.replication.factor": "1",
        "broker.heartbeat.interval.ms": "100",
    }
    if KIND is Kafkapy:
        del server.properties["controller.quorum.bootstrap.servers"]
    server.format_arguments = ("--release-version", "3.3-IV3")
    return server


def level_of(client: WireClient, name: str = "metadata.version") -> int:
    return feature_levels(client).get(name, 0)


def updated(client: WireClient, name: str, level: int, **fields: Any) -> Any:
    update = FeatureUpdateKey(feature=name, max_version_level=level)
    return client.call(UpdateFeaturesRequest(feature_updates=[update], **fields), 1)


def test_metadata_version_rises_while_the_broker_runs(tmp_path: Path) -> None:
    server = formatted(tmp_path / "data")
    with server, WireClient(server.bootstrap) as client:
        for level in range(FIRST, LAST + 1):
            if level > FIRST:
                assert updated(client, "metadata.version", level).error_code == 0
                until(lambda level=level: level_of(client) == level)
            if level in (7, 8, 12, 15, 17, 23, 30, 33):
                create_topic(client, f"at-{level}")
                assert produce(client, f"at-{level}", batch_of()).error_code == 0
        assert updated(client, "eligible.leader.replicas.version", 1).error_code == 0
        assert updated(client, "metadata.version", LAST + 1).error_code == 95
        assert [broker.broker_id for broker in client.call(DescribeClusterRequest(), 2).brokers] == [1]
        server.stop()
        server.start()
        with WireClient(server.bootstrap) as again:
            assert level_of(again) == LAST
            for level in (7, 17, 33):
                until(lambda level=level: list_offset(again, f"at-{level}", EARLIEST).error_code == 0)


def records(server: Server, kind: type[T]) -> list[T]:
    """Return the records of a kind in the metadata log, which the broker may be writing to."""
    data = (server.directory / "__cluster_metadata-0" / "00000000000000000000.log").read_bytes()
    values = [
        decode_record(record.value)
        for batch in batches(data)
        if not batch.is_control
        for record in batch.records()
        if record.value is not None
    ]
    return [value for value in values if isinstance(value, kind)]


def test_kraft_version_rises_where_the_voters_are_static(tmp_path: Path) -> None:
    """From then on the voters lie in the log, with their directories."""
    server = formatted(tmp_path / "data")
    with server, WireClient(server.bootstrap) as client:
        assert level_of(client, "kraft.version") == 0
        refused = updated(client, "kraft.version", 2)
        dry = updated(client, "kraft.version", 1, validate_only=True)
        assert (refused.error_code, dry.error_code, level_of(client, "kraft.version")) == (95, 0, 0)

        assert updated(client, "kraft.version", 1).error_code == 0
        assert level_of(client, "kraft.version") == 1
        voter = local_voter(client)
        assert (voter.node_id, voter.directory_id != bytes(16)) == (1, True)
        assert updated(client, "kraft.version", 1).error_code == 0
        create_topic(client, "after")
        server.stop()
        server.start()
        with WireClient(server.bootstrap) as again:
            assert (level_of(again, "kraft.version"), local_voter(again)) == (1, voter)
            until(lambda: list_offset(again, "after", EARLIEST).error_code == 0)


@pytest.mark.ours
def test_nodes_register_anew_for_what_a_level_brings(tmp_path: Path) -> None:
    """Controllers at 3.7-IV0, log directories at 3.7-IV2."""
    server = formatted(tmp_path / "data")
    with server, WireClient(server.bootstrap) as client:
        assert records(server, RegisterControllerRecord) == []
        assert [record.log_dirs for record in records(server, RegisterBrokerRecord)] == [[]]

        assert updated(client, "metadata.version", 15).error_code == 0
        until(lambda: len(records(server, RegisterControllerRecord)) == 1)
        assert updated(client, "metadata.version", 17).error_code == 0
        until(lambda: len(records(server, RegisterBrokerRecord)) == 2)

        first, second = records(server, RegisterBrokerRecord)
        assert (len(second.log_dirs), second.broker_epoch, second.fenced) == (1, first.broker_epoch, False)
