"""Voter sets and their history by offset (KIP-853).

A voter set takes effect when it is *appended*, before it is committed; a truncation restores the earlier one. With
kraft.version 0 the set is static (controller.quorum.voters) and directories are unknown; with 1 it comes from Voters
control records in the log or in the latest snapshot.
"""

from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Generic, TypeVar

from kafkapy.dataclass import dataclass
from kafkapy.named_tuple import NamedTuple
from kafkapy.types import ZERO_UUID, ReplicaKey, uuid_to_string

T = TypeVar("T")

MAX_KRAFT_VERSION = 1
"""The newest kraft.version this core implements."""

BEFORE_LOG = -1
"""The offset of a voter set that is not in the log: static, or from the bootstrap snapshot 0-0."""


class Endpoint(NamedTuple):
    """The address of one of a voter's listeners."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Voter:
    """A voter, its endpoints and the kraft.version range it supports. A ZERO_UUID directory matches any."""

    key: ReplicaKey
    endpoints: tuple[Endpoint, ...] = ()
    min_kraft_version: int = 0
    max_kraft_version: int = MAX_KRAFT_VERSION

    @property
    def node_id(self) -> int:
        return self.key.node_id

    def matches(self, key: ReplicaKey) -> bool:
        """Return whether `key` is this voter: the same node, and the same directory if this voter's is known."""
        return self.key.node_id == key.node_id and self.key.directory_id in (ZERO_UUID, key.directory_id)


class VoterSet:
    """An immutable set of voters, by node id."""

    __slots__ = ("_by_id",)

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        self._by_id = {voter.node_id: voter for voter in sorted(voters, key=lambda voter: voter.key)}

    def __iter__(self) -> Iterator[Voter]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._by_id == other._by_id

    def __hash__(self) -> int:
        return hash(tuple(self._by_id.values()))

    def __str__(self) -> str:
        """Return `node id@directory id`, separated by commas."""
        return ", ".join(f"{voter.node_id}@{uuid_to_string(voter.key.directory_id)}" for voter in self)

    def __repr__(self) -> str:
        return f"VoterSet({self})"

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(self._by_id)

    @property
    def majority_count(self) -> int:
        return len(self._by_id) // 2 + 1

    def get(self, node_id: int) -> Voter | None:
        return self._by_id.get(node_id)

    def contains(self, key: ReplicaKey) -> bool:
        voter = self._by_id.get(key.node_id)
        return voter is not None and voter.matches(key)

    def is_only_voter(self, key: ReplicaKey) -> bool:
        return len(self._by_id) == 1 and self.contains(key)

    def endpoints_of(self, node_id: int) -> tuple[Endpoint, ...]:
        voter = self._by_id.get(node_id)
        return voter.endpoints if voter is not None else ()

    def with_voter(self, voter: Voter) -> "VoterSet":
        """Return the set with `voter` added, replacing a voter with the same node id."""
        return VoterSet([*(other for other in self if other.node_id != voter.node_id), voter])

    def without_voter(self, key: ReplicaKey) -> "VoterSet":
        return VoterSet(voter for voter in self if not voter.matches(key))

    def needs_update(self, local: Voter) -> bool:
        """Return whether the set holds `local` with other endpoints, versions or (static voter) directory."""
        known = self._by_id.get(local.node_id)
        return known is not None and known.matches(local.key) and known != local

    def overlaps_majority_of(self, other: "VoterSet") -> bool:
        """Return whether the sets differ by at most one voter, so that any two majorities share a member."""
        mine, theirs = {voter.key for voter in self}, {voter.key for voter in other}
        return len(mine - theirs) <= 1 and len(theirs - mine) <= 1


@dataclass(slots=True)
class OffsetHistory(Generic[T]):
    """Values by the offset of their record, strictly increasing; the last value is the current one."""

    entries: list[tuple[int, T]] = field(default_factory=list)

    def add(self, offset: int, value: T) -> None:
        assert not self.entries or self.entries[-1][0] < offset, f"{offset} after {self.entries[-1][0]}"
        self.entries.append((offset, value))

    def last(self) -> tuple[int, T] | None:
        return self.entries[-1] if self.entries else None

    def value_before(self, end_offset: int) -> T | None:
        """Return the value in effect for a log that ends at end_offset (exclusive)."""
        for offset, value in reversed(self.entries):
            if offset < end_offset:
                return value
        return None

    def truncate_to(self, end_offset: int) -> None:
        while self.entries and self.entries[-1][0] >= end_offset:
            self.entries.pop()

    def trim_before(self, start_offset: int) -> None:
        """Remove the values superseded before start_offset; keep the one in effect there."""
        while len(self.entries) > 1 and self.entries[1][0] < start_offset:
            self.entries.pop(0)


class VoterHistory:
    """The static voters, and the voter sets and kraft.versions from snapshot and log."""

    def __init__(self, static_voters: VoterSet) -> None:
        self.static_voters = static_voters
        self._voters: OffsetHistory[VoterSet] = OffsetHistory()
        self._versions: OffsetHistory[int] = OffsetHistory()

    @property
    def current(self) -> VoterSet:
        entry = self._voters.last()
        return entry[1] if entry is not None else self.static_voters

    @property
    def current_offset(self) -> int:
        """Return the offset of the current set's record, BEFORE_LOG if it is not in the log."""
        entry = self._voters.last()
        return entry[0] if entry is not None else BEFORE_LOG

    @property
    def kraft_version(self) -> int:
        entry = self._versions.last()
        return entry[1] if entry is not None else 0

    def before(self, end_offset: int) -> VoterSet:
        return self._voters.value_before(end_offset) or self.static_voters

    def kraft_version_before(self, end_offset: int) -> int:
        return self._versions.value_before(end_offset) or 0

    def add_voters(self, offset: int, voters: VoterSet) -> None:
        self._voters.add(offset, voters)

    def add_kraft_version(self, offset: int, version: int) -> None:
        self._versions.add(offset, version)

    def truncate_to(self, end_offset: int) -> None:
        self._voters.truncate_to(end_offset)
        self._versions.truncate_to(end_offset)

    def trim_before(self, start_offset: int) -> None:
        self._voters.trim_before(start_offset)
        self._versions.trim_before(start_offset)

    def reset(self, snapshot_end_offset: int, voters: VoterSet | None, kraft_version: int) -> None:
        """Replace the history by a snapshot's voters and version; they apply to all offsets below its end."""
        self._voters = OffsetHistory()
        self._versions = OffsetHistory()
        if kraft_version > 0:
            self._versions.add(snapshot_end_offset - 1, kraft_version)
        if voters is not None:
            self._voters.add(snapshot_end_offset - 1, voters)


def static_voter(node_id: int, *endpoints: Endpoint) -> Voter:
    """Return a voter of controller.quorum.voters; its directory is unknown."""
    return Voter(ReplicaKey(node_id, ZERO_UUID), endpoints)
