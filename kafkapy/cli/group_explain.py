"""`kafkapy groups explain`: prints a group's last rebalances from its coordinator's record (kafkapy.group.explain)."""

import json
from datetime import datetime
from typing import Any

from kafkapy.cli.committed_offsets import BrokerCalls, CoordinatorError, ask_coordinator, check
from kafkapy.cli.deadline import TIMEOUT_S
from kafkapy.cli.output import print_table
from kafkapy.group.explain import EXPLAIN_TAG
from kafkapy.protocol.messages.describe_groups_request import DescribeGroupsRequest

OTHER_KIND = "is not a classic group"
"""In Apache Kafka's response to DescribeGroups if the group is there, but of another kind."""
NO_EXPLANATIONS = "the group's coordinator keeps no explanations: it is no kafkapy broker, or an older one"
COLUMNS = ("MEMBER", "CLIENT", "HOST", "CHANGE", "GAINED", "LOST")


def rebalances_of(brokers: BrokerCalls, group_id: str, timeout_s: float = TIMEOUT_S) -> list[dict[str, Any]]:
    """Return the rebalances from the group's coordinator. Raises CoordinatorError, also if it keeps none.

    timeout_s: how long a coordinator that moves is looked for.
    """
    return ask_coordinator(
        brokers, group_id, lambda coordinator: _rebalances_at(brokers, coordinator, group_id), timeout_s
    )


def _rebalances_at(brokers: BrokerCalls, coordinator: Any, group_id: str) -> list[dict[str, Any]]:
    requested = DescribeGroupsRequest(groups=[group_id], unknown_tagged_fields={EXPLAIN_TAG: b""})
    (group,) = brokers.call(coordinator.node_id, requested, 6).groups
    encoded = (group.unknown_tagged_fields or {}).get(EXPLAIN_TAG)
    if encoded is None:
        if OTHER_KIND not in (group.error_message or ""):
            check(group.error_code, group.error_message)
        raise CoordinatorError(NO_EXPLANATIONS)
    rebalances: list[dict[str, Any]] = json.loads(encoded)
    if not rebalances:
        check(group.error_code, group.error_message)
    return rebalances


def print_rebalances(group_id: str, rebalances: list[dict[str, Any]]) -> None:
    if not rebalances:
        print(f"{group_id} has not rebalanced since its coordinator started.")
    for rebalance in rebalances:
        _print(rebalance)
        print()


def _print(rebalance: dict[str, Any]) -> None:
    started_ms, ended_ms = rebalance["started_at_ms"], rebalance["ended_at_ms"]
    when = datetime.fromtimestamp(started_ms / 1000).astimezone().isoformat(" ", "milliseconds")
    if ended_ms is None:
        print(f"{when}  goes on")
    else:
        print(f"{when}  generation {rebalance['generation']}, after {(ended_ms - started_ms) / 1000:.3f} s")
    for reason in rebalance["reasons"]:
        print(f"  because {reason}")
    if rebalance["members"]:
        print_table(COLUMNS, (_row(member) for member in rebalance["members"]))


def _row(member: dict[str, Any]) -> tuple[str, ...]:
    change = "joined" if member["has_joined"] else "left" if member["has_left"] else "stayed"
    name = member["member"] if member["instance"] is None else f"{member['member']} ({member['instance']})"
    return name, member["client"], member["host"], change, _partitions(member["gained"]), _partitions(member["lost"])


def _partitions(partitions: list[list[Any]]) -> str:
    """Return [topic, partition] pairs as text: orders:0-2,5 payments:1."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(number)
    return " ".join(f"{topic}:{_ranges(numbers)}" for topic, numbers in by_topic.items()) or "-"


def _ranges(numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
