"""One machine's cores: one, two and four brokers of kafkapy beside one Apache Kafka: `python -m benchmarks.cores`.

Apache Kafka's broker uses all cores, a broker of kafkapy one. `throughput`: ProducerPerformance as fast as it goes to
topics of 1, 30 and 300 partitions, 1 KiB records in batches of 64 KiB, acks=1, one replica; the first broker is the
controller, too. A topic of one partition has one leader, however many brokers there are.

`model`: what a request, a byte and a further replica cost the CPU of three brokers and their controller. A client of a
few sockets (wire.py) sends Produce requests of one batch, some under way, to one partition with one, two and three
replicas (acks=1: followers fetch at their own pace). From batches of two sizes follow the cost of a request, whatever
its size, and of its bytes; the difference of two and three replicas to one is what each further replica adds. What the
nodes cost while idle is taken off. Lines of JSON come last.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.java_clients import produce
from benchmarks.node_calls import create_on, smallest_isr, wait_until
from benchmarks.topics import create_topic, delete_topic
from benchmarks.wire import Pipe, new_batch, produce_frame, run_pipes
from benchmarks.workload import Cost
from harness.nodes import BROKER, CONTROLLER, Nodes, Plan
from harness.servers import ApacheKafka, CompiledKafkapy, Kafkapy, Server

KAFKAPY = "kafkapy"
KINDS = {KAFKAPY: Kafkapy, "compiled": CompiledKafkapy}
RECORDS, RECORD_BYTES = 1_000_000, 1_024
LARGE_BATCHES: dict[str, Any] = {"batch_size": "65536", "linger_ms": "10"}
SMALL, LARGE = (1, 940), (250, 940)
"""Records of a batch, and the size of their values: 1 and 250 KB."""
REQUESTS = {SMALL: 40_000, LARGE: 4_000}
DEPTH = 5
REPLICAS = (2, 3, 4)
IDLE_S, SETTLE_S = 5.0, 2.0
KB = 1_000


def throughput(kind: type[Kafkapy], counts: Sequence[int], partitions: Sequence[int], scale: float) -> None:
    """Print, for each number of partitions, what so many brokers and one Apache Kafka take in a second, and their CPU.

    They run one after the other: all of them together would leave no memory to each.
    """
    with tempfile.TemporaryDirectory(prefix="kafkapy-cores-") as directory:
        for count in counts:
            plans = [Plan(kind, 1), *(Plan(kind, number, BROKER) for number in range(2, count + 1))]
            properties = {"offsets.topic.replication.factor": "1"}
            nodes_directory = Path(directory, str(count))
            nodes_directory.mkdir()
            with Nodes(plans, nodes_directory, properties) as cluster:
                _print_throughput(cluster, f"{kind.name}, {count} brokers", partitions, scale)
        with ApacheKafka(Path(directory, "apache")) as apache:
            _print_throughput(apache, apache.name, partitions, scale)


def _print_throughput(server: Server, name: str, partitions: Sequence[int], scale: float) -> None:
    for count in partitions:
        topic = f"cores-{count}"
        create_topic(server, topic, count)
        figures = produce(
            server, topic, records=int(RECORDS * scale), record_bytes=RECORD_BYTES, acks="1", **LARGE_BATCHES
        )
        delete_topic(server, topic)
        found = {"mb_per_s": figures["mb_per_s"], "cpu_s_per_gb": figures["broker_cpu_s_per_gb"]}
        rounded = {each: round(value, 2) for each, value in found.items()}
        print(json.dumps({"servers": name, "partitions": count, **rounded}), flush=True)


def model(kind: type[Kafkapy], scale: float) -> dict[str, float]:
    """Return the terms in microseconds of CPU."""
    plans = [Plan(kind, 1, CONTROLLER), *(Plan(kind, each, BROKER) for each in REPLICAS)]
    terms: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory(prefix="kafkapy-cores-") as directory, Nodes(plans, Path(directory)) as cluster:
        for replicas in range(1, len(REPLICAS) + 1):
            topic = f"model-{replicas}"
            create_on(cluster, topic, [list(REPLICAS[:replicas])])
            terms.append(_terms(cluster, topic, replicas, scale))
    (request, per_kb), *further = terms
    replica = [(each[0] - request) / number for number, each in enumerate(further, 1)]
    replica_kb = [(each[1] - per_kb) / number for number, each in enumerate(further, 1)]
    return {
        "us_per_request": request,
        "us_per_kb": per_kb,
        "us_per_request_of_a_replica": sum(replica) / len(replica),
        "us_per_kb_of_a_replica": sum(replica_kb) / len(replica_kb),
    }


def _terms(cluster: Nodes, topic: str, replicas: int, scale: float) -> tuple[float, float]:
    """Return the microseconds of a request, and of a kilobyte in it, for all nodes together."""
    leader = cluster.by_id[REPLICAS[0]]
    wait_until(lambda: smallest_isr(leader, topic) == replicas, "in-sync replicas")
    time.sleep(SETTLE_S)
    with Cost(cluster) as idle:
        time.sleep(IDLE_S)
    idle_cores = idle.cpu_s / idle.seconds
    costs: list[tuple[float, float]] = []
    for size, requests in REQUESTS.items():
        batch = new_batch(*size)
        pipe = Pipe(leader, [produce_frame(topic, 0, batch)], DEPTH)
        count = max(int(requests * scale), 100)
        with pipe.connection:
            run_pipes([pipe], count // 4)
            with Cost(cluster) as cost:
                run_pipes([pipe], count)
                time.sleep(SETTLE_S)  # followers fetch the last ones
        spent_us = (cost.cpu_s - idle_cores * cost.seconds) * 1e6 / count
        costs.append((len(batch) / KB, spent_us))
        print(f"{replicas} replicas, {len(batch)} bytes: {spent_us:.1f} us a request", flush=True)
    (small_kb, small_us), (large_kb, large_us) = costs
    per_kb = (large_us - small_us) / (large_kb - small_kb)
    return small_us - small_kb * per_kb, per_kb


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cores")
    parser.add_argument("--brokers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--partitions", type=int, nargs="+", default=[1, 30, 300])
    parser.add_argument("--scale", type=float, default=1.0, help="part of the records and requests")
    parser.add_argument("--kind", choices=KINDS, default=KAFKAPY)
    parser.add_argument("--only", choices=("throughput", "model"))
    arguments = parser.parse_args()
    kind = KINDS[arguments.kind]
    if arguments.only != "model":
        throughput(kind, arguments.brokers, arguments.partitions, arguments.scale)
    if arguments.only != "throughput":
        print(json.dumps({name: round(value, 2) for name, value in model(kind, arguments.scale).items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
