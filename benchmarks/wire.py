"""A client that is a few sockets and frames made beforehand: it costs so little that the broker is what is measured.

All responses to one kind of request have one size (no strings in them vary), so they are counted, not decoded; that
they hold no error is seen afterwards, from what the partitions' end offsets say.
"""

import select
import socket
import struct
import time
from collections.abc import Sequence
from random import Random
from typing import Any

from harness.servers import Server
from kafkapy.protocol.api import response_type
from kafkapy.protocol.headers import read_response_header, write_request_header
from kafkapy.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkapy.protocol.primitives import Writer
from kafkapy.record.builder import build_batch

PRODUCE_VERSION = 11
LIST_OFFSETS_VERSION = 7
LATEST = -1
TIMEOUT_S = 120.0


def connect(server: Server) -> socket.socket:
    host, _, port = server.bootstrap.split(",")[0].rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def frame(request: Any, version: int) -> bytes:
    """Return a request as it is sent, size and header included."""
    out = Writer()
    write_request_header(out, api_key=request.API_KEY, api_version=version, correlation_id=1, client_id="bench")
    body = bytes(out) + bytes(request.encode(version))
    return struct.pack(">i", len(body)) + body


def receive(connection: socket.socket) -> bytes:
    """Return the next response, without its size."""
    data = bytearray()
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        part = connection.recv(1 << 20)
        assert part, "the broker closed the connection"
        data += part
    return bytes(data[4:])


def call(connection: socket.socket, request: Any, version: int) -> Any:
    """Send a request and return its response."""
    connection.sendall(frame(request, version))
    response = receive(connection)
    _, position = read_response_header(response, request.API_KEY, version)
    return response_type(request.API_KEY).decode(response[position:], version)


def new_batch(record_count: int, value_bytes: int) -> bytes:
    """Return a batch of records whose values are random letters, the same ones each time."""
    random = Random(record_count * 1_000_003 + value_bytes)
    now_ms = int(time.time() * 1000)
    return build_batch([(now_ms, None, _letters(random, value_bytes), ()) for _ in range(record_count)])


def _letters(random: Random, count: int) -> bytes:
    return bytes(65 + value % 26 for value in random.randbytes(count))


def produce_frame(topic: str, partition: int, batch: bytes, acks: int = 1) -> bytes:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
    return frame(ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[data]), PRODUCE_VERSION)


def end_offsets(server: Server, topic: str, partitions: int) -> int:
    """Return the sum of the end offsets of a topic's partitions."""
    requested = [ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in range(partitions)]
    with connect(server) as connection:
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=requested)])
        response = call(connection, request, LIST_OFFSETS_VERSION)
    assert not any(partition.error_code for partition in response.topics[0].partitions)
    return sum(partition.offset for partition in response.topics[0].partitions)


class Pipe:
    """A connection that keeps `depth` requests under way, taking its frames in turn. Making it sends each once."""

    def __init__(self, server: Server, frames: Sequence[bytes], depth: int) -> None:
        self.connection = connect(server)
        self._frames = frames
        self._next = 0
        self._depth = depth
        self._response_bytes = self._learn()
        self._received = 0
        self._left = 0
        self.unanswered = 0

    def _learn(self) -> int:
        """Send each frame once, again while a new topic is not led yet; return how large a response is."""
        until = time.monotonic() + TIMEOUT_S
        sizes = {self._response_bytes_of(frame, until) for frame in self._frames}
        assert len(sizes) == 1, "the responses have different sizes"
        return sizes.pop()

    def _response_bytes_of(self, frame: bytes, until: float) -> int:
        while True:
            self.connection.sendall(frame)
            response = receive(self.connection)
            _, position = read_response_header(response, ProduceRequest.API_KEY, PRODUCE_VERSION)
            produced: Any = response_type(ProduceRequest.API_KEY).decode(response[position:], PRODUCE_VERSION)
            if not produced.responses[0].partition_responses[0].error_code:
                return len(response) + 4
            assert time.monotonic() < until, f"the broker refuses: {produced}"

    def _take(self, count: int) -> bytes:
        frames, first = self._frames, self._next
        self._next = (first + count) % len(frames)
        if len(frames) == 1:
            return frames[0] * count
        return b"".join(frames[(first + index) % len(frames)] for index in range(count))

    def start(self, requests: int) -> None:
        first = min(self._depth, requests)
        self._left = requests - first
        self.unanswered = requests
        self.connection.sendall(self._take(first))

    def on_readable(self) -> bool:
        """Take what has come and send as many requests as were answered; return whether any is still under way."""
        data = self.connection.recv(1 << 18)
        assert data, "the broker closed the connection"
        answered, self._received = divmod(self._received + len(data), self._response_bytes)
        self.unanswered -= answered
        sending = min(answered, self._left)
        if sending:
            self._left -= sending
            self.connection.sendall(self._take(sending))
        return self.unanswered > 0


def run_pipes(pipes: Sequence[Pipe], requests: int) -> None:
    """Send `requests` requests over all pipes, in equal parts, and return once each is answered."""
    poll = select.epoll()
    by_descriptor = {pipe.connection.fileno(): pipe for pipe in pipes}
    for descriptor in by_descriptor:
        poll.register(descriptor, select.EPOLLIN)
    for number, pipe in enumerate(pipes):
        pipe.start(requests // len(pipes) + (number < requests % len(pipes)))
    busy = sum(pipe.unanswered > 0 for pipe in pipes)
    while busy:
        events = poll.poll(TIMEOUT_S)
        assert events, "the broker does not answer"
        for descriptor, _ in events:
            busy -= not by_descriptor[descriptor].on_readable()
    poll.close()


def fill(server: Server, topic: str, size_bytes: int, *, partitions: int = 1, value_bytes: int = 1024) -> int:
    """Put about so many bytes on a topic in batches of 64 KiB; return the number of records."""
    records = max(1, 64_000 // value_bytes)
    batch = new_batch(records, value_bytes)
    frames = [produce_frame(topic, partition, batch) for partition in range(partitions)]
    pipe = Pipe(server, frames, depth=8)
    requests = max(1, size_bytes // len(batch))
    with pipe.connection:
        run_pipes([pipe], requests)
    count = (requests + partitions) * records
    assert end_offsets(server, topic, partitions) == count, "not all that was sent is there"
    return count
