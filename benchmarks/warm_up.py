"""What both brokers do before anything is timed, so that no load meets a JVM whose compiler has seen nothing yet.

The same work for both, uncounted: a million records of 100 bytes from Java's producer (acks=all, idempotent, four
partitions), read again by librdkafka, and 200,000 requests of one record over ten connections; a quarter of it in small
runs. Loads that begin with a start (rest, recovery, compaction) have it not: what they measure is a start, or they do
work of their own first.
"""

import subprocess

from benchmarks.java_clients import produce
from benchmarks.topics import create_topic, delete_topic
from benchmarks.wire import Pipe, new_batch, produce_frame, run_pipes
from harness.servers import Server
from tools.kafka import KCAT_MISSING, kcat

TOPIC = "warm-up"
PARTITIONS = 4
RECORDS, RECORD_BYTES = 1_000_000, 100
REQUESTS, CONNECTIONS, DEPTH = 200_000, 10, 5
LEAST = 0.25


def warm_up(server: Server, scale: float, *, with_sockets: bool) -> None:
    """Let a server work; `with_sockets` also by plain sockets, which know neither TLS nor who leads what."""
    print(f"warming up {server.name}", flush=True)
    part = min(max(scale, LEAST), 1.0)
    create_topic(server, TOPIC, PARTITIONS)
    produce(server, TOPIC, records=int(RECORDS * part), record_bytes=RECORD_BYTES)
    _read(server)
    if with_sockets:
        frames = [produce_frame(TOPIC, partition, new_batch(1, RECORD_BYTES)) for partition in range(PARTITIONS)]
        pipes = [Pipe(server, [frames[number % PARTITIONS]], DEPTH) for number in range(CONNECTIONS)]
        run_pipes(pipes, int(REQUESTS * part))
        for pipe in pipes:
            pipe.connection.close()
    delete_topic(server, TOPIC)


def _read(server: Server) -> None:
    program = kcat()
    assert program is not None, KCAT_MISSING
    settings = [part for key, value in server.client_settings.items() for part in ("-X", f"{key}={value}")]
    command = [program, "-b", server.bootstrap, "-C", "-t", TOPIC, "-o", "beginning", "-e", "-q", "-f", "", *settings]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
