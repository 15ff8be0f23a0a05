"""Committed offsets are asked of a coordinator that moves, by a process that must not die of its responses."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import kafkapy
from kafkapy import Broker
from kafkapy.__main__ import main
from kafkapy.cli.committed_offsets import BrokerConnections, CoordinatorError, committed_offsets, delete_offsets
from kafkapy.cli.connection import Connection
from kafkapy.cli.consumer_groups import delete_group
from kafkapy.console.brokers import Brokers
from kafkapy.console.client import Clients
from kafkapy.console.groups import lags_of
from kafkapy.console.settings import Settings
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse, DescribedGroup
from kafkapy.protocol.messages.delete_groups_response import DeletableGroupResult, DeleteGroupsResponse
from kafkapy.protocol.messages.find_coordinator_response import FindCoordinatorResponse
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
from kafkapy.protocol.messages.offset_delete_response import OffsetDeleteResponse
from kafkapy.protocol.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from tests.support.scripted_broker import Response, ScriptedBroker, scripted

confluent_kafka = pytest.importorskip("confluent_kafka")
MOVES = [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]


def offsets_after(*errors: int) -> Callable[[Any, int], OffsetFetchResponse]:
    """Answer with each of the errors once, then with offset 4 of orders-0."""
    left = list(errors)

    def respond(request: Any, version: int) -> OffsetFetchResponse:
        code = left.pop(0) if left else 0
        if version < 8:
            topics = [
                OffsetFetchResponseTopic(
                    "orders", partitions=[OffsetFetchResponsePartition(0, committed_offset=4, metadata="")]
                )
            ]
            return OffsetFetchResponse(topics=[] if code else topics, error_code=code)
        named = [
            OffsetFetchResponseTopics(name="orders", partitions=[OffsetFetchResponsePartitions(0, committed_offset=4)])
        ]
        groups = [
            OffsetFetchResponseGroup(each.group_id, topics=[] if code else named, error_code=code)
            for each in request.groups
        ]
        return OffsetFetchResponse(groups=groups)

    return respond


@contextmanager
def coordinator(*errors: int, **more: Response) -> Iterator[ScriptedBroker]:
    """A broker with the topic orders of ten records, whose coordinator first answers OffsetFetch with the errors.

    more: what it answers to other APIs.
    """

    def metadata(request: Any, version: int) -> MetadataResponse:
        partition = MetadataResponsePartition(0, partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1])
        topics = [MetadataResponseTopic(name="orders", topic_id=bytes(16), partitions=[partition])]
        brokers = [MetadataResponseBroker(1, host=broker.host, port=broker.port)]
        return MetadataResponse(brokers=brokers, cluster_id="scripted", controller_id=1, topics=topics)

    def ends(request: Any, version: int) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    "orders", partitions=[ListOffsetsPartitionResponse(partition_index=0, offset=10)]
                )
            ]
        )

    def described(request: Any, version: int) -> ConsumerGroupDescribeResponse:
        groups = [DescribedGroup(group_id=each, group_state="Empty") for each in request.group_ids]
        return ConsumerGroupDescribeResponse(groups=groups)

    with scripted(
        OffsetFetch=offsets_after(*errors), Metadata=metadata, ListOffsets=ends, ConsumerGroupDescribe=described, **more
    ) as broker:
        yield broker


def test_a_group_is_described_although_its_coordinator_moves() -> None:
    """In a process of its own: librdkafka's own request ends it by SIGSEGV here."""
    with coordinator(*MOVES) as broker:
        command = [sys.executable, "-m", "kafkapy", "groups", "describe", "readers", "--json", "-b", broker.address]
        ended = subprocess.run(command, capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)[0]["lag"] == 6
    assert broker.requests.count("OffsetFetch") == len(MOVES) + 1


def test_a_group_is_listed_although_its_coordinator_moves(run_groups) -> None:
    def listed(request: Any, version: int) -> ListGroupsResponse:
        return ListGroupsResponse(
            groups=[ListedGroup("readers", protocol_type="consumer", group_state="Empty", group_type="consumer")]
        )

    with coordinator(*MOVES, ListGroups=listed) as broker:
        (row,) = run_groups("list", "--json", "-b", broker.address)
    assert (row["group"], row["type"], row["lag"]) == ("readers", "Consumer", 6)


def test_a_group_is_deleted_although_its_coordinator_moves(capsys) -> None:
    left = [*MOVES, ErrorCode.NONE]

    def deleted(request: Any, version: int) -> DeleteGroupsResponse:
        code = left.pop(0)
        return DeleteGroupsResponse(
            results=[DeletableGroupResult(each, error_code=code) for each in request.groups_names]
        )

    with scripted(DeleteGroups=deleted) as broker:
        assert main(["groups", "delete", "readers", "-b", broker.address]) == 0
    assert (capsys.readouterr().out, left) == ("Deleted group readers.\n", [])


@pytest.mark.parametrize(("is_lost", "status"), [(True, 0), (False, 1)])
def test_a_group_whose_deletion_lost_its_response_is_deleted(capsys, *, is_lost: bool, status: int) -> None:
    left = [is_lost]

    def deleted(request: Any, version: int) -> DeleteGroupsResponse:
        if left and left.pop():
            raise ConnectionResetError  # which ends the connection: the group is gone, the client does not know it
        results = [DeletableGroupResult(each, error_code=ErrorCode.GROUP_ID_NOT_FOUND) for each in request.groups_names]
        return DeleteGroupsResponse(results=results)

    with scripted(DeleteGroups=deleted) as broker:
        assert main(["groups", "delete", "readers", "-b", broker.address]) == status
        assert broker.requests.count("DeleteGroups") == 1 + is_lost
    output = capsys.readouterr()
    assert "GROUP_ID_NOT_FOUND" in output.err if status else output.out == "Deleted group readers.\n"


def test_a_group_that_is_not_there_is_not_deleted_by_a_broker_that_was_not_reached(capsys) -> None:
    ports = [1]  # where nobody listens

    def found(request: Any, version: int) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(node_id=1, host=broker.host, port=broker.port)

    def metadata(request: Any, version: int) -> MetadataResponse:
        port = ports.pop() if ports else broker.port
        return MetadataResponse(brokers=[MetadataResponseBroker(1, host=broker.host, port=port)], cluster_id="scripted")

    def deleted(request: Any, version: int) -> DeleteGroupsResponse:
        results = [DeletableGroupResult(each, error_code=ErrorCode.GROUP_ID_NOT_FOUND) for each in request.groups_names]
        return DeleteGroupsResponse(results=results)

    with scripted(FindCoordinator=found, Metadata=metadata, DeleteGroups=deleted) as broker:
        assert main(["groups", "delete", "readers", "-b", broker.address]) == 1
    assert "GROUP_ID_NOT_FOUND" in capsys.readouterr().err


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_group_that_is_not_there_is_not_deleted_by_a_request_that_was_not_sent(*, is_listed: bool) -> None:
    left = [1]

    def metadata(request: Any, version: int) -> MetadataResponse:
        brokers = [MetadataResponseBroker(1, host=broker.host, port=broker.port)]
        if left and left.pop():
            if is_listed:
                raise ConnectionResetError  # of the request for the coordinator's address
            brokers = []
        return MetadataResponse(brokers=brokers, cluster_id="scripted")

    def deleted(request: Any, version: int) -> DeleteGroupsResponse:
        results = [DeletableGroupResult(each, error_code=ErrorCode.GROUP_ID_NOT_FOUND) for each in request.groups_names]
        return DeleteGroupsResponse(results=results)

    with (
        scripted(Metadata=metadata, DeleteGroups=deleted) as broker,
        BrokerConnections({"bootstrap.servers": broker.address}) as brokers,
        pytest.raises(CoordinatorError, match="GROUP_ID_NOT_FOUND"),
    ):
        delete_group(brokers, "readers")
    assert (broker.requests.count("DeleteGroups"), left) == (1, [])


def test_no_request_to_a_coordinator_is_made_by_librdkafka() -> None:
    requests = re.compile(r"\.(list|describe|delete|alter)_consumer_group")
    folder = Path(kafkapy.__file__).parent
    sources = [path for part in ("cli", "console") for path in (folder / part).rglob("*.py")]
    assert sources
    assert [path for path in sources if requests.search(path.read_text(encoding="utf-8"))] == []


def test_the_console_survives_a_coordinator_that_moves() -> None:
    with coordinator(*MOVES) as broker:
        settings = Settings(servers=broker.address)
        brokers = Brokers(settings)
        assert sum(lags_of(Clients(settings, brokers), "readers").values()) == 6
        brokers.close()


def test_a_coordinator_is_looked_for_again_after_each_refusal() -> None:
    with coordinator(*MOVES) as broker, BrokerConnections({"bootstrap.servers": broker.address}) as brokers:
        assert committed_offsets(brokers, "readers") == {("orders", 0): 4}
    assert broker.requests.count("FindCoordinator") == len(MOVES) + 1


def test_offsets_are_deleted_although_their_coordinator_was_not_there_at_first() -> None:
    left = [ErrorCode.NONE, *MOVES]

    def found(request: Any, version: int) -> FindCoordinatorResponse:
        code = left.pop(0) if left else ErrorCode.NONE
        return FindCoordinatorResponse(error_code=code, node_id=1, host=broker.host, port=broker.port)

    def deleted(request: Any, version: int) -> OffsetDeleteResponse:
        assert [(each.name, [part.partition_index for part in each.partitions]) for each in request.topics] == [
            ("orders", [0])
        ]
        return OffsetDeleteResponse()

    with (
        scripted(FindCoordinator=found, OffsetFetch=offsets_after(), OffsetDelete=deleted) as broker,
        BrokerConnections({"bootstrap.servers": broker.address}) as brokers,
    ):
        delete_offsets(brokers, "readers", ["orders"])
    assert broker.requests.count("OffsetDelete") == 1


def test_a_broker_that_comes_back_at_another_address_is_found() -> None:
    ports = [1]  # where nobody listens

    def metadata(request: Any, version: int) -> MetadataResponse:
        port = ports.pop() if ports else broker.port
        return MetadataResponse(brokers=[MetadataResponseBroker(1, host=broker.host, port=port)], cluster_id="scripted")

    with (
        scripted(Metadata=metadata, OffsetFetch=offsets_after()) as broker,
        BrokerConnections({"bootstrap.servers": broker.address}) as brokers,
    ):
        assert committed_offsets(brokers, "readers", timeout_s=2) == {("orders", 0): 4}


def test_a_connection_that_failed_is_closed_at_once(monkeypatch) -> None:
    """A redrive's heartbeats may fail for as long as it waits for an answer to its question."""
    closed: list[Connection] = []
    close = Connection.close
    monkeypatch.setattr(Connection, "close", lambda connection: (closed.append(connection), close(connection)))

    def end(request: Any, version: int) -> OffsetFetchResponse:
        raise ConnectionError("as of a proxy whose broker is gone")

    with (
        scripted(OffsetFetch=end) as broker,
        BrokerConnections({"bootstrap.servers": broker.address}) as brokers,
    ):
        with pytest.raises(CoordinatorError, match="no broker answers"):
            committed_offsets(brokers, "readers", timeout_s=0)
        assert len(closed) == 1


def test_other_errors_are_reported_at_once() -> None:
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    with coordinator(code) as broker, BrokerConnections({"bootstrap.servers": broker.address}) as brokers:
        with pytest.raises(CoordinatorError, match="GROUP_AUTHORIZATION_FAILED"):
            committed_offsets(brokers, "readers")
        assert broker.requests.count("OffsetFetch") == 1


def test_the_search_ends() -> None:
    with (
        coordinator(*[ErrorCode.NOT_COORDINATOR] * 1000) as broker,
        BrokerConnections({"bootstrap.servers": broker.address}) as brokers,
        pytest.raises(CoordinatorError, match="NOT_COORDINATOR"),
    ):
        committed_offsets(brokers, "readers", timeout_s=0.3)


def test_a_broker_that_is_gone_is_named() -> None:
    with (
        BrokerConnections({"bootstrap.servers": "127.0.0.1:1"}) as brokers,
        pytest.raises(CoordinatorError, match=r"no broker answers at 127\.0\.0\.1:1: Connection refused"),
    ):
        committed_offsets(brokers, "readers", timeout_s=0.3)


@pytest.mark.parametrize("tls", [False, True])
def test_the_settings_of_the_client_are_those_of_the_connection(tls, run_groups) -> None:
    with Broker(users={"bob": "pw"}, tls=tls) as broker:
        config = broker.client_config("bob")
        consumer = confluent_kafka.Consumer({**config, "group.id": "readers"})
        broker.create_topics("orders", partitions=1)
        consumer.commit(offsets=[confluent_kafka.TopicPartition("orders", 0, 0)], asynchronous=False)
        consumer.close()
        settings = [part for key, value in config.items() for part in ("-X", f"{key}={value}")]
        (described,) = run_groups("describe", "readers", "--json", "-b", broker.bootstrap_servers, *settings)
        assert [each["committed"] for each in described["partitions"]] == [0]


@pytest.fixture
def run_groups(capsys) -> Callable[..., Any]:
    def run(*arguments: str) -> Any:
        assert main(["groups", *arguments]) == 0, capsys.readouterr().err
        return json.loads(capsys.readouterr().out)

    return run
