"""`kafkapy transactions` against a broker, with transactions that a client began and left open."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.__main__ import main
from kafkapy.protocol.messages.end_txn_request import EndTxnRequest
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkapy.protocol.messages.init_producer_id_request import InitProducerIdRequest
from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.asking import batch_of, create_topic, list_offset, until
from tests.support.wire import WireClient

Run = Callable[..., Any]
READ_COMMITTED = 1
TRANSACTION_KEY_TYPE = 1
SET, BROKER_RESOURCE = 0, 4
PRODUCER_FENCED = 90


@pytest.fixture
def run(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Run:
    def run_command(*arguments: object) -> SimpleNamespace:
        status = main(["transactions", *map(str, arguments), "-b", bootstrap])
        said = capsys.readouterr()
        return SimpleNamespace(status=status, out=said.out, err=said.err)

    return run_command


@pytest.fixture
def ongoing(client: WireClient, topic: str) -> tuple[int, int]:
    """A transaction of the test's own id with a record in partition 0 of its topic; producer id and epoch."""
    create_topic(client, topic)
    producer = initialized(client, topic)
    begin(client, topic, producer)
    return producer


def initialized(client: WireClient, transactional_id: str) -> tuple[int, int]:
    """Return the producer id and epoch that a transactional id gets, once it has a coordinator."""
    responses: list[Any] = []

    def is_there() -> bool:
        client.call(FindCoordinatorRequest(key_type=TRANSACTION_KEY_TYPE, coordinator_keys=[transactional_id]), 6)
        responses.append(client.call(InitProducerIdRequest(transactional_id, 60_000), 4))
        return bool(responses[-1].error_code == 0)

    until(is_there)
    return responses[-1].producer_id, responses[-1].producer_epoch


def begin(client: WireClient, topic: str, producer: tuple[int, int], version: int = 12) -> None:
    """Produce 12 adds the partition by itself; here for a transactional id of the topic's name."""
    batch = batch_of(producer_id=producer[0], producer_epoch=producer[1], base_sequence=0, is_transactional=True)
    data = [TopicProduceData(topic, bytes(16), [PartitionProduceData(0, batch)])]
    response = client.call(ProduceRequest(transactional_id=topic, acks=-1, timeout_ms=30_000, topic_data=data), version)
    assert response.responses[0].partition_responses[0].error_code == 0, response


def hang(client: WireClient, topic: str) -> int:
    """Leave a transaction open in partition 0 of a new topic that no coordinator knows of; return its producer id.

    That needs a broker that does not verify partitions, as those before KIP-890.
    """
    create_topic(client, topic)
    producer = initialized(client, topic)
    verify_partitions(client, is_wanted=False)
    try:
        begin(client, topic, producer, version=9)
    finally:
        verify_partitions(client, is_wanted=True)
    return producer[0]


def verify_partitions(client: WireClient, *, is_wanted: bool) -> None:
    config = AlterableConfig("transaction.partition.verification.enable", SET, str(is_wanted).lower())
    resource = AlterConfigsResource(BROKER_RESOURCE, "", [config])
    (answer,) = client.call(IncrementalAlterConfigsRequest([resource]), 1).responses
    assert answer.error_code == 0, answer


def test_transactions_are_listed(run: Run, topic: str, ongoing: tuple[int, int]) -> None:
    listed = {"transactional_id": topic, "coordinator": 1, "producer_id": ongoing[0], "state": "Ongoing"}
    (found,) = json.loads(run("list", "--json", "--pattern", topic).out)
    assert found | {"coordinator": 1} == listed
    assert found in json.loads(run("list", "--json", "--state", "Ongoing").out)
    assert json.loads(run("list", "--json", "--state", "Empty", "--producer-id", ongoing[0]).out) == []
    assert found not in json.loads(run("list", "--json", "--longer-than", 3_600_000).out)
    assert run("list", "--producer-id", ongoing[0]).out.splitlines()[1].split()[0] == topic


def test_a_bad_filter_is_told(run: Run) -> None:
    failed = run("list", "--state", "Nonsense")
    assert (failed.status, failed.err) == (1, "kafkapy: no such state: Nonsense\n")
    assert "INVALID_REGULAR_EXPRESSION" in run("list", "--pattern", "(").err


def test_a_transaction_is_described(run: Run, topic: str, ongoing: tuple[int, int]) -> None:
    described = json.loads(run("describe", topic, "--json").out)
    assert (described["producer_id"], described["producer_epoch"]) == ongoing
    assert (described["state"], described["timeout_ms"]) == ("Ongoing", 60_000)
    assert described["partitions"] == [f"{topic}-0"]
    assert 0 <= described["duration_ms"] < 60_000
    assert f"{topic}-0" in run("describe", topic).out


def test_an_unknown_id_is_told(run: Run) -> None:
    failed = run("describe", "nobody")
    assert (failed.status, failed.err) == (1, "kafkapy: nobody: TRANSACTIONAL_ID_NOT_FOUND\n")


def test_a_partitions_producers_are_shown(run: Run, topic: str, ongoing: tuple[int, int]) -> None:
    (producer,) = json.loads(run("producers", topic, 0, "--json").out)
    assert (producer["producer_id"], producer["producer_epoch"]) == ongoing
    assert (producer["last_sequence"], producer["open_from"]) == (0, 0)
    assert run("producers", topic, 0).out.splitlines()[1].split()[0] == str(ongoing[0])


def test_a_partition_that_is_not_there_is_told(run: Run, topic: str, ongoing: tuple[int, int]) -> None:
    failed = run("producers", topic, 1)
    assert (failed.status, failed.err) == (1, f"kafkapy: {topic}-1: UNKNOWN_TOPIC_OR_PARTITION\n")


def test_a_transaction_that_its_coordinator_knows_does_not_hang(run: Run, topic: str, ongoing: tuple[int, int]) -> None:
    assert json.loads(run("find-hanging", "--topic", topic, "--max-transaction-timeout", 0, "--json").out) == []


def test_a_hanging_transaction_is_found_and_ended(run: Run, client: WireClient, topic: str) -> None:
    producer_id = hang(client, topic)
    asked = ("find-hanging", "--topic", topic, "--partition", 0, "--max-transaction-timeout", 0)
    (found,) = json.loads(run(*asked, "--json").out)
    assert (found["producer_id"], found["open_from"]) == (producer_id, 0)
    assert f"kafkapy transactions abort {topic} 0 --start-offset 0" in run(*asked).out
    assert list_offset(client, topic, -1, isolation_level=READ_COMMITTED).offset == 0
    ended = run("abort", topic, 0, "--start-offset", 0)
    assert (ended.status, ended.out) == (0, f"Aborted the transaction of producer {producer_id} in {topic}-0.\n")
    assert list_offset(client, topic, -1, isolation_level=READ_COMMITTED).offset == 2
    assert run("abort", topic, 0, "--start-offset", 0).status == 1


def test_a_transaction_is_terminated(run: Run, client: WireClient, topic: str, ongoing: tuple[int, int]) -> None:
    ended = run("terminate", topic)
    assert ended.status == 0
    assert ended.out == f"Fenced {topic}: producer {ongoing[0]} continues at epoch {ongoing[1] + 2}.\n"
    assert client.call(EndTxnRequest(topic, *ongoing, committed=True), 4).error_code == PRODUCER_FENCED
    assert list_offset(client, topic, -1, isolation_level=READ_COMMITTED).offset == 2


def test_the_port_that_nobody_listens_on_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["transactions", "list", "-b", "127.0.0.1:1"]) == 1
    assert "no broker answers at 127.0.0.1:1" in capsys.readouterr().err
