"""Moves of a replica from one log directory to another of the same broker (AlterReplicaLogDirs), idle and under load.

Measured from the request until the log lies in the other directory under its own name. Both directories are on one
disk.
"""

import time
from functools import partial
from pathlib import Path

from benchmarks.acknowledged import AcknowledgedLoad
from benchmarks.clusters import second_directory
from benchmarks.topics import create_topic, delete_topic
from benchmarks.wire import call, connect, fill
from benchmarks.workload import TWO_DIRECTORIES, Cost, Figures, Workload
from harness.servers import Server
from kafkapy.protocol.messages.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)

GIB = 1 << 30
VERSION = 2
RATE = 2_000
LOAD_WARM_UP_SECONDS, IDLE_SECONDS = 8.0, 30
TIMEOUT_S = 600
POLL_SECONDS = 0.01


def move(server: Server, topic: str, scale: float, *, value_bytes: int) -> Figures:
    """Values of so many bytes, in batches of 64 KiB."""
    records, size_bytes = write(server, topic, scale, value_bytes)
    with Cost(server) as cost:
        move_to_the_other(server, topic)
    delete_topic(server, topic)
    return cost.figures(records=records, size_bytes=size_bytes)


def move_under_load(server: Server, topic: str, scale: float) -> Figures:
    """Records are produced to another topic meanwhile."""
    _, size_bytes = write(server, topic, scale, 1024)
    loaded = f"{topic}-load"
    create_topic(server, loaded)
    with AcknowledgedLoad(server, loaded, RATE) as load:
        time.sleep(LOAD_WARM_UP_SECONDS)
        idle_from = time.monotonic()
        time.sleep(max(IDLE_SECONDS * scale, 8))
        moving_from = time.monotonic()
        move_to_the_other(server, topic)
        moved = time.monotonic()
    for each in (topic, loaded):
        delete_topic(server, each)
    idle, moving = load.percentiles(idle_from, moving_from), load.percentiles(moving_from, moved)
    return {
        "mb_per_s": size_bytes / 1e6 / (moved - moving_from),
        "idle_p99_ms": idle["p99_ms"],
        "moving_p50_ms": moving["p50_ms"],
        "moving_p99_ms": moving["p99_ms"],
    }


def write(server: Server, topic: str, scale: float, value_bytes: int) -> tuple[int, int]:
    """Make a topic; return its records and bytes."""
    create_topic(server, topic)
    records = fill(server, topic, int(GIB * scale), value_bytes=value_bytes)
    source, _ = places(server, topic)
    return records, sum(file.stat().st_size for file in (source / f"{topic}-0").glob("*.log"))


def places(server: Server, topic: str) -> tuple[Path, Path]:
    """Return the directory in which the topic lies, and the other one."""
    directories = [server.directory, second_directory(server.directory)]
    directories.sort(key=lambda path: not (path / f"{topic}-0").is_dir())
    return directories[0], directories[1]


def move_to_the_other(server: Server, topic: str) -> None:
    _, target = places(server, topic)
    requested = AlterReplicaLogDir(str(target), topics=[AlterReplicaLogDirTopic(topic, partitions=[0])])
    with connect(server) as connection:
        response = call(connection, AlterReplicaLogDirsRequest([requested]), VERSION)
    assert response.results[0].partitions[0].error_code == 0, response
    until = time.monotonic() + TIMEOUT_S
    while not (target / f"{topic}-0").is_dir():
        assert time.monotonic() < until, f"{server.name} does not finish"
        time.sleep(POLL_SECONDS)


WORKLOADS = [
    *(
        Workload(
            f"move to another directory, {name} records",
            partial(move, value_bytes=value_bytes),
            family="moves",
            servers=TWO_DIRECTORIES,
            quick_rounds=2 * (value_bytes == 1024),
        )
        for value_bytes, name in ((1024, "1 KiB"), (100, "100 B"))
    ),
    Workload(
        f"produce {RATE:,} records/s during a move",
        move_under_load,
        family="moves",
        warms_up=False,
        servers=TWO_DIRECTORIES,
        quick_rounds=0,
    ),
]
