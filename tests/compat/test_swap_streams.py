"""kafkapy and Apache Kafka take turns on one directory while a streams group moves tasks between its members.

Each broker waits for the tasks that the other one has told a member to revoke; the change of the broker itself
rebalances nothing. Each broker is stopped by SIGTERM, or killed. Apache Kafka is 4.4.0, and 4.3.1.
"""

import signal
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from harness.servers import ApacheKafka, Kafkapy, Server, free_port
from tests.compat.test_kafka_streams import Feed, create
from tests.compat.test_streams_groups import COUNT, PATIENT, new_instance, read_until
from tests.compat.test_swap_queues import format_directory
from tests.support import java_tools, topics
from tests.support.client_requests import until
from tests.support.copying import only_soaked
from tests.support.quick_kafka import QuickKafka, QuickPreviousKafka
from tests.support.streams_applications import Instance
from tests.support.streams_handover import HANDOVER_KEYS, PARTITIONS, TOPIC, Handover
from tests.support.streams_members import describe
from tests.support.wire import WireClient
from tools.kafka import KAFKA_VERSION, PREVIOUS_VERSION, STREAMS_LIBS

pytestmark = [
    pytest.mark.long,
    pytest.mark.ours,
    pytest.mark.skipif(not java_tools.are_here(), reason="Apache Kafka's jars are missing: run `make tools`"),
]

PROPERTIES = {
    **HANDOVER_KEYS,
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
of_each_version = pytest.mark.parametrize(
    "kafka", [QuickKafka, QuickPreviousKafka], ids=[KAFKA_VERSION, PREVIOUS_VERSION]
)


def turns(kafka: type[ApacheKafka]) -> list[tuple[type[Kafkapy] | type[ApacheKafka], signal.Signals]]:
    return [
        (kafka, signal.SIGKILL),
        (Kafkapy, signal.SIGKILL),
        (kafka, signal.SIGTERM),
        (Kafkapy, signal.SIGTERM),
        (kafka, signal.SIGTERM),
    ]


@of_each_version
def test_each_broker_waits_for_the_tasks_that_the_other_has_called_back(
    kafka: type[ApacheKafka], tmp_path: Path
) -> None:
    directory = tmp_path / "data"
    format_directory(directory, kafka)
    handover = Handover(0 if kafka.version == PREVIOUS_VERSION else 1)
    for kind, with_signal in turns(kafka):
        with kind(directory, PROPERTIES) as server:
            topics.create(server.bootstrap, TOPIC, partitions=PARTITIONS)
            with WireClient(server.bootstrap) as client:
                handover.go_on(client)
                server.stop(with_signal)


@pytest.mark.parametrize(
    "kafka", [QuickKafka, pytest.param(QuickPreviousKafka, marks=only_soaked)], ids=[KAFKA_VERSION, PREVIOUS_VERSION]
)
def test_application_goes_on_while_the_brokers_take_turns(kafka: type[ApacheKafka], tmp_path: Path) -> None:
    """Kafka Streams 4.4.0 with exactly_once_v2 runs on and on; the broker behind its address changes its kind."""
    if not STREAMS_LIBS.is_dir():
        pytest.skip("Kafka Streams' jars are missing: run `make tools`")
    directory, port = tmp_path / "data", free_port()
    format_directory(directory, kafka)
    with ExitStack() as stack:
        feed: Feed | None = None
        for turn, (kind, with_signal) in enumerate(turns(kafka), start=1):
            server = kind(directory, PROPERTIES)
            server.port = port
            stack.enter_context(server)
            if feed is None:
                create(server.bootstrap, "words", "word-counts", partition_count=2)
                feed = stack.enter_context(closing(Feed(server.bootstrap)))
                instances = [
                    stack.enter_context(closing(new_instance(server.bootstrap, tmp_path / name, *PATIENT)))
                    for name in "ab"
                ]
            read_until(feed, turn * COUNT, instances, sending=True)
            check_still_there(server, instances)
            if turn == len(turns(kafka)):
                read_until(feed, feed.sent.total(), instances, sending=False)
            server.stop(with_signal)
        assert feed is not None
        feed.read_counts()
        assert feed.counts == {word: list(range(1, count + 1)) for word, count in feed.sent.items()}


def check_still_there(server: Server, instances: list[Instance]) -> None:
    """Check that no application has ended, and that its four threads are the group's members."""
    assert not [each.printed() for each in instances if each.has_ended()]
    with WireClient(server.bootstrap) as client:
        until(lambda: len(describe(client, "counting", 0).members) == 4)
