"""One directory, both brokers, a queue whose records are in flight when they change places.

What one broker's members accepted does not come again on the other; what they released, or had in their hands, does.
Each is stopped in order, or killed. Apache Kafka is 4.4.0, and 4.3.1.
"""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.servers import CLUSTER_ID, ApacheKafka, Kafkapy, Server
from tests.support import java_tools
from tests.support.client_requests import batch_of, create_topic, produce, until
from tests.support.copying import only_soaked
from tests.support.group_configs import set_group_configs
from tests.support.offsets import find_coordinator
from tests.support.quick_kafka import QuickKafka, QuickPreviousKafka
from tests.support.share_members import ShareMember
from tests.support.wire import WireClient
from tools.kafka import KAFKA_VERSION, PREVIOUS_VERSION

pytestmark = [
    pytest.mark.long,
    pytest.mark.ours,
    pytest.mark.skipif(not java_tools.are_here(), reason="Apache Kafka's jars are missing: run `make tools`"),
]

TOPIC = GROUP = "jobs"
RECORDS = 12
"""Produced in each turn."""
ACCEPT, RELEASE, REJECT = 1, 2, 3
PROPERTIES = {
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "offsets.topic.num.partitions": "1",
}


class Queue:
    """What the brokers must know of each record: how often it was delivered for certain, and at most."""

    def __init__(self) -> None:
        self.topic_id = b""
        self.left: dict[int, tuple[int, int]] = {}
        self._end = 0
        self._turn = 0

    def go_on(self, client: WireClient) -> None:
        """Join, receive all that is left, and leave a third of it in flight."""
        if not self.topic_id:
            self.topic_id = create_topic(client, TOPIC)
            set_group_configs(client, GROUP, share_auto_offset_reset="earliest", share_delivery_count_limit="10")
        find_coordinator(client, GROUP)
        self._turn += 1
        until(lambda: produce(client, TOPIC, batch_of(RECORDS)) is not None)
        self.left |= dict.fromkeys(range(self._end, self._end + RECORDS), (0, 0))
        self._end += RECORDS
        member = ShareMember(client, GROUP, self.topic_id, f"m{self._turn}")
        member.join(TOPIC)
        got: dict[int, int] = {}
        while len(got) < len(self.left):
            for first, last, count in member.acquire(100):
                got |= dict.fromkeys(range(first, last + 1), count)
        assert got.keys() == self.left.keys()
        for offset, count in got.items():
            least, most = self.left[offset]
            assert least < count <= most + 1, f"{offset} came for the {count}th time, known of {least} to {most}"
        self._acknowledge(member, got)

    def _acknowledge(self, member: ShareMember, got: dict[int, int]) -> None:
        for number, (offset, count) in enumerate(sorted(got.items())):
            kind = (ACCEPT, RELEASE, REJECT, 0, 0, ACCEPT)[number % 6]
            if kind == 0:  # in flight: whether its end is written depends on how the broker stops
                self.left[offset] = (self.left[offset][0], count)
                continue
            (topic,) = member.send_acknowledgements((offset, offset, [kind])).responses
            assert topic.partitions[0].error_code == 0
            if kind == RELEASE:
                self.left[offset] = (count, count)
            else:
                del self.left[offset]


@pytest.mark.parametrize(
    "kafka",
    [
        pytest.param(QuickKafka, id=KAFKA_VERSION),
        pytest.param(QuickPreviousKafka, marks=only_soaked, id=PREVIOUS_VERSION),
    ],
)
def test_each_broker_goes_on_with_the_queue_of_the_other(kafka: type[ApacheKafka], tmp_path: Path) -> None:
    directory, queue = tmp_path / "data", Queue()
    format_directory(directory, kafka)
    turns = [
        (Kafkapy, signal.SIGKILL),
        (kafka, signal.SIGKILL),
        (Kafkapy, signal.SIGTERM),
        (kafka, signal.SIGTERM),
        (Kafkapy, signal.SIGTERM),
    ]
    for kind, with_signal in turns:
        server: Server = kind(directory, PROPERTIES)
        server.prepare()
        server.start()
        try:
            with WireClient(server.bootstrap) as client:
                queue.go_on(client)
                server.stop(with_signal)
        finally:
            server.stop(signal.SIGKILL)
    assert len(queue.left) > RECORDS / 2


def format_directory(directory: Path, kafka: type[ApacheKafka]) -> None:
    """Format for both brokers: voters in the log, as both write them."""
    level = ["--release-version", "4.3"] if kafka.version == PREVIOUS_VERSION else []
    command = [sys.executable, "-m", "kafkapy", "storage", "format", "--standalone", "-t", CLUSTER_ID, *level]
    properties = kafka(directory, PROPERTIES)
    properties.write_properties()
    subprocess.run([*command, "-c", str(properties.properties_file)], check=True, capture_output=True)
