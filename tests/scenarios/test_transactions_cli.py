"""`kafkapy transactions` against a broker, with transactions that a client began and left open."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.__main__ import main
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.end_txn_request import EndTxnRequest
from tests.support.client_requests import READ_COMMITTED, create_topic, list_offset
from tests.support.transactions import TransactionalProducer, hanging_transaction
from tests.support.wire import WireClient

Run = Callable[..., Any]


@pytest.fixture
def run(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Run:
    def run_command(*arguments: object) -> SimpleNamespace:
        status = main(["transactions", *map(str, arguments), "-b", bootstrap])
        output = capsys.readouterr()
        return SimpleNamespace(status=status, out=output.out, err=output.err)

    return run_command


@pytest.fixture
def ongoing(client: WireClient, topic: str) -> tuple[int, int]:
    """A transaction of the test's own id with a record in partition 0 of its topic; producer id and epoch."""
    create_topic(client, topic)
    producer = TransactionalProducer(client, topic)
    assert producer.init() == 0
    assert producer.send(topic) == 0
    return producer.producer_id, producer.epoch


def test_transactions_are_listed(run: Run, topic: str, ongoing: tuple[int, int]) -> None:
    listed = {"transactional_id": topic, "coordinator": 1, "producer_id": ongoing[0], "state": "Ongoing"}
    (found,) = json.loads(run("list", "--json", "--pattern", topic).out)
    assert found | {"coordinator": 1} == listed
    assert found in json.loads(run("list", "--json", "--state", "Ongoing").out)
    assert json.loads(run("list", "--json", "--state", "Empty", "--producer-id", ongoing[0]).out) == []
    assert found not in json.loads(run("list", "--json", "--longer-than", 3_600_000).out)
    assert run("list", "--producer-id", ongoing[0]).out.splitlines()[1].split()[0] == topic


def test_a_bad_filter_is_reported(run: Run) -> None:
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


def test_an_unknown_id_is_reported(run: Run) -> None:
    failed = run("describe", "nobody")
    assert (failed.status, failed.err) == (
        1,
        "kafkapy: nobody: Transactional id not found. (TRANSACTIONAL_ID_NOT_FOUND)\n",
    )


def test_a_partitions_producers_are_shown(run: Run, topic: str, ongoing: tuple[int, int]) -> None:
    (producer,) = json.loads(run("producers", topic, 0, "--json").out)
    assert (producer["producer_id"], producer["producer_epoch"]) == ongoing
    assert (producer["last_sequence"], producer["open_from"]) == (0, 0)
    assert run("producers", topic, 0).out.splitlines()[1].split()[0] == str(ongoing[0])


def test_a_partition_that_is_not_there_is_reported(run: Run, topic: str, ongoing: tuple[int, int]) -> None:
    failed = run("producers", topic, 1)
    reason = "Unknown topic or partition. (UNKNOWN_TOPIC_OR_PARTITION)"
    assert (failed.status, failed.err) == (1, f"kafkapy: {topic}-1: {reason}\n")


def test_a_transaction_that_its_coordinator_knows_does_not_hang(run: Run, topic: str, ongoing: tuple[int, int]) -> None:
    assert json.loads(run("find-hanging", "--topic", topic, "--max-transaction-timeout", 0, "--json").out) == []


def test_a_hanging_transaction_is_found_and_ended(run: Run, client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    producer_id = hanging_transaction(client, topic)
    requested = ("find-hanging", "--topic", topic, "--partition", 0, "--max-transaction-timeout", 0)
    (found,) = json.loads(run(*requested, "--json").out)
    assert (found["producer_id"], found["open_from"]) == (producer_id, 0)
    assert f"kafkapy transactions abort {topic} 0 --start-offset 0" in run(*requested).out
    assert list_offset(client, topic, -1, isolation_level=READ_COMMITTED).offset == 0
    ended = run("abort", topic, 0, "--start-offset", 0)
    assert (ended.status, ended.out) == (0, f"Aborted the transaction of producer {producer_id} in {topic}-0.\n")
    assert list_offset(client, topic, -1, isolation_level=READ_COMMITTED).offset == 2
    assert run("abort", topic, 0, "--start-offset", 0).status == 1


def test_a_transaction_is_terminated(run: Run, client: WireClient, topic: str, ongoing: tuple[int, int]) -> None:
    ended = run("terminate", topic)
    assert ended.status == 0
    assert ended.out == f"Fenced {topic}: producer {ongoing[0]} continues at epoch {ongoing[1] + 2}.\n"
    request = EndTxnRequest(topic, producer_id=ongoing[0], producer_epoch=ongoing[1], committed=True)
    assert client.call(request, 4).error_code == ErrorCode.PRODUCER_FENCED
    assert list_offset(client, topic, -1, isolation_level=READ_COMMITTED).offset == 2


def test_the_port_that_nobody_listens_on_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["transactions", "list", "-b", "127.0.0.1:1"]) == 1
    assert "no broker answers at 127.0.0.1:1" in capsys.readouterr().err
