"""The members of a classic group, their common protocols and their leader.

A protocol is a name (for consumers, an assignor's) with the member's metadata (its subscription). A member lists the
protocols it supports, in order of preference. All members must have at least one in common. Each member votes for the
first common protocol in its list, and the group uses the one with the most votes.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeAlias

from kafkapy.dataclass import dataclass

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""(name, metadata) of each supported protocol, in order of preference."""


@dataclass(slots=True)
class ClassicMember:
    """One member. `is_new` is true until its first join is answered."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    session_deadline_ms: int | None = None
    """Monotonic. None after the session ran out with a request of the member parked: the response renews it."""

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return the member's metadata for a protocol that it supports."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise AssertionError(f"member {self.member_id} does not support {protocol_name}")

    def vote(self, candidates: set[str]) -> str:
        """Return the member's preferred protocol among the candidates, of which it supports at least one."""
        return next(name for name, _ in self.protocols if name in candidates)


class ClassicMembers:
    """The members in the order in which they joined. The first one leads, until it is removed or misses a rebalance."""

    def __init__(self) -> None:
        self.leader_id: str | None = None
        """None only if there are no members."""
        self._members: dict[str, ClassicMember] = {}
        self._static_ids: dict[str, str] = {}
        self._support_counts: Counter[str] = Counter()
        """By the name of a protocol: how many members support it."""

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[ClassicMember]:
        return iter(self._members.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def __getitem__(self, member_id: str) -> ClassicMember:
        return self._members[member_id]

    def find(self, member_id: str) -> ClassicMember | None:
        return self._members.get(member_id)

    def static_id(self, instance_id: str) -> str | None:
        """Return the current member id of a group.instance.id, or None."""
        return self._static_ids.get(instance_id)

    @property
    def has_leader(self) -> bool:
        """Whether a member leads: false only if there are none."""
        return self.leader_id in self._members

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance time-out among the members, in ms."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def add(self, member: ClassicMember) -> None:
        assert member.member_id not in self._members, "a member is added once"
        self._members[member.member_id] = member
        self._count(member.protocols, 1)
        if member.instance_id is not None:
            assert member.instance_id not in self._static_ids, "an instance is one member"
            self._static_ids[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member_id: str) -> None:
        """Remove a member. If it was the leader, the oldest remaining member becomes the leader."""
        member = self._members.pop(member_id)
        self._count(member.protocols, -1)
        if member.instance_id is not None:
            assert self._static_ids[member.instance_id] == member_id, "its instance belongs to another member"
            del self._static_ids[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self._members), None)
        assert self.has_leader or not self._members, f"leader {self.leader_id} is no member"

    def rename(self, member_id: str, new_member_id: str) -> ClassicMember:
        """Replace a static member by a copy with another id, which also takes over leadership; return the copy."""
        assert new_member_id not in self._members, f"{new_member_id} would replace two members"
        renamed = replace(self._members.pop(member_id), member_id=new_member_id)
        self._members[new_member_id] = renamed
        assert renamed.instance_id is not None, "only static members are replaced"
        assert self._static_ids[renamed.instance_id] == member_id, "its instance belongs to another member"
        self._static_ids[renamed.instance_id] = new_member_id
        if self.leader_id == member_id:
            self.leader_id = new_member_id
        return renamed

    def set_protocols(self, member: ClassicMember, protocols: Protocols) -> None:
        assert self._members[member.member_id] is member, "a member that is not in the group has no count"
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)

    def elect_among(self, member_ids: Iterable[str]) -> None:
        """Keep the leader if it is among these members (at least one); else elect the oldest of them."""
        candidates = set(member_ids)
        assert candidates, "there is no candidate"
        assert all(member_id in self._members for member_id in candidates), "only members lead"
        if self.leader_id not in candidates:
            self.leader_id = next(member_id for member_id in self._members if member_id in candidates)

    def is_supported_by_all(self, name: str) -> bool:
        return self._support_counts[name] == len(self._members)

    def has_common_protocol(self, names: Iterable[str]) -> bool:
        """Return whether all current members support one of these protocols."""
        return any(self.is_supported_by_all(name) for name in names)

    def select_protocol(self) -> str:
        """Return the common protocol with the most votes; of equal ones, the one that was voted for first."""
        candidates = {name for name, count in self._support_counts.items() if count == len(self._members)}
        assert candidates, "members without a common protocol were let in"
        return Counter(member.vote(candidates) for member in self).most_common(1)[0][0]

    def _count(self, protocols: Protocols, step: int) -> None:
        for name in {name for name, _ in protocols}:
            self._support_counts[name] += step
            assert self._support_counts[name] >= 0, f"protocol {name} has fewer than no members"
            if not self._support_counts[name]:
                del self._support_counts[name]
