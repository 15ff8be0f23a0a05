"""What a further batch in a Produce request costs: `python -m benchmarks.batches`, the last line is JSON.

One embedded broker whose logs are on tmpfs, and in the same process a client that sends one request after the other:
alternately to 2 and to 16 partitions. Counted is the CPU of the broker's thread alone; the figure is the difference of
the means of the lowest tenths of both, by 14, in microseconds. To compare two checkouts, run it in alternation, each in
a directory of its own: `cd CHECKOUT && PYTHON -m benchmarks.batches`.
"""

import argparse
import json
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count

from benchmarks.wire import frame, receive
from kafkapy import Broker, compiled
from kafkapy.protocol.headers import read_response_header
from kafkapy.protocol.messages.init_producer_id_request import InitProducerIdRequest
from kafkapy.protocol.messages.init_producer_id_response import InitProducerIdResponse
from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkapy.record.builder import BatchFields, build_batch

TOPIC = "batches"
FEW, MANY = 2, 16
PRODUCE_VERSION, INIT_PRODUCER_ID_VERSION = 11, 4
SIZES = {"1 x 100 B": (1, 100), "10 x 100 B": (10, 100), "15 x 1 KiB": (15, 1024)}
LOWEST = 10
"""The mean of one measurement in so many counts, the lowest ones: others shared the core with another program."""


class Client:
    """One connection, and the CPU that the broker's thread spends for its requests."""

    def __init__(self, broker: Broker) -> None:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        self._connection = socket.create_connection((host, int(port)))
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        (thread,) = [each for each in threading.enumerate() if each.name == "kafkapy-broker"]
        assert thread.ident is not None
        self._clock = time.pthread_getcpuclockid(thread.ident)

    def call(self, sent: bytes) -> bytes:
        self._connection.sendall(sent)
        return receive(self._connection)

    def cpu_us(self, sent: bytes) -> float:
        start = time.clock_gettime(self._clock)
        self.call(sent)
        return (time.clock_gettime(self._clock) - start) * 1e6

    def init_producer_id(self) -> int:
        response = self.call(frame(InitProducerIdRequest(transaction_timeout_ms=60_000), INIT_PRODUCER_ID_VERSION))
        _, position = read_response_header(response, InitProducerIdRequest.API_KEY, INIT_PRODUCER_ID_VERSION)
        return InitProducerIdResponse.decode(response[position:], INIT_PRODUCER_ID_VERSION).producer_id


def measure(broker: Broker, requests: int) -> dict[str, float]:
    figures = {}
    for name, (record_count, value_bytes) in SIZES.items():
        for acks, kind in ((1, "acks=1"), (-1, "acks=all idempotent")):
            client = Client(broker)
            producers = [client.init_producer_id() if acks < 0 else -1 for _ in (FEW, MANY)]
            few, many = (_frames(acks, producer, record_count, value_bytes) for producer in producers)
            figures[f"{name}, {kind}"] = round(_further_us(client, few, many, requests), 2)
    return figures


def _further_us(client: Client, few: Callable[[int], bytes], many: Callable[[int], bytes], requests: int) -> float:
    found: dict[int, list[float]] = {FEW: [], MANY: []}
    for number in range(requests):
        for partitions, new_frame in ((FEW, few), (MANY, many)):
            sent = new_frame(partitions)
            cpu_us = client.cpu_us(sent)
            if number >= requests // LOWEST:  # the first ones warm up
                found[partitions].append(cpu_us)
    lowest = {partitions: sorted(costs)[: len(costs) // LOWEST] for partitions, costs in found.items()}
    means = {partitions: sum(costs) / len(costs) for partitions, costs in lowest.items()}
    return (means[MANY] - means[FEW]) / (MANY - FEW)


def _frames(acks: int, producer_id: int, record_count: int, value_bytes: int) -> Callable[[int], bytes]:
    """Return a function that makes the next request to so many partitions, a batch for each."""
    sequences: Iterator[int] = count(step=record_count) if producer_id >= 0 else iter(lambda: -1, 0)
    now_ms = int(time.time() * 1000)
    records = [(now_ms, None, bytes([65 + number]) * value_bytes, ()) for number in range(record_count)]

    def new_frame(partitions: int) -> bytes:
        fields = BatchFields(producer_id=producer_id, producer_epoch=min(producer_id, 0), base_sequence=next(sequences))
        batch = build_batch(records, fields)
        data = [PartitionProduceData(index=index, records=batch) for index in range(partitions)]
        topic = TopicProduceData(name=TOPIC, partition_data=data)
        return frame(ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[topic]), PRODUCE_VERSION)

    return new_frame


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.batches")
    parser.add_argument("--requests", type=int, default=800, help="to each number of partitions")
    parser.add_argument("--logs", default="/dev/shm", help="where the directory of the logs is made")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.logs) as directory, Broker(directory) as broker:
        broker.create_topics(TOPIC, partitions=MANY)
        figures = measure(broker, arguments.requests)
    print(json.dumps({"run": compiled.description(), **figures}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
