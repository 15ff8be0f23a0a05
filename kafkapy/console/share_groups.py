"""Share groups (KIP-932): their records in flight and start offsets; other_groups.py has the rest.

kafkapy's brokers report records in flight, as for `kafkapy groups explain`; Apache Kafka's do not.
"""

from collections.abc import Sequence
from typing import Final

from kafkapy.cli.group_offsets import GroupOffsets
from kafkapy.cli.share_explain import UNKNOWN, PartitionFacts, Run, holder, share_facts
from kafkapy.cli.share_groups import ShareOffsets, member_names
from kafkapy.console.brokers import ClusterError
from kafkapy.console.client import Clients, failures
from kafkapy.console.groups import Group
from kafkapy.dataclass import dataclass
from kafkapy.errors import first_of

MAX_RUNS: Final = 500
"""Runs on a page, of all partitions together."""


@dataclass(frozen=True, slots=True)
class InFlight:
    """The in-flight records of a share group by partition; `problem`: why none are known; `silent`: why some are not.

    `runs` are those of all partitions that fit on a page, `left_out_count` how many more there are.
    """

    partitions: Sequence[PartitionFacts] = ()
    runs: Sequence[tuple[PartitionFacts, Run]] = ()
    left_out_count: int = 0
    problem: str | None = None
    silent: Sequence[str] = ()


def in_flight(clients: Clients, group: Group) -> InFlight:
    """Return the records in flight of a share group. If a broker does not answer, the page shows that."""
    names = {each.member_id: f"{each.client_id} ({each.host})" for each in group.members}
    silent: list[str] = []
    try:
        with failures():
            found = share_facts(clients, group.name, names, silent)
    except ClusterError as error:
        return InFlight(problem=str(error))
    if found is None:
        return InFlight(problem=UNKNOWN[0].upper() + UNKNOWN[1:] + ".", silent=silent)
    runs = [(facts, run) for facts in found for run in facts.runs]
    more = sum(facts.runs_left_out for facts in found) + max(len(runs) - MAX_RUNS, 0)
    return InFlight(found, runs[:MAX_RUNS], more, silent=silent)


def held_by(facts: PartitionFacts) -> str:
    """Return why the start offset of a share partition does not move, for its row."""
    return holder(facts) or "–"


def fetched_by(facts: PartitionFacts) -> str:
    return first_of(sorted(facts.members), 3) or "nobody"


def offsets_of(clients: Clients, name: str) -> GroupOffsets:
    """Return the offsets of a group of any kind: committed ones, or a share group's start offsets.

    Raises ClusterError.
    """
    with failures():
        is_share = member_names(clients, name) is not None
    if not is_share:
        return clients.offsets(name)
    return GroupOffsets(clients, ShareOffsets(clients, name))
