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
from tests.support.copying import IS_SOAKED, only_soaked
from tests.support.quick_kafka import QuickKafka, QuickPreviousKafka
from tests.support.streams_handover import HANDOVER_KEYS, PARTITIONS, TOPIC, Handover
from tests.support.streams_members import describe
from tests.support.wire import WireClient
from tools.kafka import KAFKA_VERSION, PREVIOUS_VERSION, STREAMS_LIBS

pytestmark = [
    pytest.mark.long,
    pytest.mark.ours,
    pytest.mark.skipif(not java_tools.are_here(), reason="Apache Kafka's jars are missing: run `make tools`"),
    pytest.mark.skipif(not STREAMS_LIBS.is_dir(), reason="Kafka Streams' jars are missing: run `make tools`"),
]

PROPERTIES = {
    **HANDOVER_KEYS,
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


def turns(kafka: type[ApacheKafka]) -> list[tuple[type[Kafkapy] | type[ApacheKafka], signal.Signals]]:
    return [
        (kafka, signal.SIGKILL),
        (Kafkapy, signal.SIGKILL),
        (kafka, signal.SIGTERM),
        (Kafkapy, signal.SIGTERM),
        (kafka, signal.SIGTERM),
    ]


@pytest.mark.parametrize(
    "kafka",
    [
        pytest.param(QuickKafka, id=KAFKA_VERSION),
        pytest.param(QuickPreviousKafka, marks=only_soaked, id=PREVIOUS_VERSION),
    ],
)
def test_members_and_an_application_go_on_while_the_brokers_take_turns(
    kafka: type[ApacheKafka], tmp_path: Path
) -> None:
    """Each broker waits for the tasks that the other has told a member to revoke, and counts stay exact.

    They are those of Kafka Streams 4.4.0 with exactly_once_v2, which runs on and on; the broker behind its address
    changes its kind. Beside 4.3.1 it runs only by make soak.
    """
    directory, port = tmp_path / "data", free_port()
    format_directory(directory, kafka)
    handover = Handover(0 if kafka.version == PREVIOUS_VERSION else 1)
    application: Application | None = None
    with ExitStack() as stack:
        for turn, (kind, with_signal) in enumerate(turns(kafka), start=1):
            server = kind(directory, PROPERTIES)
            server.port = port
            stack.enter_context(server)
            if turn == 1:
                topics.create(server.bootstrap, TOPIC, partitions=PARTITIONS)
                if kafka.version == KAFKA_VERSION or IS_SOAKED:
                    application = Application(stack, server.bootstrap, tmp_path)
            with WireClient(server.bootstrap) as client:
                handover.go_on(client)
            if application is not None:
                application.go_on(server, turn, is_last=turn == len(turns(kafka)))
            server.stop(with_signal)
        if application is not None:
            application.check()


class Application:
    """Two instances with two threads each, and the words that they count."""

    def __init__(self, stack: ExitStack, bootstrap: str, directory: Path) -> None:
        """Start them; `stack` ends them."""
        create(bootstrap, "words", "word-counts", partition_count=2)
        self._feed = stack.enter_context(closing(Feed(bootstrap)))
        self._instances = [
            stack.enter_context(closing(new_instance(bootstrap, directory / name, *PATIENT))) for name in "ab"
        ]

    def go_on(self, server: Server, turn: int, *, is_last: bool) -> None:
        """Count more words, in the last turn all; no instance has ended, and its threads are the group's members."""
        read_until(self._feed, turn * COUNT, self._instances, sending=True)
        assert not [each.printed() for each in self._instances if each.has_ended()]
        with WireClient(server.bootstrap) as client:
            until(lambda: len(describe(client, "counting", 0).members) == 2 * len(self._instances))
        if is_last:
            read_until(self._feed, self._feed.sent.total(), self._instances, sending=False)

    def check(self) -> None:
        self._feed.read_counts()
        assert self._feed.counts == {word: list(range(1, count + 1)) for word, count in self._feed.sent.items()}
