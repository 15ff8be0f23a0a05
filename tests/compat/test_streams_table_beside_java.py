"""Streams groups by raw requests to kafkapy and to Apache Kafka 4.4.0: each answer is the same, down to its message.

Each chapter sends the same requests to both, one after the other, and compares what they answer field by field; lists
are sorted, because those of Apache Kafka are in the order of its hash maps. The brokers assign at once.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from harness.servers import Server
from kafkapy.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.delete_groups_request import DeleteGroupsRequest
from kafkapy.protocol.messages.describe_groups_request import DescribeGroupsRequest
from kafkapy.protocol.messages.heartbeat_request import HeartbeatRequest
from kafkapy.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from kafkapy.protocol.messages.list_groups_request import ListGroupsRequest
from kafkapy.protocol.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from kafkapy.protocol.messages.share_group_describe_request import ShareGroupDescribeRequest
from kafkapy.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from kafkapy.protocol.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from kafkapy.protocol.messages.streams_group_heartbeat_request import (
    CopartitionGroup,
    KeyValue,
    Subtopology,
    TaskOffset,
    TopicInfo,
    Topology,
)
from kafkapy.protocol.messages.sync_group_request import SyncGroupRequest
from kafkapy.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support import java_tools
from tests.support.beside_java import both_brokers, differing
from tests.support.client_requests import create_topic, metadata
from tests.support.group_configs import set_group_configs
from tests.support.membership import join_request
from tests.support.offsets import commit_request, delete_offsets
from tests.support.streams_chapters import PARTITIONS, Chapter, ids
from tests.support.streams_members import (
    LEAVES,
    LEAVES_FOR_A_WHILE,
    TASKS,
    grouped,
    joined_topics,
    reading,
    with_changelog,
)
from tests.support.transactions import TransactionalProducer
from tests.support.wire import WireClient

pytestmark = [
    pytest.mark.long,
    pytest.mark.ours,
    pytest.mark.skipif(not java_tools.are_here(), reason="Apache Kafka's jars are missing: run `make tools`"),
]

PROPERTIES = {
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.assignor.offload.enable": "false",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


def static_members(told: Chapter) -> None:
    """A static member joins twice, is fenced, goes away and comes back; with other ids, processes and epochs."""
    topology = reading(told.group)
    first, second = (told.member(name, instance_id="i") for name in ("first", "second"))
    first.join(topology)
    second.join(topology, "joins as the same instance")
    first.join(topology, "joins again")
    first.beat()
    second.beat("is no member", member_epoch=1)
    first.beat("goes away", member_epoch=LEAVES_FOR_A_WHILE)
    told.describe()
    second.join(topology, "comes in its place", process_id="process of first")
    first.beat("comes too late", member_epoch=1)
    first.beat("leaves too late", member_epoch=LEAVES)
    first.beat("goes away too late", member_epoch=LEAVES_FOR_A_WHILE)
    second.beat("is ahead", member_epoch=second.epoch + 1)
    second.beat("is of another instance", instance_id="j")
    second.beat("goes away", member_epoch=LEAVES_FOR_A_WHILE)
    second.beat("goes away again", member_epoch=LEAVES_FOR_A_WHILE)
    second.join(topology, "comes back in another process", process_id="another")
    second.beat("goes away", member_epoch=LEAVES_FOR_A_WHILE)
    second.join(topology, "comes back in another rack", process_id="another", rack_id="r")
    other = told.member("other", instance_id="j")
    other.join(topology)
    second.beat("gives up", **second.tasks)
    second.beat()
    other.beat()
    told.describe()
    second.beat("goes away", member_epoch=LEAVES_FOR_A_WHILE)
    other.beat("while the other is away")
    dynamic = told.member("dynamic")
    dynamic.join(topology)
    dynamic.beat("goes away, which only static members do", member_epoch=LEAVES_FOR_A_WHILE)
    told.describe()
    other.beat("leaves", member_epoch=LEAVES)
    told.describe()


def heartbeats(told: Chapter) -> None:
    """Epochs ahead, behind and impossible; tasks in part; requests that are no join and look like one."""
    topology = reading(told.group)
    member = told.member("m")
    member.beat("before there is a group", member_epoch=1)
    member.beat("leaves no group", member_epoch=LEAVES)
    member.join(topology)
    member.beat()
    for name in TASKS:
        member.beat(f"without {name}", **{name: None})
    member.beat("tells no tasks", **dict.fromkeys(TASKS))
    member.beat("epoch -3", member_epoch=-3)
    member.beat("epoch ahead", member_epoch=member.epoch + 1)
    member.beat("epoch behind", member_epoch=member.epoch - 1)
    member.beat("epoch behind, without tasks", member_epoch=member.epoch - 1, active_tasks=[])
    member.beat("epoch far behind", member_epoch=member.epoch - 3)
    member.beat("a subtopology that is none", active_tasks=ids(0, subtopology="9"))
    member.beat("a partition that is none", active_tasks=ids(7))
    member.beat("a topology amid", topology=topology)
    member.beat("an empty rack", rack_id="")
    member.beat("no group id", group_id="")
    member.beat("no member id", member_id="")
    told.member("stranger").beat("is no member", member_epoch=5)
    told.member("stranger").beat("leaves without having joined", member_epoch=LEAVES)
    member.beat("another time-out", rebalance_timeout_ms=90_000)
    member.beat("another process", process_id="another")
    told.describe()
    member.join(topology, "joins again")
    member.join(topology, "joins with tasks", active_tasks=ids(0))
    member.beat("shuts down", shutdown_application=True)
    second = told.member("second")
    second.join(topology)
    member.beat("leaves", member_epoch=LEAVES)
    second.beat("leaves", member_epoch=LEAVES)
    told.describe()


def topologies(told: Chapter) -> None:
    """What no topology may have; one that changes, is newer or older; topics that are not there, or do not fit."""
    name, sink = told.group, f"{told.group}-by-key"
    bad = {
        "regex": reading(source_topic_regex=["a.*"]),
        "regex and topic": reading(name, source_topic_regex=["a.*"]),
        "internal": reading("__consumer_offsets"),
        "internal sink": reading(name, repartition_sink_topics=["__transaction_state"]),
        "internal changelog": with_changelog(name, "__share_group_state"),
        "bad name": reading("a b", ".."),
        "no name": reading(""),
        "long name": reading("x" * 250),
        "counted changelog": with_changelog(name, f"{name}-c", 2),
        "no source": reading(),
        "nothing": Topology(0, subtopologies=[]),
        "nobody writes": Topology(
            0,
            subtopologies=[
                Subtopology("0", source_topics=[name]),
                Subtopology("1", repartition_source_topics=[TopicInfo(sink)]),
            ],
        ),
        "writes to itself": Topology(
            0,
            subtopologies=[
                Subtopology("0", repartition_source_topics=[TopicInfo(sink)], repartition_sink_topics=[sink])
            ],
        ),
        "copartition of nothing": reading(name, copartition_groups=[CopartitionGroup([5])]),
        "two of one id": Topology(0, subtopologies=[Subtopology("0", source_topics=[name])] * 2),
        "negative epoch": reading(name, epoch=-1),
    }
    for number, (what, topology) in enumerate(bad.items()):  # each in a group of its own: some are accepted
        group = f"{name}-{number}"
        member = told.member("m", group=group)
        answer = member.join(topology, what)
        told.tell(f"described: {what}", StreamsGroupDescribeRequest(group_ids=[group]), 1)
        if answer.error_code == 0:
            member.beat(f"goes on: {what}")
    member, other = told.member("m"), told.member("other")
    member.join(reading(name, epoch=3), "epoch 3")
    other.join(reading(name, f"{name}-other", epoch=3), "another topology of the same epoch")
    other.join(reading(name, f"{name}-other", epoch=4), "a newer topology")
    other.join(reading(name, epoch=4), "a newer epoch of the same topology")
    other.join(reading(name, epoch=2), "an older epoch")
    other.join(reading("elsewhere", epoch=2), "an older topology")
    other.beat()
    told.describe()
    other.beat("leaves", member_epoch=LEAVES)
    member.beat("leaves", member_epoch=LEAVES)
    other.join(reading(name, f"{name}-other", epoch=3), "another topology of the group, which is empty")
    told.describe()


def topics(told: Chapter) -> None:
    """Source topics that are missing or not copartitioned, and what comes when they are there."""
    name, other = told.group, f"{told.group}-other"
    member = told.member("m")
    member.join(joined_topics(name, other), "a topic is missing")
    member.beat()
    told.describe()
    create_topic(told.client, other, 2)
    member.until(lambda answer: [each.status_code for each in answer.status] == [2])
    member.beat("they do not fit")
    told.describe()


def internal_topics(told: Chapter) -> None:
    """Topics that the broker makes, or cannot make."""
    name, by_key, store = told.group, f"{told.group}-by-key", f"{told.group}-store-changelog"
    member = told.member("m")
    member.join(grouped(name, by_key, store))
    for topic in (by_key, store):
        told.until_made(topic)
    member.until(lambda answer: not answer.status and len(member.tasks["active_tasks"]) == 2)
    member.beat("has its tasks")
    told.describe()
    told.responses.append(("made", {topic: partition_count(told, topic) for topic in (by_key, store)}))
    failing = told.member("m", group=f"{name}-failing")
    failing.join(with_changelog(name, f"{name}-failing-changelog", replication_factor=5), "cannot be made")
    failing.until(lambda answer: "Creation failed" in answer.status[0].status_detail)
    failing.beat("says why")


def partition_count(told: Chapter, topic: str) -> int:
    return len(metadata(told.client, topic).topics[0].partitions)


def warmups(told: Chapter) -> None:
    """A stateful task moves at once: 4.4.0 warms up none, whatever members report and groups are configured to."""
    store = f"{told.group}-store-changelog"
    create_topic(told.client, store, PARTITIONS)
    set_group_configs(told.client, told.group, streams_num_warmup_replicas="1", streams_acceptable_recovery_lag="10")
    told.until_applied()
    topology = with_changelog(told.group, store)
    has, comes = told.member("has"), told.member("comes")
    has.join(topology)
    has.beat()
    ends = {"task_end_offsets": [TaskOffset("0", partition=each, offset=1000) for each in range(PARTITIONS)]}
    has.beat("reports offsets", task_offsets=[TaskOffset("0", partition=0, offset=1000)], **ends)
    comes.join(topology)
    told.describe()
    for lag in (1000, 500, 11, 10, 0):
        has.beat()
        warm = [each.partitions[0] for each in comes.tasks["warmup_tasks"]]
        copies = [TaskOffset("0", partition=each, offset=1000 - lag) for each in warm]
        comes.beat(f"is {lag} behind", task_offsets=copies, task_end_offsets=[])
        has.beat()
        comes.beat()
        told.describe()
    comes.beat("leaves", member_epoch=LEAVES)
    has.beat()
    has.beat()
    told.describe()


def standbys(told: Chapter) -> None:
    """Copies by configuration, endpoints of those that have them, and a configuration that changes."""
    store = f"{told.group}-store-changelog"
    create_topic(told.client, store, PARTITIONS)
    set_group_configs(told.client, told.group, streams_num_standby_replicas="1")
    told.until_applied()
    topology = with_changelog(told.group, store)
    members = [told.member(name) for name in "abc"]
    for member in members:
        member.join(topology)
    for _ in range(4):
        for member in members:
            member.beat()
    told.describe()
    set_group_configs(told.client, told.group, streams_num_standby_replicas="0")
    told.until_applied()
    for _ in range(4):
        for member in members:
            member.beat()
    told.describe()


def client_tags(told: Chapter) -> None:
    """A group that wants client tags for its standbys tells each member which of them it lacks."""
    store = f"{told.group}-store-changelog"
    create_topic(told.client, store, PARTITIONS)
    set_group_configs(
        told.client, told.group, streams_num_standby_replicas="1", streams_rack_aware_assignment_tags="zone,rack"
    )
    told.until_applied()
    topology = with_changelog(told.group, store)
    zone, rack, other = KeyValue("zone", value="a"), KeyValue("rack", value="r"), KeyValue("other", value="o")
    members = [told.member(name) for name in "abc"]
    without, some, all_tags = members
    without.join(topology, "has no tags")
    some.join(topology, "has one tag", client_tags=[zone])
    all_tags.join(topology, "has all tags, and another", client_tags=[other, rack, zone])
    for _ in range(3):
        for member in members:
            member.beat()
    told.describe()
    without.beat("by version 0, which has no such status", version=0)
    some.beat("has another value", client_tags=[KeyValue("zone", value="b")])
    some.beat("has the other tag", client_tags=[rack])
    without.beat("has all tags now", client_tags=[zone, rack])
    all_tags.beat("has none now", client_tags=[])
    for member in members:
        member.beat()
    told.describe()
    set_group_configs(told.client, told.group, streams_rack_aware_assignment_tags="zone")
    told.until_applied()
    for member in members:
        member.beat("with fewer tags wanted")
    told.describe()


def offsets(told: Chapter) -> None:
    """Commits by members at their epoch, at older ones, by strangers; by versions and in transactions."""
    topology, client, name = reading(told.group), told.client, told.group
    topic_id = told.topic_id
    create_topic(client, f"{name}-elsewhere")
    member, second = told.member("m"), told.member("second")
    member.join(topology)
    joined_at = member.epoch

    def commit(what: str, epoch: int, member_id: str = "m", topic: str | bytes = name, version: int = 9) -> None:
        fields = {"member_id": member_id, "generation_id_or_member_epoch": epoch}
        told.tell(f"commits {what}", commit_request(name, topic, 5, **fields), version)

    def fetch(what: str, **fields: Any) -> None:
        group = OffsetFetchRequestGroup(name, topics=None, **fields)
        told.tell(f"fetches {what}", OffsetFetchRequest(groups=[group]), 9)

    commit("at its epoch", member.epoch)
    commit("at its epoch by 8", member.epoch, version=8)
    commit("at its epoch by id", member.epoch, topic=topic_id, version=10)
    commit("ahead", member.epoch + 1)
    commit("as a stranger", member.epoch, "stranger")
    commit("as nobody", -1, "")
    commit("as a member without an epoch", -1)
    second.join(topology)
    member.beat("is told to give up")
    member.beat("gives up")
    second.beat()
    for epoch in (joined_at - 1, joined_at, member.epoch):
        for partition in range(PARTITIONS):
            fields = {"member_id": "m", "generation_id_or_member_epoch": epoch}
            request = commit_request(name, name, 7, **fields)
            request.topics[0].partitions[0].partition_index = partition
            told.tell(f"commits {partition} at {epoch - joined_at} since it joined", request, 9)
    commit("of another topic at an older epoch", joined_at, topic=f"{name}-elsewhere")
    commit("of another topic", member.epoch, topic=f"{name}-elsewhere")
    fetch("at its epoch", member_id="m", member_epoch=member.epoch)
    fetch("ahead", member_id="m", member_epoch=member.epoch + 1)
    fetch("behind", member_id="m", member_epoch=joined_at)
    fetch("as a stranger", member_id="stranger", member_epoch=member.epoch)
    fetch("as nobody")
    producer = TransactionalProducer(client, name)
    assert producer.init() == 0
    for version, topic in ((5, name), (6, topic_id)):
        for epoch in (joined_at - 1, joined_at, member.epoch, member.epoch + 1, -1):
            for member_id, partition in (("m", 0), ("m", 1), ("m", 2), ("stranger", 0), ("", 0)):
                told.tell(
                    f"commits {partition} as {member_id} at {epoch} in a transaction by {version}",
                    transactional_commit(producer, name, topic, partition, member_id, epoch),
                    version,
                )
    assert producer.end(commit=False) == 0
    told.keep("deletes the offsets of its topic", delete_offsets(client, name, name, 0), 0)
    told.keep("deletes other offsets", delete_offsets(client, name, f"{name}-elsewhere", 0), 0)
    for each in (member, second):
        each.beat("leaves", member_epoch=LEAVES)
    commit("to the empty group as nobody", -1, "")
    commit("to the empty group", member.epoch)
    told.keep("deletes the offsets of the empty group", delete_offsets(client, name, name, 0), 0)
    told.tell("deletes the group", DeleteGroupsRequest([name]), 2)
    fetch("of a group that is gone")


def transactional_commit(
    producer: TransactionalProducer, group: str, topic: str | bytes, partition: int, member_id: str, epoch: int
) -> TxnOffsetCommitRequest:
    committed = TxnOffsetCommitRequestPartition(partition, committed_offset=9, committed_metadata="")
    requested = TxnOffsetCommitRequestTopic(partitions=[committed])
    if isinstance(topic, str):
        requested.name = topic
    else:
        requested.topic_id = topic
    return TxnOffsetCommitRequest(
        producer.transactional_id,
        group_id=group,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[requested],
    )


def other_kinds(told: Chapter) -> None:
    """Requests of other kinds of groups to a streams group; a heartbeat to groups of other kinds."""
    name = told.group
    member = told.member("m")
    member.join(reading(name))

    def consumer(group: str, epoch: int = 0) -> ConsumerGroupHeartbeatRequest:
        subscription = {"rebalance_timeout_ms": 1, "subscribed_topic_names": [name], "topic_partitions": []}
        return ConsumerGroupHeartbeatRequest(group, member_id="c", member_epoch=epoch, **subscription)

    def share(group: str, epoch: int = 0) -> ShareGroupHeartbeatRequest:
        return ShareGroupHeartbeatRequest(group, member_id="s", member_epoch=epoch, subscribed_topic_names=[name])

    requests = {
        "JoinGroup": (join_request(name), 9),
        "JoinGroup of a member": (join_request(name, "m"), 9),
        "SyncGroup": (SyncGroupRequest(name, member_id="m", generation_id=1), 5),
        "Heartbeat": (HeartbeatRequest(name, member_id="m", generation_id=1), 4),
        "LeaveGroup": (LeaveGroupRequest(name, members=[MemberIdentity("m")]), 5),
        "ConsumerGroupHeartbeat": (consumer(name), 1),
        "ConsumerGroupHeartbeat amid": (consumer(name, 3), 1),
        "ShareGroupHeartbeat": (share(name), 1),
        "ShareGroupHeartbeat amid": (share(name, 3), 1),
        "DescribeGroups": (DescribeGroupsRequest([name]), 6),
        "ConsumerGroupDescribe": (ConsumerGroupDescribeRequest([name]), 1),
        "ShareGroupDescribe": (ShareGroupDescribeRequest([name]), 1),
        "DeleteGroups": (DeleteGroupsRequest([name]), 2),
        "ListGroups": (ListGroupsRequest(types_filter=["Streams"]), 5),
        "ListGroups in a state": (ListGroupsRequest(states_filter=["NotReady", "Assigning"]), 5),
        "StreamsGroupDescribe by 0": (StreamsGroupDescribeRequest(["", name, "none"]), 0),
    }
    for what in ("of a member", "empty"):
        for api, (request, version) in requests.items():
            if api.startswith("ListGroups"):  # other chapters' groups are none of this one's
                groups = [each for each in told.client.call(request, version).groups if each.group_id == name]
                told.responses.append((api, [(each.group_state, each.protocol_type) for each in groups]))
            elif what == "of a member" or not api.startswith(("JoinGroup", "Consumer", "Share", "Delete")):
                told.tell(f"{api}, {what}", request, version)
        member.beat("leaves", member_epoch=LEAVES)
    for kind, request in {"consumer": consumer, "share": share}.items():
        assert told.client.call(request(f"{name}-{kind}"), 1).error_code == 0
        joins = told.member("m", group=f"{name}-{kind}")
        joins.join(reading(name), f"joins a {kind} group")
        joins.beat(f"is no member of a {kind} group", member_epoch=3)
        told.tell(kind, StreamsGroupDescribeRequest([f"{name}-{kind}"]), 1)


CHAPTERS = (
    static_members, heartbeats, topologies, topics, internal_topics, warmups, standbys, client_tags,
    offsets, other_kinds,
)  # fmt: skip


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    with both_brokers(tmp_path_factory, PROPERTIES) as running:
        yield running


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.__name__)
def test_answers_are_the_same(chapter: Callable[[Chapter], None], servers: list[Server]) -> None:
    ours, javas = [answers_to(chapter, server) for server in servers]
    assert differing(ours, javas) == []


def answers_to(chapter: Callable[[Chapter], None], server: Server) -> list[tuple[str, Any]]:
    with WireClient(server.bootstrap) as client:
        told = Chapter(client, chapter.__name__.replace("_", "-"))
        chapter(told)
        return told.responses


def test_groups_that_are_not_ready_are_listed_by_the_state_that_is_shown(servers: list[Server]) -> None:
    """Apache Kafka finds them by not_ready alone, and so not what kafka-streams-groups.sh --state NotReady asks for."""
    listed = []
    for server in servers:
        with WireClient(server.bootstrap) as client:
            told = Chapter(client, "not-ready")
            told.member("m").join(reading("not-ready-missing"))
            by_state = {
                each: client.call(ListGroupsRequest(states_filter=[each]), 5) for each in ("not_ready", "NotReady")
            }
            listed.append(
                {
                    each: [group.group_state for group in found.groups if group.group_id == told.group]
                    for each, found in by_state.items()
                }
            )
    assert listed == [
        {"not_ready": ["NotReady"], "NotReady": ["NotReady"]},
        {"not_ready": ["NotReady"], "NotReady": []},
    ]
