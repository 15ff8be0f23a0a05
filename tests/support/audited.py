"""A job of Spark that never ran: its input topic, its checkpoint, and places for its output."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
from confluent_kafka import Producer

from spark_jobs import oracle
from spark_jobs.config import duration_ms
from spark_jobs.events import Event, Trade
from spark_jobs.generator import Market, generate
from spark_jobs.tables import Batch, DeltaBatches, IcebergTable, open_catalog
from spark_jobs.topics import create_topic

WATERMARK = "1 second"
PLACES = ("topic", "iceberg", "delta", "output")
CUT = (60, 120, 10**9, 10**9)
"""Where each batch ends; the last one is empty."""
Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]
"""Key, value and headers."""


class World:
    """A market on a topic of one partition, and the checkpoint of a job that has read it."""

    def __init__(self, bootstrap: str, topic: str, path: Path, market: Market) -> None:
        self.bootstrap, self.topic, self.path = bootstrap, topic, path
        self.events = list(generate(market))
        create_topic(bootstrap, topic, 1, retention_ms="-1")
        self.produce(topic, [(event.key.encode(), event.value, []) for event in self.events], self.events)
        parsed = [oracle.parse(event.value, event.arrival_ms) for event in self.events]
        starts = (0, *CUT)
        self.batches = [parsed[start:end] for start, end in zip(starts, CUT, strict=False)]
        self.trades = [[trade for trade in batch if isinstance(trade, Trade)] for batch in self.batches]
        self.counted, self.late, self.end_ms = oracle.in_time(self.trades, duration_ms(WATERMARK))
        assert self.late != []
        self.write_checkpoint()

    def write_checkpoint(self, first_offset: int = 0) -> None:
        for name in ("offsets", "commits", "sources/0"):
            (self.path / "checkpoint" / name).mkdir(parents=True, exist_ok=True)
        (self.path / "checkpoint" / "sources" / "0" / "0").write_text(
            f'\0v1\n{{"{self.topic}":{{"0":{first_offset}}}}}'
        )
        for number, end in enumerate(CUT):
            _, _, planned_ms = oracle.in_time(self.trades[:number], duration_ms(WATERMARK))
            ends = json.dumps({self.topic: {"0": min(end, len(self.events))}})
            text = f'v1\n{{"batchWatermarkMs":{planned_ms}}}\n{ends}'
            (self.path / "checkpoint" / "offsets" / str(number)).write_text(text)
            (self.path / "checkpoint" / "commits" / str(number)).write_text("v1\n{}")

    def settings(self, place: str) -> dict[str, Any]:
        """Return the configuration of a job that writes to this place alone."""
        where = {"topic": f"{self.topic}-out", "iceberg": str(self.path / "o")}
        key = "output_topic" if place == "topic" else place
        return {
            "bootstrap_servers": self.bootstrap,
            "topics": [self.topic],
            "watermark": WATERMARK,
            "checkpoint": str(self.path / "checkpoint"),
            "delivery": "exactly_once",
            "output_topic": None,
            key: where.get(place, str(self.path / place)),
        }

    def produce(self, topic: str, records: Iterable[Record], events: list[Event] | None = None) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number, (key, value, headers) in enumerate(records):
            when = {"timestamp": events[number].arrival_ms} if events is not None else {}
            producer.produce(topic, value, key, headers=headers, **when)
        assert producer.flush(30) == 0

    def write_topic(self, records: Iterable[Record]) -> None:
        create_topic(self.bootstrap, f"{self.topic}-out", 2)
        self.produce(f"{self.topic}-out", records)

    def write_table(self, place: str, name: str, rows: pa.Table) -> None:
        if place == "iceberg":
            IcebergTable(open_catalog(str(self.path / "o"), {}), name).write(rows, Batch("q", 0))
        elif place == "delta":
            DeltaBatches(str(self.path / "delta")).write(rows, Batch("q", 0))
        else:
            batch = self.path / "output" / "batch_id=0"
            batch.mkdir(parents=True)
            pyarrow.parquet.write_to_dataset(rows, batch, partition_cols=["date"])
            (batch / "_SUCCESS").touch()
