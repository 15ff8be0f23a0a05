"""Compaction: both servers clean a copy of the same directory, and what is left is held against what must be.

A measurement starts its server on the copy, has it clean a smaller topic first, uncounted (a JVM's first pass is much
slower), then the topic itself: from the moment at which its min.cleanable.dirty.ratio falls until the server's
cleaner-offset-checkpoint tells that it is done. The buffer for the keys is the default of both, 128 MiB.
"""

import functools
import shutil
import time
from array import array
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.acknowledged import AcknowledgedLoad
from benchmarks.compacted_data import Kind, clean, clean_to, expected_offsets, offsets_below, segments, write_directory
from benchmarks.topics import create_topic
from benchmarks.workload import CLEANING, Cost, Figures, Workload
from harness.servers import Server

GIB = 1 << 30
WARM_UP, RECORDS = "warm-up", "records"
WARM_UP_SHARE = 0.4
TIMEOUT_S = 900
POLL_SECONDS = 0.02
SETTLE_SECONDS = 2.0
RATE = 2_000
LOAD_WARM_UP_SECONDS, IDLE_SECONDS = 8.0, 30
"""A JVM's first seconds under the load have a p99 of a second and more."""
KINDS = {
    "nearly all kept": Kind(keys_share=10),
    "a tenth kept": Kind(keys_share=0.1),
    "lz4, half kept": Kind(keys_share=0.6, codec="lz4"),
}


class Template(NamedTuple):
    """A directory to be copied. Of RECORDS: up to where it will be cleaned, what that is, and what must be left."""

    path: Path
    end_offset: int
    size_bytes: int
    kept: "array[int]"


@functools.cache
def template(path: Path, kind: Kind, size_bytes: int) -> Template:
    """Write a directory, once."""
    write_directory(path, kind, {WARM_UP: int(size_bytes * WARM_UP_SHARE), RECORDS: size_bytes})
    *inactive, active = segments(path, RECORDS)
    return Template(
        path, int(active.stem), sum(file.stat().st_size for file in inactive), expected_offsets(path, RECORDS)
    )


def start_on_copy(server: Server, kind_name: str, scale: float) -> Template:
    """Start a server on a copy of the directory, and have it clean what is not counted."""
    name = "".join(letter if letter.isalnum() else "-" for letter in kind_name)
    source = template(server.directory.parent / name, KINDS[kind_name], int(GIB * scale))
    server.stop()
    shutil.rmtree(server.directory)
    shutil.copytree(source.path, server.directory)
    server.start()
    warm_up = int(segments(source.path, WARM_UP)[-1].stem)
    clean_until(server, WARM_UP, warm_up)
    time.sleep(SETTLE_SECONDS)
    return source


def clean_until(server: Server, topic: str, end_offset: int) -> None:
    """Have a topic cleaned; returns as soon as the server's checkpoint says so."""
    clean(server, topic)
    until = time.monotonic() + TIMEOUT_S
    while clean_to(server.directory, topic) < end_offset:
        assert time.monotonic() < until, f"{server.name} does not finish"
        time.sleep(POLL_SECONDS)


def check_kept(server: Server, source: Template) -> None:
    """Assert that what is left is the last record of each key, exactly."""
    kept = offsets_below(server.directory, RECORDS, source.end_offset)
    assert kept == source.kept, f"{server.name} keeps {len(kept)} records, which should be {len(source.kept)}"


def compact(server: Server, topic: str, scale: float, *, kind_name: str) -> Figures:
    source = start_on_copy(server, kind_name, scale)
    with Cost(server) as cost:
        clean_until(server, RECORDS, source.end_offset)
    check_kept(server, source)
    return cost.figures(records=source.end_offset, size_bytes=source.size_bytes)


def compact_under_load(server: Server, topic: str, scale: float, *, kind_name: str) -> Figures:
    """Records are produced to another topic meanwhile: how long are they waiting, and how long when nothing else is?"""
    source = start_on_copy(server, kind_name, scale)
    create_topic(server, topic)
    with AcknowledgedLoad(server, topic, RATE) as load:
        time.sleep(LOAD_WARM_UP_SECONDS)
        idle_from = time.monotonic()
        time.sleep(max(IDLE_SECONDS * scale, 8))
        cleaning_from = time.monotonic()
        clean_until(server, RECORDS, source.end_offset)
        cleaned = time.monotonic()
        time.sleep(SETTLE_SECONDS)
    check_kept(server, source)
    idle, cleaning = load.percentiles(idle_from, cleaning_from), load.percentiles(cleaning_from, cleaned)
    return {
        "idle_p50_ms": idle["p50_ms"],
        "idle_p99_ms": idle["p99_ms"],
        "cleaning_p50_ms": cleaning["p50_ms"],
        "cleaning_p99_ms": cleaning["p99_ms"],
        "cleaning_over_idle_p99": cleaning["p99_ms"] / idle["p99_ms"],
        "mb_per_s": source.size_bytes / 1e6 / (cleaned - cleaning_from),
    }


WORKLOADS = [
    *(
        Workload(
            f"compaction, {name}",
            partial(compact, kind_name=name),
            family="compaction",
            warms_up=False,
            servers=CLEANING,
            rounds=3,
            quick_rounds=int(name == "a tenth kept"),
        )
        for name in KINDS
    ),
    Workload(
        f"produce {RATE:,} records/s during a compaction",
        partial(compact_under_load, kind_name="a tenth kept"),
        family="compaction",
        warms_up=False,
        servers=CLEANING,
        rounds=3,
        quick_rounds=0,
    ),
]
