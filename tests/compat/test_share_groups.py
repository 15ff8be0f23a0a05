"""Share groups (KIP-932) by stock clients: librdkafka's and Java's share consumers, and the tools that steer them.

The heartbeat interval is a tenth of the default one: with that one, the first record comes a heartbeat (5 s) after the
join here and with Apache Kafka, because the first assignment waits for the state of the share partitions.
"""

import json
import re
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import AcknowledgeType, Message, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from harness.servers import Server
from tests.compat.conftest import new_server
from tests.support.topics import create

PROPERTIES = {
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.record.lock.duration.ms": "1000",
    "share.coordinator.state.topic.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
}
TOOLS = "org.apache.kafka.tools"
PARTITIONS = 2
VALUES = sorted(f"job {number}" for number in range(20))
ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT

Tool = Callable[..., str]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with new_server(tmp_path_factory.mktemp("shares") / "data", PROPERTIES) as running:
        yield running


@pytest.fixture
def jobs(request: pytest.FixtureRequest, bootstrap: str, topic: str) -> str:
    """A topic with 20 records on two partitions, or as many as a parameter says; a group of the same name reads all."""
    partitions = getattr(request, "param", PARTITIONS)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    create(bootstrap, topic, partitions=partitions)
    begin_with_the_first(admin, topic)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number, value in enumerate(VALUES):
        producer.produce(topic, value, partition=number % partitions)
    assert producer.flush(60) == 0
    return topic


def begin_with_the_first(admin: AdminClient, group: str, **more: str) -> None:
    resource = ConfigResource(ResourceType.GROUP, group)
    for key, value in {"share.auto.offset.reset": "earliest", **more}.items():
        resource.add_incremental_config(ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET))
    (future,) = admin.incremental_alter_configs([resource]).values()
    future.result(60)


def member(bootstrap: str, group: str, **settings: object) -> ShareConsumer:
    consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0, **settings})
    consumer.subscribe([group])
    return consumer


def poll_until(condition: Callable[[], bool], consumer: ShareConsumer, handle: Callable[[Message], None]) -> None:
    """Poll, and handle each record, until the condition holds."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        for message in consumer.poll(0.5) or ():
            assert message.error() is None
            handle(message)


# -- librdkafka --------------------------------------------------------------------------------------------------------


def test_librdkafka_acknowledges_what_a_poll_returned_with_the_next_one(bootstrap, jobs):
    values: list[str] = []
    with member(bootstrap, jobs) as consumer:
        poll_until(lambda: len(values) >= len(VALUES), consumer, lambda each: values.append(each.value().decode()))
        assert set(consumer.commit_sync(30.0).values()) <= {None}
    assert sorted(values) == VALUES
    with member(bootstrap, jobs) as consumer:
        producer = Producer({"bootstrap.servers": bootstrap})
        producer.produce(jobs, "after", partition=0)
        producer.flush(60)
        poll_until(lambda: "after" in values, consumer, lambda each: values.append(each.value().decode()))
    assert sorted(values) == ["after", *VALUES]


def test_librdkafka_accepts_releases_and_rejects(bootstrap, jobs):
    """A released record comes again, with a higher delivery count; an accepted or rejected one does not."""
    deliveries: dict[str, int] = {}
    done: set[str] = set()
    with member(bootstrap, jobs, **{"share.acknowledgement.mode": "explicit"}) as consumer:

        def handle(message: Message) -> None:
            value = message.value().decode()
            deliveries[value] = deliveries.get(value, 0) + 1
            assert message.delivery_count() == deliveries[value]
            number = VALUES.index(value)
            chosen = (ACCEPT, REJECT, RELEASE)[number % 3] if deliveries[value] == 1 else ACCEPT
            consumer.acknowledge(message, chosen)
            if chosen != RELEASE:
                done.add(value)

        poll_until(lambda: len(done) == len(VALUES), consumer, handle)
        assert all(error is None for error in consumer.commit_sync(30.0).values())
    assert deliveries == {value: 2 if number % 3 == 2 else 1 for number, value in enumerate(VALUES)}


def test_a_record_that_is_released_again_and_again_is_given_up(bootstrap, jobs):
    begin_with_the_first(AdminClient({"bootstrap.servers": bootstrap}), jobs, **{"share.delivery.count.limit": "3"})
    deliveries: dict[str, int] = {}
    with member(bootstrap, jobs, **{"share.acknowledgement.mode": "explicit"}) as consumer:

        def handle(message: Message) -> None:
            value = message.value().decode()
            deliveries[value] = deliveries.get(value, 0) + 1
            consumer.acknowledge(message, RELEASE if value == VALUES[0] else ACCEPT)

        poll_until(lambda: deliveries.get(VALUES[0]) == 3 and len(deliveries) == len(VALUES), consumer, handle)
        producer = Producer({"bootstrap.servers": bootstrap})
        producer.produce(jobs, "last", partition=0)
        producer.flush(60)
        poll_until(lambda: "last" in deliveries, consumer, handle)
    assert deliveries == {**dict.fromkeys((*VALUES, "last"), 1), VALUES[0]: 3}


@pytest.mark.parametrize("jobs", [1], indirect=True)  # of several, each member would be assigned some
def test_a_record_whose_lock_timed_out_is_delivered_to_another_member(bootstrap, jobs):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    begin_with_the_first(admin, jobs, **{"share.record.lock.duration.ms": "1000"})
    got: dict[str, int] = {}
    again: dict[str, int] = {}
    explicit = {"share.acknowledgement.mode": "explicit"}
    sleeper, other = member(bootstrap, jobs, **explicit), member(bootstrap, jobs, **explicit)
    poll_until(lambda: bool(got), sleeper, lambda each: got.update({each.value().decode(): each.delivery_count()}))

    def handle(message: Message) -> None:
        again[message.value().decode()] = message.delivery_count()
        other.acknowledge(message, ACCEPT)

    poll_until(lambda: len(again) == len(VALUES), other, handle)
    assert all(again[value] == count + 1 for value, count in got.items())
    for consumer in (other, sleeper):
        consumer.close()


# -- Java --------------------------------------------------------------------------------------------------------------


def test_the_console_share_consumer_reads_all(java_tool: Tool, bootstrap, jobs):
    arguments = ["--topic", jobs, "--group", jobs, "--max-messages", str(len(VALUES)), "--timeout-ms", "60000"]
    printed = java_tool(
        f"{TOOLS}.consumer.ConsoleShareConsumer", "--bootstrap-server", bootstrap, *arguments,
        "--formatter-property", "print.delivery=true",
    )  # fmt: skip
    assert sorted(printed.splitlines()) == [f"Delivery:1\t{value}" for value in VALUES]


@pytest.mark.parametrize("pattern", ["accept,reject", "renew,accept"])
def test_the_verifiable_share_consumer_accepts_rejects_and_renews(java_tool: Tool, bootstrap, jobs, pattern):
    arguments = ["--topic", jobs, "--group-id", jobs, "--acknowledgement-mode", "sync", "--max-messages", "20"]
    printed = java_tool(
        f"{TOOLS}.VerifiableShareConsumer", "--bootstrap-server", bootstrap, *arguments,
        "--ack-pattern", pattern, "--verbose",
    )  # fmt: skip
    events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert [event for event in events if event.get("error") or event.get("success") is False] == []
    values = [event["value"] for event in events if event["name"] == "record_data"]
    assert sorted(set(values)) == VALUES
    acknowledged = [event["count"] for event in events if event["name"] == "offsets_acknowledged"]
    assert sum(acknowledged) >= len(VALUES)


# -- tools -------------------------------------------------------------------------------------------------------------


def rows(printed: str) -> list[list[str]]:
    return [line.split() for line in printed.splitlines() if line.strip()]


def consume_all(bootstrap: str, group: str) -> None:
    values: list[str] = []
    with member(bootstrap, group) as consumer:
        poll_until(lambda: len(values) == len(VALUES), consumer, lambda each: values.append(each.value().decode()))
        consumer.commit_sync(30.0)


def offsets_of(share_groups: Tool, group: str) -> list[list[str]]:
    """Return partition and lag of each; the start offset is the one of the last write, which may be behind."""
    heading, *others = rows(share_groups("--describe", "--group", group, "--offsets"))
    assert heading == ["GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG"]
    return [[partition, lag] for _, _, partition, _, lag in others]


@pytest.fixture
def share_groups(java_tool: Tool, bootstrap: str) -> Tool:
    def run(*arguments: str) -> str:
        return java_tool(f"{TOOLS}.consumer.group.ShareGroupCommand", "--bootstrap-server", bootstrap, *arguments)

    return run


def test_tools_show_a_group_with_a_member(java_tool: Tool, share_groups: Tool, bootstrap, jobs):
    with member(bootstrap, jobs, **{"client.id": "worker"}) as consumer:
        seen: list[str] = []
        poll_until(lambda: len(seen) == len(VALUES), consumer, lambda each: seen.append(each.value().decode()))
        assert jobs in share_groups("--list").split()
        assert [jobs, "Stable"] in rows(share_groups("--list", "--state"))
        assert [jobs, "Share", "share"] in rows(
            java_tool(f"{TOOLS}.GroupsCommand", "--bootstrap-server", bootstrap, "--list", "--share")
        )
        (heading, row) = rows(share_groups("--describe", "--group", jobs, "--members", "--verbose"))
        assert heading[1:] == [
            "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "MEMBER-EPOCH", "ASSIGNMENT",
        ]  # fmt: skip
        assert row[2:5] == ["/127.0.0.1", "worker", "2"]
        assert row[-1] == f"{jobs}:0,1"
        (heading, row) = rows(share_groups("--describe", "--group", jobs, "--state"))
        assert row == [jobs, bootstrap, "(1)", "Stable", "1"]
        assert "The group is not empty." in share_groups("--delete-offsets", "--group", jobs, "--topic", jobs)
        refused = share_groups("--delete", "--group", jobs)
        assert f"Share group '{jobs}' is not EMPTY." in refused


def test_tools_reset_and_delete_offsets_and_groups(share_groups: Tool, bootstrap, jobs):
    consume_all(bootstrap, jobs)
    assert offsets_of(share_groups, jobs) == [["0", "0"], ["1", "0"]]

    chosen = ["--reset-offsets", "--group", jobs]
    shown = rows(share_groups(*chosen, "--all-topics", "--to-earliest", "--dry-run"))
    assert sorted(row[2:] for row in shown[1:]) == [["0", "0"], ["1", "0"]]
    assert offsets_of(share_groups, jobs)[0] == ["0", "0"]
    share_groups(*chosen, "--topic", f"{jobs}:0", "--to-earliest", "--execute")
    assert offsets_of(share_groups, jobs) == [["0", "10"], ["1", "0"]]
    share_groups(*chosen, "--topic", jobs, "--to-datetime", "2020-01-01T00:00:00.000", "--execute")
    assert offsets_of(share_groups, jobs) == [["0", "10"], ["1", "10"]]
    consume_all(bootstrap, jobs)
    assert offsets_of(share_groups, jobs) == [["0", "0"], ["1", "0"]]

    assert [jobs, "Successful"] in rows(share_groups("--delete-offsets", "--group", jobs, "--topic", jobs))
    assert "has no offset information" in share_groups("--describe", "--group", jobs)
    refused = share_groups("--delete-offsets", "--group", jobs, "--topic", "nowhere")
    assert "This server does not host this topic-partition." in refused
    assert f"Deletion of requested share groups ('{jobs}') was successful." in share_groups("--delete", "--group", jobs)
    assert jobs not in share_groups("--list").split()
    assert f"Group '{jobs}' is not a share group." in share_groups("--delete", "--group", jobs)


def test_tools_change_the_configuration_of_a_group(java_tool: Tool, bootstrap, topic):
    def configs(*arguments: str) -> str:
        entity = ["--entity-type", "groups", "--entity-name", topic]
        return java_tool(f"{TOOLS}.ConfigCommand", "--bootstrap-server", bootstrap, *arguments, *entity)

    chosen = {
        "share.auto.offset.reset": "by_duration:PT1H",
        "share.delivery.count.limit": "4",
        "share.heartbeat.interval.ms": "700",
        "share.isolation.level": "read_committed",
        "share.partition.max.record.locks": "150",
        "share.record.lock.duration.ms": "2000",
        "share.renew.acknowledge.enable": "false",
        "share.session.timeout.ms": "45000",
    }
    configs("--alter", "--add-config", ",".join(f"{key}={value}" for key, value in chosen.items()))
    described = configs("--describe")
    for key, value in chosen.items():
        assert re.search(rf"{re.escape(key)}={re.escape(value)} sensitive=false", described), described
    configs("--alter", "--delete-config", ",".join(chosen))
    assert "DYNAMIC_GROUP_CONFIG" not in configs("--describe")
