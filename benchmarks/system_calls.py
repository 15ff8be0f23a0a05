"""How many system calls a broker makes per MiB that a consumer reads: `python -m benchmarks.system_calls`.

Needs strace. kafkapy is measured first, then Apache Kafka. librdkafka reads a topic to its end three times: to warm up,
from the page cache, and from the disk. During the second and the third, strace counts the calls of all threads of the
broker. Other load on the machine hardly changes these counts, except that of writes that find the socket's buffer full.
"""

import argparse
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.consume import VALUE_BYTES, drop_from_page_cache, read_with_librdkafka
from benchmarks.topics import create_topic
from benchmarks.wire import fill
from harness.servers import ApacheKafka, Kafkapy, Server

MIB = 1 << 20
SHOWN = 10
_ROW = re.compile(r"\s*[\d.]+\s+[\d.]+\s+\d+\s+(?P<calls>\d+)\s+(?:\d+\s+)?(?P<name>\w+)$")
"""A line of strace's table: percent, seconds, microseconds a call, calls, errors, name."""


def counted(server: Server, run: Callable[[], object]) -> dict[str, int]:
    """Return the system calls of the server's process while `run` runs, by name."""
    assert server.process is not None
    with tempfile.NamedTemporaryFile("r") as output:
        command = ["strace", "-c", "-f", "-o", output.name, "-p", str(server.process.pid)]
        tracer = subprocess.Popen(command, stderr=subprocess.PIPE)
        assert tracer.stderr is not None
        tracer.stderr.readline()  # it says that it is attached
        run()
        tracer.send_signal(signal.SIGINT)
        tracer.communicate()
        rows = [row for line in output if (row := _ROW.match(line)) and row["name"] != "total"]
    return {row["name"]: int(row["calls"]) for row in rows}


def show(title: str, calls: dict[str, int], size_bytes: int) -> None:
    for_each = {name: count / size_bytes * MIB for name, count in calls.items()}
    most = sorted(for_each.items(), key=lambda each: -each[1])[:SHOWN]
    said = ", ".join(f"{name} {count:.1f}" for name, count in most)
    print(f"{title}: {sum(for_each.values()):.1f} for a MiB: {said}", flush=True)


def measure(server: Server, size_mib: int) -> None:
    for size, value_bytes in VALUE_BYTES.items():
        topic = f"values-{value_bytes}"
        create_topic(server, topic)
        records = fill(server, topic, size_mib * MIB, value_bytes=value_bytes)
        size_bytes = records * value_bytes
        read = partial(read_with_librdkafka, server, topic, records, size_bytes)
        read()
        show(f"{server.name}, {size}, hot", counted(server, read), size_bytes)
        drop_from_page_cache(server.directory, topic)
        show(f"{server.name}, {size}, cold", counted(server, read), size_bytes)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.system_calls")
    parser.add_argument("--mib", type=int, default=128, help="the size of each topic")
    arguments = parser.parse_args()
    if shutil.which("strace") is None:
        print("strace is missing")
        return 1
    with tempfile.TemporaryDirectory() as directory:
        for server in (Kafkapy(Path(directory) / "kafkapy"), ApacheKafka(Path(directory) / "apache")):
            with server:
                measure(server, arguments.mib)
    return 0


if __name__ == "__main__":
    sys.exit(main())
