"""Why a group rebalanced, and what every member gained and lost: the last rebalances of a group, for `groups explain`.

Kept in memory by the coordinator that saw them, and bounded; a new coordinator starts with what the log says the
members have. Assignments are kept as they came and compared only when somebody asks.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any, Final, TypeAlias

from kafkapy.dataclass import dataclass
from kafkapy.types import TopicPartition

REBALANCES_KEPT: Final = 16
REASONS_KEPT: Final = 20
"""Of one rebalance: a thousand members that join give a thousand reasons, and all the same."""

Decode: TypeAlias = Callable[[Any], set[TopicPartition]]


@dataclass(slots=True, frozen=True)
class MemberShare:
    """A member and its assignment, in whatever form its protocol has."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    assignment: Any

    @property
    def key(self) -> str:
        """What stays the same when a static member comes back under another id."""
        return self.member_id if self.instance_id is None else f"instance {self.instance_id}"


@dataclass(slots=True, frozen=True)
class MemberChange:
    """What a rebalance meant for one member. `gained` and `lost` are sorted. A member that left has lost all it had."""

    member: MemberShare
    gained: list[TopicPartition]
    lost: list[TopicPartition]
    has_joined: bool
    has_left: bool


@dataclass(slots=True)
class Rebalance:
    """One rebalance. `ended_at_ms` (wall clock) is None while it goes on."""

    started_at_ms: int
    reasons: list[str]
    before: Mapping[str, MemberShare]
    after: Mapping[str, MemberShare] = field(default_factory=dict)
    generation: int = -1
    ended_at_ms: int | None = None

    def changes(self, decode: Decode) -> list[MemberChange]:
        """Return what the members gained and lost, those that stayed first; `decode` reads an assignment."""
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
        """`shares` is what members have when the coordinator begins."""
        self.rebalances: deque[Rebalance] = deque(maxlen=REBALANCES_KEPT)
        self._current = {share.key: share for share in shares}

    def begin(self, reason: str, at_ms: int) -> None:
        """Say why members have to join again; while they still do, that is one more reason."""
        if self.rebalances and self.rebalances[-1].ended_at_ms is None:
            reasons = self.rebalances[-1].reasons
            if len(reasons) < REASONS_KEPT and reason not in reasons:
                reasons.append(reason)
            return
        self.rebalances.append(Rebalance(at_ms, [reason], self._current))

    def end(self, generation: int, shares: Iterable[MemberShare], at_ms: int) -> None:
        """All have their assignments, or nobody is left."""
        self._current = {share.key: share for share in shares}
        if self.rebalances and self.rebalances[-1].ended_at_ms is None:
            latest = self.rebalances[-1]
            latest.after, latest.generation, latest.ended_at_ms = self._current, generation, at_ms

    def replace(self, share: MemberShare) -> None:
        """A static member has come back; its share is what it was."""
        self._current = {**self._current, share.key: share}
