"""`kafkapy groups` against a broker of our own, with consumers that commit and read as users' do."""

import json
import subprocess
import sys
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from kafkapy import Broker
from kafkapy.__main__ import main
from kafkapy.cli import group_list
from kafkapy.cli.committed_offsets import NoResponseError
from kafkapy.cli.group_list import GroupFacts, facts_of, share_facts_of
from kafkapy.cli.group_offsets import ResetTarget, goal_of, parse_topics
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.find_coordinator_response import FindCoordinatorResponse

confluent_kafka = pytest.importorskip("confluent_kafka")
pytest.importorskip("confluent_kafka.admin")
TopicPartition = confluent_kafka.TopicPartition


@pytest.fixture(scope="module")
def server():
    properties = {"group.initial.rebalance.delay.ms": 0, "log.retention.ms": -1}  # the records are years old
    with Broker(properties=properties) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def run(server, capsys):
    def run_command(*arguments: object) -> SimpleNamespace:
        status = main(["groups", *map(str, arguments), "-b", server])
        output = capsys.readouterr()
        return SimpleNamespace(status=status, out=output.out, err=output.err)

    return run_command


@pytest.fixture
def group(server, request):
    """A group of the test's own that has committed offset 4 of 10 in partition 0 of a topic of its name."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name).strip("-")
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": server})
    kept = {"retention.ms": "-1"}  # the records are old
    admin.create_topics([confluent_kafka.admin.NewTopic(name, 2, config=kept)])[name].result(60)
    producer = confluent_kafka.Producer({"bootstrap.servers": server})
    for number in range(10):
        producer.produce(name, b"%d" % number, partition=0, timestamp=1_700_000_000_000 + number * 1000)
    assert producer.flush(60) == 0
    consumer = confluent_kafka.Consumer({"bootstrap.servers": server, "group.id": name})
    consumer.commit(offsets=[TopicPartition(name, 0, 4)], asynchronous=False)
    consumer.close()
    return name


def test_groups_are_listed_by_state_and_type(run, group) -> None:
    listed = {"group": group, "type": "Classic", "state": "Empty", "members": 0, "lag": 6, "topics": [group]}
    assert listed in json.loads(run("list", "--json").out)
    assert listed in json.loads(run("list", "--json", "--state", "empty", "--type", "classic").out)
    assert json.loads(run("list", "--json", "--state", "Stable").out) == []
    table = [line.split() for line in run("list", f"{group[:8]}*").out.splitlines()]
    assert table[0] == ["GROUP", "TYPE", "STATE", "MEMBERS", "LAG", "TOPICS"]
    assert [group, "Classic", "Empty", "0", "6", group] in table
    assert json.loads(run("list", "no-such-*", "--json").out) == []


def test_groups_are_described_by_pattern_or_all(run, group) -> None:
    (described,) = json.loads(run("describe", f"{group[:-1]}?", "--json").out)
    assert described["group"] == group
    assert group in [each["group"] for each in json.loads(run("describe", "--all", "--json").out)]
    assert (run("describe").status, run("describe", group, "--all").status) == (2, 2)
    assert "no group matches no-such-*" in run("describe", "no-such-*").err


def test_no_command_needs_librdkafka(server, group) -> None:
    """A response to a coordinator's request that came too late ended the process by SIGABRT."""
    without = "import sys; sys.modules['confluent_kafka'] = None; from kafkapy.__main__ import main; sys.exit(main())"
    for arguments in (
        ["list"],
        ["describe", group, "--members"],
        ["reset", group, "--to", "earliest", "--execute"],
        ["explain", group],
        ["delete", group, "--topic", group],
        ["delete", group],
    ):
        command = [sys.executable, "-c", without, "groups", *arguments, "-b", server]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 0, ended


def test_a_group_whose_coordinator_is_silent_has_no_lag(monkeypatch) -> None:
    class Silent:
        def call(self, node_id: int | None, request: object, version: int) -> object:
            raise NoResponseError("no broker answers")

    monkeypatch.setattr(group_list, "GROUP_TIMEOUT_S", 0.1)
    found = facts_of(Silent(), ["unknown"])
    assert (found["unknown"].lag, found["unknown"].topics) == (None, [])


def test_a_list_does_not_wait_for_the_coordinator_of_each_share_group(monkeypatch) -> None:
    class Moving:
        calls = 0

        def call(self, node_id: int | None, request: object, version: int) -> object:
            self.calls += 1
            return FindCoordinatorResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)

    monkeypatch.setattr(group_list, "GROUP_TIMEOUT_S", 0.1)
    monkeypatch.setattr(group_list, "SILENCE_S", 0.2)
    brokers = Moving()
    names = [f"queue {number}" for number in range(100)]
    found = share_facts_of(brokers, names)
    assert found == {name: GroupFacts(None, None, []) for name in names}
    assert brokers.calls < 10


def test_a_group_is_described_with_its_lag(run, group) -> None:
    (described,) = json.loads(run("describe", group, "--json").out)
    assert (described["state"], described["type"], described["lag"]) == ("Empty", "Classic", 6)
    assert described["partitions"] == [
        {
            "topic": group,
            "partition": 0,
            "committed": 4,
            "end": 10,
            "lag": 6,
            "member": None,
            "client": None,
            "host": None,
        }
    ]
    lines = run("describe", group).out.splitlines()
    assert lines[0].startswith(f"{group}  Empty, Classic, 0 members, lag 6")
    assert lines[2].split() == [group, "0", "4", "10", "6", "-", "-", "-"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_are_shown_with_what_they_read(run, server, group, protocol) -> None:
    name = f"{group}-{protocol}"
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": server,
            "group.id": name,
            "client.id": "shown",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([group])
    deadline = time.monotonic() + 60
    while len(consumer.assignment()) < 2 and time.monotonic() < deadline:
        consumer.poll(0.1)
    consumer.commit(offsets=[TopicPartition(group, 0, 7)], asynchronous=False)
    (listed,) = json.loads(run("list", name, "--json").out)
    assert (listed["members"], listed["lag"], listed["topics"]) == (1, 3, [group])
    (described,) = json.loads(run("describe", name, "--json").out)
    assert described["state"] == "Stable"
    (member,) = described["members"]
    assert (member["client"], member["partitions"]) == ("shown", 2)
    partitions = described["partitions"]
    assert [(each["committed"], each["lag"], each["client"]) for each in partitions] == [
        (7, 3, "shown"),
        (None, None, "shown"),
    ]
    assert "MEMBER" in run("describe", name, "--members").out
    refused = run("reset", name, "--topic", group, "--to", "earliest", "--execute")
    assert refused.status == 1
    refused = run("delete", name)
    assert (refused.status, "NON_EMPTY_GROUP" in refused.err) == (1, True)
    consumer.close()


def consumer_of(server: str, group: str, topic: str, client_id: str, protocol: str):
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": server,
            "group.id": group,
            "client.id": client_id,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            **({} if protocol == "consumer" else {"heartbeat.interval.ms": 200}),
        }
    )
    consumer.subscribe([topic])
    return consumer


def poll_until(consumers, counts: list[int]) -> None:
    """Poll until each consumer has as many partitions as given."""
    deadline = time.monotonic() + 90
    while [len(consumer.assignment()) for consumer in consumers] != counts:
        assert time.monotonic() < deadline
        for consumer in consumers:
            consumer.poll(0.05)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_rebalances_are_explained(run, server, group, protocol) -> None:
    name = f"{group}-{protocol}"
    first = consumer_of(server, name, group, "one", protocol)
    poll_until([first], [2])
    second = consumer_of(server, name, group, "two", protocol)
    poll_until([first, second], [1, 1])
    second.close()
    poll_until([first], [2])
    reported = json.loads(run("explain", name, "--json").out)
    joined, split, merged = reported[0], reported[1], reported[-1]
    both = [[group, 0], [group, 1]]
    assert [(each["client"], each["has_joined"], each["gained"]) for each in joined["members"]] == [("one", True, both)]
    changes = {each["client"]: (len(each["gained"]), len(each["lost"])) for each in split["members"]}
    assert changes == {"one": (0, 1), "two": (1, 0)}
    changes = {each["client"]: (len(each["gained"]), len(each["lost"])) for each in merged["members"]}
    assert changes == {"one": (1, 0), "two": (0, 1)}
    assert any("two" in reason for reason in split["reasons"])
    assert any("two" in reason for reason in merged["reasons"])
    assert all(each["ended_at_ms"] >= each["started_at_ms"] for each in reported)
    printed = run("explain", name).out
    assert "because" in printed
    assert f"{group}:0-1" in printed
    first.close()


def test_a_group_that_never_rebalanced_has_nothing_to_explain(run, group) -> None:
    assert "has not rebalanced" in run("explain", group).out
    assert json.loads(run("explain", group, "--json").out) == []


@pytest.mark.parametrize(
    ("to", "after"),
    [
        ("earliest", 0),
        ("latest", 10),
        ("6", 6),
        ("99", 10),
        ("+2", 6),
        ("-3", 1),
        ("-99", 0),
        ("2023-11-14T22:13:25+00:00", 5),
        ("2040-01-01T00:00:00Z", 10),
        ("-PT1H", 10),
    ],
)
def test_offsets_are_reset(run, group, to, after) -> None:
    planned = json.loads(run("reset", group, "--topic", f"{group}:0", f"--to={to}", "--json").out)
    assert planned == [{"topic": group, "partition": 0, "before": 4, "after": after}]
    assert committed(run, group) == 4, "shown, not done"
    assert run("reset", group, "--topic", f"{group}:0", f"--to={to}", "--execute").status == 0
    assert committed(run, group) == after


def committed(run, group: str) -> int:
    (described,) = json.loads(run("describe", group, "--json").out)
    return next(each["committed"] for each in described["partitions"] if each["partition"] == 0)


def test_all_partitions_of_a_topic_are_reset(run, group) -> None:
    printed = run("reset", group, "--topic", group, "--to", "latest")
    assert printed.out.splitlines()[0].strip() == "Would be done with --execute:"
    assert [line.split() for line in printed.out.splitlines()[2:]] == [[group, "0", "4", "10"], [group, "1", "-", "0"]]


def test_without_topics_all_that_a_group_has_offsets_of_is_reset(run, group) -> None:
    planned = json.loads(run("reset", group, "--to=-3", "--json").out)
    assert planned == [{"topic": group, "partition": 0, "before": 4, "after": 1}]


def test_a_reset_of_a_group_without_offsets_says_so(run, group) -> None:
    done = run("reset", f"{group}-of-a-typing-error", "--to", "earliest", "--execute")
    assert (done.status, f"{group}-of-a-typing-error has no offsets" in done.err) == (1, True), done


def test_a_group_returns_to_offsets_that_were_kept_and_another_one_takes_them(run, group, tmp_path) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text(run("describe", group, "--json").out)
    assert run("reset", group, "--to", "latest", "--execute").status == 0
    assert committed(run, group) == 10
    assert run("reset", group, "--from-file", kept, "--execute").status == 0
    assert run("reset", f"{group}-copy", "--from-file", kept, "--execute").status == 0
    assert (committed(run, group), committed(run, f"{group}-copy")) == (4, 4)


@pytest.mark.parametrize(
    ("text", "status", "message"),
    [
        ('[{"group": "a", "partitions": []}, {"group": "b", "partitions": []}]', 2, "it has several groups"),
        ("[1, 2]", 2, "it is not what `kafkapy groups describe GROUP --json` prints"),
        ('{"partitions": [{"topic": "t", "partition": 1e999, "committed": 1}]}', 2, "it is not what `kafkapy groups"),
        ("orders,0", 2, "'orders,0' must read TOPIC,PARTITION,OFFSET"),
        ("nowhere,0,5", 1, "no such topic: nowhere"),
    ],
)
def test_a_file_without_offsets_is_refused(run, group, tmp_path, text, status, message) -> None:
    file = tmp_path / "offsets"
    file.write_text(text)
    done = run("reset", group, "--from-file", file, "--execute")
    assert (done.status, message in " ".join(done.err.split())) == (status, True), done.err


def test_a_file_that_is_not_there_is_named(run, group, tmp_path) -> None:
    done = run("reset", group, "--from-file", tmp_path / "none")
    assert (done.status, "none: No such file" in done.err) == (1, True), done.err


def test_groups_of_a_pattern_are_deleted_after_a_question(run, group) -> None:
    names = [f"{group}-{number}" for number in range(3)]
    for name in names:
        assert run("reset", name, "--topic", group, "--to", "earliest", "--execute").status == 0
    asked = run("delete", f"{group}-[12]")
    assert (asked.status, asked.out.splitlines()) == (1, [f"{name}  Classic, Empty" for name in names[1:]])
    assert "Did you mean" in run("describe", f"{group}-3").err
    assert run("delete", f"{group}-[12]", "--yes").status == 0
    assert [each["group"] for each in json.loads(run("list", f"{group}-*", "--json").out)] == names[:1]


def test_a_group_whose_id_looks_like_a_pattern_is_meant_alone(run, group) -> None:
    named, other = f"{group}-[1]", f"{group}-1"
    for name in (named, other):
        assert run("reset", name, "--topic", group, "--to", "earliest", "--execute").status == 0
    assert [each["group"] for each in json.loads(run("describe", named, "--json").out)] == [named]
    done = run("delete", named)
    assert (done.status, done.out) == (0, f"Deleted group {named}.\n"), done.err
    assert run("describe", other).status == 0


def test_a_group_is_deleted(run, group) -> None:
    assert run("delete", group).out == f"Deleted group {group}.\n"
    assert run("delete", group).status == 1
    assert run("describe", group).status == 1


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["reset", "g", "--topic", "missing", "--to", "latest"], 1, "no such topic: missing"),
        (["reset", "g", "--topic", "t", "--to", "yesterday"], 2, "is none of: earliest"),
        (["reset", "g", "--topic", "t:x", "--to", "latest"], 2, "must read TOPIC"),
        (["list", "--state", "sleepy"], 2, "is none of:"),
        (["list", "-X", "no.such.key=1"], 1, 'No such configuration property: "no.such.key"'),
        (["describe", "not-there"], 1, "no such group: not-there."),
        (["explain", "not-there"], 1, "Group not-there not found. (GROUP_ID_NOT_FOUND)"),
    ],
)
def test_what_cannot_be_done_is_reported(run, arguments, status, message) -> None:
    done = run(*arguments)
    assert done.status == status
    assert message in " ".join(done.err.replace("│", " ").split())


def test_topics_and_targets_are_read() -> None:
    assert parse_topics(["a", "b:0,2"]) == {"a": None, "b": [0, 2]}
    assert ResetTarget.parse("-5") == ResetTarget("shift", -5)
    assert ResetTarget.parse("1970-01-01T00:00:01Z") == ResetTarget("time", 1000)


@pytest.mark.parametrize(("at_time", "goal"), [(5, 5), (-1, 10)])
def test_a_time_after_the_last_record_means_the_end(at_time, goal) -> None:
    partition = ("orders", 0)
    assert goal_of(ResetTarget("time", 1), partition, start=0, end=10, before=4, at_time=at_time) == goal


def test_a_partition_that_does_not_answer_for_a_time_is_not_moved_to_its_end() -> None:
    with pytest.raises(LookupError, match="orders-0 does not answer which offset that time has"):
        goal_of(ResetTarget("time", 1), ("orders", 0), start=0, end=10, before=4, at_time=None)


def begin_with_the_first(server, name):
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": server})
    entry = confluent_kafka.admin.ConfigEntry(
        "share.auto.offset.reset", "earliest", incremental_operation=confluent_kafka.admin.AlterConfigOpType.SET
    )
    resource = confluent_kafka.admin.ConfigResource(
        confluent_kafka.admin.ResourceType.GROUP, name, incremental_configs=[entry]
    )
    (future,) = admin.incremental_alter_configs([resource]).values()
    future.result(60)


@pytest.fixture
def queue(server, group):
    """A share group that has been given records of the group's topic, and has accepted some, without members now."""
    name = f"{group}-shared"
    begin_with_the_first(server, name)
    with worker(server, name, group):
        pass
    return name


@contextmanager
def worker(server, name, topic):
    """A share consumer that has been given records, and accepts them when it ends."""
    settings = {"bootstrap.servers": server, "group.id": name, "client.id": "worker", "log_level": 0}
    with confluent_kafka.ShareConsumer(settings) as consumer:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 60
        while not consumer.poll(0.5):
            assert time.monotonic() < deadline
        yield consumer


def starts_of(run, name: str) -> list[tuple[int, int]]:
    (described,) = json.loads(run("describe", name, "--json").out)
    return [(each["start"], each["lag"]) for each in described["partitions"]]


def test_share_groups_are_listed_and_described(run, server, group) -> None:
    name = f"{group}-shared"
    begin_with_the_first(server, name)
    with worker(server, name, group):
        (described,) = json.loads(run("describe", name, "--json").out)
        (row,) = json.loads(run("list", "--json", "--type", "share", "--state", "stable").out)
        refused = run("reset", name, "--topic", group, "--to", "earliest", "--execute")
        assert (refused.status, "has members, stop them first: worker (" in refused.err) == (1, True)
        refused = run("delete", name)
        assert (refused.status, "NON_EMPTY_GROUP" in refused.err) == (1, True)
    assert (row["group"], row["type"], row["state"], row["members"]) == (name, "Share", "Stable", 1)
    assert row["topics"] == [group]
    assert [each["partition"] for each in described["partitions"]] == [0, 1]
    assert [(each["client"], each["partitions"]) for each in described["members"]] == [("worker", 2)]
    table = run("describe", name, "--members").out.splitlines()
    assert table[0].startswith(f"{name}  Empty, Share, simple, 0 members")
    assert table[1].split() == ["TOPIC", "PARTITION", "START", "LAG"]
    assert json.loads(run("list", "--json", "--type", "share", "--state", "stable").out) == []


def test_share_groups_are_among_all_and_matched_by_patterns(run, group, queue) -> None:
    described = {each["group"]: each["type"] for each in json.loads(run("describe", "--all", "--json").out)}
    assert (described[group], described[queue]) == ("Classic", "Share")
    (shown,) = json.loads(run("describe", f"{queue[:-1]}?", "--json").out)
    assert shown["group"] == queue
    assert {"Classic", "Share"} <= {each["type"] for each in json.loads(run("list", "--json").out)}


def test_a_share_group_is_moved_to_other_start_offsets(run, group, queue) -> None:
    before = starts_of(run, queue)
    planned = json.loads(run("reset", queue, "--topic", f"{group}:0", "--to", "3", "--json").out)
    assert planned == [{"topic": group, "partition": 0, "before": before[0][0], "after": 3}]
    assert starts_of(run, queue) == before, "shown, not done"
    assert run("reset", queue, "--topic", f"{group}:0", "--to", "3", "--execute").status == 0
    assert starts_of(run, queue)[0] == (3, 7)
    assert run("reset", queue, "--topic", group, "--to", "latest", "--execute").status == 0
    assert starts_of(run, queue) == [(10, 0), (0, 0)]


def test_what_groups_have_of_a_topic_is_deleted(run, group, queue) -> None:
    for each in (group, queue):
        done = run("delete", each, "--topic", group)
        assert (done.status, done.out) == (0, f"Deleted the offsets of group {each} for {group}.\n")
    assert starts_of(run, queue) == []
    (described,) = json.loads(run("describe", group, "--json").out)
    assert described["partitions"] == []
    for each, reason in ((group, "has committed nothing of it"), (queue, "UNKNOWN_TOPIC_OR_PARTITION")):
        refused = run("delete", each, "--topic", "nowhere")
        assert (refused.status, reason in refused.err) == (1, True), refused.err


def test_a_share_group_is_deleted(run, queue) -> None:
    assert run("delete", queue).out == f"Deleted group {queue}.\n"
    assert run("describe", queue).status == 1
    assert run("delete", queue).status == 1


def test_what_a_share_group_has_in_flight_is_explained(run, server, group) -> None:
    name = f"{group}-shared"
    begin_with_the_first(server, name)
    with worker(server, name, group):
        told = json.loads(run("explain", name, "--json").out)
        printed = run("explain", name).out
        of_one = run("explain", name, "--topic", f"{group}:0", "--offset", 4).out
    assert any("joined" in reason for each in told["rebalances"] for reason in each["reasons"])
    facts = {(each["topic"], each["partition"]): each for each in told["partitions"]}
    (held, *_) = facts[group, 0]["runs"]
    assert (held["state"], held["delivery_count"], facts[group, 0]["high_watermark"]) == ("acquired", 1, 10)
    assert held["member"].startswith("worker (")
    assert "because member" in printed
    assert f"{group}-0  start 0, end 10, in flight 10 of 2000, 1 member fetch" in printed
    assert of_one.startswith(f"{group}-0: 4 is acquired by worker (")
    assert "the start offset is 0: 0-9 is acquired by worker" in of_one


def test_only_share_groups_are_asked_for_records(run, group) -> None:
    for form in ([], ["--json"]):
        refused = run("explain", group, "--topic", group, "--offset", 1, *form)
        assert (refused.status, refused.out, "is no share group" in refused.err) == (1, "", True)
    assert run("explain", group, "--topic", "t:x").status == 2
