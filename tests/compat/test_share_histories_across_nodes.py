"""A share group on three nodes in trouble, which lose their leaders, too: ours, and ours beside Apache Kafka's.

As test_share_histories.py, with producers of transactions all the time. In a mixed cluster share partitions are led,
and their states and their group coordinated, by nodes of both kinds.

KAFKAPY_SOAK_SEEDS: 20,000 records, and more faults; Apache Kafka 4.3.1 in a cluster with ours, too.
"""

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from harness.nodes import Kind, ThreeNodes
from harness.servers import ApacheKafka, Kafkapy, PreviousKafka, Server
from kafkapy.protocol.messages.elect_leaders_request import ElectLeadersRequest
from tests.compat.test_share_groups import begin_with_the_first
from tests.compat.test_share_histories import GROUP, GROUP_KEYS, LIMIT, assert_all_is_done_right, makes
from tests.support import java_tools, topics
from tests.support.copying import only_soaked
from tests.support.migrating import served_by
from tests.support.share_history import Place
from tests.support.share_runs import PARTITIONS, Run, Transactions, wait_for
from tests.support.share_runs import PROPERTIES as OF_GROUPS
from tests.support.wire import WireClient

pytestmark = [
    pytest.mark.long,
    pytest.mark.ours,
    pytest.mark.skipif(not java_tools.are_here(), reason="Apache Kafka's jars are missing: run `make tools`"),
]

IS_LONG = "KAFKAPY_SOAK_SEEDS" in os.environ
RECORDS, FAULTS, TIME_S = (20_000, 12, 900) if IS_LONG else (1_500, 3, 180)
PER_TRANSACTION = 40
PREFERRED = 0
PAUSE_S = 5
"""Longer than broker.session.timeout.ms."""
PROPERTIES = {
    **OF_GROUPS,
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "min.insync.replicas": "2",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
}
CLUSTERS = [
    pytest.param([Kafkapy] * 3, id="ours"),
    pytest.param([Kafkapy, ApacheKafka, Kafkapy], id="mixed", marks=only_soaked),
    pytest.param([Kafkapy, PreviousKafka, Kafkapy], id="mixed-4.3.1", marks=only_soaked),
]


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ThreeNodes]:
    kinds: Sequence[Kind] = request.param
    nodes = ThreeNodes(kinds, tmp_path, PROPERTIES, heap="400m" if len(set(kinds)) > 1 else "")
    for node in nodes.nodes:
        if len(set(kinds)) > 1:
            node.format_arguments = served_by(kinds)
    with nodes:
        yield nodes


class Producing:
    """Transactions one after the other, by a thread, until there are enough records."""

    def __init__(self, bootstrap: str) -> None:
        self._transactions = Transactions(bootstrap, GROUP, "jobs")
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._produce)
        self._thread.start()

    def _produce(self) -> None:
        number = 0
        while not self._is_over.is_set() and len(self.committed) < RECORDS:
            number += 1
            self._transactions.produce(PER_TRANSACTION, is_aborted=number % 4 == 0)

    @property
    def committed(self) -> list[Place]:
        return self._transactions.committed

    @property
    def aborted(self) -> list[Place]:
        return self._transactions.aborted

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()


def harmed(cluster: ThreeNodes, dice: random.Random, number: int) -> None:
    """Kill, or pause, one of our nodes, or have the preferred leaders elected."""
    ours = [node for node in cluster.nodes if isinstance(node, Kafkapy)]
    node: Server = dice.choice(ours)
    assert node.process is not None
    fault = number % 3
    if fault == 0:
        node.stop(signal.SIGKILL)
        time.sleep(dice.uniform(0, PAUSE_S))
        node.start()
    elif fault == 1:
        node.process.send_signal(signal.SIGSTOP)
        time.sleep(PAUSE_S)
        node.process.send_signal(signal.SIGCONT)
    else:
        with suppress(OSError), WireClient(node.bootstrap) as client:
            client.call(ElectLeadersRequest(PREFERRED, topic_partitions=None, timeout_ms=30_000), 2)


@pytest.mark.parametrize("cluster", CLUSTERS, indirect=True)
def test_a_queue_on_nodes_in_trouble_loses_nothing_and_repeats_nothing_accepted(
    cluster: ThreeNodes, tmp_path: Path
) -> None:
    bootstrap, dice = cluster.bootstrap, random.Random(1)
    topics.create(bootstrap, GROUP, partitions=PARTITIONS, replicas=3)
    begin_with_the_first(AdminClient({"bootstrap.servers": bootstrap}), GROUP, **GROUP_KEYS)
    is_mixed = any(not isinstance(node, Kafkapy) for node in cluster.nodes)
    members = Run(bootstrap, GROUP, tmp_path, knows_locks=False, replaces_silent=is_mixed)
    with closing(members) as run, closing(Producing(bootstrap)) as producing:
        for make in makes():
            run.begin(make)
        for number in range(FAULTS):
            share = (number + 1) / (FAULTS + 2)
            wait_for(reaches(run, share), TIME_S, lambda: f"{len(run.ended(LIMIT))} ended, {len(producing.committed)}")
            with run.broken_nodes():
                harmed(cluster, dice, number)
            run.alive[number % len(run.alive)].kill()
            run.begin(makes()[number % 4])
        wait_for(lambda: producing.is_done, TIME_S, lambda: f"{len(producing.committed)} records")
        assert_all_is_done_right(run, bootstrap, producing.committed, producing.aborted, TIME_S)
    assert producing.aborted


def reaches(run: Run, share: float) -> Callable[[], bool]:
    return lambda: len(run.ended(LIMIT)) >= share * RECORDS
