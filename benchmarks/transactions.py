"""Transactions: how many a second, what a commit takes, what they cost beside idempotence, what their readers feel.

Records are of 100 bytes. Each producer has a partition and commits one transaction after the other. The client is
Java's (TransactionLoad.java) or librdkafka's (transaction_client.py), the same for both servers, for the same time.
"""

import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.consume import Reader, read_with_java, read_with_librdkafka
from benchmarks.features import lacks_transactions
from benchmarks.rest import await_metadata
from benchmarks.topics import create_topic, delete_topic
from benchmarks.wire import call, connect, frame
from benchmarks.workload import RESTARTED, Cost, Figures, Workload
from harness.servers import Server, java
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.headers import read_response_header
from kafkapy.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.init_producer_id_request import InitProducerIdRequest
from kafkapy.protocol.messages.init_producer_id_response import InitProducerIdResponse

FAMILY = "transactions"
RECORD_BYTES = 100
SECONDS, MIN_SECONDS, WARM_UP_SECONDS = 20, 3, 3
SIZES, PRODUCERS, CLIENTS = (1, 100, 10_000), (1, 10), ("Java", "librdkafka")
JAVA_LOAD = Path(__file__).with_name("TransactionLoad.java")
LIBRDKAFKA_LOAD = [sys.executable, "-m", "benchmarks.transaction_client", "load"]

# -- transactions a second ------------------------------------------------------------------------------------------


def commit(server: Server, topic: str, scale: float, *, client: str, records: int, producers: int) -> Figures:
    """Have so many producers commit transactions of so many records, as fast as they go."""
    return _load(server, topic, scale, client=client, records=records, producers=producers, kind="transactional")


def beside_idempotence(server: Server, topic: str, scale: float, *, client: str, records: int) -> Figures:
    """Compare with an idempotent producer that flushes where the other commits: how many times the time and the CPU."""
    kinds = {
        kind: _load(server, f"{topic}-{kind}", scale, client=client, records=records, producers=1, kind=kind)
        for kind in ("idempotent", "transactional")
    }
    transactional, idempotent = kinds["transactional"], kinds["idempotent"]
    cpu = "broker_cpu_us_per_transaction"
    return {
        "overhead": idempotent["transactions_per_s"] / transactional["transactions_per_s"],
        "cpu_overhead": transactional[cpu] / idempotent[cpu],
        "idempotent_records_per_s": idempotent["transactions_per_s"] * records,
        "transactional_records_per_s": transactional["transactions_per_s"] * records,
    }


def _load(server: Server, topic: str, scale: float, *, client: str, records: int, producers: int, kind: str) -> Figures:
    create_topic(server, topic, producers)
    seconds = max(SECONDS * scale, MIN_SECONDS)
    arguments = map(str, (server.bootstrap, topic, producers, records, RECORD_BYTES, WARM_UP_SECONDS, seconds, kind))
    command = java(str(JAVA_LOAD), *arguments) if client == "Java" else [*LIBRDKAFKA_LOAD, *arguments]
    with Cost(server) as cost:
        result = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 600)
    assert result.returncode == 0, f"{command} failed:\n{result.stdout[-2000:]}\n{result.stderr[-2000:]}"
    in_all, per_s, commits = result.stdout.splitlines()
    cuts = statistics.quantiles(map(int, commits.split()), n=100, method="inclusive")
    delete_topic(server, topic)
    return {
        "transactions_per_s": float(per_s),
        "commit_p50_ms": cuts[49] / 1e3,
        "commit_p99_ms": cuts[98] / 1e3,
        "broker_cpu_us_per_transaction": cost.cpu_s / int(in_all) * 1e6,
        "peak_memory_mb": cost.peak_memory_mb,
    }


# -- readers --------------------------------------------------------------------------------------------------------

PACED_RATE = 1_000


def end_to_end(server: Server, topic: str, scale: float) -> Figures:
    """From when a record was due until a read_committed consumer has it; a transaction is what is due meanwhile."""
    create_topic(server, topic)
    count = int(PACED_RATE * max(SECONDS * scale, MIN_SECONDS))
    reading = [sys.executable, "-m", "benchmarks.latency", "consume", server.bootstrap, topic, str(count)]
    consumer = subprocess.Popen(reading, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert consumer.stdout is not None
    assert consumer.stdout.readline() == "ready\n"
    pacing = [sys.executable, "-m", "benchmarks.transaction_client", "paced", server.bootstrap, topic]
    with Cost(server) as cost:
        subprocess.run([*pacing, str(count), str(PACED_RATE)], check=True)
        found = json.loads(consumer.communicate(timeout=60)[0])
    delete_topic(server, topic)
    return {**found, "broker_cpu_s_per_million": cost.cpu_s / count * 1e6}


class PartlyAborted:
    """A topic of transactions of which one in `aborted_of` is aborted (None: none); filled once for each server."""

    RECORDS = 2_000_000
    MIN_RECORDS = 250_000
    TRANSACTION_RECORDS = 100
    """Small ones, so that there are many to tell a reader about."""
    PRODUCERS = 8
    """Write at once, as one would take minutes to."""
    VALUE_BYTES = 1024

    def __init__(self, aborted_of: int | None) -> None:
        self._aborted_of = aborted_of
        self._committed: dict[tuple[str, str], int] = {}

    def prepare(self, server: Server, topic: str, scale: float) -> None:
        create_topic(server, topic)
        transactions = range(int(max(self.RECORDS * scale, self.MIN_RECORDS)) // self.TRANSACTION_RECORDS)
        with ThreadPoolExecutor(self.PRODUCERS) as threads:
            shares = [transactions[number :: self.PRODUCERS] for number in range(self.PRODUCERS)]
            committed = sum(threads.map(partial(self._fill, server, topic), shares))
        self._committed[server.name, topic] = committed * self.TRANSACTION_RECORDS

    def _fill(self, server: Server, topic: str, transactions: range) -> int:
        """Write these transactions, one after the other; return how many are committed."""
        from confluent_kafka import Producer

        transactional_id = f"{topic}-{transactions.start}"
        producer = Producer(
            {"bootstrap.servers": server.bootstrap, "transactional.id": transactional_id, "linger.ms": 0}
        )
        producer.init_transactions(60)
        value = b"v" * self.VALUE_BYTES
        committed = 0
        for count, _ in enumerate(transactions):
            producer.begin_transaction()
            for _ in range(self.TRANSACTION_RECORDS):
                producer.produce(topic, value, partition=0)
            if self._aborted_of is not None and count % self._aborted_of == 0:
                assert producer.flush(60) == 0  # or they would be dropped here
                producer.abort_transaction(60)
            else:
                producer.commit_transaction(60)
                committed += 1
        return committed

    def read(self, server: Server, topic: str, scale: float, *, reader: Reader) -> Figures:
        records = self._committed[server.name, topic]
        return reader(server, topic, records, records * self.VALUE_BYTES)


# -- many transactional ids -----------------------------------------------------------------------------------------

IDS = 100_000
IN_FLIGHT = 50
SAMPLE = 500
"""Of the ids: some of each of the 50 partitions of __transaction_state."""
LOAD_TIMEOUT_S = 300


def load_ids(server: Server, topic: str, scale: float) -> Figures:
    """Have InitProducerId make transactional ids; stop the server, start it again: until it knows them all."""
    count = int(IDS * scale)
    ids = [f"{topic}-{number:07}" for number in range(count)]
    _await_coordinator(server, ids[0])
    before_mb = server.memory_mb()
    with Cost(server) as cost:
        _make_ids(server, ids)
    made_mb = server.memory_mb()
    server.stop()
    server.start()
    ready_s = await_metadata(server) - server.launched_at
    _await_loaded(server, ids[:: max(count // SAMPLE, 1)])
    return {
        "made_ids_per_s": count / cost.seconds,
        "broker_cpu_us_per_id": cost.cpu_s / count * 1e6,
        "memory_kb_per_id": max(made_mb - before_mb, 0.0) / count * 1024,
        "ready_s": ready_s,
        "ids_loaded_s": time.monotonic() - server.launched_at,
        "memory_mb": server.memory_mb(),
        "peak_memory_mb": server.memory_mb("VmHWM"),
    }


def _await_coordinator(server: Server, transactional_id: str) -> None:
    """Have __transaction_state created and led."""
    until = time.monotonic() + 60
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id])
    while True:
        with connect(server) as connection:
            (found,) = call(connection, request, 4).coordinators
            if not found.error_code and not call(connection, _init(f"{transactional_id}-first"), 4).error_code:
                return
        assert time.monotonic() < until, f"no coordinator: error {found.error_code}"
        time.sleep(0.05)


def _init(transactional_id: str) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)


def _make_ids(server: Server, ids: list[str]) -> None:
    """Send InitProducerId for each over one connection, some under way at once; those refused for now come again."""
    left = ids
    until = time.monotonic() + LOAD_TIMEOUT_S
    while left:
        assert time.monotonic() < until, f"{len(left)} ids were not made"
        with connect(server) as connection:
            left = [each for each, error in _init_all(connection, left) if error]


def _init_all(connection: socket.socket, ids: list[str]) -> Iterator[tuple[str, int]]:
    coming = iter(ids)
    responses = connection.makefile("rb")
    for each in islice(coming, IN_FLIGHT):
        connection.sendall(frame(_init(each), 4))
    for each in ids:
        yield each, _init_response(responses.read(int.from_bytes(responses.read(4), "big"))).error_code
        for following in islice(coming, 1):
            connection.sendall(frame(_init(following), 4))
    responses.close()


def _init_response(response: bytes) -> InitProducerIdResponse:
    _, position = read_response_header(response, InitProducerIdRequest.API_KEY, 4)
    return InitProducerIdResponse.decode(response[position:], 4)


def _await_loaded(server: Server, ids: list[str]) -> None:
    until = time.monotonic() + LOAD_TIMEOUT_S
    while errors := _errors_of(server, ids):
        assert time.monotonic() < until, f"not loaded: {errors}"
        time.sleep(0.01)


def _errors_of(server: Server, ids: list[str]) -> set[int]:
    try:
        with connect(server) as connection:
            response: Any = call(connection, DescribeTransactionsRequest(transactional_ids=ids), 0)
    except OSError:
        return {int(ErrorCode.COORDINATOR_NOT_AVAILABLE)}
    return {each.error_code for each in response.transaction_states} - {0}


def _readers() -> Iterator[Workload]:
    names = {None: "none aborted", 10: "a tenth aborted", 2: "half aborted"}
    for aborted_of, name in names.items():
        for client, reader in (("Java", read_committed_with_java), ("librdkafka", read_with_librdkafka)):
            topic = PartlyAborted(aborted_of)
            yield Workload(
                f"catch up with transactions, {name}, {client}",
                partial(topic.read, reader=reader),
                prepare=topic.prepare,
                family=FAMILY,
                quick_rounds=int(client == "Java"),
                missing=lacks_transactions,
            )


def read_committed_with_java(server: Server, topic: str, records: int, size_bytes: int) -> Figures:
    return read_with_java(server, topic, records, size_bytes, isolation_level="read_committed")


WORKLOADS = [
    *(
        Workload(
            f"transactions of {records:,}, {producers} producer{'s' * (producers > 1)}, {client}",
            partial(commit, client=client, records=records, producers=producers),
            family=FAMILY,
            quick_rounds=1,
            missing=lacks_transactions,
        )
        for producers in PRODUCERS
        for records in SIZES
        for client in CLIENTS
    ),
    *(
        Workload(
            f"transactions of {records:,} beside idempotence, {client}",
            partial(beside_idempotence, client=client, records=records),
            family=FAMILY,
            quick_rounds=int(client == "Java"),
            missing=lacks_transactions,
        )
        for records in SIZES
        for client in CLIENTS
    ),
    Workload(
        f"end to end of transactions at {PACED_RATE:,} records/s",
        end_to_end,
        family=FAMILY,
        quick_rounds=1,
        missing=lacks_transactions,
    ),
    *_readers(),
    Workload(
        f"{IDS:,} transactional ids",
        load_ids,
        family=FAMILY,
        warms_up=False,
        rounds=2,
        quick_rounds=1,
        servers=RESTARTED,
        missing=lacks_transactions,
    ),
]
