"""A Kafka sink for foreachBatch that writes each batch exactly once, by transactions. Any Kafka from 2.5 on.

It needs pyspark, pyarrow and confluent_kafka, and nothing else of this repository: take the file as it is.

    sink = TransactionalSink("bars", "bars-topic", {"bootstrap.servers": "broker:9092"})
    with sink.open() as writer:
        query = rows.writeStream.option("checkpointLocation", ...).foreachBatch(writer.write).start()
        query.awaitTermination()

Rows have the columns `key` and `value` (binary or string) and, if there are any, `headers` (an array of key and value).

What it does
------------
A batch has `partitions` sink partitions; a row belongs to the one that the hash of its key names. Names of transactions
and of the groups that hold the notes below: NAME for the driver, NAME-0, NAME-1, ... for the sink partitions.

    driver   open     D0  init_transactions of NAME, which fences a driver that holds it
             batch b  D1  read the claim of NAME: its batch must be b - 1 or b
                      D2  commit a transaction with nothing but a new claim: {query, run, batch, partitions, since}
    task p   batch b  T1  init_transactions of NAME-p, which aborts an open transaction and fences who holds it
                      T2  read the claim of NAME; if it is not this run's, end as fenced
                      T3  read the note of NAME-p; if it says b, skip: these rows are committed
                      T4  begin; add the note {query, batch b} to the transaction; produce the rows; commit
    driver                return to Spark, which writes its commit log, once each task has skipped or committed

A note and a claim are the metadata of a committed offset. All are read with isolation.level=read_committed, for which
a broker since 2.5 (KIP-447) lets an OffsetFetch wait for what a transaction has pending.

Assumed
-------
A1  A batch that comes again has the same rows: Spark reads the same offsets, and the query computes the same from them.
    It is enough that the same keys come with what you accept as the same values: a clock in a value is fine (one of
    the attempts wins, for each sink partition as a whole), a random key is not.
A2  The cluster keeps what it acknowledged: replicated transaction and offset topics, no unclean elections.
A3  Notes live for `notes_live_s`: give less than the brokers' offsets.retention.minutes; 6 days if that is 7 days. A
    batch that was begun so long ago and comes again, and a claim that is gone, are refused (D1), as notes may be gone.
    The age of a first batch without a claim is what `write` is told (planned_ms).
A4  Readers use isolation.level=read_committed.

Proof
-----
L1  Of the transactions that write sink partition p of batch b at most one commits. Let two of them commit, t the one
    whose T1 was first: the coordinator orders the inits of NAME-p. When the T1 of the other, u, has returned, t can
    commit no more (its epoch is fenced), and what it began is committed or aborted. So t had committed, its note with
    its records, and u read at T3 that note: only a transaction of NAME-p can replace it, and u holds that name. So u
    skipped, and did not commit.
L2  All attempts at batch b cut it into the same sink partitions. The count is that of the claim: the first attempt
    commits it (D2) before a task starts, every other reads it (D1) and repeats it. The hash is Spark's own of the key
    (pmod(hash(key), partitions)), and a task asserts for each row that it sends that the row is its own.
L3  No batch is left out, none comes again later: D1 refuses a batch that is neither the claim's nor the next.
P1  Nothing is lost: Spark takes a batch as done when `write` has returned, hence each sink partition of it is
    committed, by this attempt or one before (T3); by L2 these are all of its rows, by L3 all batches.
P2  Nothing is there twice: a row is in one sink partition (L2), which is committed once (L1).
P3  Order: rows of a key are in one sink partition, sent by one producer with idempotence, in the order of `order_by`;
    batch b + 1 begins when b is committed. So readers get a key's rows in the order of batches, and of order_by within.
P4  Of two drivers of one query the later one wins. Its D0 fences the older at D2, and the claim that it commits turns
    away the older's tasks at T2. A task of the older that is past T2 either commits before the newer's T1, which then
    skips; or is fenced by it.

A crash, anywhere, is one of these cases: what is open is aborted by the next T1 (or by transaction.timeout.ms), what is
committed is skipped. tests/compat/test_spark_exactly_once.py and its neighbours stop and kill at each step, and count.

Progress
--------
send_offsets_to_transaction of librdkafka 2.10 to 2.16 may never return, whatever its time-out (its issues 5456, 5511):
it waits for a connection to a coordinator that has left the metadata, as after each restart of a single broker, since a
client without brokers goes back to bootstrap.servers. So producers have metadata.recovery.strategy=none here.

If a note is not answered within STUCK_S, the attempt ends with its producer, and the next one begins at T1 (or D0),
which aborts the open transaction. The note is sent before the rows: none is taken from Spark by then. A driver whose
next attempt finds the claim of another driver ends as fenced.

It costs a transaction for each sink partition of a batch that has rows, and one for the batch. A sink partition must be
sent within transaction.timeout.ms (60 s), else the broker aborts it. ACLs: Write and Read (for the notes' offsets) on
the topic, Write and Describe on the transactional ids and Read on the groups with the prefix NAME.
"""

import json
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeVar

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition, libversion
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

OUTCOME = "is_done BOOLEAN"
ABORT_S, STUCK_S, STUCK_ATTEMPTS = 5.0, 20.0, 3
"""The response to a note takes milliseconds; after so long librdkafka waits for a coordinator that is gone."""
QUERY_ID = "sql.streaming.queryId"
FENCINGS = (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)
PASSING = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
"""Why a note cannot be read while a broker starts or its groups move."""
IN_A_TASK = re.compile(r'KafkaError\{(?:FATAL,)?code=(\w+),val=-?\d+,str="([^"]*)')
"""An error of librdkafka in the text of Spark's."""
HINTS = {
    "_FENCED": "a transaction took too long: raise the client's transaction.timeout.ms, or partitions",
    "MSG_SIZE_TOO_LARGE": "raise the client's message.max.bytes and the topic's max.message.bytes",
    "UNKNOWN_TOPIC_OR_PART": "create the topic again; nothing of the batch is lost",
}
NO_CLAIM = ("UNKNOWN_TOPIC_OR_PART", "the claim of the batch is gone, as after its topic was deleted")
NO_NEW_BOOTSTRAP = {"metadata.recovery.strategy": "none"} if libversion()[1] >= 0x020A0000 else {}
T = TypeVar("T")
Step = Callable[[str, int], None]


class SinkError(Exception):
    """Ends the query. The message is one line that says what to do."""


class Stuck(KafkaException):
    """A call that does not return; its transaction cannot commit any more."""


def no_step(_name: str, _sink_partition: int) -> None:
    """Tests stop the sink at its steps."""


@dataclass(frozen=True, slots=True)
class TransactionalSink:
    """The settings of a sink. They are sent to the executors."""

    name: str
    """Used by this query and topic only: transactional ids and groups are NAME and NAME-0, NAME-1, ..."""
    topic: str
    """It must exist."""
    client: Mapping[str, str]
    """librdkafka's options: bootstrap.servers, security.protocol, ...; producers also take compression.type."""
    partitions: int = 4
    """The number of sink partitions of a batch, each with a task and a transaction."""
    order_by: tuple[str, ...] = ()
    """Columns by which rows of one key are ordered; needed if a batch has several rows of a key."""
    first_batch: int = 0
    """The number of the first batch that is written this way: above 0 if a query has used another sink before."""
    takes_over: bool = False
    """Whether to ignore claims of another query: after its checkpoint and its topic were emptied."""
    notes_live_s: float = 6 * 86_400.0
    """Less than how long the brokers keep notes (offsets.retention.minutes)."""
    timeout_s: float = 60.0
    at_step: Step = no_step

    @contextmanager
    def open(self) -> Iterator["TransactionalWriter"]:
        """Fence an older driver; hold the name until the context ends. Raises SinkError."""
        writer = TransactionalWriter(self)
        try:
            yield writer
        finally:
            writer.close()

    def transactional_id(self, sink_partition: int | None = None) -> str:
        return self.name if sink_partition is None else f"{self.name}-{sink_partition}"


@dataclass(frozen=True, slots=True)
class Note:
    """The metadata of a committed offset: the query's batch that is committed, or claimed by a run of a driver."""

    query: str
    batch: int
    partitions: int
    run: str = ""
    since_ms: int = 0
    """Of a claim: the time at which the batch was claimed first."""

    def to_json(self) -> str:
        return json.dumps([self.query, self.batch, self.partitions, self.run, self.since_ms])

    @classmethod
    def of(cls, metadata: str | None) -> "Note | None":
        try:
            return cls(*json.loads(metadata or ""))
        except (ValueError, TypeError):
            return None


class Transactions:
    """A transactional id and the group of the same name, held by this object until another takes them."""

    def __init__(self, sink: TransactionalSink, transactional_id: str) -> None:
        self._sink = sink
        self._is_claim = transactional_id == sink.name
        self._place = TopicPartition(sink.topic, 0)
        self._consumer = new_consumer(sink, transactional_id)
        own = {"transactional.id": transactional_id, "log_level": "2"}
        defaults = {"compression.type": "zstd", "partitioner": "murmur2_random", "linger.ms": "5", **NO_NEW_BOOTSTRAP}
        self._producer = Producer({**defaults, **sink.client, **own})
        try:
            self._until_done(self._producer.init_transactions)
        except BaseException:
            self.close()
            raise

    def note(self) -> Note | None:
        """Return the committed note of this id; wait while a transaction has a pending one."""
        return read_note(self._consumer, self._place, self._sink.timeout_s)

    def commit(self, note: Note, records: Iterable[Mapping[str, Any]] = ()) -> None:
        """Commit the note and records in one transaction. Raises KafkaException.

        Raises Stuck before the first record is taken; then another object of the same id must begin again.
        """
        producer = self._producer
        place = TopicPartition(self._sink.topic, 0, note.batch, note.to_json())
        producer.begin_transaction()
        try:
            group = self._consumer.consumer_group_metadata()
            self._until_done(lambda timeout_s: send_offsets(producer, place, group, timeout_s))
            self._at_step("noted", note)
            self._produce(records)
            self._at_step("produced", note)
            self._until_done(producer.commit_transaction)
        except Stuck:
            raise  # the producer allows no other call
        except BaseException:
            with suppress(KafkaException):  # fenced or unreachable: the next holder of the id aborts the transaction
                producer.abort_transaction(ABORT_S)
            raise
        self._at_step("committed", note)

    def close(self) -> None:
        """Release sockets and threads. The id's next holder aborts an open transaction."""
        self._consumer.close()
        self.__dict__.pop("_producer", None)  # librdkafka's handle ends with the object

    def _at_step(self, name: str, note: Note) -> None:
        self._sink.at_step(f"claim_{name}" if self._is_claim else name, note.batch)

    def _produce(self, records: Iterable[Mapping[str, Any]]) -> None:
        for record in records:
            headers = [(one["key"], one["value"]) for one in record.get("headers") or ()]
            while True:
                try:
                    self._producer.produce(self._sink.topic, record["value"], record["key"], headers=headers)
                    break
                except BufferError:  # the queue is full
                    self._producer.poll(0.1)
            self._producer.poll(0)

    def _until_done(self, call: Callable[[float], object]) -> None:
        """Repeat the call while librdkafka's error is retriable: a commit that timed out may have been done or not."""
        end_s = time.monotonic() + self._sink.timeout_s
        while True:
            try:
                call(max(1.0, end_s - time.monotonic()))
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > end_s:
                    raise


def new_consumer(sink: TransactionalSink, group: str) -> Consumer:
    """Return a consumer that reads notes, without the options of producers, which librdkafka would log."""
    producers = ("compression", "linger.ms", "batch.", "acks", "partitioner", "message.", "queue.buffering", "retries")
    client = {name: value for name, value in sink.client.items() if not name.startswith(producers)}
    fixed = {"enable.auto.commit": "false", "isolation.level": "read_committed", "log_level": "2"}
    return Consumer({**client, **fixed, "group.id": group})


def read_note(consumer: Consumer, place: TopicPartition, timeout_s: float) -> Note | None:
    end_s = time.monotonic() + timeout_s
    while True:
        try:
            (found,) = consumer.committed([place], timeout=max(1.0, end_s - time.monotonic()))
            if found.error is not None:
                raise KafkaException(found.error)
            return Note.of(found.metadata)
        except KafkaException as error:
            if error.args[0].code() not in PASSING or time.monotonic() > end_s:
                raise
        time.sleep(0.2)


def send_offsets(producer: Producer, place: TopicPartition, group: object, timeout_s: float) -> None:
    """Add a committed offset to the producer's transaction. Raises Stuck if librdkafka does not return in time."""
    ended: Future[None] = Future()

    def call() -> None:
        try:
            producer.send_offsets_to_transaction([place], group, timeout_s)
            ended.set_result(None)
        except KafkaException as error:
            ended.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    try:
        ended.result(STUCK_S)
    except TimeoutError:
        raise Stuck(KafkaError(KafkaError._TIMED_OUT, f"no response to a note within {STUCK_S:.0f} s")) from None


def unless_stuck(attempt: Callable[[], T]) -> T:
    """Return the result of an attempt; repeat it if it is stuck, up to STUCK_ATTEMPTS attempts."""
    for _ in range(STUCK_ATTEMPTS - 1):
        with suppress(Stuck):
            return attempt()
    return attempt()


# -- on the driver --------------------------------------------------------------------------------------------------


class TransactionalWriter:
    """The driver's side, made by TransactionalSink.open; pass `write` to foreachBatch."""

    def __init__(self, sink: TransactionalSink) -> None:
        self.sink = sink
        self.run = secrets.token_hex(8)
        self._takes_over = sink.takes_over
        with self._failures():
            self._transactions = Transactions(sink, sink.transactional_id())

    def write(self, rows: DataFrame, batch_id: int, planned_ms: int | None = None) -> None:
        """Write a batch; planned_ms: its batchTimestampMs in the checkpoint, if known. Raises SinkError."""
        query = rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        if not query:
            raise SinkError("a transactional sink writes batches of a streaming query: call it in foreachBatch")
        claim = self.claim(str(query), batch_id, planned_ms)
        self.sink.at_step("claimed", batch_id)
        self._deliver(rows, claim)
        self.sink.at_step("delivered", batch_id)

    def close(self) -> None:
        self._transactions.close()

    def claim(self, query: str, batch_id: int, planned_ms: int | None = None) -> Note:
        """Commit the claim of this run on the batch, with the number of sink partitions of an earlier attempt."""
        with self._failures():
            standing, now_ms = self._transactions.note(), int(time.time() * 1000)
            is_passed_over = self._takes_over and standing is not None and standing.query != query
            before = None if is_passed_over else standing
            claim = replace(next_claim(self.sink, before, query, batch_id, now_ms, planned_ms), run=self.run)
            unless_stuck(lambda: self._commit(claim, standing))
        self._takes_over = False
        return claim

    def _commit(self, claim: Note, standing: Note | None) -> None:
        """Replace the current claim. If stuck, take the name again for another attempt. Raises Stuck, SinkError."""
        try:
            self._transactions.commit(claim)
        except Stuck:
            self._transactions.close()
            self._transactions = Transactions(self.sink, self.sink.transactional_id())
            if self._transactions.note() != standing:
                raise SinkError(fenced(self.sink.name)) from None
            raise

    def _deliver(self, rows: DataFrame, claim: Note) -> None:
        sink = self.sink
        spread = spread_by_key(rows, claim.partitions, sink.order_by)

        def write_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield pa.RecordBatch.from_pydict({"is_done": [deliver(sink, claim, batches)]})
            for _ in batches:  # a task that skips, or is fenced, leaves rows, and Spark reuses the worker
                pass

        if not all(row["is_done"] for row in self._collected(spread.mapInArrow(write_partition, OUTCOME))):
            with self._failures():
                raise SinkError(fenced(sink.name) if self._transactions.note() else self._line(*NO_CLAIM))

    def _collected(self, outcomes: DataFrame) -> list[Row]:
        """Run the tasks. Raises SinkError if Spark gives up because of an error of librdkafka."""
        try:
            return outcomes.collect()
        except PySparkException as error:
            if (found := IN_A_TASK.search(str(error))) is None:
                raise
            raise SinkError(self._line(found[1], found[2])) from None

    def _line(self, code: str, text: str) -> str:
        place = f"{self.sink.client.get('bootstrap.servers')}, transactional id {self.sink.name}"
        return f"{place}: {text}" + (f" ({HINTS[code]})" if code in HINTS else "")

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            found = error.args[0]
            if found.code() in FENCINGS:
                raise SinkError(fenced(self.sink.name)) from None
            raise SinkError(self._line(found.name(), found.str())) from None


def next_claim(
    sink: TransactionalSink, before: Note | None, query: str, batch_id: int, now_ms: int, planned_ms: int | None = None
) -> Note:
    """Return the claim of a batch after the current claim. Raises SinkError if the batch does not follow it."""
    new = Note(query, batch_id, sink.partitions, since_ms=now_ms)
    if before is None:
        if batch_id == sink.first_batch:
            refuse_forgotten(sink, batch_id, planned_ms or now_ms, now_ms)
            return new
        raise SinkError(
            f"batch {batch_id} is the first that {sink.name} is to write, and no batch before it is noted in Kafka "
            f"(notes expire after offsets.retention.minutes): look whether {sink.topic} holds it, in part or whole; to "
            f"write it from its beginning, set first_batch to {batch_id}"
        )
    if before.query != query:
        raise SinkError(
            f"the transactional id {sink.name} belongs to query {before.query}, this is query {query}: give each query "
            f"its own; if its checkpoint and the topic {sink.topic} were emptied, set takes_over"
        )
    if batch_id not in (before.batch, before.batch + 1):
        raise SinkError(
            f"{sink.name} has written batch {before.batch}, and the checkpoint goes on with batch {batch_id}: it is "
            f"older than the topic, or has lost batches; bring back the one that belongs to {sink.topic}"
        )
    if batch_id > before.batch:
        return new
    refuse_forgotten(sink, batch_id, before.since_ms, now_ms)
    return before


def refuse_forgotten(sink: TransactionalSink, batch_id: int, since_ms: int, now_ms: int) -> None:
    """Raise SinkError if the notes of a batch may have expired since an attempt, unless it is named."""
    if now_ms - since_ms > sink.notes_live_s * 1000 and not 0 < batch_id == sink.first_batch:
        what = f"set first_batch to {batch_id}" if batch_id else f"empty checkpoint and {sink.topic}, set takes_over"
        raise SinkError(
            f"batch {batch_id} of {sink.name} was begun {(now_ms - since_ms) // 3_600_000} hours ago, and Kafka may "
            f"have forgotten which parts of it are written: look whether {sink.topic} holds them; to write those that "
            f"are not noted, {what}"
        )


def fenced(transactional_id: str) -> str:
    return (
        f"a newer driver uses the transactional id {transactional_id}, and has fenced this one: run one driver of a "
        f"query at a time, or give this query a name of its own"
    )


def spread_by_key(rows: DataFrame, partitions: int, order_by: Iterable[str] = ()) -> DataFrame:
    """Return rows of key, value, headers and the sink partition, each row in the Spark partition of that number."""
    key, value = F.col("key").cast("binary"), F.col("value").cast("binary")
    place = F.coalesce(key, value, F.lit(b""))
    columns = {"key": key, "value": value, **({"headers": F.col("headers")} if "headers" in rows.columns else {})}
    spread = rows.withColumns({**columns, "_place": place}).repartition(partitions, "_place")
    if tuple(order_by):
        spread = spread.sortWithinPartitions("_place", *order_by)
    return spread.select(*columns, F.pmod(F.hash("_place"), F.lit(partitions)).alias("sink_partition"))


# -- in a task ------------------------------------------------------------------------------------------------------


def deliver(sink: TransactionalSink, claim: Note, batches: Iterator[pa.RecordBatch]) -> bool:
    """Write a sink partition, unless it is written already; return False if a newer driver has fenced this one."""
    context = TaskContext.get()
    assert context is not None
    sink_partition = context.partitionId()
    records = own_records(batches, sink_partition)
    first = next(records, None)
    if first is None:
        return True
    sink.at_step("task_started", claim.batch)
    try:
        return unless_stuck(lambda: deliver_once(sink, claim, sink_partition, chain([first], records)))
    except KafkaException as error:
        if error.args[0].code() in FENCINGS and read_claim(sink) != claim:
            return False
        raise  # Spark repeats the task, which reads the note of its transaction


def deliver_once(
    sink: TransactionalSink, claim: Note, sink_partition: int, records: Iterator[Mapping[str, Any]]
) -> bool:
    """T1 to T4 of the proof. Raises Stuck before a record is taken."""
    with closing(Transactions(sink, sink.transactional_id(sink_partition))) as transactions:
        sink.at_step("initialized", claim.batch)
        if read_claim(sink) != claim:
            return False
        noted = transactions.note()
        if noted is None or (noted.query, noted.batch) != (claim.query, claim.batch):
            transactions.commit(Note(claim.query, claim.batch, claim.partitions), records)
        return True


def own_records(batches: Iterator[pa.RecordBatch], sink_partition: int) -> Iterator[dict[str, Any]]:
    """Yield the records as dicts. Raises AssertionError if a record is of another task: L2 would not hold."""
    for batch in batches:
        for record in batch.to_pylist():
            found = record["sink_partition"]
            assert found == sink_partition, f"a row of sink partition {found} in {sink_partition}"
            yield record


def read_claim(sink: TransactionalSink) -> Note | None:
    with closing(new_consumer(sink, sink.name)) as consumer:
        return read_note(consumer, TopicPartition(sink.topic, 0), sink.timeout_s)
