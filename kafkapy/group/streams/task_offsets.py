"""The offsets that members report of their copies of tasks: soft state, for assignors that warm up tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

from kafkapy.dataclass import dataclass
from kafkapy.errors import ApiError
from kafkapy.group.streams.assignor_spec import TaskOffsets
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest, TaskOffset


@dataclass(frozen=True, slots=True)
class MemberTaskOffsets:
    """The offsets of a member's tasks, and the ends of their changelogs, as it has reported them last."""

    offsets: TaskOffsets = field(default_factory=dict)
    end_offsets: TaskOffsets = field(default_factory=dict)

    @property
    def count(self) -> int:
        """The number of these offsets."""
        return sum(map(len, self.offsets.values())) + sum(map(len, self.end_offsets.values()))

    def updated(self, request: StreamsGroupHeartbeatRequest) -> "MemberTaskOffsets":
        """Return the offsets with those that a heartbeat reports. Raises INVALID_REQUEST."""
        return MemberTaskOffsets(
            self.offsets if request.task_offsets is None else _by_task(request.task_offsets),
            self.end_offsets if request.task_end_offsets is None else _by_task(request.task_end_offsets),
        )


def _by_task(reported: Sequence[TaskOffset]) -> Mapping[str, Mapping[int, int]]:
    by_task: dict[str, dict[int, int]] = {}
    for each in reported:
        offsets = by_task.setdefault(each.subtopology_id, {})
        if each.partition in offsets:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Task offsets contain a duplicate entry for subtopology {each.subtopology_id} and partition "
                f"{each.partition}.",
            )
        offsets[each.partition] = each.offset
    return by_task


NO_OFFSETS: Final = MemberTaskOffsets()
