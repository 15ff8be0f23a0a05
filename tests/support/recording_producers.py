"""Transactional producers of both kinds that write down what they did: threads, for tests that trouble a broker.

Each runs transaction after transaction until it is told to stop, whatever happens to the broker. Some it aborts, some
it leaves open for too long, sometimes it begins anew as a client that crashed does. Some transactional ids have two
producers, which fence each other.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from kafkapy.protocol.error_code import ErrorCode
from tests.support.history import NOT_ACKNOWLEDGED, End, Outcome, Recorder, SendOffset, Write
from tests.support.transactions import TransactionalProducer
from tests.support.wire import ConnectionClosed, WireClient

T = TypeVar("T")
TOPICS = ("left", "right")
PARTITION_COUNT = 2
TRANSACTION_TIMEOUT_MS = 1500
RESPONSE_TIMEOUT_S = 1.0
"""Of a wire client, which then asks again over another connection."""
PATIENCE_S = 30.0
LOST = (ConnectionClosed, OSError)
"""The connection ended, could not be made, or gave no response in time."""


def group_of(transactional_id: str) -> str:
    return f"group-of-{transactional_id}"


class Counter:
    """Numbers of the transactions of one transactional id, over all its producers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 1

    def take(self) -> int:
        with self._lock:
            self._next += 1
            return self._next - 1


class RecordingProducer:
    """What both kinds have in common. A transaction's number is the offset that it commits to its id's group."""

    def __init__(
        self, bootstrap: str, transactional_id: str, *, instance: int, counter: Counter, recorder: Recorder, seed: int
    ) -> None:
        self.transactional_id = transactional_id
        self.name = f"{transactional_id}.{instance}"
        self.committed_count = 0
        self._bootstrap = bootstrap
        self._counter = counter
        self._recorder = recorder
        self._random = Random(f"{seed} {self.name}")

    def work(self, is_over: Callable[[], bool]) -> None:
        """Run transactions until it is over; end none that was begun then."""
        is_ready = False
        while not is_over():
            if not is_ready or self._random.random() < 0.03:
                time.sleep(self._random.uniform(0, 0.3))  # who shares the transactional id gets something done
                is_ready = self._begin_anew()
            else:
                is_ready = self._transact()
                time.sleep(self._random.uniform(0, 0.03))
        self._close()

    def _transact(self) -> bool:
        """Run one transaction; return whether the producer can go on without InitProducerId."""
        number = self._counter.take()
        transaction = f"{self.name}/{number}"
        targets = [
            (self._random.choice(TOPICS), self._random.randrange(PARTITION_COUNT))
            for _ in range(self._random.randrange(1, 5))
        ]
        records = [(topic, partition, f"{transaction}/{place}") for place, (topic, partition) in enumerate(targets)]
        random = self._random.random()
        is_written = self._write(transaction, records, number)
        if random < 0.02:
            time.sleep(TRANSACTION_TIMEOUT_MS / 1000 * 1.5)
        requested_at = time.monotonic()
        outcome, goes_on = self._end(is_commit=random < 0.75) if is_written else (Outcome.ABORTED, False)
        self._recorder.add(End(transaction, outcome, requested_at, time.monotonic()))
        self.committed_count += outcome is Outcome.COMMITTED
        return goes_on

    def _note_write(self, transaction: str, record: tuple[str, int, str], offset: int, invoked: float) -> None:
        topic, partition, value = record
        where = f"{topic}-{partition}"
        self._recorder.add(Write(self.name, transaction, where, value, offset, invoked, time.monotonic()))

    def _note_offset(self, transaction: str, number: int) -> None:
        self._recorder.add(SendOffset(transaction, group_of(self.transactional_id), number))

    # -- what a kind of producer does ---------------------------------------------------------------------------------

    def _begin_anew(self) -> bool:
        """Be a new producer of the transactional id; return whether that was possible."""
        raise NotImplementedError

    def _write(self, transaction: str, records: Sequence[tuple[str, int, str]], number: int) -> bool:
        """Begin a transaction, send its records and its offset; return whether all was acknowledged."""
        raise NotImplementedError

    def _end(self, *, is_commit: bool) -> tuple[Outcome, bool]:
        """End the transaction; return its outcome, and whether the producer can go on."""
        raise NotImplementedError

    def _close(self) -> None:
        raise NotImplementedError


class WireProducer(RecordingProducer):
    """A client of tests/support: of transaction version 2 (Produce 12, EndTxn 5), or of before (AddPartitionsToTxn)."""

    def __init__(self, bootstrap: str, transactional_id: str, *, is_v2: bool, **common: object) -> None:
        super().__init__(bootstrap, transactional_id, **common)  # type: ignore[arg-type]
        self._is_v2 = is_v2
        self._client: WireClient | None = None
        self._producer: TransactionalProducer | None = None

    def _begin_anew(self) -> bool:
        with suppress(*LOST):
            self._connect()
            assert self._client is not None
            self._producer = TransactionalProducer(self._client, self.transactional_id)
            version = 5 if self._is_v2 else 1
            return self._producer.init(version=version, timeout_ms=TRANSACTION_TIMEOUT_MS) == ErrorCode.NONE
        time.sleep(0.05)
        return False

    def _connect(self) -> None:
        self._close()
        self._client = WireClient(self._bootstrap, timeout_s=RESPONSE_TIMEOUT_S)
        if self._producer is not None:
            self._producer.reconnect(self._client)

    def _write(self, transaction: str, records: Sequence[tuple[str, int, str]], number: int) -> bool:
        for record in records:
            invoked = time.monotonic()
            offset = self._send(*record)
            self._note_write(transaction, record, offset, invoked)
            if offset == NOT_ACKNOWLEDGED:
                return False
        self._note_offset(transaction, number)
        return self._commit_offset(number)

    def _send(self, topic: str, partition: int, value: str) -> int:
        producer = self._the_producer()

        def send() -> int:
            if not self._is_v2 and producer.add(topic, version=0, partitions=(partition,))[topic]:
                return NOT_ACKNOWLEDGED
            version = 12 if self._is_v2 else 10
            response = producer.send_and_respond(topic, value.encode(), version=version, partition=partition)
            return int(response.base_offset) if response.error_code == 0 else NOT_ACKNOWLEDGED

        return self._patiently(send, NOT_ACKNOWLEDGED)[0]

    def _commit_offset(self, number: int) -> bool:
        producer = self._the_producer()
        group = group_of(self.transactional_id)

        def commit_offset() -> bool:
            if not self._is_v2 and producer.add_offsets(group, version=0) != ErrorCode.NONE:
                return False
            version = 5 if self._is_v2 else 3
            return producer.commit_offset(group, TOPICS[0], number, version=version) == ErrorCode.NONE

        return self._patiently(commit_offset, False)[0]

    def _end(self, *, is_commit: bool) -> tuple[Outcome, bool]:
        producer = self._the_producer()
        version = 5 if self._is_v2 else 1
        lost: int = ErrorCode.REQUEST_TIMED_OUT
        code, is_sure = self._patiently(lambda: producer.end(commit=is_commit, version=version), lost)
        if code == ErrorCode.NONE:
            return Outcome.COMMITTED if is_commit else Outcome.ABORTED, True
        return Outcome.UNKNOWN if is_commit and not is_sure else Outcome.ABORTED, False

    def _patiently(self, send_request: Callable[[], T], lost: T) -> tuple[T, bool]:
        """Ask, and once more over other connections while responses are lost; `lost` if none came.

        Return whether no response was lost, too.
        """
        is_sure = True
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                return send_request(), is_sure
            except LOST:
                is_sure = False
            time.sleep(0.05)
            with suppress(*LOST):
                self._connect()
        return lost, False

    def _the_producer(self) -> TransactionalProducer:
        assert self._producer is not None
        return self._producer

    def _close(self) -> None:
        if self._client is not None:
            self._client.close()


class ConfluentProducer(RecordingProducer):
    """librdkafka, which speaks as before KIP-890."""

    _producer: Producer | None = None
    _group: Consumer | None = None
    """Joins nothing: it is the group's metadata."""

    def _begin_anew(self) -> bool:
        self._producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": self.transactional_id,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 1,
                "reconnect.backoff.max.ms": 200,
                "metadata.recovery.strategy": "none",  # librdkafka 2.16 hangs if it re-bootstraps amid a transaction
                "log_level": 0,
            }
        )
        if self._group is None:
            group = group_of(self.transactional_id)
            self._group = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group, "log_level": 0})
        try:
            self._producer.init_transactions(10)
        except KafkaException:
            return False
        return True

    def _write(self, transaction: str, records: Sequence[tuple[str, int, str]], number: int) -> bool:
        producer, group = self._producer, self._group
        assert producer is not None
        assert group is not None
        offsets: dict[str, int] = {}

        def note(error: KafkaError | None, message: Message) -> None:
            if error is None:
                offsets[message.value().decode()] = message.offset()

        invoked = time.monotonic()
        self._note_offset(transaction, number)
        try:
            producer.begin_transaction()
            for topic, partition, value in records:
                producer.produce(topic, value.encode(), partition=partition, on_delivery=note)
            offset = TopicPartition(TOPICS[0], 0, number)
            producer.send_offsets_to_transaction([offset], group.consumer_group_metadata(), 10)
            producer.flush(10)
        except (KafkaException, BufferError):
            offsets.clear()
        for record in records:
            self._note_write(transaction, record, offsets.get(record[2], NOT_ACKNOWLEDGED), invoked)
        return len(offsets) == len(records)

    def _end(self, *, is_commit: bool) -> tuple[Outcome, bool]:
        producer = self._producer
        assert producer is not None
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                if is_commit:
                    producer.commit_transaction(10)
                    return Outcome.COMMITTED, True
                producer.abort_transaction(10)
                return Outcome.ABORTED, True
            except KafkaException as failure:
                error = failure.args[0]
                if error.retriable():
                    continue
                is_aborted = not is_commit or error.txn_requires_abort()
                return Outcome.ABORTED if is_aborted else Outcome.UNKNOWN, False
        return Outcome.UNKNOWN if is_commit else Outcome.ABORTED, False

    def _close(self) -> None:
        self._producer = None
        if self._group is not None:
            self._group.close()
