"""The last rebalances of a group: why it rebalanced, what each member gained and lost. For `kafkapy groups explain`.

The history is bounded and kept only in the coordinator's memory. A new coordinator starts from the assignments in the
log. Assignments are stored encoded, and decoded and compared only for a request.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any, Final, TypeAlias

from kafkapy.dataclass import dataclass
from kafkapy.types import TopicPartition

REBALANCES_KEPT: Final = 16
"""Rebalances that a group keeps: enough to explain its present state."""
REASONS_KEPT: Final = 20
"""Reasons of a rebalance that are kept: a thousand joining members would give a thousand similar ones."""

Decode: TypeAlias = Callable[[Any], set[TopicPartition]]


@dataclass(slots=True, frozen=True)
class MemberShare:
    """A member and its assignment, in the form of its protocol (see the caller's Decode)."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    assignment: Any

    @property
    def key(self) -> str:
        """The member's identity: it stays the same when a static member rejoins with a new member id."""
        return self.member_id if self.instance_id is None else f"instance {self.instance_id}"


@dataclass(slots=True, frozen=True)
class MemberChange:
    """One member's changes in a rebalance. `gained` and `lost` are sorted. A member that left loses everything."""

    member: MemberShare
    gained: list[TopicPartition]
    lost: list[TopicPartition]
    has_joined: bool
    has_left: bool


@dataclass(slots=True)
class Rebalance:
    """One rebalance. `ended_at_ms` (wall clock) is None while it is in progress."""

    started_at_ms: int
    reasons: list[str]
    before: Mapping[str, MemberShare]
    after: Mapping[str, MemberShare] = field(default_factory=dict)
    generation: int = -1
    ended_at_ms: int | None = None

    def changes(self, decode: Decode) -> list[MemberChange]:
        """Return what each member gained and lost, members that left last; `decode` decodes an assignment."""
        changes = []
        for key in {**self.after, **self.before}:
            old, new = self.before.get(key), self.after.get(key)
            member = new or old
            assert member is not None
            had = decode(old.assignment) if old is not None else set()
            has = decode(new.assignment) if new is not None else set()
            changes.append(MemberChange(member, sorted(has - had), sorted(had - has), old is None, new is None))
        return changes


class RebalanceHistory:
    """The last rebalances, the latest one last."""

    def __init__(self, shares: Iterable[MemberShare] = ()) -> None:
        """`shares` are the members' assignments when the coordinator starts."""
        self.rebalances: deque[Rebalance] = deque(maxlen=REBALANCES_KEPT)
        self._current = {share.key: share for share in shares}

    def begin(self, reason: str, at_ms: int) -> None:
        """Begin a rebalance for this reason, or add the reason to the rebalance in progress."""
        if self.rebalances and self.rebalances[-1].ended_at_ms is None:
            reasons = self.rebalances[-1].reasons
            if len(reasons) < REASONS_KEPT and reason not in reasons:
                reasons.append(reason)
            return
        self.rebalances.append(Rebalance(at_ms, [reason], self._current))

    def end(self, generation: int, shares: Iterable[MemberShare], at_ms: int) -> None:
        """End the rebalance: all members have their assignments, or none is left."""
        self._current = {share.key: share for share in shares}
        if self.rebalances and self.rebalances[-1].ended_at_ms is None:
            latest = self.rebalances[-1]
            latest.after, latest.generation, latest.ended_at_ms = self._current, generation, at_ms

    def replace(self, share: MemberShare) -> None:
        """Replace the share of a static member that rejoined with a new member id; its assignment is unchanged."""
        self._current = {**self._current, share.key: share}
