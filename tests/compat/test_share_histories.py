"""Members of a share group of four makes that accept, release, reject, renew, oversleep and are killed.

Their node is killed, too. What they did is judged by tests/support/share_history.py: nothing accepted comes again, none
is in two hands, none comes too often, none is lost, start and lag are right.

KAFKAPY_SOAK_SEEDS: 20,000 records and more kills.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from harness.servers import Server
from tests.compat.conftest import new_server
from tests.compat.test_share_groups import begin_with_the_first
from tests.support import java_tools, topics
from tests.support.share_history import Act, Breach, Place, Position, Rule, aborted_breaches, breaches, wrong_positions
from tests.support.share_runs import (
    LOCK_S,
    PARTITIONS,
    PROPERTIES,
    Run,
    Transactions,
    all_done,
    positions,
    wait_for,
    why_no_go,
    with_ends,
)

pytestmark = pytest.mark.long

GROUP = "jobs"
LIMIT = 10
"""A client that sleeps may have records that it has not delivered yet: their attempts count, too."""
GROUP_KEYS = {
    "share.partition.max.record.locks": "100",
    "share.isolation.level": "read_committed",
    "share.delivery.count.limit": str(LIMIT),
}
IS_LONG = "KAFKAPY_SOAK_SEEDS" in os.environ
RECORDS, ROUNDS, TIME_S = (20_000, 6, 600) if IS_LONG else (2_000, 1, 180)
MAKES = ["librdkafka", "java", "verifiable", "franz", "librdkafka", "java"]
"""Without Java, or franz-go, librdkafka takes their places."""


def makes() -> list[str]:
    missing = set() if java_tools.are_here() else {"java", "verifiable"}
    missing |= {"franz"} if why_no_go() else set()
    return ["librdkafka" if each in missing else each for each in MAKES]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with new_server(tmp_path / "data", PROPERTIES) as running:
        yield running


def fill(bootstrap: str, count: int, transactions: Transactions | None = None) -> list[Place]:
    """Produce records in many batches, so that each fetch acquires some; return where they are."""
    places: list[Place] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(
            GROUP,
            f"{number}",
            partition=number % PARTITIONS,
            on_delivery=lambda _error, message: places.append((message.partition(), message.offset())),
        )
        if number % 50 == 0:
            producer.flush(60)
            if transactions is not None:
                transactions.produce(8, is_aborted=number % 150 == 0)
    assert producer.flush(60) == 0
    return places


def log_ends(bootstrap: str) -> dict[int, int]:
    with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": "ends"})) as consumer:
        return {
            partition: consumer.get_watermark_offsets(TopicPartition(GROUP, partition), timeout=30)[1]
            for partition in range(PARTITIONS)
        }


def judged(run: Run, sent: list[Place]) -> list[Breach]:
    return breaches(run.events, sent, lock_s=LOCK_S, limit=LIMIT)


def check_end(run: Run, bootstrap: str, sent: list[Place], aborted: list[Place], time_s: float) -> None:
    """Wait until nothing is left to do; check what the members have printed, and where the group is."""

    def standing() -> dict[int, Position]:
        return with_ends(positions(GROUP, bootstrap), log_ends(bootstrap))

    def state() -> str:
        return f"{standing()}\nalive: {[each.name for each in run.alive]}\n{run.told(judged(run, sent))}"

    wait_for(lambda: all_done(run, GROUP, bootstrap), time_s, state)
    wait_for(lambda: Rule.LOST not in {each.rule for each in judged(run, sent)}, 20, state)  # all is printed
    found = [*judged(run, sent), *aborted_breaches(run.events, aborted)]
    assert found == [], run.told(found)
    ended = standing()
    assert wrong_positions(ended) == [], ended


def test_members_and_a_node_that_are_killed_lose_nothing_and_repeat_nothing_accepted(
    server: Server, tmp_path: Path
) -> None:
    bootstrap = server.bootstrap
    topics.create(bootstrap, GROUP, partitions=PARTITIONS)
    begin_with_the_first(AdminClient({"bootstrap.servers": bootstrap}), GROUP, **GROUP_KEYS)
    transactions = Transactions(bootstrap, GROUP, "jobs")
    with closing(Run(bootstrap, GROUP, tmp_path, knows_locks=True)) as run:
        for make in makes():
            run.begin(make)
        sent = fill(bootstrap, RECORDS, transactions) + transactions.committed
        for number in range(ROUNDS):
            share = (number + 1) / (ROUNDS + 1)
            wait_for(lambda share=share: len(run.ended(LIMIT)) >= share * len(sent), TIME_S)
            run.alive[number % len(run.alive)].kill()
            with run.broken_nodes():
                server.stop(signal.SIGKILL)
                server.start()
            run.begin(makes()[number % len(MAKES)])

        check_end(run, bootstrap, sent, transactions.aborted, TIME_S)
        acts = {event.act for event in run.events}
        by_make = {each.make for each in run.members if any(event.act is Act.ACCEPT for event in each.events)}
    assert acts >= {Act.ACCEPT, Act.RELEASE, Act.REJECT, Act.GONE}
    assert transactions.aborted
    assert by_make >= {"librdkafka"}
