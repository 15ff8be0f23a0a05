"""Every command of Java's kafka-transactions.sh against a broker process, with transactions that were left open."""

from collections.abc import Callable, Iterator

import pytest

from kafkapy.protocol.error_code import ErrorCode
from tests.support.client_requests import READ_COMMITTED, create_topic, list_offset
from tests.support.transactions import TransactionalProducer, hanging_transaction
from tests.support.wire import WireClient

COMMAND = "org.apache.kafka.tools.TransactionsCommand"
TIMEOUT_MS = 600_000
"""Longer than the commands take, each in a JVM of its own."""


@pytest.fixture
def client(bootstrap: str) -> Iterator[WireClient]:
    with WireClient(bootstrap) as connected:
        yield connected


@pytest.fixture
def transactions(java_tool: Callable[..., str], bootstrap: str) -> Callable[..., list[list[str]]]:
    """Run a command; return the words of its table's rows."""

    def run(*arguments: object) -> list[list[str]]:
        printed = java_tool(COMMAND, "--bootstrap-server", bootstrap, *map(str, arguments))
        return [line.split() for line in printed.strip().splitlines()[1:]]

    return run


def test_a_transaction_is_listed_described_and_terminated(transactions, client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    producer = TransactionalProducer(client, topic)
    assert producer.init(timeout_ms=TIMEOUT_MS) == 0
    assert producer.send(topic) == 0
    (listed,) = transactions("list", "--transactional-id-pattern", topic, "--duration-filter", 0)
    assert listed == [topic, "1", str(producer.producer_id), "Ongoing"]
    (described,) = transactions("describe", "--transactional-id", topic)
    assert described[:6] == ["1", topic, str(producer.producer_id), str(producer.epoch), "Ongoing", str(TIMEOUT_MS)]
    assert described[8] == f"{topic}-0"
    transactions("forceTerminateTransaction", "--transactionalId", topic)
    assert producer.end(commit=True) == ErrorCode.PRODUCER_FENCED
    assert transactions("list", "--transactional-id-pattern", topic) == [
        [topic, "1", str(producer.producer_id), "Empty"]
    ]


def test_a_hanging_transaction_is_found_and_aborted(transactions, client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    producer_id = hanging_transaction(client, topic)
    searched = ("--topic", topic, "--partition", 0)
    (found,) = transactions("find-hanging", *searched, "--max-transaction-timeout", 0)
    assert (found[:3], found[5]) == ([topic, "0", str(producer_id)], "0")
    transactions("abort", *searched, "--start-offset", 0)
    assert transactions("find-hanging", *searched, "--max-transaction-timeout", 0) == []
    (described,) = transactions("describe-producers", *searched)
    assert (described[0], described[5]) == (str(producer_id), "None")
    assert list_offset(client, topic, -1, isolation_level=READ_COMMITTED).offset == 2
