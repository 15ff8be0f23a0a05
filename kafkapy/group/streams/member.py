"""A member of a streams group, and its records in `__consumer_offsets`.

A StreamsMember is immutable: a request derives the next one and writes its records, and only replay puts it into the
group.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Final

from kafkapy.dataclass import dataclass
from kafkapy.group.hash_order import natural_order
from kafkapy.group.streams.tasks import NOTHING_ASSIGNED, AssignedTasks, MemberState, OwnedTasks, task_ids, tasks_of
from kafkapy.named_tuple import NamedTuple
from kafkapy.protocol.messages.streams_group_current_member_assignment_value import (
    StreamsGroupCurrentMemberAssignmentValue,
    TaskIds,
)
from kafkapy.protocol.messages.streams_group_member_metadata_value import (
    Endpoint as StoredEndpoint,
)
from kafkapy.protocol.messages.streams_group_member_metadata_value import (
    KeyValue,
    StreamsGroupMemberMetadataValue,
)

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
"""The epoch with which a static member leaves temporarily: it keeps its tasks until its session expires."""
LEAVE_EPOCHS: Final = (LEAVE_EPOCH, LEAVE_STATIC_EPOCH)


class UserEndpoint(NamedTuple):
    """The address at which the application answers interactive queries (application.server)."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class StreamsMember:
    """A member. Members of a process have the same process id, and share the state on its disk."""

    member_id: str
    member_epoch: int = JOIN_EPOCH
    previous_member_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    user_endpoint: UserEndpoint | None = None
    client_tags: Mapping[str, str] = field(default_factory=dict)
    assigned: AssignedTasks = NOTHING_ASSIGNED
    pending_revocation: AssignedTasks = NOTHING_ASSIGNED

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == target_epoch

    def assignment_epoch(self, subtopology_id: str, partition: int) -> int | None:
        """Return the epoch at which an active task, assigned or to be revoked, was assigned; None if it is neither."""
        epoch = self.assigned.active.get(subtopology_id, {}).get(partition)
        return self.pending_revocation.active.get(subtopology_id, {}).get(partition) if epoch is None else epoch

    def joining_as(self, member_id: str) -> "StreamsMember":
        """Return the static member after it has joined again with this member id."""
        assert self.instance_id is not None, "only static members are replaced"
        return replace(self, member_id=member_id, member_epoch=JOIN_EPOCH, previous_member_epoch=JOIN_EPOCH)

    def left_for_a_while(self) -> "StreamsMember":
        """Return the static member after it has left temporarily. It keeps its tasks, which any epoch may commit."""
        assert self.instance_id is not None, "nobody comes back for the tasks of a dynamic member"
        active = {each: dict.fromkeys(epochs, 0) for each, epochs in self.assigned.active.items()}
        assigned = replace(self.assigned, active=active)
        return replace(self, member_epoch=LEAVE_STATIC_EPOCH, assigned=assigned, pending_revocation=NOTHING_ASSIGNED)

    # -- records --------------------------------------------------------------------------------------------------

    def metadata_value(self) -> StreamsGroupMemberMetadataValue:
        endpoint = self.user_endpoint
        return StreamsGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            topology_epoch=self.topology_epoch,
            process_id=self.process_id,
            user_endpoint=None if endpoint is None else StoredEndpoint(endpoint.host, port=endpoint.port),
            client_tags=[
                KeyValue(key, value=self.client_tags[key]) for key in sorted(self.client_tags, key=natural_order)
            ],
        )

    def with_metadata(self, value: StreamsGroupMemberMetadataValue) -> "StreamsMember":
        endpoint = value.user_endpoint
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            topology_epoch=value.topology_epoch,
            process_id=value.process_id,
            user_endpoint=None if endpoint is None else UserEndpoint(endpoint.host, endpoint.port),
            client_tags={tag.key: tag.value for tag in value.client_tags},
        )

    def assignment_value(self) -> StreamsGroupCurrentMemberAssignmentValue:
        return StreamsGroupCurrentMemberAssignmentValue(
            member_epoch=self.member_epoch,
            previous_member_epoch=self.previous_member_epoch,
            state=int(self.state),
            active_tasks=_with_epochs(self.assigned.active),
            standby_tasks=task_ids(TaskIds, self.assigned.standby),
            warmup_tasks=task_ids(TaskIds, self.assigned.warmup),
            active_tasks_pending_revocation=_with_epochs(self.pending_revocation.active),
            standby_tasks_pending_revocation=task_ids(TaskIds, self.pending_revocation.standby),
            warmup_tasks_pending_revocation=task_ids(TaskIds, self.pending_revocation.warmup),
        )

    def with_assignment(self, value: StreamsGroupCurrentMemberAssignmentValue) -> "StreamsMember":
        epoch = value.member_epoch
        return replace(
            self,
            member_epoch=epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=_state_of(value.state),
            assigned=_assigned(value.active_tasks, value.standby_tasks, value.warmup_tasks, epoch),
            pending_revocation=_assigned(
                value.active_tasks_pending_revocation,
                value.standby_tasks_pending_revocation,
                value.warmup_tasks_pending_revocation,
                epoch,
            ),
        )

    def without_assignment(self) -> "StreamsMember":
        """Return the member after the tombstone of its assignment; that of its metadata follows."""
        return replace(
            self,
            member_epoch=LEAVE_EPOCH,
            previous_member_epoch=LEAVE_EPOCH,
            assigned=NOTHING_ASSIGNED,
            pending_revocation=NOTHING_ASSIGNED,
        )


def _state_of(value: int) -> MemberState:
    try:
        return MemberState(value)
    except ValueError:
        return MemberState.UNKNOWN


def _with_epochs(tasks: OwnedTasks) -> list[TaskIds]:
    ids = []
    for each in sorted(tasks, key=natural_order):
        partitions = sorted(tasks[each])
        epochs = [tasks[each][partition] for partition in partitions]
        ids.append(TaskIds(each, partitions=partitions, assignment_epochs=epochs))
    return ids


def _assigned(
    active: Sequence[TaskIds], standby: Sequence[TaskIds], warmup: Sequence[TaskIds], member_epoch: int
) -> AssignedTasks:
    return AssignedTasks(
        {each.subtopology_id: _epochs(each, member_epoch) for each in active},
        tasks_of(standby),
        tasks_of(warmup),
    )


def _epochs(tasks: TaskIds, member_epoch: int) -> dict[int, int]:
    """Return the epoch of each task; the member's if Apache Kafka before 4.3 has written the record."""
    epochs = tasks.assignment_epochs
    if epochs is None or len(epochs) != len(tasks.partitions):
        return dict.fromkeys(tasks.partitions, member_epoch)
    return dict(zip(tasks.partitions, epochs, strict=True))
