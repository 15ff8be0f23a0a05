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
             batch b  D1  read the claim of NAME: what it says must come right before b, or be b itself
                      D2  commit a transaction with nothing but a new claim: {query, run, batch, partitions, since}
    task p   batch b  T1  init_transactions of NAME-p, which aborts an open transaction and fences who holds it
                      T2  read the claim of NAME; where it is not this run's, end as fenced
                      T3  read the note of NAME-p; where it says b, skip: these rows are committed
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
A3  Notes live for `notes_live_s`, 6 days, as they do where offsets.retention.minutes has its default of 7. A batch that
    was begun so long ago and comes again, and a claim that is gone, are refused (D1), since notes may be gone, too.
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
    (pmod(hash(key), partitions)), and a task asserts for each row that the row is its own.
L3  No batch is left out, none comes again later: D1 refuses a batch that is neither the claim's nor the next.
P1  Nothing is lost: Spark takes a batch as done when `write` has returned, hence each sink partition of it is
    committed, by this attempt or one before (T3); by L2 these are all of its rows, by L3 all batches.
P2  Nothing is there twice: a row is in one sink partition (L2), which is committed once (L1).
P3  Order: rows of a key are in one sink partition, sent by one producer with idempotence, in the order of `order_by`;
    batch b + 1 begins when b is committed. So readers get a key's rows in the order of batches, and of order_by within.
P4  Of two drivers of one query the later one wins. Its D0 fences the older at D2, and the claim that it commits turns
    away the older's tasks at T2. A task of the older that is past T2 either commits before the newer's T1, which then
    skips; or is fenced by it.

The crash of anything, at any place, is one of these cases: what is open is aborted by the next T1 (or by
transaction.timeout.ms), what is committed is skipped. tests/compat/test_spark_exactly_once.py stops the sink at each
step, kills the driver, an executor and the broker there, and counts.

Progress
--------
send_offsets_to_transaction of librdkafka 2.10 to 2.16 may never return, whatever its time-out (its issue 5456): it
waits for a connection to the group's coordinator, even after that broker has left the metadata (issue 5511). By
librdkafka's default each restart of a single broker led to this: while no broker answers, a client goes back to
bootstrap.servers, and its metadata lose the coordinator. So producers have metadata.recovery.strategy=none here.

If a note is still not answered within STUCK_S, the attempt ends together with its producer, and the next one begins at
T1 (or D0), which aborts the open transaction. The note is sent before the rows, so that no row has been taken from
Spark by then. A driver whose next attempt finds the claim of another driver ends as fenced.

What it costs: a transaction for each sink partition of a batch that has rows, and one for the batch. A sink partition
must be sent within transaction.timeout.ms (60 s), else the broker aborts it: raise that in `client`, or `partitions`.
What it needs of ACLs: Write on the topic, Read on it (its offset is what notes are committed for), Write and Describe
on the transactional ids and Read on the groups with the prefix NAME.
"""

import json
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
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

OUTCOME = "sink_partition INT, status STRING, records LONG, message STRING"
COMMITTED, SKIPPED, EMPTY, FENCED = "committed", "skipped", "empty", "fenced"
ABORT_S = 5.0
STUCK_S = 20.0
"""The response to a note takes milliseconds; after so long librdkafka waits for a coordinator that is gone."""
STUCK_ATTEMPTS = 3
QUERY_ID = "sql.streaming.queryId"
FENCINGS = (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)
PASSING = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
"""Why a note cannot be read while a broker starts or its groups move."""
NO_NEW_BOOTSTRAP = {"metadata.recovery.strategy": "none"} if libversion()[1] >= 0x020A0000 else {}
T = TypeVar("T")
Step = Callable[[str, int], None]


class SinkError(Exception):
    """What ends the query: one line that says what to do."""


class Stuck(KafkaException):
    """A call that does not return; its transaction cannot commit any more."""


def no_step(_name: str, _sink_partition: int) -> None:
    """Tests stop the sink at its steps; see failpoints.py."""


@dataclass(frozen=True, slots=True)
class TransactionalSink:
    """What a sink is made of. It goes to the executors as it is."""

    name: str
    """Of this query and topic alone: transactional ids and groups are NAME and NAME-0, NAME-1, ..."""
    topic: str
    """Exists already."""
    client: Mapping[str, str]
    """librdkafka's options: bootstrap.servers, security.protocol, ..., of producers also compression.type."""
    partitions: int = 4
    """Sink partitions of a batch: so many tasks, so many transactions."""
    order_by: tuple[str, ...] = ()
    """Columns by which rows of one key are ordered; needed where a batch has several of a key."""
    first_batch: int = 0
    """The number of the first batch that is written this way: above 0 where a query changes over to this sink."""
    takes_over: bool = False
    """Whether claims of another query are passed over: after its checkpoint and its topic were emptied."""
    notes_live_s: float = 6 * 86_400.0
    """How long Kafka keeps the notes of a query that stands still, and less than it may."""
    timeout_s: float = 60.0
    at_step: Step = no_step

    @contextmanager
    def open(self) -> Iterator["TransactionalWriter"]:
        """Fence an older driver and hold the name until the end. Raises SinkError."""
        writer = TransactionalWriter(self)
        try:
            yield writer
        finally:
            writer.close()

    def transactional_id(self, sink_partition: int | None = None) -> str:
        return self.name if sink_partition is None else f"{self.name}-{sink_partition}"


@dataclass(frozen=True, slots=True)
class Note:
    """What a committed offset says: which batch of which query is committed, or claimed by which run of a driver."""

    query: str
    batch: int
    partitions: int
    run: str = ""
    since_ms: int = 0
    """Of a claim: when the batch was claimed first."""

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
        defaults = {"compression.type": "zstd", "partitioner": "murmur2_random", "linger.ms": "5"}
        self._producer = Producer({**defaults, **NO_NEW_BOOTSTRAP, **sink.client, **own})
        try:
            self._until_done(self._producer.init_transactions)
        except BaseException:
            self.close()
            raise

    def note(self) -> Note | None:
        """Return what is committed for this id; waits while a transaction has something pending."""
        return read_note(self._consumer, self._place, self._sink.timeout_s)

    def commit(self, note: Note, records: Iterable[Mapping[str, Any]] = ()) -> int:
        """Commit the note and records in one transaction; return how many records. Raises KafkaException.

        Raises Stuck before the first record is taken; then another object of the same id must begin again.
        """
        producer = self._producer
        place = TopicPartition(self._sink.topic, 0, note.batch, note.to_json())
        producer.begin_transaction()
        try:
            group = self._consumer.consumer_group_metadata()
            self._until_done(lambda timeout_s: send_offsets(producer, place, group, timeout_s))
            self._at_step("noted", note)
            count = self._produce(records)
            self._at_step("produced", note)
            self._until_done(producer.commit_transaction)
        except Stuck:
            raise  # the producer takes no other call
        except BaseException:
            with suppress(KafkaException):  # fenced, or out of reach: then the next holder of the id aborts it
                producer.abort_transaction(ABORT_S)
            raise
        self._at_step("committed", note)
        return count

    def close(self) -> None:
        """Give back sockets and threads; what is open is aborted by the id's next holder, or by its time-out."""
        self._consumer.close()
        self.__dict__.pop("_producer", None)  # librdkafka's handle ends with the object

    def _at_step(self, name: str, note: Note) -> None:
        self._sink.at_step(f"claim_{name}" if self._is_claim else name, note.batch)

    def _produce(self, records: Iterable[Mapping[str, Any]]) -> int:
        count = 0
        for record in records:
            headers = [(one["key"], one["value"]) for one in record.get("headers") or ()]
            while True:
                try:
                    self._producer.produce(self._sink.topic, record["value"], record["key"], headers=headers)
                    break
                except BufferError:  # the queue is full
                    self._producer.poll(0.1)
            count += 1
            self._producer.poll(0)
        return count

    def _until_done(self, call: Callable[[float], object]) -> None:
        """Call again while librdkafka says that this is right: a commit that timed out may have been done, or not."""
        end_s = time.monotonic() + self._sink.timeout_s
        while True:
            try:
                call(max(1.0, end_s - time.monotonic()))
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > end_s:
                    raise


def new_consumer(sink: TransactionalSink, group: str) -> Consumer:
    """Return a consumer that reads notes, without the options that librdkafka would call a producer's."""
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
    """Add a committed offset to the producer's transaction. Raises Stuck where librdkafka does not return in time."""
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
    """Return what an attempt returns; begin again, STUCK_ATTEMPTS times in all, where one is stuck."""
    for _ in range(STUCK_ATTEMPTS - 1):
        with suppress(Stuck):
            return attempt()
    return attempt()


# -- on the driver --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Outcome:
    """What became of a batch: records by what was done with their sink partition."""

    committed: int = 0
    skipped: int = 0


class TransactionalWriter:
    """The driver's side, made by TransactionalSink.open; `write` is what foreachBatch takes."""

    def __init__(self, sink: TransactionalSink) -> None:
        self.sink = sink
        self.run = secrets.token_hex(8)
        self.last = Outcome()
        self._takes_over = sink.takes_over
        with self._failures():
            self._transactions = Transactions(sink, sink.transactional_id())

    def write(self, rows: DataFrame, batch_id: int) -> None:
        """Write a batch. Raises SinkError where that cannot be done, or must not."""
        query = rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        if not query:
            raise SinkError("a transactional sink writes batches of a streaming query: call it in foreachBatch")
        claim = self.claim(str(query), batch_id)
        self.sink.at_step("claimed", batch_id)
        self.last = self._deliver(rows, claim)
        self.sink.at_step("delivered", batch_id)

    def close(self) -> None:
        self._transactions.close()

    def claim(self, query: str, batch_id: int) -> Note:
        """Commit that this run writes the batch now, cut as an attempt before has cut it."""
        with self._failures():
            standing, now_ms = self._transactions.note(), int(time.time() * 1000)
            is_passed_over = self._takes_over and standing is not None and standing.query != query
            before = None if is_passed_over else standing
            claim = replace(next_claim(self.sink, before, query, batch_id, now_ms), run=self.run)
            unless_stuck(lambda: self._commit(claim, standing))
        self._takes_over = False
        return claim

    def _commit(self, claim: Note, standing: Note | None) -> None:
        """Replace the standing claim. When stuck, hold the name anew for another attempt. Raises Stuck, SinkError."""
        try:
            self._transactions.commit(claim)
        except Stuck:
            self._transactions.close()
            self._transactions = Transactions(self.sink, self.sink.transactional_id())
            if self._transactions.note() != standing:
                raise SinkError(fenced(self.sink.name)) from None
            raise

    def _deliver(self, rows: DataFrame, claim: Note) -> Outcome:
        sink = self.sink
        spread = spread_by_key(rows, claim.partitions, sink.order_by)

        def write_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield deliver(sink, claim, batches)
            for _ in batches:  # a fenced task has left some, and Spark's worker is used again
                pass

        outcome = Outcome()
        for row in spread.mapInArrow(write_partition, OUTCOME).collect():
            if row["status"] == FENCED:
                raise SinkError(row["message"])
            if row["status"] == COMMITTED:
                outcome.committed += row["records"]
            elif row["status"] == SKIPPED:
                outcome.skipped += row["records"]
        return outcome

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            found = error.args[0]
            if found.code() in FENCINGS:
                raise SinkError(fenced(self.sink.name)) from None
            servers = self.sink.client.get("bootstrap.servers")
            raise SinkError(f"{servers}, transactional id {self.sink.name}: {found.str()}") from None


def next_claim(sink: TransactionalSink, before: Note | None, query: str, batch_id: int, now_ms: int) -> Note:
    """Return the claim of a batch, by the one that stands. Raises SinkError where it does not follow."""
    new = Note(query, batch_id, sink.partitions, since_ms=now_ms)
    if before is None:
        if batch_id == sink.first_batch:
            return new
        raise SinkError(
            f"batch {batch_id} is the first that {sink.name} is to write, and no batch before it is noted in Kafka "
            f"(notes expire after offsets.retention.minutes): look whether {sink.topic} holds it, in part or whole; to "
            f"write it from its beginning, name it as the first batch"
        )
    if before.query != query:
        raise SinkError(
            f"the transactional id {sink.name} belongs to query {before.query}, this is query {query}: give each query "
            f"its own; where its checkpoint and the topic {sink.topic} were emptied, take it over"
        )
    if batch_id not in (before.batch, before.batch + 1):
        raise SinkError(
            f"{sink.name} has written batch {before.batch}, and the checkpoint goes on with batch {batch_id}: it is "
            f"older than the topic, or has lost batches; bring back the one that belongs to {sink.topic}"
        )
    if batch_id > before.batch:
        return new
    if now_ms - before.since_ms > sink.notes_live_s * 1000 and not 0 < batch_id == sink.first_batch:
        raise SinkError(
            f"batch {batch_id} of {sink.name} was begun {(now_ms - before.since_ms) // 86_400_000} days ago, and Kafka "
            f"may have forgotten which parts of it are written: look whether {sink.topic} holds them; to write those "
            f"that are not noted, name it as the first batch"
        )
    return before


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
    number = F.pmod(F.hash("_place"), F.lit(partitions)).alias("sink_partition")
    return spread.select(*columns, number)


# -- in a task ------------------------------------------------------------------------------------------------------


def deliver(sink: TransactionalSink, claim: Note, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch:
    """Write a sink partition, or find that it is written; return one row of OUTCOME."""
    context = TaskContext.get()
    assert context is not None
    sink_partition = context.partitionId()
    records = own_records(batches, sink_partition)
    first = next(records, None)
    if first is None:
        return _outcome(sink_partition, EMPTY)
    sink.at_step("task_started", claim.batch)
    try:
        return unless_stuck(lambda: deliver_once(sink, claim, sink_partition, chain([first], records)))
    except KafkaException as error:
        if error.args[0].code() in FENCINGS and read_claim(sink) != claim:
            return _outcome(sink_partition, FENCED, message=fenced(sink.name))
        raise  # the task is tried again, and finds out what became of its transaction


def deliver_once(
    sink: TransactionalSink, claim: Note, sink_partition: int, records: Iterator[Mapping[str, Any]]
) -> pa.RecordBatch:
    """T1 to T4 of the proof. Raises Stuck before a record is taken."""
    with closing(Transactions(sink, sink.transactional_id(sink_partition))) as transactions:
        sink.at_step("initialized", claim.batch)
        if read_claim(sink) != claim:
            return _outcome(sink_partition, FENCED, message=fenced(sink.name))
        noted = transactions.note()
        if noted is not None and (noted.query, noted.batch) == (claim.query, claim.batch):
            return _outcome(sink_partition, SKIPPED, sum(1 for _ in records))
        count = transactions.commit(Note(claim.query, claim.batch, claim.partitions), records)
        return _outcome(sink_partition, COMMITTED, count)


def own_records(batches: Iterator[pa.RecordBatch], sink_partition: int) -> Iterator[dict[str, Any]]:
    """Yield the records as dicts. Raises AssertionError where Spark gave this task another's: L2 would not hold."""
    for batch in batches:
        for record in batch.to_pylist():
            found = record["sink_partition"]
            assert found == sink_partition, f"a row of sink partition {found} in {sink_partition}"
            yield record


def read_claim(sink: TransactionalSink) -> Note | None:
    with closing(new_consumer(sink, sink.name)) as consumer:
        return read_note(consumer, TopicPartition(sink.topic, 0), sink.timeout_s)


def _outcome(sink_partition: int, status: str, records: int = 0, message: str = "") -> pa.RecordBatch:
    arrays = [pa.array([sink_partition], pa.int32()), pa.array([status]), pa.array([records]), pa.array([message])]
    return pa.RecordBatch.from_arrays(arrays, names=["sink_partition", "status", "records", "message"])
