"""Committed offsets with real clients: kept over kill -9, read by Apache Kafka's formatter, steered by its tools."""

import json
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from harness.servers import Server
from kafkapy.__main__ import main
from kafkapy.runtime.coordinators.coordinator import java_hash
from tests.compat.conftest import new_server
from tests.support import committed

TOOLS = "org.apache.kafka.tools"
FORMATTER = f"{TOOLS}.consumer.OffsetsMessageFormatter"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Server]:
    with new_server(tmp_path / "data") as running:
        yield running


def produce(bootstrap: str, topic: str, count: int = 10) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(60) == 0


def commit(bootstrap: str, group: str, *positions: TopicPartition) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    committed.commit(consumer, *positions)
    consumer.close()


def position_of(bootstrap: str, group: str, topic: str) -> TopicPartition:
    """Return what the group has committed in the topic's only partition that it reads."""
    (position,) = [each for (name, _), each in committed.committed(bootstrap, group).items() if name == topic]
    return position


@pytest.mark.parametrize("with_signal", [signal.SIGTERM, signal.SIGKILL], ids=lambda each: each.name)
def test_commits_survive_a_stop_and_a_kill(broker: Server, with_signal: signal.Signals) -> None:
    produce(broker.bootstrap, "kept")
    commit(broker.bootstrap, "readers", TopicPartition("kept", 0, 7, metadata="bookmark"))
    broker.stop(with_signal)
    broker.start()
    position = position_of(broker.bootstrap, "readers", "kept")
    assert (position.offset, position.metadata) == (7, "bookmark")


def test_every_acknowledged_commit_survives_a_kill_amid_commits(broker: Server) -> None:
    produce(broker.bootstrap, "kept", 1000)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers", "enable.auto.commit": False})
    for offset in range(1, 301):
        committed.commit(consumer, TopicPartition("kept", 0, offset))
        if offset % 100 == 0:
            broker.stop(signal.SIGKILL)
            broker.start()
            assert position_of(broker.bootstrap, "readers", "kept").offset == offset
    consumer.close()


def test_kafkas_formatter_reads_the_offsets_topic(java_tool: Callable[..., str], bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic)
    commit(bootstrap, topic, TopicPartition(topic, 0, 4, metadata="bookmark"))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    lines = formatted(java_tool, bootstrap, topic)
    (line,) = [line for line in lines if line["key"]["data"].get("group") == topic]
    assert line["key"] == {"type": 1, "data": {"group": topic, "topic": topic, "partition": 0}}
    value = line["value"]
    assert value["version"] == 4
    metadata = value["data"]["metadata"].rstrip("\0")  # confluent-kafka sends the end of its C string along
    assert (value["data"]["offset"], metadata) == (4, "bookmark")
    admin.delete_consumer_groups([topic])[topic].result(60)
    deleted = [line for line in formatted(java_tool, bootstrap, topic) if line["key"]["data"].get("group") == topic]
    assert deleted[-1]["value"] is None


def formatted(java_tool: Callable[..., str], bootstrap: str, group: str) -> list[Any]:
    """Return what Apache Kafka's formatter prints of the partition of `__consumer_offsets` that has the group."""
    partition = java_hash(group) % 50
    where = ["--topic", "__consumer_offsets", "--partition", str(partition), "--offset", "earliest"]
    arguments = ["--formatter", FORMATTER, "--timeout-ms", "10000"]
    printed = java_tool(f"{TOOLS}.consumer.ConsoleConsumer", "--bootstrap-server", bootstrap, *where, *arguments)
    records, position = [], 0
    while position < len(printed.rstrip()):
        record, position = json.JSONDecoder().raw_decode(printed, position)
        records.append(record)
    return records


class ConsumerGroups:
    """kafka-consumer-groups.sh of Apache Kafka."""

    def __init__(self, java_tool: Callable[..., str], bootstrap: str) -> None:
        self._java_tool = java_tool
        self._bootstrap = bootstrap

    def __call__(self, *arguments: str) -> str:
        main_class = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
        return self._java_tool(main_class, "--bootstrap-server", self._bootstrap, "--timeout", "60000", *arguments)


@pytest.fixture
def groups(java_tool: Callable[..., str], bootstrap: str) -> ConsumerGroups:
    return ConsumerGroups(java_tool, bootstrap)


def test_the_java_tool_lists_and_describes_a_simple_group(groups: ConsumerGroups, bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic)
    commit(bootstrap, topic, TopicPartition(topic, 0, 4))
    assert topic in groups("--list").splitlines()
    assert re.search(rf"{topic}\s+Empty", groups("--list", "--state"))
    assert re.search(rf"{topic}\s+Classic", groups("--list", "--type"))
    described = groups("--describe", "--group", topic, "--offsets")
    assert re.search(rf"{topic}\s+{topic}\s+0\s+4\s+10\s+6\s", described)
    assert "CONSUMER-ID" in groups("--describe", "--group", topic, "--members")
    assert re.search(rf"{topic}\s+\S+\s+\(1\)\s+-\s+Empty\s+0", groups("--describe", "--group", topic, "--state"))


@pytest.mark.parametrize(
    ("how", "offset"),
    [
        (["--to-earliest"], 0),
        (["--to-latest"], 10),
        (["--to-offset", "3"], 3),
        (["--shift-by", "-2"], 2),
        (["--to-datetime", "2000-01-01T00:00:00.000"], 0),
        (["--by-duration", "PT0S"], 10),
        (["--to-current"], 4),
    ],
    ids=lambda value: value[0].strip("-") if isinstance(value, list) else "",
)
def test_the_java_tool_resets_offsets(
    groups: ConsumerGroups, bootstrap: str, topic: str, how: list[str], offset: int
) -> None:
    produce(bootstrap, topic)
    commit(bootstrap, topic, TopicPartition(topic, 0, 4))
    printed = groups("--reset-offsets", "--group", topic, "--topic", topic, *how, "--execute")
    assert re.search(rf"{topic}\s+{topic}\s+0\s+{offset}\b", printed)
    assert position_of(bootstrap, topic, topic).offset == offset


def test_the_java_tool_resets_offsets_from_a_file(
    groups: ConsumerGroups, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    produce(bootstrap, topic)
    plan = tmp_path / "plan.csv"
    plan.write_text(f"{topic},0,5\n")
    groups("--reset-offsets", "--group", topic, "--from-file", str(plan), "--execute")
    assert position_of(bootstrap, topic, topic).offset == 5


def test_the_java_tool_shows_a_plan_and_carries_it_out_with_execute(
    groups: ConsumerGroups, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    produce(bootstrap, topic)
    commit(bootstrap, topic, TopicPartition(topic, 0, 4))
    reset = ("--reset-offsets", "--group", topic, "--all-topics", "--to-earliest")
    assert re.search(rf"{topic}\s+{topic}\s+0\s+0\b", groups(*reset, "--dry-run"))
    plan = groups(*reset, "--export", "--dry-run")
    assert f'"{topic}",0,0' in plan
    assert position_of(bootstrap, topic, topic).offset == 4
    file = tmp_path / "plan.csv"
    file.write_text(plan)
    groups("--reset-offsets", "--group", topic, "--from-file", str(file), "--execute")
    assert position_of(bootstrap, topic, topic).offset == 0
    commit(bootstrap, topic, TopicPartition(topic, 0, 4))
    assert main(["groups", "reset", topic, "--from-file", str(file), "--execute", "-b", bootstrap]) == 0
    assert position_of(bootstrap, topic, topic).offset == 0


def test_the_java_tool_describes_members_and_leaves_a_group_with_members_alone(
    groups: ConsumerGroups, bootstrap: str, topic: str
) -> None:
    produce(bootstrap, topic)
    settings = {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest", "client.id": "me"}
    consumer = Consumer({**settings, "group.instance.id": "kitchen", "enable.auto.commit": False})
    consumer.subscribe([topic])
    deadline = time.monotonic() + 60
    while not consumer.assignment():
        assert time.monotonic() < deadline
        consumer.poll(0.1)
    committed.commit(consumer, TopicPartition(topic, 0, 6))
    described = groups("--describe", "--group", topic, "--members", "--verbose")
    assert re.search(rf"{topic}\s+kitchen-\S+\s+kitchen\s+/127.0.0.1\s+me\s+1\s.*{topic}:0", described), described
    described = groups("--describe", "--group", topic, "--offsets", "--verbose")
    assert re.search(rf"{topic}\s+{topic}\s+0\s+\S+\s+6\s+10\s+4\s+kitchen-\S+\s+/127.0.0.1\s+me", described)
    described = groups("--describe", "--group", topic, "--state")
    assert re.search(rf"{topic}\s+\S+\s+\(1\)\s+range\s+Stable\s+1", described), described
    refused = groups("--reset-offsets", "--group", topic, "--topic", topic, "--to-earliest", "--execute")
    assert "Assignments can only be reset if the group" in refused
    assert "GroupNotEmptyException: The group is not empty." in groups("--delete", "--group", topic)
    assert position_of(bootstrap, topic, topic).offset == 6
    consumer.close()


def test_the_java_tool_deletes_offsets_and_groups(groups: ConsumerGroups, bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic)
    commit(bootstrap, topic, TopicPartition(topic, 0, 4))
    assert "Successful" in groups("--delete-offsets", "--group", topic, "--topic", topic)
    commit(bootstrap, topic, TopicPartition(topic, 0, 4))
    assert "was successful" in groups("--delete", "--group", topic)
    assert topic not in groups("--list").splitlines()


def test_the_groups_tool_lists_groups_of_all_kinds(java_tool: Callable[..., str], bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic)
    commit(bootstrap, topic, TopicPartition(topic, 0, 4))
    listed = java_tool(f"{TOOLS}.GroupsCommand", "--bootstrap-server", bootstrap, "--list")
    assert re.search(rf"{topic}\s+Classic", listed)
