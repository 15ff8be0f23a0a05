"""One directory, both brokers: transactions that one left open or decided, the other carries on and ends.

The directory is formatted at each transaction.version. What is decided is written as the record that a coordinator
leaves which dies right after it: no marker stands yet. That is left to kafkapy alone: Apache Kafka drops, while it
starts, markers for partitions whose leader it does not know yet, and writes CompleteX without them.
"""

import signal
import time
from pathlib import Path

import pytest

from harness.servers import Kafkapy, Server
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from kafkapy.record.batch import batches
from kafkapy.record.builder import build_batch
from kafkapy.transaction.metadata import TransactionMetadata
from kafkapy.transaction.records import TransactionRecord, encode_record, value_version
from kafkapy.transaction.states import TransactionState
from kafkapy.types import TopicPartition
from tests.support.asking import READ_COMMITTED, create_topic, fetch, kept_batches, produce_request, until
from tests.support.transaction_script import ADMIN_CLIENT_ID, STATE_TOPIC
from tests.support.transactions import TransactionalProducer, find_transaction_coordinator, last_stable_offset
from tests.support.wire import WireClient
from tools.record_transactions import SmallKafka

TURNS = (SmallKafka, Kafkapy, SmallKafka, Kafkapy)
TOPIC = "orders"
ENDS = {TransactionState.PREPARE_COMMIT: "CompleteCommit", TransactionState.PREPARE_ABORT: "CompleteAbort"}


class Swapping:
    """Transactions under way, and what a read_committed consumer must see, in the order of its offsets."""

    def __init__(self, transaction_version: int) -> None:
        self.transaction_version = transaction_version
        self.open: list[TransactionalProducer] = []
        self.decided: dict[str, TransactionState] = {}
        self.values: list[tuple[str, bytes]] = []
        """Transactional id and value of every record, as they were written."""
        self.committed: set[str] = set()

    def take_turn(self, client: WireClient, turn: int) -> None:
        self._check_decided(client)
        self._carry_on(client)
        expected = [value for transactional_id, value in self.values if transactional_id in self.committed]
        assert committed_values(client) == expected
        for number in range(2):
            self.open.append(self._begun(client, f"open-{turn}-{number}"))
        for state in ENDS if TURNS[turn] is SmallKafka else ():
            self._decide(client, self._begun(client, f"decided-{turn}-{state.name}"), state)

    def _begun(self, client: WireClient, transactional_id: str) -> TransactionalProducer:
        producer = TransactionalProducer(client, transactional_id)
        assert producer.init() == 0
        self._send(producer)
        return producer

    def _send(self, producer: TransactionalProducer) -> None:
        is_bumping = self.transaction_version == 2
        if not is_bumping:
            assert set(producer.add(TOPIC).values()) == {0}
        value = f"{producer.transactional_id} {len(self.values)}".encode()
        assert producer.send(TOPIC, value, version=12 if is_bumping else 11) == 0
        self.values.append((producer.transactional_id, value))

    def _carry_on(self, client: WireClient) -> None:
        """End what the other broker left open: one is committed, one aborted."""
        for number, producer in enumerate(self.open):
            producer.reconnect(client)
            state = described(client, producer.transactional_id)
            assert (state.transaction_state, state.producer_id) == ("Ongoing", producer.producer_id)
            assert state.producer_epoch == producer.epoch
            self._send(producer)
            assert producer.end(commit=number == 0, version=5 if self.transaction_version == 2 else 4) == 0
            if number == 0:
                self.committed.add(producer.transactional_id)
            until(lambda: described(client, producer.transactional_id).transaction_state in ENDS.values())  # noqa: B023
        self.open.clear()

    def _decide(self, client: WireClient, producer: TransactionalProducer, state: TransactionState) -> None:
        now_ms = time.time_ns() // 1_000_000
        is_bumping = self.transaction_version == 2
        metadata = TransactionMetadata(
            producer.producer_id,
            producer_epoch=producer.epoch + is_bumping,
            state=state,
            timeout_ms=60_000,
            last_update_ms=now_ms,
            previous_producer_id=producer.producer_id,
            partitions=(TopicPartition(TOPIC, 0),),
            start_ms=now_ms,
            client_transaction_version=2 if is_bumping else 0,
        )
        record = TransactionRecord(producer.transactional_id, metadata, value_version(self.transaction_version))
        request = produce_request(STATE_TOPIC, build_batch([encode_record(record, now_ms)]))
        response = client.call(request, 9, client_id=ADMIN_CLIENT_ID)
        assert response.responses[0].partition_responses[0].error_code == 0
        self.decided[producer.transactional_id] = state

    def _check_decided(self, client: WireClient) -> None:
        """What the other broker decided has ended as it was decided."""
        for transactional_id, state in self.decided.items():
            until(lambda: described(client, transactional_id).transaction_state == ENDS[state])  # noqa: B023
            if state is TransactionState.PREPARE_COMMIT:
                self.committed.add(transactional_id)
        self.decided.clear()


def committed_values(client: WireClient) -> list[bytes | None]:
    """Read to the last stable offset: a fetch ends where a segment does."""
    values: list[bytes | None] = []
    offset, end_offset = 0, last_stable_offset(client, TOPIC)
    while offset < end_offset:
        answer = fetch(client, TOPIC, offset, isolation_level=READ_COMMITTED, max_wait_ms=0)
        values += [record.value for batch in kept_batches(answer) for record in batch.records()]
        offset = list(batches(answer.records))[-1].next_offset
    return [None if value is None else bytes(value) for value in values]


def described(client: WireClient, transactional_id: str):
    (state,) = client.call(DescribeTransactionsRequest([transactional_id]), 0).transaction_states
    return state


@pytest.mark.parametrize("transaction_version", [0, 2])
def test_each_broker_carries_on_the_transactions_of_the_other(tmp_path: Path, transaction_version: int) -> None:
    swapping = Swapping(transaction_version)
    for turn, kind in enumerate(TURNS):
        server = serving(kind, tmp_path / "data", transaction_version)
        with WireClient(server.bootstrap) as client:
            if turn == 0:
                create_topic(client, TOPIC)
            find_transaction_coordinator(client, "any")
            until(lambda: described(client, "nobody").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
            swapping.take_turn(client, turn)
        server.stop(signal.SIGKILL if turn % 3 else signal.SIGTERM)
    assert len(swapping.committed) == 3 + 2  # left open by three brokers, decided by two


def serving(kind: type[SmallKafka] | type[Kafkapy], directory: Path, transaction_version: int) -> Server:
    server = kind(directory, {"transaction.state.log.num.partitions": "1"})
    if isinstance(server, SmallKafka):
        server.transaction_version = transaction_version
    server.prepare()
    return server.start()
