"""Share groups (KIP-932) beyond what other_groups.py describes: what they have in flight, and their start offsets.

kafkapy's brokers report what is in flight, as for `kafkapy groups explain`; Apache Kafka's do not.
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
"""On a page, of all partitions."""


@dataclass(frozen=True, slots=True)
class InFlight:
    """What a share group has in flight, by partition; `problem`: why nothing is known; `silent`: why some is not.

    `runs` are those of all partitions that fit on a page, `left_out_count` how many more there are.
    """

    partitions: Sequence[PartitionFacts] = ()
    runs: Sequence[tuple[PartitionFacts, Run]] = ()
    left_out_count: int = 0
    problem: str | None = None
    silent: Sequence[str] = ()


def in_flight(clients: Clients, group: Group) -> InFlight:
    """Return what a share group has in flight; a broker that does not answer is a problem that is shown."""
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
    """Return what holds the start offset of a share partition, for its row."""
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
    return GroupOffsets(clients.admin(), ShareOffsets(clients, name))
