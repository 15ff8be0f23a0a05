"""kafka-streams-groups.sh and kafka-streams-application-reset.sh print the same of kafkapy as of Apache Kafka 4.4.0.

Both brokers have the same groups, made by the same requests; each tool is run on both, and what it prints is compared
line by line. Lines of a table are sorted: the tools print them in the order of hash maps.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.servers import Server
from tests.support import java_tools
from tests.support.beside_java import both_brokers
from tests.support.client_requests import batch_of, create_topic, produce, until
from tests.support.java_tools import JavaTools
from tests.support.offsets import commit, find_coordinator
from tests.support.streams_members import StreamsMember, grouped
from tests.support.wire import WireClient

pytestmark = [
    pytest.mark.long,
    pytest.mark.ours,
    pytest.mark.skipif(not java_tools.are_here(), reason="Apache Kafka's jars are missing: run `make tools`"),
]

GROUPS = "org.apache.kafka.tools.streams.StreamsGroupCommand"
RESETTER = "org.apache.kafka.tools.StreamsResetter"
PROPERTIES = {
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.max.session.timeout.ms": "3600000",
    "group.streams.session.timeout.ms": "3600000",
    "offsets.topic.num.partitions": "1",
}
TOPIC, PARTITIONS, RECORDS = "orders", 2, 10
RUNNING, STOPPED, UNUSED = "running", "stopped", "unused"
ALL = ("--all-input-topics",)


def commands(directory: Path) -> Iterator[tuple[str, ...]]:
    """Yield the commands, first those that change nothing."""
    plan = directory / "plan.csv"
    plan.write_text(f"{TOPIC},0,2\n{TOPIC},1,3\n")
    yield GROUPS, "--list"
    yield GROUPS, "--list", "--state"
    yield GROUPS, "--list", "--state", "Empty,NotReady"
    yield GROUPS, "--list", "--state", "Nonsense"
    for group in (RUNNING, STOPPED, "missing"):
        for form in ((), ("--offsets",), ("--members",), ("--state",), ("--topology",)):
            yield GROUPS, "--describe", "--group", group, *form
            if form != ("--topology",):
                yield GROUPS, "--describe", "--group", group, *form, "--verbose"
    yield GROUPS, "--describe", "--all-groups", "--state", "--verbose"
    resets = [("--to-earliest",), ("--to-latest",), ("--to-current",), ("--to-offset", "3"), ("--shift-by", "-2")]
    resets += [("--shift-by", "100"), ("--by-duration", "P1D"), ("--to-datetime", "2020-01-01T00:00:00.000")]
    for reset in resets:
        yield GROUPS, "--reset-offsets", "--group", STOPPED, *ALL, *reset, "--dry-run"
    yield GROUPS, "--reset-offsets", "--group", STOPPED, "--input-topic", f"{TOPIC}:1", "--to-earliest", "--dry-run"
    yield GROUPS, "--reset-offsets", "--group", STOPPED, *ALL, "--to-earliest", "--dry-run", "--export"
    yield GROUPS, "--reset-offsets", "--group", STOPPED, "--from-file", str(plan), "--dry-run"
    yield GROUPS, "--reset-offsets", "--group", STOPPED, "--input-topic", "missing", "--to-earliest", "--dry-run"
    # what is refused, because the group has members or is none
    for group in (RUNNING, "missing"):
        yield GROUPS, "--reset-offsets", "--group", group, *ALL, "--to-earliest", "--execute"
        yield GROUPS, "--delete", "--group", group
        yield GROUPS, "--delete-offsets", "--group", group, "--input-topic", TOPIC
        yield RESETTER, "--application-id", group, "--input-topics", TOPIC, "--dry-run"
    # what changes a group
    yield GROUPS, "--reset-offsets", "--group", STOPPED, "--from-file", str(plan), "--execute"
    yield GROUPS, "--describe", "--group", STOPPED, "--offsets"
    yield GROUPS, "--delete-offsets", "--group", STOPPED, "--input-topic", f"{TOPIC}:0"
    yield GROUPS, "--describe", "--group", STOPPED
    yield RESETTER, "--application-id", STOPPED, "--input-topics", TOPIC, "--dry-run"
    yield RESETTER, "--application-id", STOPPED, "--input-topics", TOPIC, "--to-offset", "4"
    yield GROUPS, "--describe", "--group", STOPPED
    yield (
        GROUPS,
        "--reset-offsets",
        "--group",
        STOPPED,
        *ALL,
        "--to-latest",
        "--execute",
        "--delete-all-internal-topics",
    )
    yield GROUPS, "--describe", "--group", STOPPED, "--state"
    yield GROUPS, "--delete", "--group", STOPPED, "--delete-all-internal-topics"
    yield GROUPS, "--delete", "--group", STOPPED
    yield GROUPS, "--delete", "--all-groups"
    yield GROUPS, "--list", "--state"


def prepare(client: WireClient) -> None:
    """Make the groups: one with two members, two that are empty, all with half of their topic read."""
    create_topic(client, TOPIC, PARTITIONS)
    for partition in range(PARTITIONS):
        assert produce(client, TOPIC, batch_of(RECORDS), partition=partition).error_code == 0
    for group in (RUNNING, STOPPED, UNUSED):
        internal = (f"{group}-by-key-repartition", f"{group}-counts-changelog")
        for topic in internal:
            create_topic(client, topic, PARTITIONS)
        find_coordinator(client, group)
        members = [StreamsMember(client, group, f"{group}-{number}") for number in range(2)]
        for member in members:
            assert member.join(grouped(TOPIC, *internal), rack_id="r").error_code == 0
        until(lambda: {sum(map(len, each.active.values())) for each in members if not beat(each)} == {2})  # noqa: B023
        fields = {"member_id": members[0].member_id, "generation_id_or_member_epoch": members[0].epoch}
        assert commit(client, group, TOPIC, RECORDS // 2, **fields) == [0]
        if group != RUNNING:
            assert all(member.leave().error_code == 0 for member in members)


def beat(member: StreamsMember) -> int:
    return int(member.heartbeat().error_code)


def printed(tools: JavaTools, server: Server, command: tuple[str, ...]) -> tuple[int, list[str]]:
    """Return how a tool ended, and its lines, in which the address is the same for all."""
    main_class, *arguments = command
    status, text, _ = tools.call(main_class, "--bootstrap-server", server.bootstrap, *arguments)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z?|\[\d{4}-\d\d-\d\d [\d:,]+\]", "TIME", text)
    lines = text.replace(server.bootstrap, "ADDRESS").replace(str(server.port), "PORT").splitlines()
    return status, sorted(" ".join(line.split()) for line in lines)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    with both_brokers(tmp_path_factory, PROPERTIES) as running:
        for server in running:
            with WireClient(server.bootstrap) as client:
                prepare(client)
        yield running


def test_tools_print_the_same(tools: JavaTools, servers: list[Server], tmp_path: Path) -> None:
    ours, java = servers
    differing = []
    for command in commands(tmp_path):
        mine, its = printed(tools, ours, command), printed(tools, java, command)
        if mine != its:
            differing.append((" ".join(command[1:]), mine, its))
    assert differing == []
