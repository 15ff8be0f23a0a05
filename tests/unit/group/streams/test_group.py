"""A streams group's members, states, offsets and description: cases of Apache Kafka's StreamsGroupTest (4.3.1).

Where Kafka's test sets a field of the group, a record is loaded here. Its cases about endpoints are in
test_large_groups.py, those about owners of tasks in test_task_owners.py.
"""

from collections.abc import Iterable
from typing import Any

import pytest

from kafkapy.errors import ApiError
from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.streams.checks import known_member
from kafkapy.group.streams.configured_topology import ConfiguredTopology
from kafkapy.group.streams.describe import described_group
from kafkapy.group.streams.group import StreamsGroup
from kafkapy.group.streams.member import StreamsMember
from kafkapy.group.streams.records import (
    current_record,
    member_record,
    member_tombstones,
    target_epoch_record,
    topology_record,
)
from kafkapy.group.streams.tasks import AssignedTasks, MemberState
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.streams_group_current_member_assignment_key import StreamsGroupCurrentMemberAssignmentKey
from kafkapy.protocol.messages.streams_group_describe_response import DescribedGroup
from kafkapy.protocol.messages.streams_group_member_metadata_key import StreamsGroupMemberMetadataKey
from kafkapy.protocol.messages.streams_group_metadata_key import StreamsGroupMetadataKey
from kafkapy.protocol.messages.streams_group_metadata_value import StreamsGroupMetadataValue
from kafkapy.protocol.messages.streams_group_target_assignment_member_key import StreamsGroupTargetAssignmentMemberKey
from kafkapy.protocol.messages.streams_group_target_assignment_metadata_key import (
    StreamsGroupTargetAssignmentMetadataKey,
)
from kafkapy.protocol.messages.streams_group_topology_key import StreamsGroupTopologyKey
from kafkapy.protocol.messages.streams_group_topology_value import StreamsGroupTopologyValue, Subtopology, TopicInfo
from tests.support.consumer_groups import image_of
from tests.support.streams_groups import StreamsShard

GROUP = "g"
SUBTOPOLOGY = Subtopology(
    "0",
    source_topics=["input"],
    repartition_source_topics=[TopicInfo("repartition")],
    repartition_sink_topics=["repartition"],
    state_changelog_topics=[TopicInfo("changelog")],
)
TOPOLOGY = topology_record(GROUP, StreamsGroupTopologyValue(epoch=1, subtopologies=[SUBTOPOLOGY]))
MEMBER_VERSIONS = (9, 10)
"""Of OffsetCommit, for members of a streams group; the others are below."""


def metadata(epoch: int, validated_topology_epoch: int = 0) -> CoordinatorRecord:
    value = StreamsGroupMetadataValue(epoch=epoch, validated_topology_epoch=validated_topology_epoch)
    return CoordinatorRecord(StreamsGroupMetadataKey(GROUP), value)


def records_of(member: StreamsMember) -> list[CoordinatorRecord]:
    return [member_record(GROUP, member), current_record(GROUP, member)]


def loaded(*records: CoordinatorRecord | Iterable[CoordinatorRecord]) -> StreamsGroup:
    """Return the group of a log: records, or those of a member."""
    shard = StreamsShard(image_of())
    shard.load(*[record for each in records for record in ([each] if isinstance(each, CoordinatorRecord) else each)])
    return shard.streams_group(GROUP)


def member(member_id: str = "m", epoch: int = 0, **fields: Any) -> list[CoordinatorRecord]:
    return records_of(StreamsMember(member_id, member_epoch=epoch, **fields))


def code_of(call: Any, *arguments: Any, **named: Any) -> ErrorCode:
    """Return the code that a call raises."""
    with pytest.raises(ApiError) as caught:
        call(*arguments, **named)
    return ErrorCode(caught.value.code)


# -- members ----------------------------------------------------------------------------------------------------------


def test_a_member_is_found_by_its_id_and_its_instance() -> None:
    log = loaded(metadata(1), member(instance_id="instance"), member("other")).log
    assert known_member(log, "m") is log.members["m"]
    assert log.static_member("instance") is log.members["m"]
    assert log.static_member("other instance") is None
    assert code_of(known_member, log, "does not exist") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_is_updated_replaces_itself() -> None:
    before, after = member(client_id="before"), member(client_id="after", instance_id="instance")
    log = loaded(metadata(1), before, after).log
    assert (log.members.keys(), log.members["m"].client_id) == ({"m"}, "after")
    assert log.static_member("instance") is log.members["m"]


def test_a_member_that_is_removed_takes_its_instance_along() -> None:
    log = loaded(metadata(1), member(instance_id="instance"), member_tombstones(GROUP, "m")).log
    assert "m" not in log.members
    assert (log.static_member("instance"), log.static_members) == (None, {})


# -- state ------------------------------------------------------------------------------------------------------------

READY = [metadata(2, validated_topology_epoch=1), TOPOLOGY]
TARGET_3 = [*READY, metadata(3, validated_topology_epoch=1), target_epoch_record(GROUP, 3, 12_345)]
BEHIND = member("1", 2, previous_member_epoch=0)
AT_TARGET = member("1", 3, previous_member_epoch=2)


@pytest.mark.parametrize(
    ("records", "state"),
    [
        ([metadata(2)], "Empty"),
        ([metadata(2), BEHIND], "NotReady"),
        ([*READY, BEHIND], "Assigning"),
        ([*TARGET_3[:-1], BEHIND, member("2", 2)], "Assigning"),
        ([*TARGET_3, BEHIND, member("2", 2)], "Reconciling"),
        ([*TARGET_3, AT_TARGET, member("2", 2)], "Reconciling"),
        ([*TARGET_3, AT_TARGET, member("2", 3, state=MemberState.UNREVOKED_TASKS)], "Reconciling"),
        ([*TARGET_3, AT_TARGET, member("2", 3, state=MemberState.UNRELEASED_TASKS)], "Reconciling"),
        ([*TARGET_3, AT_TARGET, member("2", 3)], "Stable"),
        ([*TARGET_3, AT_TARGET, member_tombstones(GROUP, "1")], "Empty"),
    ],
)
def test_the_state_follows_from_members_topology_and_epochs(records: list[Any], state: str) -> None:
    group = loaded(*records)
    assert group.state_name == state
    if state == "Empty":
        group.check_deletion()
    else:
        assert code_of(group.check_deletion) is ErrorCode.NON_EMPTY_GROUP


@pytest.mark.parametrize(
    ("wanted", "is_listed"), [("NotReady", True), ("not_ready", True), (" NOT_READY", True), ("empty", False)]
)
def test_a_group_is_listed_by_its_state_whatever_the_case(wanted: str, is_listed: bool) -> None:
    shard = StreamsShard(image_of())
    shard.load(metadata(2), *BEHIND)
    listed = [each for each in shard.shard.list_groups([wanted], []) if each is not None]
    assert [(each.group_id, each.group_state, each.group_type, each.protocol_type) for each in listed] == (
        [(GROUP, "NotReady", "streams", "streams")] if is_listed else []
    )


def test_metadata_is_checked_again_for_other_topics_or_an_epoch_that_was_not_written() -> None:
    image, group = image_of(foo=1), loaded(metadata(1))
    assert group.has_metadata_expired(image)
    group.metadata_checked(image, 1)
    assert not group.has_metadata_expired(image)
    assert group.has_metadata_expired(image_of(foo=2))
    group.metadata_checked(image, 2)
    assert group.has_metadata_expired(image)
    group.replay(metadata(2).key, metadata(2).value)
    assert not group.has_metadata_expired(image)


def test_the_first_member_that_asks_for_a_shutdown_is_named_until_all_are_gone() -> None:
    group = loaded(metadata(1), member("1"), member("2"))
    assert group.shutdown_member_id is None
    named = []
    for step in (lambda: group.request_shutdown("1"), lambda: group.request_shutdown("2"), *map(_leaving(group), "12")):
        step()
        named.append(group.shutdown_member_id)
    assert named == ["1", "1", "1", None]


def _leaving(group: StreamsGroup) -> Any:
    def leave(member_id: str) -> Any:
        def replay() -> None:
            for record in member_tombstones(GROUP, member_id):
                group.replay(record.key, record.value)

        return replay

    return leave


def test_a_group_is_deleted_with_all_that_its_records_say() -> None:
    records = list(loaded(metadata(1), member()).tombstone_records())
    assert [record.value for record in records] == [None] * 6
    assert {repr(record.key) for record in records} == {
        repr(each)
        for each in (
            StreamsGroupMetadataKey(GROUP),
            StreamsGroupTargetAssignmentMetadataKey(GROUP),
            StreamsGroupTopologyKey(GROUP),
            StreamsGroupMemberMetadataKey(GROUP, member_id="m"),
            StreamsGroupTargetAssignmentMemberKey(GROUP, member_id="m"),
            StreamsGroupCurrentMemberAssignmentKey(GROUP, member_id="m"),
        )
    }


# -- offsets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 11))
def test_members_commit_at_their_epoch_and_nobody_else(version: int) -> None:
    group = loaded(metadata(1))
    commit = group.check_offset_commit
    offsets: dict[str, Any] = {"version": version, "is_transactional": False}
    assert commit("", "", -1, **offsets) is None, "an admin client, to an empty group"
    assert code_of(commit, "m", None, 0, **offsets) is ErrorCode.UNKNOWN_MEMBER_ID
    for record in member():
        group.replay(record.key, record.value)
    for instance_id in ("", None):
        assert code_of(commit, "", instance_id, -1, **offsets) is ErrorCode.UNKNOWN_MEMBER_ID
    if version in MEMBER_VERSIONS:
        assert code_of(commit, "m", "", 10, **offsets) is ErrorCode.STALE_MEMBER_EPOCH
        assert commit("m", "", 0, **offsets) is None
    else:
        for epoch in (0, 10):
            assert code_of(commit, "m", "", epoch, **offsets) is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("version", range(7))
def test_transactions_commit_at_the_members_epoch_or_without_a_member(version: int) -> None:
    group = loaded(metadata(1))
    commit = group.check_offset_commit
    offsets: dict[str, Any] = {"version": version, "is_transactional": True}
    assert commit("", "", -1, **offsets) is None
    assert code_of(commit, "m", None, 0, **offsets) is ErrorCode.UNKNOWN_MEMBER_ID
    for record in member():
        group.replay(record.key, record.value)
    assert code_of(commit, "", "", -1, **offsets) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of(commit, "m", "", 10, **offsets) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit("m", "", 0, **offsets) is None
    assert commit("", None, -1, **offsets) is None, "a producer that names no member"


@pytest.mark.parametrize(
    ("epoch", "tasks", "received", "topic", "partition", "is_committed"),
    [
        (2, {0: 2, 1: 1}, 1, "input", 0, False),
        (2, {0: 2, 1: 1}, 1, "input", 1, True),
        (2, {}, 1, "unknown", 0, False),
        (2, {0: 1}, 1, "input", 1, False),
        (5, {0: 2, 1: 2}, 2, "input", 0, True),
        (5, {0: 2, 1: 2}, 2, "input", 1, True),
        (5, {0: 2, 1: 2}, 3, "repartition", 1, True),
    ],
)
def test_an_older_epoch_commits_what_was_assigned_by_then(
    epoch: int, tasks: dict[int, int], received: int, topic: str, partition: int, is_committed: bool
) -> None:
    assigned = AssignedTasks(active={"0": tasks} if tasks else {})
    for fields in ({"assigned": assigned}, {"pending_revocation": assigned}):
        group = loaded(metadata(1), TOPOLOGY, member(epoch=epoch, **fields))
        check = group.check_offset_commit("m", "", received, version=9, is_transactional=False)
        assert check is not None
        if is_committed:
            check(topic, None, partition)  # type: ignore[arg-type]
        else:
            assert code_of(check, topic, None, partition) is ErrorCode.STALE_MEMBER_EPOCH


def test_an_older_epoch_commits_nothing_without_a_topology() -> None:
    group = loaded(metadata(1), member(epoch=2))
    code = code_of(group.check_offset_commit, "m", "", 1, version=9, is_transactional=False)
    assert code is ErrorCode.STALE_MEMBER_EPOCH


def test_offsets_are_fetched_by_members_at_their_epoch_and_by_others() -> None:
    group = loaded(metadata(1), member())
    group.check_offset_fetch(None, -1)
    group.check_offset_fetch("m", 0)
    assert code_of(group.check_offset_fetch, "m", 10) is ErrorCode.STALE_MEMBER_EPOCH
    assert code_of(group.check_offset_fetch, "other", 0) is ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_expire_from_their_commit_on() -> None:
    assert loaded(metadata(1)).offsets_unused_since_ms(20_000) == 20_000


def test_a_group_with_members_is_subscribed_to_what_its_topology_reads() -> None:
    group = loaded(metadata(1), TOPOLOGY, member())
    topics = ("input", "repartition", "changelog", "other")
    assert [group.is_subscribed_to(each) for each in topics] == [True, True, False, False]
    without_members = loaded(metadata(1), TOPOLOGY)
    without_topology = loaded(metadata(1), member())
    assert not any(each.is_subscribed_to(topic) for each in (without_members, without_topology) for topic in topics)


# -- description ------------------------------------------------------------------------------------------------------


def described(group: StreamsGroup) -> DescribedGroup:
    return described_group(group, group.log.members.values(), "sticky", has_topology=True)


def test_a_group_is_described_by_its_epochs_and_members() -> None:
    found = described(loaded(*TARGET_3, AT_TARGET, member("2", 3)))
    assert (found.group_id, found.group_state) == (GROUP, "Stable")
    assert (found.group_epoch, found.assignment_epoch) == (3, 3)
    assert [each.member_id for each in found.members] == ["1", "2"]


def test_the_topology_is_described_as_members_sent_it_until_it_is_configured() -> None:
    group = loaded(*READY, member("1", 2))
    topology = described(group).topology
    assert topology is not None
    assert topology.epoch == 1
    (found,) = topology.subtopologies or ()
    assert (found.subtopology_id, found.source_topics) == ("0", ["input"])
    assert [each.name for each in found.repartition_source_topics] == ["repartition"]
    assert [each.name for each in found.state_changelog_topics] == ["changelog"]
    group.configured = ConfiguredTopology(3, {})
    topology = described(group).topology
    assert topology is not None
    assert (topology.epoch, topology.subtopologies) == (3, [])


def test_a_group_without_a_topology_has_none_described() -> None:
    assert described(loaded(metadata(1), member(epoch=1))).topology is None
