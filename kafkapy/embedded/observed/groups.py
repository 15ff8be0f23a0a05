"""`broker.groups["g"]`: the members of a group, what they are assigned, and how far behind it is."""

from collections.abc import Iterator
from typing import Final

from kafkapy.embedded.observed.described import Description, Member, committed_offsets, describe, groups_of, lags_of
from kafkapy.embedded.observed.nodes import Nodes, Sources
from kafkapy.embedded.observed.waiting import TIMEOUT_S, ObservationError, wait_until
from kafkapy.errors import ApiError
from kafkapy.types import TopicPartition

STATES: Final = frozenset(
    {
        *("Empty", "Stable", "Dead"),
        *("PreparingRebalance", "CompletingRebalance"),  # classic
        *("Assigning", "Reconciling", "NotReady"),  # consumer and streams
    }
)
"""The states of groups of all types."""


class Groups:
    """The groups of a broker or a cluster, of all kinds: `groups["g"]`, `"g" in groups`, `list(groups)`."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def __getitem__(self, group_id: str) -> "Group":
        """Return a group, which need not exist yet: its waits wait for it."""
        if not isinstance(group_id, str):
            raise TypeError(f"a group has an id, as groups['service'], not {group_id!r}")
        return Group(group_id, self._sources)

    def __contains__(self, group_id: object) -> bool:
        return group_id in groups_of(self._sources.nodes)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(groups_of(self._sources.nodes)))

    def __len__(self) -> int:
        return len(groups_of(self._sources.nodes))


class Group:
    """A group, as its coordinator knows it at the moment of each call.

    Raises ObservationError if there is no such group, ApiError. Its methods and properties block: in `async with`, use
    them by asyncio.to_thread.
    """

    def __init__(self, group_id: str, sources: Sources) -> None:
        self.group_id = group_id
        self._sources = sources

    def __repr__(self) -> str:
        return f"Group({self.group_id!r})"

    @property
    def state(self) -> str:
        """As Kafka names it: "Stable", "Empty", "PreparingRebalance", ..."""
        return self._described().state

    @property
    def type(self) -> str:
        """classic, consumer (KIP-848), share (KIP-932) or streams (KIP-1071)."""
        return self._described().type

    @property
    def members(self) -> list[Member]:
        return list(self._described().members)

    @property
    def assignment(self) -> dict[str, list[TopicPartition]]:
        """The partitions of each member, by member id. A classic group has none until its rebalance is over."""
        return {member.member_id: list(member.assignment) for member in self._described().members}

    @property
    def committed(self) -> dict[TopicPartition, int]:
        """The committed offset of each partition that has one; of a share group, the start offset that is stored."""
        return committed_offsets(self._sources.nodes, self._described())

    @property
    def lags(self) -> dict[TopicPartition, int]:
        """How many records of each partition come after the committed offset.

        Of the partitions that have one, and of those that are assigned to a member: without a committed offset all
        records of the partition count, as if the group began at the first.
        """
        return lags_of(self._sources.nodes, self._described())

    @property
    def lag(self) -> int:
        """The sum of `lags`. As in Kafka's own tools, aborted records and markers count, too."""
        return sum(self.lags.values())

    def wait_for_members(self, count: int, *, timeout_s: float = TIMEOUT_S) -> list[Member]:
        """Return the members once there are so many and each is assigned something. Raises NotObserved."""
        __tracebackhide__ = True

        def joined() -> list[Member] | None:
            group = self._described()
            is_ready = len(group.members) == count and all(member.assignment for member in group.members)
            return list(group.members) if is_ready else None

        return wait_until(joined, lambda: self._complaint(f"{count} members with an assignment"), timeout_s)

    def wait_for_lag(self, lag: int = 0, *, timeout_s: float = TIMEOUT_S) -> None:
        """Return once the group has committed so much that its lag is at most `lag`. Raises NotObserved.

        A group without committed offsets and without assigned partitions has no lag yet: the wait goes on.
        """
        __tracebackhide__ = True

        def caught_up() -> bool | None:
            found = self.lags
            return True if found and sum(found.values()) <= lag else None

        wait_until(caught_up, lambda: self._complaint(f"a lag of at most {lag}"), timeout_s)

    def wait_for_state(self, *states: str, timeout_s: float = TIMEOUT_S) -> str:
        """Return the group's state once it is one of these. Raises NotObserved; ObservationError for no state."""
        __tracebackhide__ = True
        if not states or not STATES.issuperset(states):
            wrong = next((each for each in states if each not in STATES), None)
            begin = "which state?" if wrong is None else f"no group has the state {wrong!r}:"
            raise ObservationError(f"{begin} there are {', '.join(sorted(STATES))}")

        def reached() -> str | None:
            state = self.state
            return state if state in states else None

        return wait_until(reached, lambda: self._complaint(f"the state {' or '.join(states)}"), timeout_s)

    def _described(self) -> Description:
        return describe(self._sources.nodes, self.group_id)

    def _complaint(self, wanted: str) -> str:
        found = summary(self._sources.nodes, self.group_id)
        return f"group {self.group_id} has not {wanted}: {found}\n{self._sources.report(None)}"


def summary(nodes: Nodes, group_id: str) -> str:
    """Return a group's state, lag and members in a line, or why they are not known: for a message."""
    try:
        group = describe(nodes, group_id)
        lags = lags_of(nodes, group)
    except (ObservationError, ApiError, OSError) as error:
        return str(error)
    shown = ", ".join(f"{partition} {lag}" for partition, lag in lags.items()) or "nothing committed"
    members = "; ".join(map(str, group.members)) or "no members"
    return f"{group.type}, {group.state}; lag {sum(lags.values())} ({shown}); {members}"
