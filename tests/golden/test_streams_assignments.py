"""The assignor of streams groups against Apache Kafka's responses (format: tools/record_streams_assignments.py)."""

import gzip
from pathlib import Path

from kafkapy.group.streams.assignor_spec import AssignmentConfigs, GroupSpec, MemberSpec, SubtopologySpec, spec_order
from kafkapy.group.streams.sticky_assignor import assign_sticky
from kafkapy.group.streams.tasks import Tasks

GOLDEN = Path(__file__).parent / "streams_assignments.txt.gz"


def tasks_of(text: str) -> Tasks:
    found: dict[str, frozenset[int]] = {}
    for task in filter(None, text.split(",")):
        subtopology_id, _, partition = task.partition("_")
        found[subtopology_id] = found.get(subtopology_id, frozenset()) | {int(partition)}
    return found


def offsets_of(text: str) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for each in filter(None, text.split(",")):
        task, _, offset = each.partition("@")
        subtopology_id, _, partition = task.partition("_")
        found.setdefault(subtopology_id, {})[int(partition)] = int(offset)
    return found


def spec_of(question: str) -> GroupSpec:
    standbys, topology, *fields = question.split("|")
    members: dict[str, MemberSpec] = {}
    for member_id, process_id, active, standby, offsets in (field.split(";") for field in fields):
        members[member_id] = MemberSpec(
            process_id, active=tasks_of(active), standby=tasks_of(standby), task_offsets=offsets_of(offsets)
        )
    subtopologies = {
        each: SubtopologySpec(int(count), kind == "s")
        for each, count, kind in sorted(field.split(":") for field in topology.split(","))
    }
    in_order = {member_id: members[member_id] for member_id in spec_order(members)}
    return GroupSpec(in_order, subtopologies, AssignmentConfigs(int(standbys)))


def test_streams_groups_are_assigned_as_by_apache_kafka() -> None:
    groups = gzip.decompress(GOLDEN.read_bytes()).decode().splitlines()
    assert len(groups) > 1000
    for group in groups:
        question, _, response = group.partition("\t")
        assigned = assign_sticky(spec_of(question))
        for member_id, _, owned in (member.partition("=") for member in response.split("|")):
            active, _, standby = owned.partition("/")
            assert (assigned[member_id].active, assigned[member_id].standby) == (tasks_of(active), tasks_of(standby)), (
                question
            )
