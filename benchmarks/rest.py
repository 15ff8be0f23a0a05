"""What a server costs before and after its work: the start, idle memory and CPU, memory under load, recovery.

Ready is when a client is told of a broker: the first response to Metadata that names one. The port answers before.
"""

import signal
import time

from benchmarks.topics import create_topic
from benchmarks.wire import call, connect, end_offsets, fill
from benchmarks.workload import RESTARTED, Cost, Figures, Workload
from harness.servers import Server
from kafkapy.protocol.messages.metadata_request import MetadataRequest

GIB = 1 << 30
METADATA_VERSION = 12
SETTLE_SECONDS = 2.0
IDLE_SECONDS = 30
PARTITIONS = 8
"""Of what is recovered: all of it is in active segments, so that neither server has made any of it durable."""


def start_and_rest(server: Server, topic: str, scale: float) -> Figures:
    """Started again on its (nearly empty) directory, then left alone."""
    server.stop()
    server.start()
    ready_s = await_metadata(server) - server.launched_at
    time.sleep(SETTLE_SECONDS)
    idle_seconds = max(IDLE_SECONDS * scale, 3)
    with Cost(server) as cost:
        time.sleep(idle_seconds)
    return {
        "ready_s": ready_s,
        "idle_memory_mb": server.memory_mb(),
        "idle_cpu_percent": cost.cpu_s / idle_seconds * 100,
    }


def await_metadata(server: Server, timeout_s: float = 60) -> float:
    """Return the (monotonic) time of the first response that names a broker; its port must answer already."""
    while True:
        with connect(server) as connection:
            response = call(connection, MetadataRequest(topics=[]), METADATA_VERSION)
        now = time.monotonic()
        if response.brokers:
            return now
        assert now < server.launched_at + timeout_s, f"{server.name} names no broker"
        time.sleep(0.005)


def recover(server: Server, topic: str, scale: float) -> Figures:
    """4 GiB are written and the process is killed: from its next start until the records are served again."""
    create_topic(server, topic, PARTITIONS)
    records = fill(server, topic, int(4 * GIB * scale), partitions=PARTITIONS)
    server.stop(signal.SIGKILL)
    started = time.monotonic()
    server.start(timeout_s=600)
    assert end_offsets_soon(server, topic) == records, "records are missing after the recovery"
    return {
        "recovery_s": time.monotonic() - started,
        "recovery_cpu_s": server.cpu_s(),
        "peak_memory_mb": server.memory_mb("VmHWM"),
    }


def end_offsets_soon(server: Server, topic: str, timeout_s: float = 120) -> int:
    """Return the sum of the topic's end offsets, as soon as all partitions have leaders again."""
    until = time.monotonic() + timeout_s
    while True:
        try:
            return end_offsets(server, topic, PARTITIONS)
        except (AssertionError, OSError):
            if time.monotonic() > until:
                raise
            time.sleep(0.01)


WORKLOADS = [
    Workload("start and rest", start_and_rest, family="rest", warms_up=False, servers=RESTARTED),
    Workload(
        "recovery after kill -9",
        recover,
        family="recovery",
        warms_up=False,
        rounds=2,
        quick_rounds=1,
        servers=RESTARTED,
    ),
]
