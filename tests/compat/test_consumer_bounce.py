"""Apache Kafka's own ConsumerBounceTest, of its test jars, with brokers that are processes of this machine.

It kills and restarts a broker ten times while a consumer of group.protocol=consumer reads and commits.

The client has a race (test_leader_moves.py): "Cannot set a new position without a valid current position" if it learns
of a new leader epoch while it collects records, whoever's brokers they are. Here that takes a session of 300 ms that
expires though its broker lives, as on a loaded machine: 2 of 20 runs failed at a load of 20 on two cores. There a run
met FENCED_LEADER_EPOCH 10 times from kafkapy, and as often from Apache Kafka, of whose runs 3 of 9 failed for other
reasons: the group was not there, or a position or a committed offset was wrong. What a broker that stops does to parked
fetches is the same on both (test_parked_at_stop.py).

`make soak` runs it with both clients; KAFKAPY_COMPAT_SERVER=apache against processes of Apache Kafka, for comparison.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.nodes import BROKER, CONTROLLER, Nodes, Plan
from harness.servers import ApacheKafka, Kafkapy
from tests.support.copying import only_soaked
from tools.kafka import KAFKA_VERSION, PREVIOUS_VERSION, TOOLS, kafka_libs
from tools.maven import maven_copy

KIND = ApacheKafka if os.environ.get("KAFKAPY_COMPAT_SERVER") == "apache" else Kafkapy
IDS = (0, 1, 2)
CONTROLLER_ID = 3000
SOURCE = Path(__file__).with_name("ConsumerBounce.java")
LIBS = TOOLS / f"kafka-consumer-bounce-{PREVIOUS_VERSION}"
"""Maven has no test jars of 4.4.0."""
JARS = [
    *(
        ("org.apache.kafka", f"kafka-{name}", PREVIOUS_VERSION, "test")
        for name in ("clients", "server-common", "server")
    ),
    ("org.apache.kafka", "kafka-clients-integration-tests", PREVIOUS_VERSION, "test"),
    ("org.apache.kafka", "kafka-test-common-runtime", PREVIOUS_VERSION, ""),
]
PROPERTIES = {
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
    "group.min.session.timeout.ms": "10",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "log.initial.task.delay.ms": "100",
    "controlled.shutdown.enable": "false",
    "unclean.leader.election.enable": "true",
    "unclean.leader.election.interval.ms": "50",
    "file.delete.delay.ms": "1000",
    "broker.heartbeat.interval.ms": "50",
    "broker.session.timeout.ms": "300",
}
"""Those of the test, without what bounds groups."""
RUNS = int(os.environ.get("KAFKAPY_SOAK_SEEDS", "1"))
START_S = 180

pytestmark = [
    pytest.mark.long,
    only_soaked,
    pytest.mark.skipif(shutil.which("javac") is None, reason="needs a JDK"),
]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    plans = [Plan(KIND, CONTROLLER_ID, CONTROLLER), *(Plan(KIND, node_id, BROKER) for node_id in IDS)]
    with Nodes(plans, tmp_path, PROPERTIES, heap="256m") as running:
        yield running


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What runs the test, beside the classes of whose package it is."""
    if not LIBS.exists():
        maven_copy(JARS, LIBS)
    target = tmp_path_factory.mktemp("classes")
    subprocess.run(["javac", "-cp", f"{LIBS}/*", "-d", str(target), str(SOURCE)], check=True)
    return target


@pytest.mark.parametrize("client", [PREVIOUS_VERSION, KAFKA_VERSION])
def test_async_consumer_consumption_with_broker_failures(nodes: Nodes, classes: Path, client: str) -> None:
    clients = kafka_libs(client) / f"kafka-clients-{client}.jar"
    command = ["java", "-Xmx384m", "-XX:TieredStopAtLevel=1", "-cp", f"{classes}:{clients}:{LIBS}/*"]
    method = "testAsyncConsumerConsumptionWithBrokerFailures"
    arguments = [nodes.bootstrap, ",".join(map(str, IDS)), method, str(RUNS)]
    program = [*command, "org.apache.kafka.clients.consumer.ConsumerBounce", *arguments]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            outcomes = list(outcomes_of(process, nodes))
        finally:
            process.kill()
    assert outcomes == ["passed"] * RUNS


def outcomes_of(process: subprocess.Popen[str], nodes: Nodes) -> Iterator[str]:
    """Stop and start brokers as the process asks; yield the outcome of each run."""
    assert process.stdin is not None
    assert process.stdout is not None
    for line in process.stdout:
        what, _, rest = line.strip().partition(" ")
        if what in ("passed", "failed"):
            print(line.strip(), flush=True)
            yield line.strip()
        elif what in ("stop", "start"):
            node = nodes.by_id[int(rest)]
            node.stop() if what == "stop" else node.start(START_S)
            process.stdin.write("done\n")
            process.stdin.flush()
