"""Kafka Streams, with both group protocols: from start() until RUNNING, rebalances, and what heartbeats cost.

The application that is started has a repartition topic and a changelog, which are made, too: with
group.protocol=streams by the broker, which also waits group.streams.initial.rebalance.delay.ms (3 s) before it assigns
the first tasks. The JVM's own start is not timed. Rebalances and heartbeats are those of benchmarks.groups, by members
without a JVM that want a task per partition: ten and a hundred join within a second; a thousand that have settled send
heartbeats that change nothing.
"""

import re
import shutil
import subprocess
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.groups import MEMBERS, STREAMS, STREAMS_CLASSIC, heartbeats, settle
from benchmarks.topics import create_topic, delete_topic
from benchmarks.workload import Cost, Figures, Workload
from harness.servers import Server, java, temporary_in
from tools.kafka import STREAMS_LIBS

PROGRAM = Path(__file__).with_name("StreamsStart.java")
PARTITIONS = 4
TIMEOUT_S = 180


def start(server: Server, topic: str, scale: float, *, protocol: str) -> Figures:
    """Return how long the start took, and what it cost the broker. `scale` changes nothing: it is one application."""
    create_topic(server, topic, PARTITIONS)
    with tempfile.TemporaryDirectory(prefix="kafkapy-streams-") as state:
        arguments = [server.bootstrap, f"{topic}-app", topic, state, protocol]
        command = java(str(PROGRAM), *arguments, options=[temporary_in(Path(state))], libs=[STREAMS_LIBS])
        with Cost(server) as cost:
            run = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    found = re.search(r"^RUNNING (\d+)$", run.stdout, re.MULTILINE)
    assert found, f"StreamsStart said:\n{run.stdout[-2000:]}\n{run.stderr[-2000:]}"
    delete_topic(server, topic)
    return {"running_s": int(found[1]) / 1000, "broker_cpu_s": cost.cpu_s}


def _missing(server: Server) -> str | None:
    if STREAMS_LIBS.is_dir() and shutil.which("java") is not None:
        return None
    return "needs Kafka Streams: run `make tools`"


WORKLOADS = [
    Workload(
        f"Kafka Streams from start to RUNNING, {protocol}",
        partial(start, protocol=protocol),
        family="streams",
        quick_rounds=1,
        missing=_missing,
    )
    for protocol in ("classic", "streams")
]
WORKLOADS += [
    *(
        Workload(
            f"{count} members settle, {kind}",
            partial(settle, kind=kind, interval_s=None, member_count=count),
            family="streams",
            quick_rounds=int(count == 10),
        )
        for count in (10, MEMBERS)
        for kind in (STREAMS, STREAMS_CLASSIC)
    ),
    *(
        Workload(
            f"heartbeats of 1000 members, {kind}", partial(heartbeats, kind=kind), family="streams", quick_rounds=1
        )
        for kind in (STREAMS, STREAMS_CLASSIC)
    ),
]
