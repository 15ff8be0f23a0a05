"""SIGTERM to a broker amid a transaction's end: what is decided ends as it was decided, once the broker is back.

A partition that has taken a marker of a later coordinator refuses this one's: the transaction stays PrepareCommit or
PrepareAbort. The coordinator of the next life has a later epoch, and completes it.
"""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.servers import Server
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from kafkapy.record.control import end_txn_marker_of
from tests.compat.conftest import new_server
from tests.support.client_requests import LATEST, batches_in, create_topic, fetch, list_offset, until
from tests.support.offsets import fetch_group, find_coordinator
from tests.support.transactions import TransactionalProducer, last_stable_offset, read_committed, write_marker
from tests.support.wire import WireClient

pytestmark = pytest.mark.long

TOPICS = ("left", "right")
GROUP, TRANSACTIONAL_ID = "copied", "t"
PROPERTIES = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Server]:
    with new_server(tmp_path / "data", PROPERTIES) as running:
        yield running


def described(client: WireClient) -> Any:
    (state,) = client.call(DescribeTransactionsRequest([TRANSACTIONAL_ID]), 0).transaction_states
    return state


def begun(client: WireClient) -> TransactionalProducer:
    """Return a producer with a transaction in both topics and a group, which "right" will not let end in this life."""
    for topic in TOPICS:
        create_topic(client, topic)
    find_coordinator(client, GROUP)
    producer = TransactionalProducer(client, TRANSACTIONAL_ID)
    assert producer.init() == ErrorCode.NONE
    write_all(producer, 0)
    assert producer.end(commit=True) == ErrorCode.NONE
    until(lambda: described(client).transaction_state == "CompleteCommit")
    later_epoch = coordinator_epoch(client) + 1
    assert write_marker(client, producer, "right", coordinator_epoch=later_epoch, version=1) == ErrorCode.NONE
    write_all(producer, 1)
    return producer


def write_all(producer: TransactionalProducer, number: int) -> None:
    for topic in TOPICS:
        assert producer.send(topic, b"%d" % number) == ErrorCode.NONE
    assert producer.commit_offset(GROUP, TOPICS[0], number) == ErrorCode.NONE


def coordinator_epoch(client: WireClient) -> int:
    """Return the coordinator's epoch, which its markers have."""
    markers = [batch for batch in batches_in(fetch(client, "right", 0, max_wait_ms=0)) if batch.is_control]
    (record,) = markers[-1].records()
    return end_txn_marker_of(record).coordinator_epoch


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_what_is_prepared_at_a_stop_ends_as_prepared(broker: Server, is_commit: bool) -> None:
    with WireClient(broker.bootstrap) as client:
        assert begun(client).end(commit=is_commit) == ErrorCode.NONE
        prepared, complete = ("PrepareCommit", "CompleteCommit") if is_commit else ("PrepareAbort", "CompleteAbort")
        until(lambda: [each.topic for each in described(client).topics] == ["right"])
        assert described(client).transaction_state == prepared
    assert broker.stop(signal.SIGTERM) in (0, 143)
    broker.start()
    with WireClient(broker.bootstrap) as client:
        find_coordinator(client, GROUP)
        until(lambda: described(client).transaction_state == complete)
        for topic in TOPICS:
            until(lambda: last_stable_offset(client, topic) == list_offset(client, topic, LATEST).offset)  # noqa: B023
            assert read_committed(client, topic) == ([b"0", b"1"] if is_commit else [b"0"])
        partition = fetch_group(client, GROUP, TOPICS[0], require_stable=True).topics[0].partitions[0]
        assert (partition.error_code, partition.committed_offset) == (ErrorCode.NONE, int(is_commit))
