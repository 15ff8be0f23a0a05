"""Which of Spark's two interfaces to state in Python is faster for `book`: pandas frames, or rows.

    python -m benchmarks.book_state

transformWithStateInPandas hands over the records of a group as pandas frames, transformWithState (Spark 4.1 and newer)
as a Row each. spark_jobs/book.py uses the first; the second is here: the same machine over the same records, whose rows
must come out equal. Both read the same topic of order-book updates from the beginning to its end, in batches of each
size, in turns; what counts is the duration of all batches but the first three, in which Spark starts its workers.
"""

import tempfile
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import groupby, islice
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import DataFrame, Row

from benchmarks.spark import spark_session
from harness.servers import Kafkapy, Server
from spark_jobs import book
from spark_jobs.config import StreamConfig
from spark_jobs.generator import Market, generate
from spark_jobs.order_book import BookRow, OrderBook
from spark_jobs.schemas import BOOK
from spark_jobs.session import stream_writer
from spark_jobs.source import read_topics
from spark_jobs.topics import create_topic

MARKET = Market(events=40_000, depth_per_trade=1, symbols=6)
BATCHES = {200: 25, 4_000: 5}
"""Records in a batch, and how many batches count: as updates come live, and as a job catches up."""
UNCOUNTED = 3
ROUNDS = 3
Interface = Callable[[DataFrame], DataFrame]
Record = namedtuple("Record", ("symbol", "value", "partition", "offset", "timestamp_ms"))
OUTPUT = Row(*BOOK.names())


def in_rows(source: DataFrame) -> DataFrame:
    """Return what book_rows does, by transformWithState."""
    return (
        book.depth_records(source)
        .groupBy("symbol")
        .transformWithState(
            statefulProcessor=_row_processor(), outputStructType=book.ROWS, outputMode="Append", timeMode="None"
        )
    )


def _row_processor() -> Any:
    from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

    class RowProcessor(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.state = handle.getValueState("book", book.STATE_SCHEMA)

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
            stored = self.state.get()
            machine = OrderBook.from_json(stored[0]) if stored is not None else OrderBook()
            yield from rows_after(machine, key[0], rows)
            self.state.update((machine.to_json(),))

        def close(self) -> None:
            """Nothing is held open."""

    return RowProcessor()


def rows_after(machine: OrderBook, symbol: str, records: Iterable[Row]) -> Iterator[Row]:
    """Do what book.rows_after does, without frames."""
    ordered = sorted(map(Record._make, records), key=attrgetter("partition", "offset"))
    partitions = [list(group) for _, group in groupby(ordered, key=attrgetter("partition"))]
    for record in merge(*partitions, key=attrgetter("timestamp_ms")):
        message = book.read(record, symbol)
        own = [message] if isinstance(message, BookRow) else machine.step(message)
        for row in own:
            yield OUTPUT(*book.book_row(symbol, record, row))


def fill(server: Server, topic: str, records: int) -> None:
    """Put so many order-book updates on a topic of one partition."""
    create_topic(server.bootstrap, topic, 1, retention_ms="-1")  # the generator's times are long past
    producer = Producer({"bootstrap.servers": server.bootstrap, "queue.buffering.max.messages": 1_000_000})
    updates = (event for event in generate(MARKET) if event.kind == "depth")
    for event in islice(updates, records):
        producer.produce(topic, event.value, event.key, timestamp=event.arrival_ms)
    assert producer.flush(60) == 0


def run(server: Server, topic: str, interface: Interface, batch_records: int) -> tuple[list[int], list[Any]]:
    """Run the query over the topic; return the ms of each batch that counts, and number and hash of each one's rows."""
    found: list[Any] = []
    columns = ", ".join(BOOK.names())

    def write(rows: DataFrame, batch_id: int) -> None:
        found.extend(rows.selectExpr("count(*)", f"sum(xxhash64({columns}) % 1000003)").collect())

    with (
        tempfile.TemporaryDirectory(prefix="kafkapy-bench-spark-") as checkpoint,
        book.state_in_rocksdb(spark_session()),
    ):
        config = StreamConfig(
            bootstrap_servers=server.bootstrap,
            topics=[topic],
            checkpoint=checkpoint,
            trigger="available_now",
            max_offsets_per_trigger=batch_records,
            shuffle_partitions=2,
        )
        rows = interface(read_topics(spark_session(), config))
        query = stream_writer(rows, config, "book").outputMode("append").foreachBatch(write).start()
        query.awaitTermination()
        taken = [progress["durationMs"]["addBatch"] for progress in query.recentProgress]
    return taken[UNCOUNTED:], found


def main() -> None:
    interfaces: dict[str, Interface] = {"pandas": book.book_rows, "rows": in_rows}
    with (
        tempfile.TemporaryDirectory(prefix="kafkapy-bench-") as directory,
        Kafkapy(Path(directory, "broker")) as server,
    ):
        for batch_records, batches in BATCHES.items():
            topic = f"depth-{batch_records}"
            fill(server, topic, batch_records * (batches + UNCOUNTED))
            taken: dict[str, list[int]] = {name: [] for name in interfaces}
            for _ in range(ROUNDS):
                outputs = []
                for name, interface in interfaces.items():
                    ms, output = run(server, topic, interface, batch_records)
                    assert len(ms) == batches, f"{len(ms)} batches of {batches}"
                    taken[name] += ms
                    outputs.append(output)
                assert outputs[0] == outputs[1], "the two do not give the same rows"
            for name, ms in taken.items():
                rate = batch_records / median(ms) * 1000
                print(
                    f"batches of {batch_records:5,}, {name:6}: median {median(ms):7.0f} ms, {rate:7,.0f} records/s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
