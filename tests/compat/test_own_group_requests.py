"""`kafkapy groups` and the lock of a redrive beside Apache Kafka's coordinator: what they ask is answered alike."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from harness.servers import ApacheKafka, Kafkapy, Server
from kafkapy.__main__ import main
from kafkapy.cli import redrive_lock
from kafkapy.cli.committed_offsets import BrokerConnections
from kafkapy.cli.dead_letters import RedriveError
from kafkapy.cli.redrive_lock import only_redrive
from tests.support import topics
from tests.support.java_tools import are_here

pytestmark = [pytest.mark.long, pytest.mark.ours]  # it starts both brokers itself

PROPERTIES = {"offsets.topic.num.partitions": "3", "group.initial.rebalance.delay.ms": "0"}
Groups = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module", params=[Kafkapy, ApacheKafka])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if request.param is ApacheKafka and not are_here():
        pytest.skip("Apache Kafka's jars or Java are missing: run `make tools`")
    with request.param(tmp_path_factory.mktemp("broker") / "data", PROPERTIES) as running:
        yield running


@pytest.fixture
def groups(server: Server, capsys: pytest.CaptureFixture[str]) -> Groups:
    def run(*arguments: str) -> tuple[int, str]:
        status = main(["groups", *arguments, "-b", server.bootstrap])
        output = capsys.readouterr()
        return status, output.out + output.err

    return run


def test_a_group_is_listed_described_reset_and_deleted(server: Server, groups: Groups) -> None:
    topics.create(server.bootstrap, "orders", partitions=1)
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for number in range(10):
        producer.produce("orders", b"%d" % number, partition=0, timestamp=1_700_000_000_000 + number * 1000)
    assert producer.flush(60) == 0
    with closing(Consumer({"bootstrap.servers": server.bootstrap, "group.id": "readers"})) as consumer:
        consumer.commit(offsets=[TopicPartition("orders", 0, 4)], asynchronous=False)

    listed = {"group": "readers", "type": "Classic", "state": "Empty", "members": 0, "lag": 6, "topics": ["orders"]}
    assert json.loads(groups("list", "--json")[1]) == [listed]
    (described,) = json.loads(groups("describe", "readers", "--json")[1])
    assert [(each["committed"], each["end"]) for each in described["partitions"]] == [(4, 10)]
    for to, offset in (("earliest", 0), ("latest", 10), ("+99", 10), ("2023-11-14T22:13:25Z", 5), ("1960-01-01", 0)):
        status, output = groups("reset", "readers", "--topic", "orders:0", "--to", to, "--execute", "--json")
        assert (status, json.loads(output)[0]["after"]) == (0, offset)
    refused = groups("reset", "readers", "--topic", "nowhere", "--to", "latest")
    assert refused == (1, "kafkapy: no such topic: nowhere\n")
    assert groups("delete", "readers", "--topic", "orders") == (0, "Deleted the offsets of group readers for orders.\n")
    assert groups("delete", "readers") == (0, "Deleted group readers.\n")
    assert groups("delete", "readers")[1].endswith("(GROUP_ID_NOT_FOUND)\n")


def test_one_redrive_holds_the_lock_until_it_ends(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redrive_lock, "RELEASE_S", 0.0)
    notes: list[str] = []
    properties: dict[str, Any] = {"bootstrap.servers": server.bootstrap}
    for _ in range(3):
        with BrokerConnections(properties) as brokers, only_redrive(brokers, "dlq.jobs", notes.append) as check:
            check()
            with (
                BrokerConnections(properties) as others,
                pytest.raises(RedriveError, match=r"another redrive of dlq\.jobs runs, process"),
                only_redrive(others, "dlq.jobs", notes.append),
            ):
                pass
            check()
    assert notes == [], "nothing was said of redrives that are not kept out"
