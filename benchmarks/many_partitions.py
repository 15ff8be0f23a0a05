"""Two brokers with replicas of the same 100,000 partitions: what one of them needs to create, lead and start them.

All partitions are led by one broker, which is stopped in order, so that the other leads them; then it comes back. One
controller, a process of its own, is not measured (turns.py measures it).
"""

import signal
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.node_calls import smallest_isr, wait_until
from benchmarks.wire import connect, end_offsets, receive
from benchmarks.workload import THREE_RESTARTED, Cost, Figures, Workload
from harness.nodes import BROKER, CONTROLLER, Nodes, Plan
from harness.servers import API_VERSIONS_FRAME, Kafkapy, Server

PARTITIONS, SMALL_PARTITIONS, PER_TOPIC = 100_000, 10_000, 1_000
CONTROLLER_ID, LEADER_ID, FOLLOWER_ID = 1, 2, 3
PLANS = (
    Plan(Kafkapy, CONTROLLER_ID, CONTROLLER),
    Plan(Kafkapy, LEADER_ID, BROKER),
    Plan(Kafkapy, FOLLOWER_ID, BROKER),
)
PROPERTIES = {"offsets.topic.replication.factor": "2"}
TIMEOUT_S = 900
SETTLE_SECONDS, POLL_SECONDS, PING_SECONDS = 3.0, 0.02, 0.002


class Pings:
    """Asks a node for ApiVersions all the time; `longest_ms` is the longest wait for a response."""

    def __init__(self, node: Server) -> None:
        self._node = node
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.longest_ms = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        with connect(self._node) as connection:
            while not self._is_over.wait(PING_SECONDS):
                began = time.monotonic()
                connection.sendall(API_VERSIONS_FRAME)
                receive(connection)
                self.longest_ms = max(self.longest_ms, (time.monotonic() - began) * 1000)


def two_brokers(server: Server, topic: str, scale: float) -> Figures:
    """100,000 partitions with a replica on each of two brokers (small runs: 10,000)."""
    count = SMALL_PARTITIONS if scale < 0.3 else PARTITIONS
    topics = [f"{topic}-{number}" for number in range(count // PER_TOPIC)]
    with (
        tempfile.TemporaryDirectory(prefix="kafkapy-bench-") as directory,
        Nodes(PLANS, Path(directory), PROPERTIES) as cluster,
    ):
        leader, follower = cluster.by_id[LEADER_ID], cluster.by_id[FOLLOWER_ID]
        return {
            **_create(leader, topics),
            "leader_memory_mb": leader.memory_mb(),
            "follower_memory_mb": follower.memory_mb(),
            **_take_over(leader, follower, topics),
            **_come_back(leader, follower, topics),
        }


def _create(leader: Server, topics: list[str]) -> Figures:
    """Create the topics one by one; measure until their leader serves all."""
    with Pings(leader) as pings, Cost(leader) as cost:
        for topic in topics:
            assignment = [[LEADER_ID, FOLLOWER_ID]] * PER_TOPIC
            new = NewTopic(topic, PER_TOPIC, replica_assignment=assignment)
            admin = AdminClient({"bootstrap.servers": leader.bootstrap, "log_level": 4})
            admin.create_topics([new], request_timeout=120)[topic].result(120)
        wait_until_led(leader, topics)
    time.sleep(SETTLE_SECONDS)
    return {"create_s": cost.seconds, "create_cpu_s": cost.cpu_s, "create_stall_ms": pings.longest_ms}


def _take_over(leader: Server, follower: Server, topics: list[str]) -> Figures:
    """Stop the leader in order; measure until the follower leads all."""
    assert leader.process is not None
    with Pings(follower) as pings, Cost(follower) as cost:
        leader.process.send_signal(signal.SIGTERM)
        wait_until_led(follower, topics)
    began = time.monotonic()
    assert leader.stop(timeout_s=TIMEOUT_S) == 0
    return {
        "take_over_s": cost.seconds,
        "take_over_cpu_s": cost.cpu_s,
        "take_over_stall_ms": pings.longest_ms,
        "stop_s": cost.seconds + time.monotonic() - began,
    }


def _come_back(leader: Server, follower: Server, topics: list[str]) -> Figures:
    """Start the former leader; measure until it serves, and until it is in sync with all its partitions."""
    began = time.monotonic()
    leader.start(TIMEOUT_S)
    started_s, start_cpu_s = time.monotonic() - began, leader.cpu_s()
    for topic in topics:
        wait_until(lambda topic=topic: smallest_isr(follower, topic) == 2, "in-sync replicas", TIMEOUT_S)  # type: ignore[misc]
    return {
        "start_s": started_s,
        "start_cpu_s": start_cpu_s,
        "in_sync_s": time.monotonic() - began,
        "started_memory_mb": leader.memory_mb(),
    }


def wait_until_led(broker: Server, topics: list[str]) -> None:
    """Return once a broker leads all partitions of the topics."""
    for topic in topics:
        wait_until(_leads(broker, topic), f"leadership of {topic}", TIMEOUT_S)


def _leads(broker: Server, topic: str) -> Callable[[], bool]:
    def check() -> bool:
        try:
            end_offsets(broker, topic, PER_TOPIC)
        except AssertionError:
            time.sleep(POLL_SECONDS)
            return False
        return True

    return check


WORKLOADS = [
    Workload(
        "a broker of 100,000 partitions",
        two_brokers,
        family="nodes",
        servers=THREE_RESTARTED,
        warms_up=False,
        rounds=1,
        quick_rounds=0,
        is_beside_apache=False,
    )
]
