"""Each event of `faults`, and each fault of disk and network, as librdkafka, aiokafka and kafka-python take it.

In one broker, and in a cluster whose nodes are processes.
"""

import time
import uuid
from collections.abc import Iterator

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("aiokafka")

from kafkapy.testing import Broker, Cluster
from tests.support.python_clients import PYTHON_CLIENTS, TIMEOUT_S, Aiokafka, PythonClient

pytestmark = [pytest.mark.long, pytest.mark.compat, pytest.mark.ours]
PROPERTIES = {
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "group.initial.rebalance.delay.ms": 0,
}
TOPIC = "orders"
IMPATIENT_S = 1.5


@pytest.fixture(scope="module")
def one() -> Iterator[Broker]:
    with Broker(properties=PROPERTIES, disk_faults=True, network_faults=True) as running:
        running.create_topics(TOPIC, partitions=2)
        yield running


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, properties=PROPERTIES) as running:
        running.create_topics(TOPIC, partitions=2)
        yield running


@pytest.fixture
def broken(one: Broker) -> Iterator[Broker]:
    """A broker whose disk and network a test breaks."""
    yield one
    one.faults.mend_disk()
    one.network.heal()


@pytest.fixture(params=["one", "cluster"])
def either(request: pytest.FixtureRequest) -> Broker | Cluster:
    found: Broker | Cluster = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=PYTHON_CLIENTS, ids=lambda kind: kind.__name__)
def client(request: pytest.FixtureRequest) -> Iterator[PythonClient]:
    found: PythonClient = request.param()
    yield found
    found.end()


@pytest.fixture
def name() -> str:
    return f"n-{uuid.uuid4().hex[:12]}"


def values(broker: Broker | Cluster) -> list[object]:
    return [record.value for record in broker.topics[TOPIC].records()]


def read_until(client: PythonClient, consumer: object, value: str) -> None:
    found: list[bytes] = []
    deadline = time.monotonic() + TIMEOUT_S
    while value.encode() not in found:
        assert time.monotonic() < deadline, found[-5:]
        found += client.poll(consumer)


def read_on(client: PythonClient, consumer: object, found: list[bytes]) -> None:
    """Read until the client raises."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        found += client.poll(consumer)


def commit_in_the_end(client: PythonClient, consumer: object) -> None:
    """Commit, after polls in which a member joins again where it has to."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return client.commit_offsets(consumer)
        except client.error:
            assert time.monotonic() < deadline
            client.poll(consumer)


@pytest.mark.parametrize("event", ["fence_producer", "abort_transaction"])
def test_a_producer_without_its_transaction_cannot_commit(
    either: Broker | Cluster, client: PythonClient, event: str, name: str
) -> None:
    producer = client.transactional(either.bootstrap_servers, name)
    client.begin(producer)
    client.send(producer, TOPIC, name.encode())
    getattr(either.faults, event)(name)
    with pytest.raises(client.error):
        client.commit(producer)
    client.close(producer)
    assert name not in values(either)


@pytest.mark.parametrize("event", ["expire_member", "rebalance", "lose_coordinator"])
def test_a_member_reads_and_commits_on(either: Broker | Cluster, client: PythonClient, event: str, name: str) -> None:
    producer = client.producer(either.bootstrap_servers)
    client.send(producer, TOPIC, f"{name}-1".encode())
    consumer = client.consumer(either.bootstrap_servers, TOPIC, name)
    read_until(client, consumer, f"{name}-1")
    getattr(either.faults, event)(group=name)
    client.send(producer, TOPIC, f"{name}-2".encode())
    read_until(client, consumer, f"{name}-2")
    commit_in_the_end(client, consumer)
    client.close(consumer)
    client.close(producer)


def test_a_transaction_survives_its_coordinator(either: Broker | Cluster, client: PythonClient, name: str) -> None:
    producer = client.transactional(either.bootstrap_servers, name)
    client.begin(producer)
    client.send(producer, TOPIC, name.encode())
    either.faults.lose_coordinator(transactional_id=name)
    client.commit(producer)
    client.close(producer)
    # Not at once: a commit is acknowledged before its markers are written.
    either.topics[TOPIC].wait_for(1, where=lambda record: record.value == name)


def test_a_leader_that_moves_is_found(cluster: Cluster, client: PythonClient, name: str) -> None:
    producer = client.producer(cluster.bootstrap_servers)
    consumer = client.consumer(cluster.bootstrap_servers, TOPIC, name)
    client.send(producer, TOPIC, f"{name}-1".encode())
    read_until(client, consumer, f"{name}-1")
    leader = cluster.faults.move_leader(TOPIC)
    assert cluster.leader_of(TOPIC, 0) == leader
    client.send(producer, TOPIC, f"{name}-2".encode())
    read_until(client, consumer, f"{name}-2")
    client.close(consumer)
    client.close(producer)


def test_a_corrupt_record_is_not_read(either: Broker | Cluster, client: PythonClient, name: str) -> None:
    either.create_topics(name, partitions=1)
    producer = client.producer(either.bootstrap_servers)
    for value in (b"first", b"second"):
        client.send(producer, name, value)
    client.close(producer)
    either.faults.corrupt(name, 0, 1)
    consumer = client.consumer(either.bootstrap_servers, name, name)
    found: list[bytes] = []
    with pytest.raises(client.error):
        read_on(client, consumer, found)
    client.close(consumer)
    # aiokafka raises from the poll that has read the record before it, which is lost then
    assert found == ([] if isinstance(client, Aiokafka) else [b"first"])


def test_a_disk_is_full_then_slow(broken: Broker, client: PythonClient, name: str) -> None:
    impatient = client.producer(broken.bootstrap_servers, IMPATIENT_S)
    send_in_the_end(client, impatient, b"before")
    broken.faults.fill_disk()
    with pytest.raises(client.error):
        client.send(impatient, TOPIC, name.encode())
    broken.faults.mend_disk()
    client.close(impatient)
    assert name not in values(broken)
    producer = client.producer(broken.bootstrap_servers)
    client.send(producer, TOPIC, b"after")
    broken.faults.slow_disk(ms=200)
    assert seconds(client, producer, b"slowly") >= 0.2
    broken.faults.mend_disk()
    client.close(producer)


def test_a_crash_forgets_what_was_not_synced(broken: Broker, client: PythonClient, name: str) -> None:
    producer = client.producer(broken.bootstrap_servers)
    client.send(producer, TOPIC, f"{name}-1".encode())
    assert broken.faults.lose_unsynced() > 0
    client.send(producer, TOPIC, f"{name}-2".encode())
    client.close(producer)
    assert [value for value in values(broken) if str(value).startswith(name)] == [f"{name}-2"]


@pytest.mark.parametrize("fault", ["cut", "hold"])
def test_a_network_fails_then_is_slow(broken: Broker, client: PythonClient, fault: str) -> None:
    impatient = client.producer(broken.bootstrap_servers, IMPATIENT_S)
    send_in_the_end(client, impatient, b"before")
    getattr(broken.network, fault)()
    with pytest.raises(client.error):
        client.send(impatient, TOPIC, b"lost")
    broken.network.heal()
    client.close(impatient)
    producer = client.producer(broken.bootstrap_servers)
    client.send(producer, TOPIC, b"after")
    broken.network.delay(ms=150)
    assert seconds(client, producer, b"late") >= 0.15
    broken.network.heal()
    broken.network.limit(bytes_per_s=20_000)
    assert seconds(client, producer, b"x" * 20_000) >= 0.5
    broken.network.heal()
    client.close(producer)


def send_in_the_end(client: PythonClient, producer: object, value: bytes) -> None:
    """Send a value by a producer that soon gives up: on a busy machine the first one takes long."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return client.send(producer, TOPIC, value)
        except client.error:
            assert time.monotonic() < deadline


def seconds(client: PythonClient, producer: object, value: bytes) -> float:
    """Return how long it takes to send a value."""
    before = time.monotonic()
    client.send(producer, TOPIC, value)
    return time.monotonic() - before
