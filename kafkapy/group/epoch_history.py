"""The rebalance history of groups with a group epoch (KIP-848, KIP-932), kept as their records are replayed.

A rebalance begins with a new group epoch and ends with its target assignment; members may still have to revoke
partitions then. Records replayed while the log is loading are not recorded: `is_recording` is set afterwards.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from kafkapy.group.history import MemberShare, RebalanceHistory
from kafkapy.named_tuple import NamedTuple
from kafkapy.protocol.primitives import Message

LEFT = "left"


class EpochLog(Protocol):
    """The part of a group's replayed state that the history reads. Members have client_id and client_host."""

    @property
    def group_epoch(self) -> int: ...
    @property
    def members(self) -> Mapping[str, Any]: ...
    @property
    def targets(self) -> Mapping[str, Any]: ...


class EpochGroup(Protocol):
    """A group of one kind."""

    @property
    def log(self) -> EpochLog: ...
    @property
    def history(self) -> RebalanceHistory: ...
    def continue_history(self, history: RebalanceHistory) -> None:
        """Set the group's history."""


class EpochRecords(NamedTuple):
    """The record types of one kind of group, and how they are read."""

    member_key: type[Message]
    group_key: type[Message]
    group_value: type[Message]
    target_value: type[Message]
    metadata_changed: str
    """The reason of a new epoch that no member has caused."""
    has_changed_subscription: Callable[[Any, Any], bool]
    """(member, value): whether the member's new record differs in what it subscribes to."""
    instance_id_of: Callable[[Any], str | None]


class EpochHistory:
    """Observes the replay of a shard's groups of one kind."""

    def __init__(self, records: EpochRecords, wall_ms: Callable[[], int]) -> None:
        self.is_recording = False
        self._records = records
        self._wall_ms = wall_ms
        self._leave_reason = LEFT
        self._reasons: list[str] = []

    def load(self, groups: Iterable[EpochGroup]) -> None:
        """Start the history after the log was replayed, from the members' current targets."""
        assert not self.is_recording, "a log is loaded once"
        self.is_recording = True
        for group in groups:
            group.continue_history(RebalanceHistory(self._shares(group)))

    def begin_decision(self, leave_reason: str = LEFT) -> None:
        """Begin the records of a new decision; `leave_reason` is the reason for removed members, if any."""
        self._leave_reason = leave_reason
        self._reasons = []

    def before_replay(self, group: EpochGroup, key: Message, value: Message | None) -> None:
        """Observe a record before it is applied to the group."""
        if not self.is_recording:
            return
        if type(key) is self._records.member_key:
            reason = self._reason(group, key.member_id, value)  # type: ignore[attr-defined]
            if reason is not None:
                self._reasons.append(reason)
        elif type(value) is self._records.group_value and value.epoch > group.log.group_epoch:  # type: ignore[attr-defined]
            for reason in self._reasons or [self._records.metadata_changed]:
                group.history.begin(reason, self._wall_ms())

    def after_replay(self, group: EpochGroup, key: Message, value: Message | None) -> None:
        """Observe a record after it was applied to the group."""
        if not self.is_recording or value is None:
            return
        if type(value) is self._records.target_value:
            group.history.end(value.assignment_epoch, self._shares(group), self._wall_ms())  # type: ignore[attr-defined]
        elif type(key) is self._records.group_key and not group.log.members:
            group.history.end(group.log.group_epoch, (), self._wall_ms())

    def _reason(self, group: EpochGroup, member_id: str, value: Any) -> str | None:
        """Return why a member's record leads to a new group epoch, None if it does not."""
        member = group.log.members.get(member_id)
        if value is None:
            return None if member is None else f"member {_name(member_id, member.client_id)} {self._leave_reason}"
        name = _name(member_id, value.client_id)
        if member is None:
            return f"member {name} joined"
        has_changed = self._records.has_changed_subscription(member, value)
        return f"member {name} changed its subscription" if has_changed else None

    def _shares(self, group: EpochGroup) -> list[MemberShare]:
        targets, instance_id_of = group.log.targets, self._records.instance_id_of
        return [
            MemberShare(
                member_id, instance_id_of(member), member.client_id, member.client_host, targets.get(member_id, {})
            )
            for member_id, member in group.log.members.items()
        ]


def _name(member_id: str, client_id: str) -> str:
    return f"{member_id} (client {client_id})" if client_id else member_id
