"""The target assignment of a streams group: what the assignor is given, and the records that its answer leads to."""

from collections.abc import Mapping

from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.streams.assignor_spec import AssignmentConfigs, GroupSpec, MemberSpec, TaskAssignor, spec_order
from kafkapy.group.streams.configured_topology import ConfiguredTopology
from kafkapy.group.streams.member import StreamsMember
from kafkapy.group.streams.records import target_record
from kafkapy.group.streams.settings import RACK_TAGS, STANDBY_REPLICAS
from kafkapy.group.streams.state import StreamsGroupLog
from kafkapy.group.streams.task_offsets import NO_OFFSETS, MemberTaskOffsets
from kafkapy.group.streams.tasks import EMPTY_TASKS, TasksTuple

Members = Mapping[str, StreamsMember]
Targets = Mapping[str, TasksTuple]


def updated_view(log: StreamsGroupLog, updated: StreamsMember) -> tuple[Members, Targets]:
    """Return the members and targets with a member as `updated`. It replaces the static member of its instance."""
    members, targets = dict(log.members), dict(log.targets)
    members[updated.member_id] = updated
    replaced = log.static_members.get(updated.instance_id) if updated.instance_id is not None else None
    if replaced is not None and replaced != updated.member_id:
        members.pop(replaced, None)
        target = targets.pop(replaced, None)
        if target is not None:
            targets[updated.member_id] = target
    return members, targets


def new_target(
    members: Members,
    topology: ConfiguredTopology,
    offsets: Mapping[str, MemberTaskOffsets],
    configs: Mapping[str, str],
    assignor: TaskAssignor,
) -> Targets:
    """Return the target of each member: no tasks as long as the topology is not ready."""
    in_order = spec_order(members)
    if not topology.is_ready:
        return dict.fromkeys(in_order, EMPTY_TASKS)
    specs = {each: _spec(members[each], offsets.get(each, NO_OFFSETS)) for each in in_order}
    assignment = assignor(GroupSpec(specs, topology.specs(), _configs(configs)))
    assert assignment.keys() <= specs.keys(), "tasks of members that there are not"
    return {each: assignment.get(each, EMPTY_TASKS) for each in in_order}


def changed_targets(group_id: str, before: Targets, after: Targets) -> list[CoordinatorRecord]:
    """Return the records of the members whose target has changed."""
    return [
        target_record(group_id, member_id, target)
        for member_id, target in after.items()
        if before.get(member_id) != target
    ]


def _spec(member: StreamsMember, offsets: MemberTaskOffsets) -> MemberSpec:
    return MemberSpec(
        member.process_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_tags=member.client_tags,
        active=member.assigned.active_partitions,
        standby=member.assigned.standby,
        warmup=member.assigned.warmup,
        task_offsets=offsets.offsets,
        task_end_offsets=offsets.end_offsets,
    )


def _configs(configs: Mapping[str, str]) -> AssignmentConfigs:
    tags = configs.get(RACK_TAGS, "")
    return AssignmentConfigs(int(configs.get(STANDBY_REPLICAS, "0")), tuple(tags.split(",")) if tags else ())
