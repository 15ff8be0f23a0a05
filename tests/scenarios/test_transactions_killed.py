"""A broker process kills itself at each step of a transaction's end: what is prepared ends as prepared, everywhere.

Each transaction writes its number to two topics and commits it as a group's offset. Whatever the step, all three have
it or none has; what was acknowledged stays; no partition keeps an open transaction; and every client goes on.
"""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.servers import Kafkapy
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.server.process.failpoints import VARIABLE
from tests.simulator.crash_enumeration import SOAK_FACTOR
from tests.support.client_requests import LATEST, create_topic, list_offset, until
from tests.support.offsets import committed, find_coordinator
from tests.support.transactions import TransactionalProducer, last_stable_offset, read_committed
from tests.support.wire import ConnectionClosed, WireClient

pytestmark = [pytest.mark.long, pytest.mark.ours]

TOPICS = ("left", "right")
GROUP = "copied"
NEW, OLD = "new", "old"
"""Transactional ids: of a client of transaction version 2, and of one before."""
BYSTANDER = "bystander"
"""The transactional id whose first transaction stays open, so that the others' markers are not alone in a partition."""
POINTS = (
    "transaction.prepare.before_append=kill@7",
    "transaction.prepare.after_append=kill@7",
    "transaction.marker.after_append=kill@16",
    "transaction.complete.before_append=kill@6",
)
MORE_POINTS = (
    "transaction.prepare.before_append=kill@6",
    "transaction.prepare.after_append=kill@6",
    "transaction.marker.before_append=kill@17",
    "transaction.marker.before_append=kill@18",
    "transaction.marker.after_append=kill@17",
    "transaction.marker.after_append=kill@18",
    "transaction.complete.after_append=kill@7",
)
"""With KAFKAPY_SOAK_SEEDS: what the others stand for, of the other kind of client or one marker later."""
PREPARED = "transaction.prepare.after_append=kill@6"
WHILE_LOADING = "transaction.load.replayed=kill"
PROPERTIES = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}


class Outcome:
    """What a broker acknowledged over its lives; `open_number`: the transaction under way."""

    def __init__(self) -> None:
        self.committed: set[int] = set()
        self.aborted: set[int] = set()
        self.open_number = -1


def work(client: WireClient, outcome: Outcome, *, has_bystander: bool = False) -> None:
    """Run transactions of both kinds by turns, each third one aborted, until the broker dies.

    has_bystander: with another transaction open in the partitions. Markers are then written in a turn of their own.
    """
    for topic in TOPICS:
        create_topic(client, topic)
    find_coordinator(client, GROUP)
    if has_bystander:
        bystander = TransactionalProducer(client, BYSTANDER)
        assert bystander.init() == ErrorCode.NONE
        for topic in TOPICS:
            assert bystander.send(topic, b"-1", version=12) == ErrorCode.NONE
    producers = [TransactionalProducer(client, NEW), TransactionalProducer(client, OLD)]
    for producer in producers:
        assert producer.init() == ErrorCode.NONE
    for number in range(1000):
        outcome.open_number = number
        is_committed = number % 3 != 2
        write(producers[number % 2], number)
        assert producers[number % 2].end(commit=is_committed, version=1 if number % 2 else 5) == ErrorCode.NONE
        (outcome.committed if is_committed else outcome.aborted).add(number)


def write(producer: TransactionalProducer, number: int) -> None:
    is_new = producer.transactional_id == NEW
    if not is_new:
        assert set(producer.add(*TOPICS, version=0).values()) == {ErrorCode.NONE}
        assert producer.add_offsets(GROUP, version=0) == ErrorCode.NONE
    for topic in TOPICS:
        assert producer.send(topic, b"%d" % number, version=12 if is_new else 10) == ErrorCode.NONE
    assert producer.commit_offset(GROUP, TOPICS[0], number, version=5 if is_new else 3) == ErrorCode.NONE


def check(client: WireClient, outcome: Outcome, *, is_prepared: bool) -> None:
    until(lambda: all(client_goes_on(client, each) for each in (NEW, OLD, BYSTANDER)))
    for topic in TOPICS:
        assert last_stable_offset(client, topic) == list_offset(client, topic, LATEST).offset
    left, right = ([int(value or b"") for value in read_committed(client, topic)] for topic in TOPICS)
    assert left == right == sorted(left)
    assert committed(client, GROUP, TOPICS[0], require_stable=True) == [max(left)]
    assert outcome.committed <= set(left)
    assert not outcome.aborted & set(left)
    assert set(left) <= outcome.committed | {outcome.open_number}
    was_to_be_committed = outcome.open_number % 3 != 2
    assert (outcome.open_number in left) == (is_prepared and was_to_be_committed)


def client_goes_on(client: WireClient, transactional_id: str) -> bool:
    producer = TransactionalProducer(client, transactional_id)
    return producer.init() == ErrorCode.NONE


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Kafkapy]:
    server = Kafkapy(tmp_path / "data", PROPERTIES)
    yield server
    server.stop()


def run_until_killed(
    broker: Kafkapy,
    point: str,
    outcome: Outcome | None,
    monkeypatch: pytest.MonkeyPatch,
    *,
    has_bystander: bool = False,
) -> None:
    monkeypatch.setenv(VARIABLE, point)
    try:
        broker.start()
        if outcome is not None:
            with WireClient(broker.bootstrap) as client:
                work(client, outcome, has_bystander=has_bystander)
    except (ConnectionClosed, OSError, RuntimeError):
        pass  # it died, at its start or later
    process = broker.process
    assert process is None or process.wait(60) == -signal.SIGKILL
    monkeypatch.delenv(VARIABLE)


@pytest.mark.parametrize("has_bystander", [False, True], ids=["alone", "beside an open one"])
@pytest.mark.parametrize("point", POINTS if SOAK_FACTOR == 1 else POINTS + MORE_POINTS)
def test_what_is_prepared_ends_as_prepared(
    broker: Kafkapy, point: str, monkeypatch: pytest.MonkeyPatch, *, has_bystander: bool
) -> None:
    outcome = Outcome()
    run_until_killed(broker, point, outcome, monkeypatch, has_bystander=has_bystander)
    broker.start()
    with WireClient(broker.bootstrap) as client:
        check(client, outcome, is_prepared=not point.startswith("transaction.prepare.before_append"))


def test_what_is_prepared_survives_a_kill_while_it_is_loaded(broker: Kafkapy, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = Outcome()
    run_until_killed(broker, PREPARED, outcome, monkeypatch)
    run_until_killed(broker, WHILE_LOADING, None, monkeypatch)
    run_until_killed(broker, "transaction.marker.after_append=kill@2", None, monkeypatch)
    broker.start()
    with WireClient(broker.bootstrap) as client:
        check(client, outcome, is_prepared=True)
