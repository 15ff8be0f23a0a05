"""The list of all groups, a consumer group with members, offsets and lag, and a reset as a plan.

other_groups.py has share groups and streams groups.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from kafkapy.cli.committed_offsets import CoordinatorError, committed_offsets
from kafkapy.cli.consumer_groups import DEAD, describe_consumers
from kafkapy.cli.group_explain import rebalances_of
from kafkapy.cli.group_list import ask_each
from kafkapy.cli.group_names import listed_groups
from kafkapy.cli.group_offsets import GroupOffsets, ResetTarget, lag_of, parse_topics
from kafkapy.console.brokers import BadRequest, ClusterError, NotFound
from kafkapy.console.client import Clients, failures
from kafkapy.dataclass import dataclass

MAX_OFFSETS: Final = 1000
"""One page's table; each row costs an end offset from a leader."""
WAIT_S: Final = 2.0
"""How long a page waits for a coordinator that moves, or is silent."""
MAX_REBALANCES: Final = 20
"""The newest explain what is going on; `kafkapy groups explain` shows all."""
SHARE: Final = "Share"
STREAMS: Final = "Streams"


@dataclass(frozen=True, slots=True)
class GroupRow:
    """`protocol`: the protocol type: consumer, connect, share, streams; empty if only offsets were committed."""

    name: str
    type: str
    state: str
    protocol: str = ""


@dataclass(frozen=True, slots=True)
class Member:
    member_id: str
    instance_id: str
    client_id: str
    host: str
    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class OffsetRow:
    """`committed` is None if nothing is committed, `end` if the partition is gone.

    `member`: the client ids of the members that read it, "" if none does. Of a share group `committed` is the start
    offset: the first record that is not done with. `reported_lag`: the lag as the coordinator counts it, where it does.
    is_silent: whether `end` is None because the leader does not say, or there is none.
    """

    topic: str
    partition: int
    committed: int | None
    end: int | None
    member: str
    reported_lag: int | None = None
    is_silent: bool = False

    @property
    def lag(self) -> int | None:
        if self.reported_lag is not None:
            return self.reported_lag
        return None if self.committed is None or self.end is None else max(0, self.end - self.committed)


@dataclass(frozen=True, slots=True)
class Group:
    """`described`: of a streams group, its coordinator's response to StreamsGroupDescribe."""

    name: str
    type: str
    state: str
    assignor: str
    coordinator: int
    members: tuple[Member, ...]
    offsets: tuple[OffsetRow, ...]
    described: Any = None

    @property
    def lag(self) -> int | None:
        """The lag of all partitions; None if it is not known of one that the group has begun to read."""
        if any(each.is_silent and each.committed is not None and each.lag is None for each in self.offsets):
            return None
        return sum(each.lag or 0 for each in self.offsets)

    @property
    def is_share(self) -> bool:
        return self.type == SHARE

    @property
    def is_streams(self) -> bool:
        return self.type == STREAMS

    @property
    def is_of_consumers(self) -> bool:
        """Whether its members can be removed here: those of share groups and streams groups cannot."""
        return self.type not in (SHARE, STREAMS)

    @property
    def can_be_reset(self) -> bool:
        """Whether its offsets can be reset here: those of streams groups cannot."""
        return self.type != STREAMS


@dataclass(frozen=True, slots=True)
class ResetRow:
    topic: str
    partition: int
    before: int | None
    after: int


def group_list(clients: Clients) -> tuple[list[GroupRow], list[str]]:
    """Return the groups of all brokers by name, and the errors of brokers that did not answer. Raises ClusterError."""
    with failures():
        found, errors = listed_groups(clients)
    return [GroupRow(name, each.type, each.state, each.protocol) for name, each in sorted(found.items())], errors


def group(clients: Clients, name: str) -> Group:
    """Return a group. Raises ClusterError, NotFound."""
    with failures():
        described = describe_consumers(clients, name, WAIT_S)
        offsets = clients.offsets(name)
        committed = committed_offsets(clients, name, WAIT_S) if described.state != DEAD else {}
        if described.state == DEAD and not committed:
            raise NotFound(f"There is no group {name}.")
        members = tuple(
            Member(each.member_id, each.instance_id, each.client_id, each.host, each.partitions)
            for each in described.members
        )
        readers = {partition: each.client_id for each in members for partition in each.partitions}
        wanted = sorted({*committed, *readers})[:MAX_OFFSETS]
        ends = offsets.ends_of_existing(wanted)
    rows = tuple(offset_row(each, committed.get(each), ends, readers.get(each, "")) for each in wanted)
    return Group(name, described.type, described.state, described.assignor, described.coordinator, members, rows)


def offset_row(
    partition: tuple[str, int],
    committed: int | None,
    ends: Mapping[tuple[str, int], int | None],
    member: str,
    reported_lag: int | None = None,
) -> OffsetRow:
    """Return the row of a partition; `ends`: as GroupOffsets.ends_of_existing has them."""
    is_silent = ends.get(partition, 0) is None
    return OffsetRow(*partition, committed, ends.get(partition), member, reported_lag, is_silent)


def rebalances(clients: Clients, name: str) -> tuple[list[dict[str, Any]], str | None]:
    """Return the last rebalances, newest first, and why there are none (Apache Kafka does not report them)."""
    try:
        return rebalances_of(clients, name, WAIT_S)[-MAX_REBALANCES:][::-1], None
    except CoordinatorError as error:
        return [], str(error)


def groups_of_topic(clients: Clients, topic: str, names: Iterable[str]) -> list[tuple[str, int | None]]:
    """Return the groups that have committed offsets of a topic, with their lag there, None if it is not known."""
    committed = ask_each([*names], lambda name: committed_offsets(clients, name, WAIT_S))
    found: list[tuple[str, int | None]] = []
    for name, offsets in committed.items():
        of_topic = {each: at for each, at in (offsets or {}).items() if each[0] == topic}
        with suppress(ClusterError), failures():
            if of_topic:
                found.append((name, _lags(clients.offsets(name), of_topic)[topic]))
    return found


def lags_of(clients: Clients, name: str) -> dict[str, int | None]:
    """Return by topic how many records a group has not committed yet, of partitions that have an offset.

    None for a topic with a partition whose end is not known, as its leader does not say. Raises ClusterError.
    """
    with failures():
        committed = committed_offsets(clients, name, WAIT_S)
        return _lags(clients.offsets(name), dict(sorted(committed.items())[:MAX_OFFSETS]))


def plan_reset(offsets: GroupOffsets, topic: str, to: str) -> list[ResetRow]:
    """Return the changes of a reset. `topic`: TOPIC or TOPIC:0,1; `to`: as `kafkapy groups reset --to`."""
    try:
        target, requested = ResetTarget.parse(to.strip()), parse_topics([topic.strip()])
        with failures():
            plan = offsets.plan(dict.fromkeys(offsets.partitions_of(requested), target))
    except (ValueError, LookupError, OverflowError) as error:
        raise BadRequest(str(error.args[0])) from error
    return [ResetRow(*partition, before, after) for partition, (before, after) in sorted(plan.items())]


def reset(offsets: GroupOffsets, rows: Iterable[ResetRow]) -> None:
    """Move a group to the offsets of a plan; one with members is refused by its coordinator."""
    with failures():
        offsets.commit({(each.topic, each.partition): each.after for each in rows})


def _lags(offsets: GroupOffsets, committed: Mapping[tuple[str, int], int]) -> dict[str, int | None]:
    ends = offsets.ends_of_existing(committed)
    by_topic: dict[str, dict[tuple[str, int], int]] = {}
    for partition, at in committed.items():
        by_topic.setdefault(partition[0], {})[partition] = at
    return {topic: lag_of(of_topic, ends) for topic, of_topic in by_topic.items()}
