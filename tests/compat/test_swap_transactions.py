"""One directory, both brokers: transactions that one left open or decided, the other carries on and ends.

The directory is formatted at each transaction.version. Apache Kafka is killed amid PrepareCommit and PrepareAbort: it
sends markers to itself over a listener of its own, which is cut off before. A stop in order gives up the leadership of
its partitions: a transaction that is decided by then may be completed without its markers (see `die_at`), so only those
that are Ongoing are left by it. kafkapy writes markers in the turn in which it decides: it kills itself at a failpoint
between, once in a life. Transactions that are Ongoing are left by all. KAFKAPY_SOAK_SEEDS adds turns.
"""

import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from harness.servers import CLUSTER_ID, Kafkapy, Server, free_port
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from kafkapy.record.batches import batches
from kafkapy.server.process.failpoints import VARIABLE
from kafkapy.transaction.records import decode_record
from kafkapy.transaction.states import TransactionState
from tests.simulator.crash_enumeration import SOAK_FACTOR
from tests.support.client_requests import LATEST, READ_COMMITTED, create_topic, fetch, kept_batches, list_offset, until
from tests.support.copying import only_soaked
from tests.support.cut_off import Relay
from tests.support.transactions import TransactionalProducer, find_transaction_coordinator, last_stable_offset
from tests.support.wire import ConnectionClosed, WireClient
from tools.kafka import JAVA_LIBS
from tools.record_transactions import SmallKafka

pytestmark = pytest.mark.long

TURNS = (Kafkapy, SmallKafka) * (1 if SOAK_FACTOR == 1 else 3)
TOPIC = "orders"
PROPERTIES = {"transaction.state.log.num.partitions": "1"}
TRANSACTION_TIMEOUT_MS = 600_000
"""What is left open must still be so when the other broker has started."""
ENDS = {TransactionState.PREPARE_COMMIT: "CompleteCommit", TransactionState.PREPARE_ABORT: "CompleteAbort"}


class Swapping:
    """Transactions under way, and what a read_committed consumer must see, in the order of its offsets."""

    def __init__(self, transaction_version: int) -> None:
        self._is_bumping = transaction_version == 2
        self._open: list[TransactionalProducer] = []
        self.decided: dict[str, TransactionState] = {}
        self._values: list[tuple[str, bytes]] = []
        """Transactional id and value of every record, as they were written."""
        self._committed: set[str] = set()

    def check(self, client: WireClient) -> None:
        """End what the other broker left open, and look at all that there is."""
        self._check_decided(client)
        self._carry_on(client)
        expected = [value for transactional_id, value in self._values if transactional_id in self._committed]
        assert committed_values(client) == expected
        assert last_stable_offset(client, TOPIC) == list_offset(client, TOPIC, LATEST).offset

    def leave_open(self, client: WireClient, turn: int) -> None:
        self._open = [self._begun(client, f"open-{turn}-{number}") for number in range(2)]

    def leave_decided(
        self, client: WireClient, turn: int, *states: TransactionState, cut: Callable[[], None] = lambda: None
    ) -> None:
        """Decide transactions that get no marker; the broker may die of it."""
        deciding = [(state, self._begun(client, f"decided-{turn}-{state.name}")) for state in states]
        cut()
        for state, producer in deciding:
            self.decided[producer.transactional_id] = state
            self._end(producer, commit=state is TransactionState.PREPARE_COMMIT)

    def _begun(self, client: WireClient, transactional_id: str) -> TransactionalProducer:
        producer = TransactionalProducer(client, transactional_id)
        assert producer.init(timeout_ms=TRANSACTION_TIMEOUT_MS) == 0
        self._send(producer)
        return producer

    def _send(self, producer: TransactionalProducer) -> None:
        if not self._is_bumping:
            assert set(producer.add(TOPIC).values()) == {0}
        value = f"{producer.transactional_id} {len(self._values)}".encode()
        assert producer.send(TOPIC, value, version=12 if self._is_bumping else 11) == 0
        self._values.append((producer.transactional_id, value))

    def _end(self, producer: TransactionalProducer, *, commit: bool) -> None:
        assert producer.end(commit=commit, version=5 if self._is_bumping else 4) == 0

    def _carry_on(self, client: WireClient) -> None:
        """End what the other broker left open: one is committed, one aborted."""
        for number, producer in enumerate(self._open):
            producer.reconnect(client)
            state = described(client, producer.transactional_id)
            assert (state.transaction_state, state.producer_id) == ("Ongoing", producer.producer_id)
            assert state.producer_epoch == producer.epoch
            self._send(producer)
            self._end(producer, commit=number == 0)
            if number == 0:
                self._committed.add(producer.transactional_id)
            until(lambda: described(client, producer.transactional_id).transaction_state in ENDS.values())  # noqa: B023

    def _check_decided(self, client: WireClient) -> None:
        """What the other broker decided ends as it was decided."""
        for transactional_id, state in self.decided.items():
            until(lambda: described(client, transactional_id).transaction_state == ENDS[state])  # noqa: B023
            if state is TransactionState.PREPARE_COMMIT:
                self._committed.add(transactional_id)
        self.decided.clear()


def committed_values(client: WireClient) -> list[bytes | None]:
    """Read to the last stable offset: a fetch ends where a segment does."""
    values: list[bytes | None] = []
    offset, end_offset = 0, last_stable_offset(client, TOPIC)
    while offset < end_offset:
        response = fetch(client, TOPIC, offset, isolation_level=READ_COMMITTED, max_wait_ms=0)
        values += [record.value for batch in kept_batches(response) for record in batch.records()]
        offset = list(batches(response.records))[-1].next_offset
    return [None if value is None else bytes(value) for value in values]


def described(client: WireClient, transactional_id: str):
    (state,) = client.call(DescribeTransactionsRequest([transactional_id]), 0).transaction_states
    return state


@pytest.mark.skipif(not JAVA_LIBS.is_dir(), reason="Apache Kafka's jars are missing: run `make tools`")
@pytest.mark.parametrize("transaction_version", [*(pytest.param(each, marks=only_soaked) for each in (0, 1)), 2])
def test_each_broker_carries_on_the_transactions_of_the_other(tmp_path: Path, transaction_version: int) -> None:
    swapping = Swapping(transaction_version)
    directory = tmp_path / "data"
    format_directory(directory, transaction_version)
    for turn, kind in enumerate(TURNS):
        is_odd = (turn // 2 + transaction_version) % 2 == 1
        if kind is SmallKafka:
            take_apaches_turn(directory, swapping, turn, signal.SIGTERM if is_odd else signal.SIGKILL)
        else:
            take_our_turn(directory, swapping, turn, list(ENDS)[is_odd])
        found = states_in(directory)
        assert {each: found[each] for each in swapping.decided} == swapping.decided
    with Kafkapy(directory, PROPERTIES) as server, ready(server, len(TURNS)) as client:
        swapping.check(client)


def take_apaches_turn(directory: Path, swapping: Swapping, turn: int, with_signal: signal.Signals) -> None:
    with ExitStack() as stack:
        port = free_port()
        relay = stack.enter_context(Relay(port))
        server = SmallKafka(directory)
        stack.callback(server.stop, signal.SIGKILL)
        server.properties = {**PROPERTIES, **listeners_behind(relay, server, port)}
        server.prepare()
        with ready(server.start(), turn) as client:
            swapping.check(client)
            swapping.leave_open(client, turn)
            if with_signal is signal.SIGKILL:
                swapping.leave_decided(client, turn, *ENDS, cut=relay.cut)
            for transactional_id, state in swapping.decided.items():
                assert described(client, transactional_id).transaction_state == state.shown_name
        server.stop(with_signal)


def listeners_behind(relay: Relay, server: SmallKafka, port: int) -> dict[str, str]:
    """Return the keys with which the broker reaches itself through the relay only."""
    clients = f"PLAINTEXT://127.0.0.1:{server.port}"
    return {
        "listeners": f"{clients},INTERNAL://127.0.0.1:{port},CONTROLLER://127.0.0.1:{server.controller_port}",
        "advertised.listeners": f"{clients},INTERNAL://127.0.0.1:{relay.port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
    }


def take_our_turn(directory: Path, swapping: Swapping, turn: int, state: TransactionState) -> None:
    """`state`: of the transaction that it decides last, and dies of."""
    server = Kafkapy(directory, PROPERTIES)
    with ExitStack() as stack:
        stack.callback(server.stop)
        with ready(server.start(), turn) as client:
            swapping.check(client)
    die_at("transaction.prepare.after_append=kill", directory, lambda client: leave_all(client, swapping, turn, state))
    die_at("quorum.log.after_append=kill@3", directory)


def leave_all(client: WireClient, swapping: Swapping, turn: int, state: TransactionState) -> None:
    swapping.leave_open(client, turn)
    with suppress(ConnectionClosed):
        swapping.leave_decided(client, turn, state)


def die_at(point: str, directory: Path, act: Callable[[WireClient], None] | None = None) -> None:
    """Start kafkapy and let it kill itself at a failpoint.

    One dies where its registration is in the metadata log, which takes it the leadership of all partitions. An Apache
    Kafka that finds itself their leader loads coordinators before its own registration takes the leaders away, takes a
    partition without a leader for one of a deleted topic, and completes transactions without their markers
    (TransactionMarkerChannelManager, KRaftMetadataCache.getPartitionLeaderEndpoint).
    """
    server = Kafkapy(directory, PROPERTIES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, point)
        server.launch()
    assert server.process is not None
    try:
        if act is not None:
            server.wait_until_ready(180)
            with ready(server, 1) as client:
                act(client)
        assert server.process.wait(120) == -signal.SIGKILL
    finally:
        server.stop(signal.SIGKILL)


def ready(server: Server, turn: int) -> WireClient:
    """Return a client of a broker that coordinates transactions, and has the topic."""
    client = WireClient(server.bootstrap)
    if turn == 0:
        create_topic(client, TOPIC)
    find_transaction_coordinator(client, "any")
    until(lambda: described(client, "nobody").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    return client


def states_in(directory: Path) -> dict[str, TransactionState]:
    """Return the last state of each transactional id in the log of the coordinator, which does not run."""
    data = (directory / "__transaction_state-0" / f"{0:020}.log").read_bytes()
    found: dict[str, TransactionState] = {}
    for batch in batches(data):
        for record in batch.records():
            decoded = decode_record(record.key, record.value)
            if decoded is not None and decoded.metadata is not None:
                found[decoded.transactional_id] = decoded.metadata.state
    return found


def format_directory(directory: Path, transaction_version: int) -> None:
    """Format for both brokers: voters in the log, as both write them."""
    controller = "127.0.0.1:9093"
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://127.0.0.1:0,CONTROLLER://{controller}",
        "controller.quorum.bootstrap.servers": controller,
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(directory),
    }
    file = Path(f"{directory}.properties")
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    arguments = ["storage", "format", "-t", CLUSTER_ID, "-c", str(file), "--standalone"]
    arguments += ["--feature", f"transaction.version={transaction_version}"]
    subprocess.run([sys.executable, "-m", "kafkapy", *arguments], check=True, capture_output=True)
