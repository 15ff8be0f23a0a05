"""The last records, groups and requests: for the message of a wait that fails."""

import contextlib
from typing import Final

from kafkapy.embedded.observed.decoding import Formats
from kafkapy.embedded.observed.described import groups_of
from kafkapy.embedded.observed.fetching import topic_names
from kafkapy.embedded.observed.groups import summary
from kafkapy.embedded.observed.nodes import Nodes, Sources
from kafkapy.embedded.observed.requests import OFF, Requests
from kafkapy.embedded.observed.topics import MAX_RECORDS, Topic
from kafkapy.errors import KafkapyError, first_of

RECORDS: Final = 10
"""Records of the topic that a wait is about, or of each of TOPICS."""
TOPICS: Final = 5
GROUPS: Final = 5
REQUESTS: Final = 20


def report(nodes: Nodes, requests: Requests, topic: str | None) -> str:
    """Return the last records, groups and requests, a line each. What cannot be read is left out.

    `topic`: whose records; None: those of the first TOPICS topics.
    """
    lines: list[str] = []
    with contextlib.suppress(KafkapyError, OSError, RuntimeError):
        names = topic_names(nodes)
        lines.append(f"topics: {first_of(names, 2 * TOPICS) or 'none'}")
        for name in names[:TOPICS] if topic is None else [each for each in names if each == topic]:
            lines += _records(nodes, name)
    with contextlib.suppress(KafkapyError, OSError, RuntimeError):
        lines += _groups(nodes)
    if requests.is_on:
        shown = requests.last(REQUESTS)
        lines.append(f"last {len(shown)} of {len(requests)} requests:" if shown else "no requests")
        lines += [f"  {request}" for request in shown]
    else:
        lines.append(OFF)
    return "\n".join(lines)


def _records(nodes: Nodes, name: str) -> list[str]:
    topic = Topic(name, Sources(nodes, lambda _: ""), Formats())
    if (count := sum(topic.end_offsets().values())) > MAX_RECORDS:
        return [f"{name}: {count} records"]
    records = topic.records()
    last = sorted(records, key=lambda each: each.timestamp_ms)[-RECORDS:]
    return [f"{name}: {len(records)} records{', the last:' if last else ''}", *(f"  {each}" for each in last)]


def _groups(nodes: Nodes) -> list[str]:
    names = sorted(groups_of(nodes))
    lines = [f"groups: {first_of(names, 2 * GROUPS) or 'none'}"]
    return lines + [f"  {name}: {summary(nodes, name)}" for name in names[:GROUPS]]
