"""Large requests from sockets whose frames are made beforehand: the client is not the limit, and its share is shown.

Both brokers' producers and consumers in Java keep a broker below half a core. Here the client only copies frames into
sockets and counts the bytes that come back. `client_cores` is what it used of the machine's cores meanwhile.
"""

import time
from functools import partial

from benchmarks.topics import create_topic, delete_topic
from benchmarks.wire import Pipe, end_offsets, fill, frame, new_batch, produce_frame, receive, run_pipes
from benchmarks.workload import Cost, Figures, Workload
from harness.servers import Server
from kafkapy.protocol.headers import read_response_header
from kafkapy.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from kafkapy.protocol.messages.fetch_response import FetchResponse

DEPTH = 5
FETCH_DEPTH = 2
FETCH_VERSION = 11
MIB = 1 << 20
FILLED_BYTES = 16 * MIB
NO_SESSION = -1


class ClientShare:
    """The cores that this process uses from `with` to its end: CPU seconds a second."""

    def __enter__(self) -> "ClientShare":
        self._started, self._cpu_before = time.monotonic(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.cores = (time.process_time() - self._cpu_before) / (time.monotonic() - self._started)


def produce(
    server: Server, topic: str, scale: float, *, records: int, value_bytes: int, connections: int, total_bytes: int
) -> Figures:
    """Produce requests of one batch, acks=1, five under way on each connection, a partition for each connection."""
    create_topic(server, topic, connections)
    batch = new_batch(records, value_bytes)
    requests = max(connections, int(total_bytes * scale) // len(batch))
    pipes = [Pipe(server, [produce_frame(topic, number, batch)], DEPTH) for number in range(connections)]
    with Cost(server) as cost, ClientShare() as client:
        run_pipes(pipes, requests)
    for pipe in pipes:
        pipe.connection.close()
    assert end_offsets(server, topic, connections) == (requests + connections) * records, "not all is there"
    delete_topic(server, topic)
    return figures_of(cost, client, requests, records=requests * records, size_bytes=requests * len(batch))


def figures_of(cost: Cost, client: ClientShare, requests: int, *, records: int, size_bytes: int) -> Figures:
    return {
        **cost.figures(records=records, size_bytes=size_bytes),
        "broker_cpu_us_per_request": cost.cpu_s / requests * 1e6,
        "client_cores": client.cores,
    }


class FetchPipe(Pipe):
    """A connection that fetches the same range again and again."""

    def _response_bytes_of(self, frame: bytes, until: float) -> int:
        self.connection.sendall(frame)
        response = receive(self.connection)
        _, position = read_response_header(response, FetchRequest.API_KEY, FETCH_VERSION)
        found = FetchResponse.decode(response[position:], FETCH_VERSION).responses[0].partitions[0]
        assert not found.error_code, f"the broker refuses: error {found.error_code}"
        return len(response) + 4


def fill_topic(server: Server, topic: str, scale: float) -> None:
    create_topic(server, topic, 1)
    fill(server, topic, FILLED_BYTES)


def fetch(server: Server, topic: str, scale: float, *, fetch_bytes: int, total_bytes: int) -> Figures:
    """Fetch from the topic's beginning, warm, two requests under way."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=fetch_bytes)
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=fetch_bytes,
        session_epoch=NO_SESSION,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )
    requests = max(FETCH_DEPTH, int(total_bytes * scale) // fetch_bytes)
    pipe = FetchPipe(server, [frame(request, FETCH_VERSION)], FETCH_DEPTH)
    with pipe.connection, Cost(server) as cost, ClientShare() as client:
        run_pipes([pipe], requests)
    size_bytes = requests * fetch_bytes
    return figures_of(cost, client, requests, records=size_bytes // 1024, size_bytes=size_bytes)


BATCHES = (
    ("16 KiB of 1 KiB records", 15, 1024, 400 * MIB),
    ("16 KiB of 100 B records", 145, 100, 200 * MIB),
    ("64 KiB of 1 KiB records", 61, 1024, 800 * MIB),
)

WORKLOADS = [
    *(
        Workload(
            f"sockets: produce {name}, {connections} connection{'s' * (connections > 1)}",
            partial(produce, records=records, value_bytes=size, connections=connections, total_bytes=total),
            family="sockets",
            quick_rounds=2 * (connections == 1 and size == 1024),
        )
        for name, records, size, total in BATCHES
        for connections in (1, 10)
    ),
    Workload(
        "sockets: fetch 1 MiB",
        partial(fetch, fetch_bytes=MIB, total_bytes=2048 * MIB),
        prepare=fill_topic,
        family="sockets",
    ),
]
