"""Members, topics and lag of groups, for `kafkapy groups list`.

Committed offsets come from each group's coordinator, end offsets of all partitions at once. Unknown values are None.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from kafkapy.cli.committed_offsets import (
    BrokerCalls,
    CoordinatorError,
    Partition,
    ask_coordinator,
    committed_offsets,
    offsets_at,
)
from kafkapy.cli.consumer_groups import ConsumerGroup, described_at
from kafkapy.cli.group_offsets import lag_of
from kafkapy.cli.progress import Progress
from kafkapy.cli.topic_facts import LATEST, TopicQueries
from kafkapy.dataclass import dataclass

GROUP_TIMEOUT_S: Final = 2.0
"""How long a coordinator is looked up. `describe` waits longer for one that moves."""
SILENCE_S: Final = 20.0
"""The time for all groups whose coordinators do not answer; after it no more lags are fetched."""

Offsets = Mapping[Partition, int]
T = TypeVar("T")


@dataclass(slots=True)
class GroupFacts:
    """`topics`: those with committed offsets, and those assigned to members."""

    members: int | None
    lag: int | None
    topics: list[str]


def facts_of(brokers: BrokerCalls, group_ids: Sequence[str]) -> dict[str, GroupFacts]:
    """Return the facts of each group. Raises CoordinatorError."""
    responses = ask_each(group_ids, lambda group_id: _consumers(brokers, group_id))
    return _facts(brokers, {group_id: found or (None, None) for group_id, found in responses.items()}, _assigned)


def _facts(
    brokers: BrokerCalls, groups: Mapping[str, tuple[Any, Offsets | None]], topics_of: Callable[[Any], set[str]]
) -> dict[str, GroupFacts]:
    """Return the facts of groups, from their descriptions and committed offsets; a fact is None if unknown."""
    partitions = {partition for _, offsets in groups.values() for partition in offsets or ()}
    ends = TopicQueries(brokers).known_offsets(partitions, LATEST)
    found = {}
    for group_id, (group, offsets) in groups.items():
        topics = set() if group is None else topics_of(group)
        found[group_id] = GroupFacts(
            None if group is None else len(group.members),
            None if offsets is None else lag_of(offsets, ends),
            sorted(topics | {topic for topic, _ in offsets or ()}),
        )
    return found


def share_facts_of(brokers: BrokerCalls, group_ids: Sequence[str]) -> dict[str, GroupFacts]:
    """Like facts_of, for share groups."""
    if not group_ids:
        return {}
    from kafkapy.cli.share_groups import describe_share_group  # only if there are such groups: 9 ms

    described = ask_each(group_ids, lambda group_id: describe_share_group(brokers, group_id, GROUP_TIMEOUT_S))
    return {
        group_id: GroupFacts(None, None, [])
        if group is None
        else GroupFacts(len(group["members"]), group["lag"], sorted({each["topic"] for each in group["partitions"]}))
        for group_id, group in described.items()
    }


def streams_facts_of(brokers: BrokerCalls, group_ids: Sequence[str]) -> dict[str, GroupFacts]:
    """Like facts_of, for streams groups: the topics are their source topics, and those with committed offsets."""
    responses = ask_each(group_ids, lambda group_id: _streams_group(brokers, group_id))
    return _facts(brokers, {group_id: found or (None, None) for group_id, found in responses.items()}, _read)


def _streams_group(brokers: BrokerCalls, group_id: str) -> tuple[Any, Offsets] | None:
    from kafkapy.cli.streams_groups import described_group

    group = described_group(brokers, group_id, GROUP_TIMEOUT_S)
    return None if group is None else (group, committed_offsets(brokers, group_id, GROUP_TIMEOUT_S))


def _read(group: Any) -> set[str]:
    from kafkapy.cli.streams_groups import inputs_of, subtopologies_of

    return {topic for each in subtopologies_of(group) for topic in inputs_of(each)}


def _consumers(brokers: BrokerCalls, group_id: str) -> tuple[ConsumerGroup, Offsets]:
    """Return a group and its committed offsets, as its coordinator has them. Raises CoordinatorError."""

    def ask(coordinator: Any) -> tuple[ConsumerGroup, Offsets]:
        group = described_at(brokers, coordinator, group_id)
        return group, offsets_at(brokers, coordinator.node_id, group_id)

    return ask_coordinator(brokers, group_id, ask, GROUP_TIMEOUT_S)


def _assigned(group: ConsumerGroup) -> set[str]:
    return {topic for member in group.members for topic, _ in member.partitions}


def ask_each(group_ids: Sequence[str], ask: Callable[[str], T]) -> dict[str, T | None]:
    """Return the results of `ask` by group, None if a group's coordinator does not answer."""
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
