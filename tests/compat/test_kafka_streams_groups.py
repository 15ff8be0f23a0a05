"""Kafka Streams 4.4.0 with both group protocols: a join and a windowed sum, over instances that come and are killed.

StreamsJoin.java joins orders with the regions of customers, and sums the amounts by region and minute, with
exactly_once_v2 and a standby. Whatever happens, its last sums are those of a plain computation.
"""

import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from harness.nodes import ThreeNodes
from harness.servers import ApacheKafka, Kafkapy, Server
from kafkapy.protocol.messages.list_groups_request import ListGroupsRequest
from tests.compat.conftest import new_server
from tests.compat.test_transactions import create
from tests.support import topics
from tests.support.copying import only_soaked
from tests.support.eventually import eventually
from tests.support.streams_applications import Instance
from tests.support.streams_members import describe
from tests.support.wire import WireClient
from tools.kafka import STREAMS_LIBS

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not STREAMS_LIBS.is_dir() or shutil.which("java") is None, reason="`make tools` brings the jars"
    ),
]
KIND = ApacheKafka if os.environ.get("KAFKAPY_COMPAT_SERVER") == "apache" else Kafkapy

PROGRAM = Path(__file__).with_name("StreamsJoin.java")
APPLICATION = "joining"
PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.streams.min.session.timeout.ms": "3000",
    "group.streams.session.timeout.ms": "3000",
    "group.streams.min.heartbeat.interval.ms": "500",
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.initial.rebalance.delay.ms": "500",
    "group.streams.num.standby.replicas": "1",
    "group.streams.num.warmup.replicas": "1",
    "group.streams.acceptable.recovery.lag": "0",
    "group.streams.min.task.offset.interval.ms": "3000",
    "group.streams.task.offset.interval.ms": "3000",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
CLASSIC = ("group.protocol=classic", "num.standby.replicas=1", "session.timeout.ms=3000", "heartbeat.interval.ms=500")
PROTOCOLS = {"classic": CLASSIC, "streams": ("group.protocol=streams",)}
PARTITIONS = 3
CUSTOMERS = 20
REGIONS = ("north", "south", "east", "west")
MINUTE_MS = 60_000
MINUTES = 10
ORDERS = 400
"""Between two events."""
TIMEOUT_S = 300


OF_THREE_NODES = {
    **PROPERTIES,
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Server]:
    with new_server(tmp_path / "data", PROPERTIES) as running:
        create(running.bootstrap, "orders", "customers", "sums", partition_count=PARTITIONS)
        yield running


def new_instance(bootstrap: str, directory: Path, protocol: str, guarantee: str = "exactly_once_v2") -> Instance:
    arguments = [bootstrap, APPLICATION, str(directory / "state"), f"processing.guarantee={guarantee}"]
    return Instance(PROGRAM, directory, *arguments, *PROTOCOLS[protocol], heap="128m")


class Shop:
    """Sends orders, and keeps their plain sums beside those that the application has committed."""

    def __init__(self, bootstrap: str) -> None:
        self._random = random.Random(1071)
        self._producer = Producer({"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 200, "log_level": 0})
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed", "log_level": 0}
        )
        self._consumer.assign([TopicPartition("sums", number, 0) for number in range(PARTITIONS)])
        self.regions = {f"customer-{number}": REGIONS[number % len(REGIONS)] for number in range(CUSTOMERS)}
        self._start_ms = (int(time.time()) // 60 - MINUTES) * MINUTE_MS  # older records would be deleted
        for customer, region in self.regions.items():
            self._producer.produce("customers", region, customer, timestamp=self._start_ms - 1)
        assert self._producer.flush(60) == 0
        self.expected: Counter[str] = Counter()
        self.found: dict[str, int] = {}

    def order(self, count: int = ORDERS) -> None:
        for _ in range(count):
            customer, amount = self._random.choice(list(self.regions)), self._random.randint(1, 1000)
            minute_ms = self._start_ms + self._random.randrange(MINUTES) * MINUTE_MS
            timestamp_ms = minute_ms + self._random.randrange(MINUTE_MS)
            self._producer.produce("orders", str(amount), customer, timestamp=timestamp_ms)
            self.expected[f"{self.regions[customer]}@{minute_ms}"] += amount
        assert self._producer.flush(60) == 0

    def wait_for_sums(self, *instances: Instance, may_repeat: bool = False) -> None:
        """Wait until the sums are those expected; `may_repeat`: or more, because orders were counted twice."""
        deadline = time.monotonic() + TIMEOUT_S
        while self.found != self.expected and not (may_repeat and self._are_all_counted()):
            for instance in instances:
                assert not instance.has_ended(), f"the application ended:\n{instance.printed()}"
            assert time.monotonic() < deadline, (
                f"{len(self.found)} of {len(self.expected)} sums: {[each.printed() for each in instances]}"
            )
            for message in self._consumer.consume(1000, 0.2):
                if message.error() is None:
                    self.found[message.key().decode()] = int(message.value())

    def _are_all_counted(self) -> bool:
        return all(self.found.get(key, 0) >= total for key, total in self.expected.items())

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_sums_are_exact_while_instances_come_and_are_killed(broker: Server, protocol: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        shop = stack.enter_context(closing(Shop(broker.bootstrap)))
        shop.order()
        first = stack.enter_context(closing(new_instance(broker.bootstrap, tmp_path / "first", protocol)))
        shop.wait_for_sums(first)
        second = stack.enter_context(closing(new_instance(broker.bootstrap, tmp_path / "second", protocol)))
        shop.order()
        shop.wait_for_sums(first, second)
        if protocol == "streams":
            check_reports(broker)
        first.kill()
        shop.order()
        shop.wait_for_sums(second)
    found = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=60).topics
    internal = {f"{APPLICATION}-{each}" for each in ("by-region-repartition", "sums-changelog", "regions-changelog")}
    assert internal <= found.keys()


@pytest.mark.parametrize("protocol", [pytest.param("classic", marks=only_soaked), "streams"])
def test_at_least_once_counts_all_and_twice_only_after_a_kill(broker: Server, protocol: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        shop = stack.enter_context(closing(Shop(broker.bootstrap)))
        first, second = (
            stack.enter_context(closing(new_instance(broker.bootstrap, tmp_path / name, protocol, "at_least_once")))
            for name in ("first", "second")
        )
        for _ in range(2):
            shop.order()
            shop.wait_for_sums(first, second)
        shop.order()
        first.kill()
        shop.wait_for_sums(second, may_repeat=True)


def check_reports(broker: Server) -> None:
    """Wait until each of two members is described with how far its copies are, as it has reported.

    No task is warmed up, as in Apache Kafka 4.4.0: its AssignmentRefiner is empty.
    """
    with WireClient(broker.bootstrap) as client:

        def has_each_reported() -> bool:
            members = describe(client, APPLICATION).members
            assert not [each for each in members if each.assignment.warmup_tasks or each.target_assignment.warmup_tasks]
            return len(members) == 2 and all(map(has_reported, members))

        eventually(has_each_reported, TIMEOUT_S)


def has_reported(member: Any) -> bool:
    """Whether a member has copies, and has told how far each of them is."""
    copies = {(each.subtopology_id, number) for each in member.assignment.standby_tasks for number in each.partitions}
    return bool(copies) and copies <= {(each.subtopology_id, each.partition) for each in member.task_offsets}


@only_soaked  # more than a minute
def test_the_protocol_is_changed_while_all_are_stopped(broker: Server, tmp_path: Path) -> None:
    with closing(Shop(broker.bootstrap)) as shop:
        for protocol in ("classic", "streams", "classic"):
            shop.order()
            with ExitStack() as stack:
                instances = [
                    stack.enter_context(closing(new_instance(broker.bootstrap, tmp_path / name, protocol)))
                    for name in ("first", "second")
                ]
                shop.wait_for_sums(*instances)
                for instance in instances:
                    instance.stop()
            eventually(lambda: is_empty(broker))  # else the other protocol is refused, as by Apache Kafka


def is_empty(broker: Server) -> bool:
    """Whether the application's group has no members any more."""
    with WireClient(broker.bootstrap) as client:
        groups = client.call(ListGroupsRequest(states_filter=["Empty"]), 5).groups
    return any(group.group_id == APPLICATION for group in groups)


def test_sums_are_exact_while_nodes_of_three_are_killed(tmp_path: Path) -> None:
    with ExitStack() as stack:
        cluster = stack.enter_context(ThreeNodes(KIND, tmp_path, OF_THREE_NODES, heap="256m"))
        topics.create(cluster.bootstrap, "orders", "customers", "sums", partitions=PARTITIONS, replicas=3)
        shop = stack.enter_context(closing(Shop(cluster.bootstrap)))
        shop.order()
        instances = [
            stack.enter_context(closing(new_instance(cluster.bootstrap, tmp_path / name, "streams")))
            for name in ("first", "second")
        ]
        shop.wait_for_sums(*instances)
        for node in cluster.nodes[:2]:
            node.stop(signal.SIGKILL)
            shop.order()
            shop.wait_for_sums(*instances)
            node.start()
        shop.order()
        shop.wait_for_sums(*instances)
