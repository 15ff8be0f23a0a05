"""A log of a streams group that was partly compacted: cases of Apache Kafka's GroupMetadataManagerTest, and one more.

Compaction keeps the last record of each member, and removes those before it from the oldest on. So a record may be gone
by which a member gave up a task, while the one by which it got the task is still there.
"""

from collections.abc import Callable

import pytest

from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.streams.member import StreamsMember
from kafkapy.group.streams.records import (
    current_record,
    group_tombstones,
    member_record,
    member_tombstones,
    target_epoch_record,
    target_record,
)
from kafkapy.group.streams.task_owners import TaskOwners
from kafkapy.group.streams.tasks import AssignedTasks, MemberState, TasksTuple
from kafkapy.protocol.messages.streams_group_metadata_key import StreamsGroupMetadataKey
from kafkapy.protocol.messages.streams_group_metadata_value import StreamsGroupMetadataValue
from kafkapy.protocol.messages.streams_group_topology_key import StreamsGroupTopologyKey
from tests.support.consumer_groups import image_of
from tests.support.streams_groups import StreamsShard

GROUP = "g"


def assigned(member_id: str, process_id: str, epoch: int, **tasks: int) -> CoordinatorRecord:
    """Return the record by which a member has one task of each subtopology, all assigned at its epoch."""
    active = {subtopology_id: {number: epoch} for subtopology_id, number in tasks.items()}
    member = StreamsMember(
        member_id,
        member_epoch=epoch,
        previous_member_epoch=epoch - 1,
        state=MemberState.STABLE,
        process_id=process_id,
        assigned=AssignedTasks(active=active),
    )
    return current_record(GROUP, member)


def loaded(*records: CoordinatorRecord, processes: tuple[str, str] = ("process a", "process b")) -> StreamsShard:
    """Load a log: members a and b of these processes, then the records."""
    members = [
        member_record(GROUP, StreamsMember(name, process_id=process_id))
        for name, process_id in zip("ab", processes, strict=True)
    ]
    metadata = CoordinatorRecord(StreamsGroupMetadataKey(GROUP), StreamsGroupMetadataValue(epoch=14))
    shard = StreamsShard(image_of())
    shard.load(metadata, *members, *records)
    return shard


def test_a_task_stays_with_the_member_that_got_it_later() -> None:
    shard = loaded(
        assigned("a", "process a", 11, sub=0),
        assigned("b", "process b", 12, sub=0),
        assigned("a", "process a", 13, sub=1),
    )
    owners = shard.streams_group(GROUP).log.owners
    assert (owners.active_process("sub", 0), owners.active_process("sub", 1)) == ("process b", "process a")


def test_a_task_that_nobody_has_any_more_has_no_owner() -> None:
    shard = loaded(
        assigned("a", "process a", 11, foo=0),
        assigned("b", "process b", 12, foo=0),
        assigned("b", "process b", 13),
        assigned("a", "process a", 14, bar=0),
    )
    owners = shard.streams_group(GROUP).log.owners
    assert (owners.active_process("foo", 0), owners.active_process("bar", 0)) == (None, "process a")


def test_a_task_that_moved_within_a_process_keeps_its_owner() -> None:
    """Apache Kafka forgets the owner: it takes the last record for the one by which the process gives the task up."""
    shard = loaded(
        assigned("a", "process", 11, sub=0),
        assigned("b", "process", 12, sub=0),
        assigned("a", "process", 13, sub=1),
        processes=("process", "process"),
    )
    assert shard.streams_group(GROUP).log.owners.active_process("sub", 0) == "process"


def test_owners_are_counted_when_they_are_asked_for_and_not_while_the_log_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A shard may load many large groups, in turns; to count their owners is not to hold the loop at the end."""
    counted: list[str] = []
    add = TaskOwners.add

    def counting(self: TaskOwners, member: StreamsMember) -> None:
        counted.append(member.member_id)
        add(self, member)

    monkeypatch.setattr(TaskOwners, "add", counting)
    shard = loaded(assigned("a", "process a", 11, sub=0), assigned("b", "process b", 12, sub=1))
    assert counted == []
    owners = shard.streams_group(GROUP).log.owners
    assert (owners.active_process("sub", 0), owners.active_process("sub", 1)) == ("process a", "process b")
    assert counted == ["a", "b"]


TOMBSTONES: dict[str, Callable[[], list[CoordinatorRecord]]] = {
    "member": lambda: member_tombstones(GROUP, "m"),
    "group": lambda: list(group_tombstones(GROUP, ["m"])),
    "topology": lambda: [CoordinatorRecord(StreamsGroupTopologyKey(GROUP), None)],
}


@pytest.mark.parametrize("name", TOMBSTONES)
def test_tombstones_of_what_is_not_there_change_nothing(name: str) -> None:
    shard = StreamsShard(image_of())
    shard.load(*TOMBSTONES[name]())
    assert GROUP not in shard.groups


def test_a_member_whose_assignment_alone_is_deleted_has_left() -> None:
    member = StreamsMember("m", process_id="p")
    key = current_record(GROUP, member).key
    shard = StreamsShard(image_of())
    shard.load(member_record(GROUP, member), assigned("m", "p", 5, sub=0), CoordinatorRecord(key, None))
    found = shard.streams_group(GROUP).log.members["m"]
    assert (found.member_epoch, found.previous_member_epoch, found.assigned.is_empty) == (-1, -1, True)


def test_targets_are_read_back_and_forgotten() -> None:
    target = TasksTuple({"sub": frozenset({0, 1})}, {"sub": frozenset({2})}, {"sub": frozenset({3})})
    records = [target_record(GROUP, "a", target), target_epoch_record(GROUP, 14, 12_345)]
    log = loaded(*records).streams_group(GROUP).log
    assert (log.targets, log.assignment_epoch, log.assignment_timestamp_ms) == ({"a": target}, 14, 12_345)
    deleted = [CoordinatorRecord(each.key, None) for each in records]
    log = loaded(*records, *deleted).streams_group(GROUP).log
    assert (log.targets, log.assignment_epoch, log.assignment_timestamp_ms) == ({}, -1, 0)
