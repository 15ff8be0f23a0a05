"""Why records of a queue are not delivered: asks each broker what it does for a share group (kafkapy.share.explain).

    facts = share_facts(brokers, group_id, names)    # a PartitionFacts for each share partition in use
    why(facts[0], 17)                           # "acquired by worker (/127.0.0.1) until 12:00:03.120: delivery 2 of 5"
    holder(facts[0])                            # what keeps the start offset from moving

Versions: Metadata 5, DescribeGroups 6 (the first with tagged fields is 5).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import field, fields
from datetime import datetime
from typing import Any, Final

from kafkapy.cli.committed_offsets import BrokerCalls, of_each_broker
from kafkapy.cli.output import counted, print_table
from kafkapy.dataclass import dataclass
from kafkapy.group.explain import IN_FLIGHT_TAG
from kafkapy.protocol.messages.describe_groups_request import DescribeGroupsRequest

COLUMNS: Final = ("OFFSETS", "STATE", "DELIVERIES", "MEMBER", "UNTIL")
UNKNOWN: Final = "the brokers do not tell what is in flight: they are no kafkapy brokers, or older ones"
NEXT_FETCH: Final = "the next member that fetches gets it"
NO_FETCH: Final = "nobody fetches from the partition's leader"


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive records in one state. `member`: client and host of the member that has acquired them."""

    first_offset: int
    last_offset: int
    state: str
    delivery_count: int
    member: str
    until_ms: int | None
    is_written: bool

    @property
    def is_done(self) -> bool:
        return self.is_written and self.state in ("acknowledged", "archived")

    @property
    def offsets(self) -> str:
        first, last = self.first_offset, self.last_offset
        return str(first) if first == last else f"{first}-{last}"


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """The state of a share partition at its leader. `next_offset` and later offsets were never acquired."""

    topic: str
    partition: int
    state: str
    start_offset: int
    next_offset: int
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    reads_committed: bool
    max_record_locks: int
    delivery_count_limit: int
    members: tuple[str, ...]
    runs: tuple[Run, ...] = field(default_factory=tuple)
    runs_left_out: int = 0

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def in_flight_count(self) -> int:
        """Records that count towards share.partition.max.record.locks."""
        return self.next_offset - self.start_offset

    @property
    def end_offset(self) -> int:
        """The first offset that the group may not read yet."""
        return self.last_stable_offset if self.reads_committed else self.high_watermark


def share_facts(
    brokers: BrokerCalls, group_id: str, names: Mapping[str, str], silent: list[str] | None = None
) -> list[PartitionFacts] | None:
    """Return the facts of each share partition in use, by name; None if no broker reports any.

    names: of members by their id (share_groups.member_names). silent: gets why brokers did not answer, whose partitions
    are left out. Raises CoordinatorError if no broker answers.
    """
    requested = DescribeGroupsRequest(groups=[group_id], unknown_tagged_fields={IN_FLIGHT_TAG: b""})
    responses, errors = of_each_broker(brokers, lambda node_id: brokers.call(node_id, requested, 6))
    if silent is not None:
        silent += map(str, errors)
    elif errors:
        raise errors[0]
    found: list[PartitionFacts] | None = None
    for response in responses.values():
        (group,) = response.groups
        encoded = (group.unknown_tagged_fields or {}).get(IN_FLIGHT_TAG)
        if encoded is not None:
            found = (found or []) + [_facts(each, names) for each in json.loads(encoded)]
    return found if found is None else sorted(found, key=lambda each: (each.topic, each.partition))


_REPORTED: Final = tuple(each.name for each in fields(PartitionFacts))
"""The fields of a response that are read; those of later brokers may have more."""


def _facts(reported: Mapping[str, Any], names: Mapping[str, str]) -> PartitionFacts:
    members = tuple(names.get(each, each) for each in reported["members"])
    runs = tuple(Run(**{**run, "member": names.get(run["member"], run["member"])}) for run in reported["runs"])
    known = {name: reported[name] for name in _REPORTED if name in reported}
    return PartitionFacts(**{**known, "members": members, "runs": runs})


def holder(facts: PartitionFacts) -> str | None:
    """Return why the start offset does not move; None if nothing is in flight."""
    if not facts.runs:
        return None
    first = next((run for run in facts.runs if not run.is_done), None)
    if first is None:
        return "all that is shown is done: the start offset moves with the next write"
    if first.first_offset > facts.start_offset and facts.runs[0] is first:
        return f"{facts.start_offset} is available again: it was never acknowledged before its leader changed"
    return f"{first.offsets} {_state_of(first, facts)}"


def why(facts: PartitionFacts, offset: int) -> str:
    """Return, in a sentence, the state of a record, and why it is not delivered now."""
    run = next((each for each in facts.runs if each.first_offset <= offset <= each.last_offset), None)
    if run is not None:
        return f"{offset} {_state_of(run, facts)}"
    if offset < facts.log_start_offset:
        return f"{offset} is no longer in the log, which begins at {facts.log_start_offset}"
    if offset < facts.start_offset:
        return f"{offset} is done with, or was never to be read: the group is past it, at {facts.start_offset}"
    if offset < facts.next_offset:
        if facts.runs_left_out:
            return f"{offset} is in flight, but not among the first runs, which are shown"
        return f"{offset} is available: {NEXT_FETCH}"
    return f"{offset} {_not_acquired(facts, offset)}"


def _not_acquired(facts: PartitionFacts, offset: int) -> str:
    if offset >= facts.high_watermark:
        return f"is not there yet: the partition's high watermark is {facts.high_watermark}"
    if offset >= facts.end_offset:
        return f"waits for a transaction that is open at {facts.last_stable_offset}: the group reads what is committed"
    if not facts.members:
        return "waits for a member: none fetches from the partition's leader"
    if facts.in_flight_count >= facts.max_record_locks:
        return (
            f"waits for the start offset: {facts.in_flight_count} records are in flight, "
            f"of at most {facts.max_record_locks}, and {holder(facts)}"
        )
    return f"has not been fetched yet: {NEXT_FETCH}, after the records before it"


def _state_of(run: Run, facts: PartitionFacts) -> str:
    limit = facts.delivery_count_limit
    if not run.is_written:
        return f"is {run.state}, which is being written"
    if run.state == "acquired":
        member = run.member or "a member"
        return f"is acquired by {member} until {_time(run.until_ms)}: delivery {run.delivery_count} of {limit}"
    if run.state == "available":
        failed = f"failed {run.delivery_count} of {limit} times" if run.delivery_count else "was not delivered yet"
        return f"is available, and {failed}: {NEXT_FETCH if facts.members else NO_FETCH}"
    if run.state == "archiving":
        return f"is being copied to the dead-letter topic, after {run.delivery_count} of {limit} deliveries"
    if run.state == "archived":
        reason = "out of attempts" if run.delivery_count >= limit else "rejected, or of an aborted transaction"
        return f"is archived ({reason}), after {run.delivery_count} of {limit} deliveries: it never comes again"
    return f"is accepted, at delivery {run.delivery_count} of {limit}"


def _time(at_ms: int | None) -> str:
    if at_ms is None:
        return "-"
    return datetime.fromtimestamp(at_ms / 1000).astimezone().isoformat(" ", "milliseconds")


def print_facts(facts: Sequence[PartitionFacts], offset: int | None) -> None:
    """Print the records in flight; with an offset, the state of the record there, of each partition."""
    for each in facts:
        if offset is not None:
            print(f"{each.name}: {why(each, offset)}.")
            held = holder(each)
            if held is not None:
                print(f"  the start offset is {each.start_offset}: {held}")
            continue
        members = f"{counted(len(each.members), 'member')} fetch"
        print(
            f"{each.name}  start {each.start_offset}, end {each.end_offset}, "
            f"in flight {each.in_flight_count} of {each.max_record_locks}, {members}"
        )
        held = holder(each)
        if held is not None:
            print(f"  the start is held: {held}")
        if each.runs:
            print_table(COLUMNS, (_row(run, each) for run in each.runs))
        if each.runs_left_out:
            print(f"  and {each.runs_left_out} more runs")


def _row(run: Run, facts: PartitionFacts) -> tuple[str, ...]:
    state = run.state if run.is_written else f"{run.state} (being written)"
    deliveries = f"{run.delivery_count} of {facts.delivery_count_limit}"
    return run.offsets, state, deliveries, run.member or "-", _time(run.until_ms)
