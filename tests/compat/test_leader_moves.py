"""Java's consumer of group.protocol=consumer reads while leaderships move between brokers that live.

The client has a race. Its application's thread collects records that were fetched: `FetchCollector.fetchRecords` asks
whether the position is valid, takes up to max.poll.records, and sets the position after them. Between the two its
network thread may learn of a new leader epoch and have the position validated (`AsyncPollEvent` after a Metadata
response: `PositionsValidator`; a fetch answered FENCED_LEADER_EPOCH or NOT_LEADER_OR_FOLLOWER with the new leader:
`AbstractFetch.handleFetchSuccess`). Then poll() throws IllegalStateException "Cannot set a new position without a valid
current position". Whoever seeks to the record after the last one and polls again loses nothing.

So it takes a leadership that moves while its old leader still serves: a controlled shutdown, an election, a
reassignment, or a session that expires though the broker lives (ConsumerBounceTest has one of 300 ms). When a leader
dies, its records are collected before another one is known.

It is the client's alone. Of 200 moves, on two cores at a load of 40, the client 4.3.1 threw at 4 here and at 5 with
three brokers of Apache Kafka 4.4.0, the client 4.4.0 at 4 with either. KAFKAPY_COMPAT_SERVER=apache runs it there.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.nodes import BROKER, CONTROLLER, Nodes, Plan
from harness.servers import ApacheKafka, Kafkapy, java
from tests.support.copying import only_soaked
from tools.kafka import KAFKA_VERSION, PREVIOUS_VERSION, kafka_libs

KIND = ApacheKafka if os.environ.get("KAFKAPY_COMPAT_SERVER") == "apache" else Kafkapy
MOVES = 200
RACE = "Cannot set a new position without a valid current position"
SOURCE = Path(__file__).with_name("LeaderMoves.java")

pytestmark = [pytest.mark.long, only_soaked, pytest.mark.skipif(shutil.which("javac") is None, reason="needs a JDK")]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    plans = [Plan(KIND, 3000, CONTROLLER), *(Plan(KIND, node_id, BROKER) for node_id in range(3))]
    with Nodes(plans, tmp_path, {"auto.leader.rebalance.enable": "false"}, heap="256m") as running:
        yield running


@pytest.mark.parametrize("client", [PREVIOUS_VERSION, KAFKA_VERSION])
def test_a_reader_misses_nothing_while_leaderships_move(nodes: Nodes, client: str) -> None:
    command = java(str(SOURCE), nodes.bootstrap, str(MOVES), heap="384m", libs=[kafka_libs(client)])
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (line,) = [each for each in output.splitlines() if each.startswith("read ")]
    print(f"\nclient {client}, {MOVES} moves: {line}")
    read, thrown = line.removeprefix("read ").split(" thrown ")
    assert int(read) >= 20_000
    assert thrown == "{}" or (thrown.startswith("{" + RACE) and "," not in thrown), "nothing but the client's race"
