"""Catching up: a topic is read from its beginning, by Java's consumer and by librdkafka, warm or from the disk."""

import os
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.java_clients import consume
from benchmarks.topics import create_topic
from benchmarks.wire import fill
from benchmarks.workload import Cost, Figures, Workload
from harness.servers import Server
from tools.kafka import KCAT_MISSING, kcat

GIB = 1 << 30
LEAST = 0.25
"""Of the full size, also where less is asked for: a client's start would be half of what is measured."""
VALUE_BYTES = {"100 B": 100, "1 KiB": 1024}

Reader = Callable[[Server, str, int, int], Figures]


class Backlog:
    """A topic filled once for each server and read many times; knows how many records it holds."""

    def __init__(self, size_bytes: int, value_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._value_bytes = value_bytes
        self._records: dict[tuple[str, str], int] = {}

    def prepare(self, server: Server, topic: str, scale: float) -> None:
        create_topic(server, topic)
        size_bytes = int(self._size_bytes * max(scale, LEAST))
        self._records[server.name, topic] = fill(server, topic, size_bytes, value_bytes=self._value_bytes)

    def read(self, server: Server, topic: str, scale: float, *, reader: Reader, is_cold: bool) -> Figures:
        if is_cold:
            drop_from_page_cache(server.directory, topic)
        records = self._records[server.name, topic]
        return reader(server, topic, records, records * self._value_bytes)


def drop_from_page_cache(directory: Path, topic: str) -> None:
    """Make what a topic holds come from the disk the next time (what was not written yet is written first)."""
    for path in directory.glob(f"{topic}-*/*.log"):
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_with_java(server: Server, topic: str, records: int, size_bytes: int, **settings: str) -> Figures:
    return consume(server, topic, records=records, size_bytes=size_bytes, **settings)


def read_with_librdkafka(server: Server, topic: str, records: int, size_bytes: int) -> Figures:
    """kcat reads to the end and prints nothing.

    Its queue holds all, because librdkafka pauses for a second whenever its queue is full: that would be measured.
    """
    program = kcat()
    assert program is not None, KCAT_MISSING
    queue = ["-X", "queued.min.messages=10000000", "-X", "queued.max.messages.kbytes=2097151"]
    command = [program, "-b", server.bootstrap, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", "", *queue]
    with Cost(server) as cost:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return cost.figures(records=records, size_bytes=size_bytes)


def _workload(client: str, size: str, *, is_cold: bool, quick_rounds: int = 0) -> Workload:
    reader: Reader = read_with_java if client == "Java" else read_with_librdkafka
    backlog = Backlog(4 * GIB if is_cold else 2 * GIB, VALUE_BYTES[size])
    return Workload(
        f"catch up, {client}, {size}, {'cold' if is_cold else 'hot'}",
        partial(backlog.read, reader=reader, is_cold=is_cold),
        prepare=backlog.prepare,
        family="consume",
        quick_rounds=quick_rounds,
    )


WORKLOADS = [
    _workload("Java", "100 B", is_cold=False),
    _workload("Java", "1 KiB", is_cold=False, quick_rounds=2),
    _workload("Java", "1 KiB", is_cold=True, quick_rounds=1),
    _workload("librdkafka", "100 B", is_cold=False),
    _workload("librdkafka", "1 KiB", is_cold=False, quick_rounds=1),
    _workload("librdkafka", "1 KiB", is_cold=True, quick_rounds=2),
]
