"""Heartbeats to a group as its log says it, and what they write: cases of Apache Kafka's GroupMetadataManagerTest.

Of 4.3.1. As there, targets are those of an assignor that is told them. tests/kafka_cases.tsv has all the cases.
"""

from dataclasses import replace
from typing import Any

import pytest

from kafkapy.group.classic.group import ClassicGroup
from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.streams.assignors import ASSIGNORS
from kafkapy.group.streams.configured_topology import StatusCode
from kafkapy.group.streams.records import (
    current_record,
    member_record,
    target_epoch_record,
    target_record,
    topology_record,
)
from kafkapy.group.streams.tasks import AssignedTasks, MemberState
from kafkapy.group.streams.topology import stored_topology
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.group_metadata_key import GroupMetadataKey
from kafkapy.protocol.messages.group_metadata_value import GroupMetadataValue
from kafkapy.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from kafkapy.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from kafkapy.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from kafkapy.protocol.messages.streams_group_heartbeat_request import (
    CopartitionGroup,
    Subtopology,
    TopicInfo,
    Topology,
)
from tests.support.consumer_groups import CLIENT, FakeConsumer, image_of
from tests.support.streams_logs import (
    FOO,
    Assignor,
    assigned,
    at_now,
    beat,
    join,
    load,
    member,
    metadata,
    owning,
    refused,
    shard_of,
    statuses,
    tasks,
    told,
)

FOO_BAR = Topology(0, subtopologies=[*FOO.subtopologies, Subtopology("2", source_topics=["bar"])])


@pytest.fixture
def assignor(monkeypatch: pytest.MonkeyPatch) -> Assignor:
    assignor = Assignor()
    monkeypatch.setitem(ASSIGNORS, "sticky", assignor)
    return assignor


# -- members ----------------------------------------------------------------------------------------------------------


def test_members_that_nobody_knows_are_refused() -> None:
    shard = shard_of(image_of(foo=1))
    assert refused(beat, shard, "m", 100) == (ErrorCode.GROUP_ID_NOT_FOUND, "Streams group g not found.")
    join(shard, "m")
    assert refused(beat, shard, "2", 1) == (ErrorCode.UNKNOWN_MEMBER_ID, "Member 2 is not a member of group g.")


def test_a_member_is_known_by_its_epoch_or_the_one_before_with_its_tasks(assignor: Assignor) -> None:
    shard, image = shard_of(image_of(foo=6)), image_of(foo=6)
    load(shard, FOO, metadata(100, image, "foo"), member("m", 100, {"1": (1, 2, 3)}))
    text = (
        "The streams group member has a {} member epoch ({}) than the one known by the group coordinator (100). The "
        "member must abandon all its partitions and rejoin."
    )
    for epoch, what in ((200, "greater"), (50, "smaller"), (99, "smaller")):
        assert refused(beat, shard, "m", epoch) == (ErrorCode.FENCED_MEMBER_EPOCH, text.format(what, epoch))
    result, _ = beat(shard, "m", 99, **owning({"1": (1, 2)}))
    assert result.response.member_epoch == 100


def test_tasks_that_are_not_in_the_topology_are_refused() -> None:
    shard, image = shard_of(image_of(foo=3)), image_of(foo=3)
    load(shard, FOO, metadata(10, image, "foo"), member("m", 10, {"1": (0, 1, 2)}))
    unknown = refused(beat, shard, "m", 10, **owning({"missing": [0]}))
    assert unknown == (ErrorCode.INVALID_REQUEST, "Subtopology missing does not exist in the topology.")
    too_high = refused(beat, shard, "m", 10, **owning({"1": [3]}))
    message = "Task 3 for subtopology 1 is invalid. Number of tasks for this subtopology: 3"
    assert too_high == (ErrorCode.INVALID_REQUEST, message)


def test_a_member_that_joins_again_is_told_its_tasks_and_begins_no_epoch() -> None:
    image = image_of(foo=3)
    shard = shard_of(image)
    topology = Topology(1, subtopologies=FOO.subtopologies)
    load(
        shard, topology, metadata(100, image, "foo", validated=1), member("m", 100, {"1": (0, 1, 2)}, topology_epoch=1)
    )
    result, written = join(shard, "m", topology)
    assert told(result) == (100, {"1": [0, 1, 2]})
    assert statuses(result) == []
    assert written == []


def test_a_member_that_leaves_begins_an_epoch() -> None:
    image = image_of(foo=6)
    shard = shard_of(image)
    load(shard, FOO, metadata(10, image, "foo"), member("1", 10, {"1": (0, 1, 2)}), member("2", 10, {"1": (3, 4, 5)}))
    result, written = beat(shard, "2", -1)
    assert (result.response.member_id, result.response.member_epoch, result.response.status) == ("2", -1, [])
    names = [type(each.key).__name__ for each in written if each.value is None]
    assert names == [
        "StreamsGroupCurrentMemberAssignmentKey",
        "StreamsGroupTargetAssignmentMemberKey",
        "StreamsGroupMemberMetadataKey",
    ]
    assert written[3:] == [metadata(11, image, "foo")]


# -- the first member -------------------------------------------------------------------------------------------------


def test_the_first_member_makes_the_group_and_gets_its_tasks(assignor: Assignor) -> None:
    image = image_of(foo=6, bar=3)
    shard = shard_of(image)
    assignor.targets = {"m": {"1": range(6), "2": range(3)}}
    result, written = join(shard, "m", FOO_BAR)
    assert told(result) == (2, {"1": [0, 1, 2, 3, 4, 5], "2": [0, 1, 2]})
    assert (result.response.heartbeat_interval_ms, result.response.status) == (5_000, [])
    expected = member("m", 2, assignor.targets["m"], previous_member_epoch=0)
    assert written == [
        member_record("g", expected),
        topology_record("g", stored_topology(FOO_BAR)),
        metadata(2, image, "foo", "bar"),
        target_record("g", "m", tasks(assignor.targets["m"])),
        target_epoch_record("g", 2, at_now(shard)),
        current_record("g", expected),
    ]
    described = shard.shard.streams.describe("g")
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Stable", 2, 2)
    assert [each.source_topics for each in described.topology.subtopologies or ()] == [["foo"], ["bar"]]
    (only,) = described.members
    assert only.assignment == only.target_assignment


JOINED = Topology(
    0,
    subtopologies=[
        Subtopology("1", source_topics=["foo", "bar"], copartition_groups=[CopartitionGroup(source_topics=[0, 1])])
    ],
)
WITH_CHANGELOG = Topology(
    0, subtopologies=[Subtopology("1", source_topics=["foo"], state_changelog_topics=[TopicInfo("bar")])]
)


@pytest.mark.parametrize(
    ("topology", "counts", "status", "created"),
    [
        (FOO_BAR, {"foo": 6}, (StatusCode.MISSING_SOURCE_TOPICS, "Source topics bar are missing."), {}),
        (
            WITH_CHANGELOG,
            {"foo": 6},
            (StatusCode.MISSING_INTERNAL_TOPICS, "Internal topics are missing: bar"),
            {"bar": (6, None)},
        ),
        (
            JOINED,
            {"foo": 6, "bar": 3},
            (
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                "Following topics do not have the same number of partitions: [{bar=3, foo=6}]",
            ),
            {},
        ),
    ],
    ids=("missing", "internal", "not-copartitioned"),
)
def test_a_topology_that_cannot_run_yet_is_kept_and_nothing_is_assigned(
    topology: Topology, counts: dict[str, int], status: tuple[int, str], created: dict[str, Any]
) -> None:
    image = image_of(**counts)
    shard = shard_of(image)
    result, written = join(shard, "m", topology)
    assert {
        name: (each.number_of_partitions, each.replication_factor) for name, each in result.topics_to_create.items()
    } == (created)
    assert told(result) == (2, {})
    assert statuses(result) == [status]
    expected = member("m", 2, {}, previous_member_epoch=0)
    assert written == [
        member_record("g", expected),
        topology_record("g", stored_topology(topology)),
        metadata(2, image, *counts, validated=-1),
        target_record("g", "m", tasks({})),
        target_epoch_record("g", 2, at_now(shard)),
        current_record("g", expected),
    ]
    assert shard.streams_group().state_name == "NotReady"


def test_a_member_with_an_older_topology_is_told_so(assignor: Assignor) -> None:
    image = image_of(foo=6, bar=3)
    shard = shard_of(image)
    newer = Topology(1, subtopologies=[Subtopology("1", source_topics=["foo", "bar"])])
    load(shard, newer, metadata(10, image, validated=1))
    result, written = join(shard, "m", FOO)
    assert told(result) == (11, {})
    message = "The member's topology epoch 0 is behind the group's topology epoch 1."
    assert statuses(result) == [(StatusCode.STALE_TOPOLOGY, message)]
    expected = member("m", 11, {}, previous_member_epoch=0)
    assert written == [
        member_record("g", expected),
        metadata(11, image, "foo", "bar", validated=1),
        target_record("g", "m", tasks({})),
        target_epoch_record("g", 11, at_now(shard)),
        current_record("g", expected),
    ]


# -- other kinds ------------------------------------------------------------------------------------------------------


def join_request() -> JoinGroupRequest:
    return JoinGroupRequest(
        "g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", metadata=b"")],
    )


def test_an_empty_classic_group_becomes_a_streams_group(assignor: Assignor) -> None:
    shard = shard_of(image_of())
    key = GroupMetadataKey("g")
    shard.load(CoordinatorRecord(key, GroupMetadataValue("consumer", generation=1)))
    assert isinstance(shard.groups["g"], ClassicGroup)
    result, written = join(shard, "m")
    assert result.response.member_epoch == 2
    expected = member("m", 2, {}, previous_member_epoch=0)
    assert written == [
        CoordinatorRecord(key, None),
        member_record("g", expected),
        topology_record("g", stored_topology(FOO)),
        metadata(2, image_of(), validated=-1),
        target_record("g", "m", tasks({})),
        target_epoch_record("g", 2, at_now(shard)),
        current_record("g", expected),
    ]
    assert shard.streams_group().group_type == "streams"


@pytest.mark.parametrize("kind", ["classic", "consumer", "share"])
def test_groups_of_other_kinds_are_not_streams_groups(kind: str) -> None:
    shard = shard_of(image_of(foo=6))
    streams = shard.shard.streams
    assert streams.describe("g").error_message == "Group g not found."
    if kind == "classic":
        shard.commit(shard.shard.classic.join(join_request(), 3, CLIENT, 1, 0))
    elif kind == "consumer":
        FakeConsumer(shard, "1", "foo").join()
    else:
        request = ShareGroupHeartbeatRequest("g", member_id="1", subscribed_topic_names=["foo"])
        shard.commit(shard.shard.share.heartbeat(request, CLIENT, shard.now_ms))
    assert shard.groups["g"].group_type == kind
    not_streams = ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a streams group."
    assert refused(join, shard, "m") == not_streams
    assert refused(beat, shard, "m", 1) == not_streams
    described = streams.describe("g")
    assert (described.error_code, described.error_message) == not_streams


def test_a_streams_group_is_of_no_other_kind() -> None:
    shard = shard_of(image_of(foo=6))
    join(shard, "m")
    group = shard.shard
    for described, kind in ((group.consumer.describe("g"), "consumer"), (group.share.describe("g"), "share")):
        assert (described.error_code, described.error_message) == (
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Group g is not a {kind} group.",
        )
    left = group.classic.leave(LeaveGroupRequest("g", members=[MemberIdentity("m")]), 5, 0)
    assert [each.error_code for each in left.response.members] == [ErrorCode.UNKNOWN_MEMBER_ID]


# -- the delay of the first assignment, and the interval of the others -------------------------------------------------


def test_a_first_member_waits_for_others(assignor: Assignor) -> None:
    shard = shard_of(image_of(foo=2), group_streams_initial_rebalance_delay_ms=1_000)
    result, _ = join(shard, "m")
    assert told(result) == (1, {})
    message = "Assignment delayed due to the configured initial rebalance delay."
    assert statuses(result) == [(StatusCode.ASSIGNMENT_DELAYED, message)]
    assert (result.response.partitions_by_user_endpoint, result.response.endpoint_information_epoch) == (None, 0)
    assignor.targets = {"m": {"1": (0, 1)}}
    shard.pass_time(10_000)
    result, _ = beat(shard, "m", 1, **owning({}))
    assert (*told(result), statuses(result)) == (2, {"1": [0, 1]}, [])


def test_a_member_of_a_group_that_has_become_empty_waits_for_others_too(assignor: Assignor) -> None:
    image = image_of(foo=2)
    shard = shard_of(image, group_streams_initial_rebalance_delay_ms=1_000)
    load(shard, FOO, metadata(10, image))
    assignor.targets = {"m": {"1": (0, 1)}}
    result, _ = join(shard, "m")
    assert told(result)[1] == {}
    shard.pass_time(2_000)
    result, _ = beat(shard, "m", result.response.member_epoch, **owning({}))
    assert told(result)[1] == {"1": [0, 1]}


def test_a_group_that_is_deleted_waits_for_nobody() -> None:
    shard = shard_of(image_of(foo=2), group_streams_initial_rebalance_delay_ms=1_000)
    join(shard, "m")
    assert shard.streams_group().timers.is_delayed
    beat(shard, "m", -1)
    shard.commit(shard.shard.delete_group("g"))
    assert "g" not in shard.groups
    assert shard.pass_time(1_000) == []
    join(shard, "m")
    assert shard.streams_group().timers.initial_delay_until_ms == shard.now_ms + 1_000, "it waits anew"


def test_a_target_waits_for_the_interval_between_assignments(assignor: Assignor) -> None:
    image = image_of(foo=6)
    shard = shard_of(image, group_streams_assignment_interval_ms=5_000)
    assignor.targets = {"1": {"1": range(6)}}
    assert told(join(shard, "1")[0]) == (2, {"1": [0, 1, 2, 3, 4, 5]})

    shard.pass_time(4_995)
    assignor.targets = {"1": {"1": (0, 1, 2)}, "2": {"1": (3, 4, 5)}}
    result, written = join(shard, "2")
    assert told(result) == (2, {})
    message = "Assignment delayed due to the configured assignment interval."
    assert statuses(result) == [(StatusCode.ASSIGNMENT_DELAYED, message)]
    joined = member("2", 2, {}, previous_member_epoch=0)
    assert written == [member_record("g", joined), metadata(3, image, "foo"), current_record("g", joined)]

    shard.pass_time(10)
    result, written = beat(shard, "2", 2)
    assert (*told(result), statuses(result)) == (3, None, [])
    waits = member("2", 3, {}, state=MemberState.UNRELEASED_TASKS)
    assert written[-2:] == [target_epoch_record("g", 3, at_now(shard)), current_record("g", waits)]
    targets = [target_record("g", each, tasks(assignor.targets[each])) for each in ("1", "2")]
    assert sorted(written[:-2], key=lambda each: each.key.member_id) == targets


# -- new targets ------------------------------------------------------------------------------------------------------


def test_a_topic_that_has_grown_leads_to_a_new_target(assignor: Assignor) -> None:
    before, image = image_of(foo=6, bar=3), image_of(foo=6, bar=6)
    shard = shard_of(image)
    load(shard, FOO_BAR, metadata(10, before, "foo", "bar"), member("m", 10, {"1": range(6)}))
    assignor.targets = {"m": {"1": range(6), "2": range(3)}}
    result, written = beat(shard, "m", 10)
    assert told(result) == (11, {"1": [0, 1, 2, 3, 4, 5], "2": [0, 1, 2]})
    both = AssignedTasks({"1": dict.fromkeys(range(6), 10), "2": dict.fromkeys(range(3), 11)})
    assert written == [
        metadata(11, image, "foo", "bar"),
        target_record("g", "m", tasks(assignor.targets["m"])),
        target_epoch_record("g", 11, at_now(shard)),
        current_record("g", member("m", 11, {}, assigned=both)),
    ]


def test_what_could_not_be_written_of_a_new_target_is_decided_again(assignor: Assignor) -> None:
    before, image = image_of(foo=3), image_of(foo=6)
    shard = shard_of(image)
    load(shard, FOO, metadata(10, before, "foo"), member("m", 10, {"1": range(3)}))
    assert shard.streams_group().has_metadata_expired(image)
    assignor.targets = {"m": {"1": range(6)}}
    shard.refuses_append = lambda: True
    assert refused(beat, shard, "m", 10)[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE
    shard.refuses_append = None
    assert shard.streams_group().has_metadata_expired(image), "the epoch of the check was not written"
    result, written = beat(shard, "m", 10)
    assert told(result) == (11, {"1": [0, 1, 2, 3, 4, 5]})
    epochs = AssignedTasks({"1": {0: 10, 1: 10, 2: 10, 3: 11, 4: 11, 5: 11}})
    assert written == [
        metadata(11, image, "foo"),
        target_record("g", "m", tasks(assignor.targets["m"])),
        target_epoch_record("g", 11, at_now(shard)),
        current_record("g", member("m", 11, {}, assigned=epochs)),
    ]
    assert not shard.streams_group().has_metadata_expired(image)


@pytest.mark.parametrize(
    ("topics", "begins_epoch"),
    [
        ({"a": 1, "b": 1, "c": 1}, False),
        ({"a": 1, "b": 1, "c": 1, "other": 1}, False),
        ({"a": 1, "b": 2, "c": 1}, True),
        ({"a": 1, "b": 1}, True),
    ],
    ids=("same", "another-topic", "grown", "deleted"),
)
def test_topics_begin_an_epoch_of_the_groups_that_use_them(topics: dict[str, int], begins_epoch: bool) -> None:
    before, image = image_of(a=1, b=1, c=1), image_of(**topics)
    subtopology = Subtopology(
        "1", source_topics=["a", "b"], state_changelog_topics=[TopicInfo("c")], copartition_groups=[]
    )
    shard = shard_of(before)
    load(
        shard,
        Topology(0, subtopologies=[subtopology]),
        metadata(10, before, "a", "b", "c"),
        member("m", 10, {"1": [0]}),
    )
    beat(shard, "m", 10)
    shard.image = image
    beat(shard, "m", 10)
    assert shard.streams_group().log.group_epoch == (11 if begins_epoch else 10)


# -- the way from one target to the next ------------------------------------------------------------------------------


def test_tasks_go_from_two_members_to_a_third_one(assignor: Assignor) -> None:
    image = image_of(foo=6, bar=3)
    shard = shard_of(image)
    members = (member("1", 10, {"1": (0, 1, 2), "2": (0, 1)}), member("2", 10, {"1": (3, 4, 5), "2": [2]}))
    load(shard, FOO_BAR, metadata(10, image, "foo", "bar"), *members)
    assert shard.streams_group().state_name == "Stable"
    assignor.targets = {
        "1": {"1": (0, 1), "2": [0]},
        "2": {"1": (2, 3), "2": [2]},
        "3": {"1": (4, 5), "2": [1]},
    }

    def state_of(member_id: str) -> MemberState:
        return shard.streams_group().log.members[member_id].state

    result, written = join(shard, "3", FOO_BAR)
    assert told(result) == (11, {})
    waits = {"state": MemberState.UNRELEASED_TASKS}
    assert written[-1] == current_record("g", member("3", 11, {}, previous_member_epoch=0, **waits))
    assert shard.streams_group().state_name == "Reconciling"

    result, written = beat(shard, "1", 10)
    assert told(result) == (10, {"1": [0, 1], "2": [0]})
    revokes = {"state": MemberState.UNREVOKED_TASKS, "previous_member_epoch": 10}
    gives_up = member(
        "1", 10, {"1": (0, 1), "2": [0]}, pending_revocation=assigned(10, {"1": [2], "2": [1]}), **revokes
    )
    assert written == [current_record("g", gives_up)]

    result, written = beat(shard, "2", 10)
    assert told(result) == (10, {"1": [3], "2": [2]})
    gives_up = member("2", 10, {"1": [3], "2": [2]}, pending_revocation=assigned(10, {"1": (4, 5)}), **revokes)
    assert written == [current_record("g", gives_up)]

    result, written = beat(shard, "3", 11)
    assert told(result) == (11, None)
    assert written == [current_record("g", member("3", 11, {}, previous_member_epoch=11, **waits))]

    result, written = beat(shard, "1", 10, **owning({"1": (0, 1), "2": [0]}))
    assert told(result) == (11, None)
    kept = {"assigned": assigned(10, {"1": (0, 1), "2": [0]})}
    assert written == [current_record("g", member("1", 11, {}, **kept))]

    result, written = beat(shard, "2", 10)
    assert (*told(result), written) == (10, None, []), "it has not given up anything yet"

    result, written = beat(shard, "3", 11)
    assert told(result) == (11, {"2": [1]})
    assert written == [current_record("g", member("3", 11, {"2": [1]}, previous_member_epoch=11, **waits))]
    result, written = beat(shard, "3", 11)
    assert (*told(result), written) == (11, None, [])
    assert state_of("3") is MemberState.UNRELEASED_TASKS

    result, written = beat(shard, "2", 10, **owning({"1": [3], "2": [2]}))
    assert told(result) == (11, {"1": [2, 3], "2": [2]})
    epochs = AssignedTasks({"1": {2: 11, 3: 10}, "2": {2: 10}})
    assert written == [current_record("g", member("2", 11, {}, assigned=epochs))]
    assert shard.streams_group().state_name == "Reconciling"

    result, written = beat(shard, "3", 11, **owning({"2": [1]}))
    assert told(result) == (11, {"1": [4, 5], "2": [1]})
    assert written == [current_record("g", member("3", 11, {"1": (4, 5), "2": [1]}, previous_member_epoch=11))]
    assert [state_of(each) for each in "123"] == [MemberState.STABLE] * 3
    assert shard.streams_group().state_name == "Stable"


# -- configs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "heartbeat_ms", "session_ms", "standbys"),
    [
        ({"session.timeout.ms": 50_000, "heartbeat.interval.ms": 10_000, "num.standby.replicas": 2}, 10_000, 50_000, 2),
        ({"session.timeout.ms": 70_000, "heartbeat.interval.ms": 1, "num.standby.replicas": 100}, 5_000, 60_000, 2),
    ],
    ids=("within", "out-of-bounds"),
)
def test_a_groups_own_configs_take_effect_within_the_brokers_bounds(
    assignor: Assignor, own: dict[str, int], heartbeat_ms: int, session_ms: int, standbys: int
) -> None:
    shard = shard_of(image_of(foo=6), group_streams_assignment_interval_ms=0)
    result, _ = join(shard, "m")
    assert (result.response.heartbeat_interval_ms, assignor.standbys) == (5_000, [0])
    shard.group_configs["g"] = {f"streams.{key}": str(value) for key, value in own.items()}
    shard.config = replace(shard.config)  # settings are read anew when the broker's or the groups' have changed
    result, _ = beat(shard, "m", 2, rack_id="bla")
    assert (result.response.heartbeat_interval_ms, assignor.standbys) == (heartbeat_ms, [0, standbys])
    assert shard.pass_time(session_ms - 1) == []
    assert shard.pass_time(1) != []
    assert shard.streams_group().is_empty
