"""A start after a clean stop with many partitions: `python -m benchmarks.clean_start`, kafkapy, then Apache Kafka.

One node each, broker and controller, with `--partitions` empty partitions in topics of a thousand. Measured of a start:
until the port answers, until the node leads every partition, its CPU until then; and the memory of a partition, by that
of a start before there were any. `--turns`: kafkapy alone, as timed_node.py runs it, with the longest turns of its loop
(the timer that looks into them costs CPU: take seconds from a run without). The last line is JSON.

Apache Kafka holds a descriptor for each partition's log and maps two indexes into memory: 100,000 partitions need an
RLIMIT_NOFILE above that number and a vm.max_map_count above twice that. kafkapy closes files that are not used.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.broker_turns import TimedKafkapy, print_turns
from benchmarks.many_partitions import wait_until_led
from harness.servers import ApacheKafka, Kafkapy, Server

PER_TOPIC = 1_000
TIMEOUT_S = 1_800
SETTLE_S = 5.0
KIB_OF_A_MB = 1_024


def measure(server: Server, partitions: int, starts: int) -> dict[str, float]:
    """Return what a start takes, the quickest of `starts`, and memory."""
    topics = [f"topic-{number}" for number in range(partitions // PER_TOPIC)]
    server.prepare()
    started = _start(server, [])
    print(f"{server.name}, no partition: {started}", flush=True)
    began = time.monotonic()
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 4})
    for topic in topics:
        new = NewTopic(topic, PER_TOPIC, replication_factor=1)
        admin.create_topics([new], operation_timeout=120, request_timeout=300)[topic].result(TIMEOUT_S)
    wait_until_led(server, topics)
    figures = {"create_s": time.monotonic() - began}
    found: list[dict[str, float]] = []
    for _ in range(starts):
        began = time.monotonic()
        assert server.stop(timeout_s=TIMEOUT_S) in (0, 143), f"{server.name} did not stop in order"
        figures["stop_s"] = time.monotonic() - began
        found.append(_start(server, topics))
        print(f"{server.name}, {partitions} partitions: {found[-1]}", flush=True)
    server.stop(timeout_s=TIMEOUT_S)
    best = {name: min(each[name] for each in found) for name in found[0]}
    of_one = (best["memory_mb"] - started["memory_mb"]) / partitions * KIB_OF_A_MB
    return {name: round(value, 2) for name, value in {**figures, **best, "kib_of_a_partition": of_one}.items()}


def _start(server: Server, topics: list[str]) -> dict[str, float]:
    began = time.monotonic()
    server.start(TIMEOUT_S)
    answered = time.monotonic()
    wait_until_led(server, topics)
    led, cpu_s = time.monotonic(), server.cpu_s()
    time.sleep(SETTLE_S)
    figures = {
        "port_s": answered - began,
        "all_led_s": led - began,
        "cpu_s": cpu_s,
        "memory_mb": server.memory_mb(),
        "peak_mb": server.memory_mb("VmHWM"),
    }
    return {name: round(value, 2) for name, value in figures.items()}


def show_turns(directory: Path, partitions: int) -> None:
    """Start kafkapy with its turns timed."""
    server = TimedKafkapy(directory)
    server.turns_file.touch()
    print(json.dumps(measure(server, partitions, 1)), flush=True)
    print_turns(server)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.clean_start")
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--starts", type=int, default=1, help="the quickest counts")
    parser.add_argument("--only", choices=("kafkapy", "apache"))
    parser.add_argument("--turns", action="store_true", help="kafkapy alone: the longest turns of its loop")
    parser.add_argument("--logs", help="where the directory of the logs is made")
    arguments = parser.parse_args()
    figures = {}
    with tempfile.TemporaryDirectory(prefix="kafkapy-start-", dir=arguments.logs) as directory:
        if arguments.turns:
            show_turns(Path(directory, "timed"), arguments.partitions)
            return 0
        for kind, name in ((Kafkapy, "kafkapy"), (ApacheKafka, "apache")):
            if arguments.only in (None, name):
                server = kind(Path(directory, name))
                try:
                    figures[name] = measure(server, arguments.partitions, arguments.starts)
                finally:
                    server.stop(timeout_s=TIMEOUT_S)
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
