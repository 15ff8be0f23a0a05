"""Groups of a list with members, topics and lag: what `groups list` asks besides their names.

Offsets come from each group's coordinator, ends of all partitions at once. What is not known is None.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from kafkapy.cli.client import outcomes
from kafkapy.cli.committed_offsets import BrokerCalls, CoordinatorError, committed_offsets
from kafkapy.cli.deadline import TIMEOUT_S
from kafkapy.cli.progress import Progress
from kafkapy.cli.share_groups import describe_share_group
from kafkapy.cli.streams_groups import described_group, inputs_of, subtopologies_of
from kafkapy.cli.topic_facts import LATEST, TopicQueries
from kafkapy.dataclass import dataclass

GROUP_TIMEOUT_S: Final = 2.0
"""How long a coordinator is looked for: one that moves is not waited for as by `describe`."""
SILENCE_S: Final = 20.0
"""In all, for groups whose coordinators do not answer: the lag of those that are left is not fetched."""
GROUPS_AT_ONCE: Final = 500
"""Of one request to a coordinator: it takes some milliseconds."""

Partition = tuple[str, int]
Offsets = Mapping[Partition, int]
T = TypeVar("T")


@dataclass(slots=True)
class GroupFacts:
    """`topics`: those that it has committed, or that its members are assigned."""

    members: int | None
    lag: int | None
    topics: list[str]


def facts_of(admin: Any, brokers: BrokerCalls, group_ids: Sequence[str]) -> dict[str, GroupFacts]:
    """Return the facts of each group. Raises KafkaException, CoordinatorError."""
    described = _described(admin, group_ids)
    committed = _asked(group_ids, lambda group_id: committed_offsets(brokers, group_id, GROUP_TIMEOUT_S))
    return _facts(brokers, {each: (described.get(each), committed[each]) for each in group_ids}, _assigned)


def _facts(
    brokers: BrokerCalls, groups: Mapping[str, tuple[Any, Offsets | None]], topics_of: Callable[[Any], set[str]]
) -> dict[str, GroupFacts]:
    """Return the facts of groups by what they are and have committed, each None if it is not known."""
    ends = _ends(brokers, {partition for _, offsets in groups.values() for partition in offsets or ()})
    found = {}
    for group_id, (group, offsets) in groups.items():
        topics = set() if group is None else topics_of(group)
        lags = [max(ends[each] - offset, 0) for each, offset in (offsets or {}).items() if each in ends]
        found[group_id] = GroupFacts(
            None if group is None else len(group.members),
            None if offsets is None else sum(lags),
            sorted(topics | {topic for topic, _ in offsets or ()}),
        )
    return found


def share_facts_of(brokers: BrokerCalls, group_ids: Sequence[str]) -> dict[str, GroupFacts]:
    """As facts_of, of share groups."""
    described = _asked(group_ids, lambda group_id: describe_share_group(brokers, group_id, GROUP_TIMEOUT_S))
    return {
        group_id: GroupFacts(None, None, [])
        if group is None
        else GroupFacts(len(group["members"]), group["lag"], sorted({each["topic"] for each in group["partitions"]}))
        for group_id, group in described.items()
    }


def streams_facts_of(brokers: BrokerCalls, group_ids: Sequence[str]) -> dict[str, GroupFacts]:
    """As facts_of, of streams groups: the topics are those that are read, and those of which something is committed."""
    asked = _asked(group_ids, lambda group_id: _streams_group(brokers, group_id))
    return _facts(brokers, {group_id: found or (None, None) for group_id, found in asked.items()}, _read)


def _streams_group(brokers: BrokerCalls, group_id: str) -> tuple[Any, Offsets] | None:
    group = described_group(brokers, group_id, GROUP_TIMEOUT_S)
    return None if group is None else (group, committed_offsets(brokers, group_id, GROUP_TIMEOUT_S))


def _read(group: Any) -> set[str]:
    return {topic for each in subtopologies_of(group) for topic in inputs_of(each)}


def _described(admin: Any, group_ids: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for start in range(0, len(group_ids), GROUPS_AT_ONCE):
        part = list(group_ids[start : start + GROUPS_AT_ONCE])
        futures = admin.describe_consumer_groups(part, request_timeout=TIMEOUT_S)
        found |= {group_id: group for group_id, group, error in outcomes(futures) if error is None}
    return found


def _assigned(group: Any) -> set[str]:
    return {
        partition.topic
        for member in group.members
        if member.assignment is not None
        for partition in member.assignment.topic_partitions
    }


def _asked(group_ids: Sequence[str], ask: Callable[[str], T]) -> dict[str, T | None]:
    """Return what `ask` returns for each group, None if its coordinator does not answer."""
    found: dict[str, T | None] = dict.fromkeys(group_ids)
    silence_s = 0.0
    with Progress("groups asked", len(group_ids)) as progress:
        for done, group_id in enumerate(group_ids):
            if silence_s >= SILENCE_S:
                break
            began_s = time.monotonic()
            try:
                found[group_id] = ask(group_id)
            except CoordinatorError:
                silence_s += time.monotonic() - began_s
            progress.show(done + 1)
    return found


def _ends(brokers: BrokerCalls, partitions: Iterable[Partition]) -> Offsets:
    names = {topic for topic, _ in partitions}
    if not names:
        return {}
    queries = TopicQueries(brokers)
    return queries.offsets([topic for name, topic in queries.topics().items() if name in names], LATEST)
