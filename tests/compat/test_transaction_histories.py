"""Producers and consumers of both kinds write down what they did and saw while the broker is killed and stopped.

Own clients that speak as since KIP-890 (Produce 12, EndTxn 5), own ones that speak as before, and librdkafka, which
does too; on their own and in pairs that share a transactional id. Meanwhile the broker is killed with -9, ended with
SIGTERM, or suspended for longer than a transaction may take; responses are lost, and transactions left open time out.
The checker finds nothing wrong in the history, and every producer goes on.

KAFKAPY_SOAK_SEEDS multiplies the kills and stops. Apache Kafka 4.3.1 on one node fails this test: when it starts after
a kill it may complete a transaction without its markers (see test_swap_transactions), and the producer's next commit
then commits what was aborted.
"""

import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from harness.servers import Server
from kafkapy.protocol.error_code import ErrorCode
from tests.compat.conftest import new_server
from tests.simulator.crash_enumeration import SOAK_FACTOR
from tests.support.client_requests import READ_COMMITTED, create_topic, until
from tests.support.history import End, Outcome, Recorder, to_lines
from tests.support.history_checker import find_anomalies
from tests.support.offsets import find_coordinator
from tests.support.recording_consumers import (
    ConfluentReader,
    OffsetWatcher,
    WireReader,
    look_at_all,
    observe_group,
    wait_until_stable,
)
from tests.support.recording_producers import (
    PARTITION_COUNT,
    TOPICS,
    TRANSACTION_TIMEOUT_MS,
    ConfluentProducer,
    Counter,
    RecordingProducer,
    WireProducer,
    group_of,
)
from tests.support.transactions import TransactionalProducer
from tests.support.wire import WireClient

pytestmark = pytest.mark.long

TROUBLES = 6 * SOAK_FACTOR
COMMITTED_LEAST = 50 * SOAK_FACTOR
TIMEOUT_S = 600 * SOAK_FACTOR
SEED = 20
PROPERTIES = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300",
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
}
KINDS = ("v2", "v0", "librdkafka")
NOT_LED_YET = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
SHARED = (("v2", "librdkafka"), ("v0", "v2"))
"""Pairs that share a transactional id."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Server]:
    with new_server(tmp_path / "data", PROPERTIES) as running:
        with WireClient(running.bootstrap) as client:
            for topic in TOPICS:
                create_topic(client, topic, PARTITION_COUNT)
            find_coordinator(client, "any")
        yield running


class Cast:
    """All clients of a history."""

    def __init__(self, bootstrap: str, recorder: Recorder) -> None:
        self._common = {"recorder": recorder, "seed": SEED}
        self._bootstrap = bootstrap
        self.producers: list[RecordingProducer] = []
        for kinds in (*((kind,) for kind in KINDS), *SHARED):
            self._add("-and-".join(kinds), kinds)
        self.transactional_ids = sorted({each.transactional_id for each in self.producers})
        self.others = [
            WireReader(bootstrap, recorder, name="committed", isolation_level=READ_COMMITTED),
            WireReader(bootstrap, recorder, name="uncommitted", isolation_level=0),
            ConfluentReader(bootstrap, recorder),
            OffsetWatcher(bootstrap, recorder, self.transactional_ids),
        ]

    def _add(self, transactional_id: str, kinds: tuple[str, ...]) -> None:
        counter = Counter()
        for instance, kind in enumerate(kinds):
            common = {**self._common, "instance": instance, "counter": counter}
            if kind == "librdkafka":
                self.producers.append(ConfluentProducer(self._bootstrap, transactional_id, **common))
            else:
                self.producers.append(WireProducer(self._bootstrap, transactional_id, is_v2=kind == "v2", **common))


def trouble(broker: Server, producers: list[RecordingProducer], random: Random) -> None:
    """End the broker, or suspend it for longer than transactions may take, until everybody has done something."""
    deadline = time.monotonic() + TIMEOUT_S
    for count, kind in enumerate(by_turns(random)):
        time.sleep(random.uniform(0.5, 2.5))
        committed = [each.committed_count for each in producers]
        if count >= TROUBLES and min(committed) > 0 and sum(committed) >= COMMITTED_LEAST:
            return
        assert time.monotonic() < deadline, committed
        assert broker.process is not None
        assert broker.process.poll() is None, "the broker died of itself"
        if kind == signal.SIGSTOP:
            broker.process.send_signal(signal.SIGSTOP)
            time.sleep(random.choice((0.5, 1.5, 2.0)) * TRANSACTION_TIMEOUT_MS / 1000)
            broker.process.send_signal(signal.SIGCONT)
        else:
            broker.stop(kind)
            time.sleep(random.choice((0.0, 0.0, TRANSACTION_TIMEOUT_MS / 1000)))
            broker.start()
        with WireClient(broker.bootstrap) as client:
            goes_on(client, "pace")  # so that something is done between: Apache Kafka is fenced for 9 s after a kill


def by_turns(random: Random) -> Iterator[signal.Signals]:
    while True:
        yield from random.sample((signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP), 3)


def record(broker: Server, recorder: Recorder, cast: Cast) -> None:
    over: list[bool] = []

    def is_over() -> bool:
        return bool(over)

    works: list[Callable[[Callable[[], bool]], None]] = [each.work for each in (*cast.producers, *cast.others)]
    with ThreadPoolExecutor(len(works)) as threads:
        futures = [threads.submit(work, is_over) for work in works]
        try:
            trouble(broker, cast.producers, Random(SEED))
        finally:
            over.append(True)
        for future in futures:
            future.result()
    with WireClient(broker.bootstrap) as client:
        for transactional_id in cast.transactional_ids:
            goes_on(client, transactional_id)
            until(lambda: observe_group(client, recorder, group_of(transactional_id), require_stable=True))  # noqa: B023
        with suppress(AssertionError):
            wait_until_stable(client)  # if not, the checker finds what hangs
        look_at_all(client, recorder)


def goes_on(client: WireClient, transactional_id: str) -> None:
    """Whoever comes next as this transactional id can end a transaction."""
    producer = TransactionalProducer(client, transactional_id)
    assert producer.init() == ErrorCode.NONE
    until(lambda: producer.send("afterwards", version=12) not in NOT_LED_YET)
    assert producer.sequences, "it was refused"
    assert producer.end(commit=True) == ErrorCode.NONE


def test_a_troubled_brokers_history_has_no_anomaly(broker: Server, tmp_path: Path) -> None:
    recorder = Recorder()
    cast = Cast(broker.bootstrap, recorder)
    with WireClient(broker.bootstrap) as client:
        create_topic(client, "afterwards")
    try:
        record(broker, recorder, cast)
    finally:
        history = recorder.events()
        path = tmp_path / "history.jsonl"
        path.write_text("".join(f"{line}\n" for line in to_lines(history)))
    anomalies = find_anomalies(history)
    assert not anomalies, f"{len(anomalies)} in {path}: {anomalies[:10]}"
    outcomes = [event.outcome for event in history if isinstance(event, End)]
    counts = {outcome.value: outcomes.count(outcome) for outcome in Outcome}
    print(counts, {each.name: each.committed_count for each in cast.producers})
    assert counts["aborted"] > 0
