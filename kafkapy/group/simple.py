"""Stands in for the classic groups until classic_requests.py is there: groups that have offsets and nothing else."""

from collections.abc import Callable
from typing import Any

from kafkapy.errors import ApiError
from kafkapy.group.decision import GroupDecision
from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.settings import GroupSettings
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.describe_groups_response import DescribedGroup
from kafkapy.protocol.messages.group_metadata_key import GroupMetadataKey
from kafkapy.protocol.primitives import Message
from kafkapy.seams import Random


class SimpleGroup:
    group_type = "classic"
    protocol_type: str | None = None
    state_name = "Empty"
    is_empty = True

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id

    def deadline_ms(self) -> int | None:
        return None

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, version: int, is_transactional: bool
    ) -> None:
        if generation >= 0 or member_id:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)

    def on_offset_commit(self, member_id: str, now_ms: int) -> None:
        pass

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        pass

    def check_offset_delete(self) -> None:
        pass

    def check_deletion(self) -> None:
        pass

    def tombstone_records(self) -> list[CoordinatorRecord]:
        return [CoordinatorRecord(GroupMetadataKey(self.group_id), None)]

    def is_subscribed_to(self, topic: str) -> bool:
        return False

    def offsets_unused_since_ms(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms


class ClassicGroups:
    def __init__(
        self,
        groups: dict[str, Any],
        settings: GroupSettings,
        *,
        random: Random,
        wall_ms: Callable[[], int],
        now_ms: Callable[[], int],
    ) -> None:
        self._groups = groups

    def make_simple(self, group_id: str) -> SimpleGroup:
        return SimpleGroup(group_id)

    def describe(self, group_id: str) -> DescribedGroup:
        if group_id not in self._groups:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return DescribedGroup(group_id=group_id, group_state="Empty")

    def replay(self, key: GroupMetadataKey, value: Message | None) -> None:
        if value is None:
            self._groups.pop(key.group, None)
        else:
            self._groups.setdefault(key.group, SimpleGroup(key.group))

    def on_loaded(self, now_ms: int) -> None:
        pass

    def on_time(self, group: Any, now_ms: int) -> GroupDecision:
        return GroupDecision()
