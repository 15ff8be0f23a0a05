"""What `kafkapy groups` tells of a streams group and its tasks, of what a coordinator describes."""

import json
from typing import Any

import pytest

from kafkapy import Broker
from kafkapy.__main__ import main
from kafkapy.cli.streams_groups import StreamsTask, tasks_of
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkapy.protocol.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest
from kafkapy.protocol.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse
from tests.support.consumer_groups import image_with
from tests.support.eventually import eventually
from tests.support.streams_groups import StreamsShard, Task, chain, each_task, task_ids
from tests.support.wire import WireClient

COUNTS = {"in": 2, "app-1-repartition": 2, "app-store1-changelog": 2}


class Application:
    """Members of a group whose second subtopology has state."""

    def __init__(self, counts: dict[str, int], **config: Any) -> None:
        keys = {"group_streams_initial_rebalance_delay_ms": 0, "group_streams_assignment_interval_ms": 0, **config}
        self.counts = counts
        topics = {name: (bytes([number] * 16), count) for number, (name, count) in enumerate(counts.items(), 1)}
        self.shard = StreamsShard(image_with(topics), **keys)

    def join(self, member_id: str, process_id: str) -> StreamsGroupHeartbeatResponse:
        return self.shard.heartbeat(first_heartbeat(member_id, process_id)).response

    def beat(self, member_id: str, epoch: int, active: set[Task] | None = None) -> StreamsGroupHeartbeatResponse:
        request = StreamsGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch)
        if active is not None:
            request.active_tasks, request.standby_tasks, request.warmup_tasks = task_ids(active), [], []
        return self.shard.heartbeat(request).response

    def tasks(self) -> list[StreamsTask]:
        return tasks_of(self.shard.shard.streams.describe("g"), self.counts)

    def reasons(self) -> set[str | None]:
        return {task.why for task in self.tasks()}


def first_heartbeat(member_id: str, process_id: str) -> StreamsGroupHeartbeatRequest:
    nothing: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    return StreamsGroupHeartbeatRequest(
        group_id="g",
        member_id=member_id,
        process_id=process_id,
        rebalance_timeout_ms=60_000,
        topology=chain(False, True),
        **nothing,
    )


def run(member: WireClient) -> None:
    """Join, get all tasks, and commit offset 1 of partition 0."""
    find_coordinator = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    eventually(lambda: member.call(find_coordinator, 4).coordinators[0].error_code == 0)
    beat = StreamsGroupHeartbeatRequest(group_id="g", member_id="m1")

    def answer_to(request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse:
        answer: StreamsGroupHeartbeatResponse = member.call(request, 1)
        beat.member_epoch = answer.member_epoch
        return answer

    eventually(lambda: answer_to(first_heartbeat("m1", "p1")).error_code == 0)  # it may still load its partition
    eventually(lambda: answer_to(beat).active_tasks)  # once the broker has made the internal topics
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topics = [OffsetCommitRequestTopic("in", partitions=[partition])]
    commit = OffsetCommitRequest("g", generation_id_or_member_epoch=beat.member_epoch, member_id="m1", topics=topics)
    ((committed,),) = [topic.partitions for topic in member.call(commit, 9).topics]
    assert committed.error_code == 0


def test_a_group_is_listed_described_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    def groups(*arguments: str) -> Any:
        assert main(["groups", *arguments, "--json", "-b", broker.bootstrap_servers]) == 0
        return json.loads(capsys.readouterr().out)

    with Broker(properties={"group.streams.initial.rebalance.delay.ms": 0}) as broker:
        broker.create_topics("in", partitions=2)
        broker.topics["in"].produce([{"id": number} for number in range(10)], key="id")
        end = broker.topics["in"].end_offsets()[0]
        with WireClient(broker.bootstrap_servers) as member:
            run(member)
        (listed,), (described,), explained = groups("list"), groups("describe", "g"), groups("explain", "g")
    reads = ["app-1-repartition", "in"]
    assert (listed["type"], listed["members"], listed["lag"], listed["topics"]) == ("Streams", 1, end - 1, reads)
    (partition,) = described["partitions"]
    assert (partition["committed"], partition["end"], partition["lag"]) == (1, end, end - 1)
    assert (partition["member"], partition["host"], described["lag"]) == ("m1", "/127.0.0.1", end - 1)
    assert [each["active"] for each in described["members"]] == [["0_0", "0_1", "1_0", "1_1"]]
    assert [(each["tasks"], each["changelogs"]) for each in described["subtopologies"]] == [
        (2, []),
        (2, ["app-store1-changelog"]),
    ]
    assert {(each["member"], each["why"]) for each in described["tasks"]} == {("m1", None)}
    assert explained["tasks"] == described["tasks"]


def test_a_task_has_its_member_and_its_standbys() -> None:
    application = Application(COUNTS, group_streams_num_standby_replicas=1)
    first = application.join("m1", "p1")
    application.join("m2", "p2")
    application.beat("m1", first.member_epoch)
    mine = {(each.subtopology_id, number) for each in first.active_tasks or () for number in each.partitions}
    assert len(mine) == 4

    application.beat("m1", first.member_epoch, mine)
    kept = {task for task in mine if task in _tasks(application, "m1")}
    epoch = application.beat("m1", first.member_epoch, kept).member_epoch
    application.beat("m1", epoch)
    application.beat("m2", application.shard.streams_group().log.members["m2"].member_epoch)

    tasks = {(task.subtopology, task.partition): task for task in application.tasks()}
    assert {task: tasks[task].process for task in tasks} == {task: "p1" if task in kept else "p2" for task in mine}
    for number in range(2):
        assert tasks["0", number].standbys == (), "it has no state"
        assert tasks["1", number].standbys == ("p2" if tasks["1", number].process == "p1" else "p1",)
    assert application.reasons() == {None}


def _tasks(application: Application, member_id: str) -> set[Task]:
    return set(each_task(application.shard.streams_group().log.members[member_id].assigned.active))


def test_what_is_to_be_given_up_first_is_told() -> None:
    application = Application(COUNTS)
    first = application.join("m1", "p1")
    application.join("m2", "p2")
    idle = [task for task in application.tasks() if task.why is not None]
    assert idle == [], "nobody has given up anything yet: m1 runs all"

    application.beat("m1", first.member_epoch)
    reasons = {task.why for task in application.tasks() if task.why is not None}
    assert reasons == {"client (/127.0.0.1) is to run it, once it is given up by one of: client (epoch 2)"}


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ({"in": 2}, "topics are missing: app-1-repartition, app-store1-changelog"),
        (
            {**COUNTS, "app-store1-changelog": 3},
            "the partitions of the topics do not fit together: its members log which",
        ),
    ],
)
def test_topics_that_are_in_the_way_are_told(counts: dict[str, int], told: str) -> None:
    application = Application(counts)
    application.join("m1", "p1")
    assert application.reasons() == {told}


def test_a_group_that_waits_for_more_members_says_so() -> None:
    application = Application(COUNTS, group_streams_initial_rebalance_delay_ms=3_000)
    application.join("m1", "p1")
    assert application.reasons() == {
        "the assignment of epoch 2 is not made yet: it waits for a heartbeat and its delay"
    }
    application.shard.pass_time(3_000)
    application.beat("m1", 1)
    assert application.reasons() == {None}


def test_an_empty_group_has_nobody_for_its_tasks() -> None:
    application = Application(COUNTS)
    application.join("m1", "p1")
    application.beat("m1", -1)
    assert application.reasons() == {"the group has no members"}
