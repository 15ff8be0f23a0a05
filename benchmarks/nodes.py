"""Three nodes: replicated producing, latency, what a failure costs a producer, start and rest, a move to a fourth.

Each node is broker and controller, a process of its own, with default settings; Apache Kafka's have a heap of 1 GiB.
Topics have three replicas and min.insync.replicas 2. Costs and memory are those of all nodes together.
"""

import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.acknowledged import AcknowledgedLoad
from benchmarks.clusters import KINDS
from benchmarks.java_clients import produce
from benchmarks.latency import end_to_end
from benchmarks.node_calls import (
    CONFIG,
    active_controller,
    create_on,
    leaders_of,
    metadata_of,
    nodes_of,
    quorum_leader,
    smallest_isr,
    wait_until,
)
from benchmarks.topics import create_topic, delete_topic
from benchmarks.wire import Pipe, call, connect, new_batch, produce_frame, run_pipes
from benchmarks.workload import FOUR_NODES, THREE_NODES, THREE_RESTARTED, Cost, Figures, Workload
from harness.nodes import BROKER, Nodes, Plan
from harness.servers import Server
from kafkapy.protocol.messages import alter_partition_reassignments_request as reassign
from kafkapy.protocol.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest

REPLICAS = 3
LARGE_BATCHES: dict[str, Any] = {"batch_size": "65536", "linger_ms": "10"}
ONE_BATCH_BYTES = 70_000
"""max.request.size with which a request holds one of those batches."""
SETTLE_SECONDS, IDLE_SECONDS = 2.0, 30
RATE = 300
"""Of the load that a node is taken from: a record every 10 ms to each of three partitions."""
THREE_LEADERS = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
MOVE_RATE = 1_000
MOVE_POLL_SECONDS = 0.1
FOURTH = 4
FEW, MANY = 10, 3_000
GB = 1_000_000_000


def produce_replicated(server: Server, topic: str, scale: float, *, record_bytes: int, partitions: int) -> Figures:
    """ProducerPerformance, idempotent with acks=all, in batches of 64 KiB."""
    records = int(min(2_000_000, 1_000_000_000 // record_bytes) * scale)
    create_topic(server, topic, partitions, replicas=REPLICAS, config=CONFIG)
    figures = produce(server, topic, records=records, record_bytes=record_bytes, **LARGE_BATCHES)
    delete_topic(server, topic)
    return figures


# -- failures -------------------------------------------------------------------------------------------------------


def lose_leader(server: Server, topic: str, scale: float) -> Figures:
    """kill -9 of a broker that leads a partition and is not the controller: the gap in any partition's acks."""
    nodes = nodes_of(server)
    controller_id = active_controller(nodes)
    create_on(nodes, topic, THREE_LEADERS)
    return _lose(nodes, topic, next(each for each in nodes.by_id if each != controller_id), signal.SIGKILL)


def lose_controller(server: Server, topic: str, scale: float) -> Figures:
    """kill -9 of the active controller: the gap in the acks of partitions that have no replica there."""
    nodes = nodes_of(server)
    controller_id = active_controller(nodes)
    first, second = (each for each in nodes.by_id if each != controller_id)
    create_on(nodes, topic, [[first, second], [second, first]])
    return _lose(nodes, topic, controller_id, signal.SIGKILL)


def stop_one(server: Server, topic: str, scale: float) -> Figures:
    """SIGTERM of the node that is the active controller and leads a partition: the gap in any partition's acks."""
    nodes = nodes_of(server)
    create_on(nodes, topic, THREE_LEADERS)
    return _lose(nodes, topic, active_controller(nodes), signal.SIGTERM)


def _lose(nodes: Nodes, topic: str, lost_id: int, with_signal: int) -> Figures:
    """Take a node away under load until others lead all of it; bring it back, and wait until all is as it was."""
    survivor = next(node for node_id, node in nodes.by_id.items() if node_id != lost_id)
    partitions, in_sync = len(leaders_of(survivor, topic)), smallest_isr(survivor, topic)
    with AcknowledgedLoad(nodes, topic, RATE, partitions=partitions) as load:
        time.sleep(3.0)
        lost_at = time.monotonic()
        nodes.by_id[lost_id].stop(with_signal)
        wait_until(lambda: not {lost_id, -1} & set(leaders_of(survivor, topic)), "another leader")
        time.sleep(3.0)
        wait_until(lambda: quorum_leader(survivor) not in (lost_id, -1), "another controller")
    nodes.by_id[lost_id].start()
    wait_until(lambda: smallest_isr(survivor, topic) == in_sync, "the return of the node")
    wait_until(lambda: len(metadata_of(survivor).brokers) == len(nodes.brokers), "the return of the broker")
    delete_topic(nodes, topic)
    return {"gap_ms": max(load.longest_gap_ms(lost_at, partition) for partition in range(partitions))}


# -- many partitions ------------------------------------------------------------------------------------------------


def follow_many(server: Server, topic: str, scale: float) -> Figures:
    """Produces of one record, one under way: all nodes' CPU with 10 partitions followed, and with 3,000.

    Each wakes the fetch of the follower, whose next one lets the high watermark rise and the produce be answered.
    """
    nodes, batch = nodes_of(server), new_batch(1, 100)
    frames = [produce_frame(topic, partition, batch, acks=-1) for partition in range(FEW)]
    requests = max(int(20_000 * scale), 1_000)
    figures: Figures = {}
    create_on(nodes, topic, [[1, 2]] * FEW)
    figures[f"cpu_us_per_request_{FEW}"] = _cpu_us(nodes, frames, requests)
    create_on(nodes, f"{topic}-more", [[1, 2]] * (MANY - FEW))
    wait_until(lambda: smallest_isr(nodes.nodes[0], f"{topic}-more") == 2, "in-sync replicas")
    time.sleep(SETTLE_SECONDS)
    figures[f"cpu_us_per_request_{MANY}"] = _cpu_us(nodes, frames, requests)
    for each in (topic, f"{topic}-more"):
        delete_topic(nodes, each)
    few, many = figures.values()
    return {**figures, "following_growth": many / few}


def _cpu_us(nodes: Nodes, frames: list[bytes], requests: int) -> float:
    """Return the CPU microseconds of a request; the nodes' other work of that time is in it."""
    pipe = Pipe(nodes.nodes[0], frames, 1)
    with pipe.connection:
        run_pipes([pipe], requests // 4)
        with Cost(nodes) as cost:
            run_pipes([pipe], requests)
    return cost.cpu_s / requests * 1e6


def fence_one_of_three(server: Server, topic: str, scale: float) -> Figures:
    """A controller with 100,000 partitions (small runs: 20,000): turns.py in a process of its own."""
    partitions = 20_000 if scale < 0.3 else 100_000
    command = [sys.executable, "-m", "benchmarks.turns", "--partitions", str(partitions)]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=900).stdout
    print(output, end="", flush=True)
    found = [json.loads(line) for line in output.splitlines() if line.startswith("{")][-1]
    return {key: float(value) for key, value in found.items()}


# -- start, rest, growth --------------------------------------------------------------------------------------------


def start_and_rest(server: Server, topic: str, scale: float) -> Figures:
    """Measures the start from empty directories until Metadata lists all brokers, then idle, then after load."""
    nodes = nodes_of(server)
    nodes.stop()
    for node in nodes.nodes:
        shutil.rmtree(node.directory, ignore_errors=True)
    nodes.prepare()
    started = time.monotonic()
    nodes.start()
    wait_until(lambda: len(metadata_of(nodes.nodes[0]).brokers) == len(nodes.brokers), "all brokers")
    ready_s = time.monotonic() - started
    time.sleep(SETTLE_SECONDS)
    idle_seconds = max(IDLE_SECONDS * scale, 3)
    with Cost(nodes) as cost:
        time.sleep(idle_seconds)
    idle_memory_mb = nodes.memory_mb()
    create_topic(nodes, topic, 30, replicas=REPLICAS, config=CONFIG)
    produce(nodes, topic, records=int(1_000_000 * scale), record_bytes=1024, **LARGE_BATCHES)
    delete_topic(nodes, topic)
    return {
        "ready_s": ready_s,
        "idle_memory_mb": idle_memory_mb,
        "idle_cpu_percent": cost.cpu_s / idle_seconds * 100,
        "loaded_memory_mb": nodes.memory_mb(),
    }


def brokers(server: Server, topic: str, scale: float) -> Figures:
    """One to eight brokers (small runs: four) and one controller: what a GB costs them together, at one replica.

    Each request holds one batch of 64 KiB, so that the ratio compares requests of one size. `whole`: a request holds
    all batches that are ready for its broker; the more brokers there are, the smaller it is. `idle_cores`: the cores
    that all nodes together use without load; a GB's cost includes them for as long as it takes.
    """
    kind = next(each for each in KINDS if isinstance(nodes_of(server).nodes[0], each))
    figures: Figures = {}
    counts = (1, 2, 4) if scale < 0.3 else (1, 2, 4, 8)
    for count in counts:
        plans = [Plan(kind, 1), *(Plan(kind, number, BROKER) for number in range(2, count + 1))]
        with tempfile.TemporaryDirectory(prefix="kafkapy-bench-") as directory:
            properties = {"offsets.topic.replication.factor": "1"}
            with Nodes(plans, Path(directory), properties) as cluster:
                figures |= _cost_of_brokers(cluster, topic, scale)
    costs = [figures[f"cpu_s_per_gb_{count}"] for count in counts]
    return {**figures, "gb_growth": max(costs[1:]) / costs[0]}


def _cost_of_brokers(cluster: Nodes, topic: str, scale: float) -> Figures:
    records, count = int(1_000_000 * scale), len(cluster.brokers)
    create_topic(cluster, topic, 4 * count)
    produce(cluster, topic, records=1_000, record_bytes=1024, acks="1", **LARGE_BATCHES)  # imports, opened files
    with Cost(cluster) as idle:
        time.sleep(SETTLE_SECONDS)
    whole = produce(cluster, topic, records=records, record_bytes=1024, acks="1", **LARGE_BATCHES)
    one_batch = {**LARGE_BATCHES, "max_request_size": str(ONE_BATCH_BYTES)}
    found = produce(cluster, topic, records=records, record_bytes=1024, acks="1", **one_batch)
    return {
        f"mb_{count}_per_s": found["mb_per_s"],
        f"cpu_s_per_gb_{count}": found["broker_cpu_s_per_gb"],
        f"whole_cpu_s_per_gb_{count}": whole["broker_cpu_s_per_gb"],
        f"idle_cores_{count}": idle.cpu_s / idle.seconds,
    }


# -- a fourth node --------------------------------------------------------------------------------------------------


def move_to_a_fourth(server: Server, topic: str, scale: float) -> Figures:
    """1,000 partitions (1 GB, small runs less) get a replica on a node that has none, for one elsewhere, under load."""
    partitions, loaded = max(int(1_000 * scale), 20), f"{topic}-load"
    create_on(server, topic, [[1, 2, 3]] * partitions)
    produce(server, topic, records=int(GB / 1024 * scale), record_bytes=1024, acks="1", **LARGE_BATCHES)
    create_on(server, loaded, [[1, 2, 3]])
    with AcknowledgedLoad(server, loaded, MOVE_RATE) as load:
        time.sleep(3.0)
        idle_from = time.monotonic()
        time.sleep(max(IDLE_SECONDS * scale, 5))
        moving_from = time.monotonic()
        _move(nodes_of(server), topic, partitions, [FOURTH, 2, 3])
        moved = time.monotonic()
    for each in (topic, loaded):
        delete_topic(server, each)
    idle, moving = load.percentiles(idle_from, moving_from), load.percentiles(moving_from, moved)
    return {
        "move_s": moved - moving_from,
        "idle_p99_ms": idle["p99_ms"],
        "moving_p99_ms": moving["p99_ms"],
        "moving_over_idle_p99": moving["p99_ms"] / idle["p99_ms"],
    }


def _move(nodes: Nodes, topic: str, partitions: int, replicas: list[int]) -> None:
    moves = [reassign.ReassignablePartition(number, replicas=replicas) for number in range(partitions)]
    request = reassign.AlterPartitionReassignmentsRequest(topics=[reassign.ReassignableTopic(topic, partitions=moves)])
    with connect(nodes.nodes[0]) as connection:
        response = call(connection, request, 0)
        assert response.error_code == 0, response
        assert not any(each.error_code for each in response.responses[0].partitions), response
        wait_until(lambda: _has_ended(connection), "the end of the move", 1200)


def _has_ended(connection: socket.socket) -> bool:
    """Ask seldom: a response that lists a thousand moves costs the controller, and its loop, some milliseconds."""
    if call(connection, ListPartitionReassignmentsRequest(), 0).topics:
        time.sleep(MOVE_POLL_SECONDS)
        return False
    return True


WORKLOADS = [
    *(
        Workload(
            f"three replicas, {size}, {partitions} partition{'s' * (partitions > 1)}",
            partial(produce_replicated, record_bytes=record_bytes, partitions=partitions),
            family="nodes",
            servers=THREE_NODES,
            quick_rounds=1,
        )
        for record_bytes, size in ((100, "100 B"), (1024, "1 KiB"))
        for partitions in (1, 30)
    ),
    *(
        Workload(
            f"three replicas, end to end at {rate:,} records/s",
            partial(end_to_end, rate=rate, replicas=REPLICAS),
            family="nodes",
            servers=THREE_NODES,
        )
        for rate in (1_000, 5_000)
    ),
    Workload(
        "3,000 partitions followed beside 10",
        follow_many,
        family="nodes",
        servers=THREE_NODES,
        warms_up=False,
        rounds=2,
        quick_rounds=1,
    ),
    *(
        Workload(name, run, family="nodes", servers=THREE_NODES, warms_up=False, rounds=3, quick_rounds=1)
        for name, run in (
            ("gap in acks: a leader is killed", lose_leader),
            ("gap in acks: the controller is killed", lose_controller),
            ("gap in acks: a node is stopped", stop_one),
        )
    ),
    Workload(
        "three nodes: start and rest",
        start_and_rest,
        family="nodes",
        servers=THREE_RESTARTED,
        warms_up=False,
        quick_rounds=1,
    ),
    Workload(
        "a controller of 100,000 partitions fences a broker",
        fence_one_of_three,
        family="nodes",
        servers=THREE_RESTARTED,
        warms_up=False,
        rounds=2,
        quick_rounds=1,
        is_beside_apache=False,
    ),
    Workload(
        "growth of brokers",
        brokers,
        family="growth",
        servers=THREE_RESTARTED,
        warms_up=False,
        rounds=2,
        quick_rounds=1,
        is_beside_apache=False,  # its goal is our own; eight JVMs on two cores were not done in nine minutes
    ),
    Workload(
        "move to a fourth node under load",
        move_to_a_fourth,
        family="nodes",
        servers=FOUR_NODES,
        warms_up=False,
        rounds=2,
        quick_rounds=1,
    ),
]
