"""Marks the records of aborted and open transactions, which a search with read_uncommitted shows.

At or beyond the last stable offset, a record belongs to an open transaction or follows the begin of one. Below it, a
record that read_committed does not return belongs to an aborted transaction.
"""

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from kafkapy.cli.client import confluent
from kafkapy.console.brokers import Brokers
from kafkapy.console.client import Clients, failures
from kafkapy.console.row import Row
from kafkapy.console.topics import LATEST, offsets

ABORTED: Final = "aborted"
OPEN: Final = "open"
MAX_COMPARED: Final = 20_000
COMPARE_S: Final = 2.0
"""What is read a second time for the rows of one step; rows beyond it have no mark."""
READ_COMMITTED: Final = 1


class Marks:
    """Reads the same offsets as a consumer of committed records would."""

    def __init__(self, brokers: Brokers, clients: Clients, topic: str) -> None:
        self._brokers = brokers
        self._clients = clients
        self._topic = topic
        self._stable: dict[int, int] = {}
        self._consumer: Any = None

    def start(self, topic: Any) -> None:
        """`topic`: of Metadata. Raises ClusterError."""
        stable = offsets(self._brokers, [topic], LATEST, READ_COMMITTED)
        self._stable = {each.partition: offset for each, offset in stable.items()}

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()

    def marked(self, rows: list[Row]) -> list[Row]:
        """Return the rows with their marks. Raises ClusterError."""
        decided = [each for each in rows if each.offset < self._stable.get(each.partition, 0)]
        readable, until = self._readable(decided) if decided else (set(), {})

        def mark_of(row: Row) -> str:
            if row.offset >= self._stable.get(row.partition, 0):
                return OPEN
            is_aborted = row.offset < until.get(row.partition, 0) and (row.partition, row.offset) not in readable
            return ABORTED if is_aborted else ""

        return [replace(each, mark=mark_of(each)) for each in rows]

    def _readable(self, rows: Iterable[Row]) -> tuple[set[tuple[int, int]], dict[int, int]]:
        """Return the offsets that are read between the rows, and up to where each partition was read."""
        ranges: dict[int, tuple[int, int]] = {}
        for each in rows:
            low, high = ranges.get(each.partition, (each.offset, each.offset))
            ranges[each.partition] = min(low, each.offset), max(high, each.offset)
        found: set[tuple[int, int]] = set()
        until = {partition: low for partition, (low, _) in ranges.items()}
        left = set(ranges)
        deadline_s = time.monotonic() + COMPARE_S
        with failures():
            kafka = confluent()
            if self._consumer is None:
                self._consumer = self._clients.consumer("read_committed")
            self._consumer.assign([kafka.TopicPartition(self._topic, each, ranges[each][0]) for each in sorted(left)])
            while left and len(found) < MAX_COMPARED and time.monotonic() < deadline_s:
                for message in self._consumer.consume(1000, 0.1):
                    partition = message.partition()
                    if message.error() is not None:  # the end: nothing is read up to the last stable offset
                        if message.error().code() == kafka.KafkaError._PARTITION_EOF and partition in left:
                            until[partition] = ranges[partition][1] + 1
                            left.discard(partition)
                        continue
                    found.add((partition, message.offset()))
                    until[partition] = max(until[partition], message.offset() + 1)
                    if message.offset() >= ranges[partition][1]:
                        left.discard(partition)
            self._consumer.unassign()
        return found, until
