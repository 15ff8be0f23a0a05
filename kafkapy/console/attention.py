"""The problems of a cluster that need attention, the most urgent first. Pure: computed from the overview's facts.

Offline partitions, under-replicated ones, those at min.insync.replicas, brokers that do not answer, lag that does not
fall, transactions that stay open, disks that fill.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kafkapy.cli.output import counted
from kafkapy.console.cluster import LogDir
from kafkapy.console.render import link, number
from kafkapy.console.samples import Points
from kafkapy.console.topic_list import TopicList
from kafkapy.dataclass import dataclass

MAX_NAMED: Final = 5
LAG_OF_S: Final = 60
"""A lag that did not fall for so long is a problem."""
OPEN_MS: Final = 60_000
"""A transaction that is open for longer is a problem: transaction.timeout.ms is a minute by default."""
DISK_WARN: Final = 80
DISK_BAD: Final = 90
"""The used percentage of a disk that is a problem."""


@dataclass(frozen=True, slots=True)
class Concern:
    """`level`: bad or warn; `names`: (text, href) of the affected, at most MAX_NAMED; `more`: how many others."""

    level: str
    text: str
    names: tuple[tuple[str, str], ...] = ()
    more: int = 0


def of_topics(topics: TopicList, min_isr: Mapping[str, int]) -> Iterable[Concern]:
    """Yield the problems of partitions. min_isr: min.insync.replicas of the topics with replicas out of sync."""
    if topics.offline:
        text = f"{_partitions(topics.offline)} offline: nobody can read or write them."
        yield _concern("bad", text, topics.offline_topics, _to_topic)
    known = {name: sizes for name, sizes in topics.in_sync.items() if name in min_isr}
    under = {name: sum(size < min_isr[name] for size in sizes) for name, sizes in known.items()}
    at = {name: sum(size == min_isr[name] for size in sizes) for name, sizes in known.items()}
    if topics.under_replicated:
        text = f"{_partitions(topics.under_replicated)} under-replicated: a replica is not in sync."
        yield _concern("warn", text, list(topics.in_sync), _to_topic)
    if count := sum(under.values()):
        text = f"{_partitions(count)} below min.insync.replicas: writes with acks=all are refused."
        yield _concern("bad", text, [name for name, each in under.items() if each], _to_topic)
    if count := sum(at.values()):
        text = f"{_partitions(count)} at min.insync.replicas: one replica less, and writes with acks=all are refused."
        yield _concern("warn", text, [name for name, each in at.items() if each], _to_topic)


def of_brokers(silent: Iterable[int], at_risk: int) -> Iterable[Concern]:
    numbers = sorted(silent)
    if not numbers:
        return
    text = "A broker does not answer" if len(numbers) == 1 else f"{len(numbers)} brokers do not answer"
    risk = f": {_partitions(at_risk)} at risk, for nobody can write to them until another leads." if at_risk else "."
    yield _concern("bad", text + risk, [str(each) for each in numbers], _to_broker)


def of_lags(lags: Mapping[str, Points]) -> Iterable[Concern]:
    """Yield the largest lags that did not fall for LAG_OF_S."""
    growing = {group: int(points[-1][1]) for group, points in lags.items() if _does_not_fall(points)}
    if not growing:
        return
    largest = sorted(growing, key=lambda group: -growing[group])
    names = tuple((f"{each or '(empty name)'} ({number(growing[each])})", _to_group(each)) for each in largest)
    text = f"{counted(len(largest), 'group')} with lag that does not fall."
    yield Concern("warn", text, names[:MAX_NAMED], max(0, len(names) - MAX_NAMED))


def of_transactions(opened: Sequence[Mapping[str, Any]]) -> Iterable[Concern]:
    """`opened`: the transactions that are open for longer than OPEN_MS."""
    if opened:
        text = (
            f"{len(opened)} transaction{' is' if len(opened) == 1 else 's are'} open for more than a minute: "
            "consumers that read committed records wait for the end of it."
        )
        yield _concern("warn", text, [str(each["transactional_id"]) for each in opened], _to_transaction)


def of_disks(log_dirs: Iterable[LogDir]) -> Iterable[Concern]:
    failed = [each for each in log_dirs if each.error and not each.is_silent]
    if failed:
        where = [f"{each.path} of {each.node_id} ({each.error})" for each in failed]
        yield _concern("bad", "A log directory is offline.", where, _to_brokers)
    used = {each: each.used_percent for each in log_dirs if each.used_percent is not None}
    for level, low, high in (("bad", DISK_BAD, 101), ("warn", DISK_WARN, DISK_BAD)):
        full = sorted((each for each, part in used.items() if low <= part < high), key=lambda each: -(used[each] or 0))
        if full:
            where = [f"{each.path} of {each.node_id} ({used[each]} %)" for each in full]
            yield _concern(level, f"A disk is used by {low} % or more.", where, _to_brokers)


def _does_not_fall(points: Points) -> bool:
    if not points or points[-1][1] <= 0:
        return False
    before = [lag for at_s, lag in points if at_s <= points[-1][0] - LAG_OF_S]
    return bool(before) and points[-1][1] >= before[-1] > 0


def _partitions(count: int) -> str:
    return "1 partition is" if count == 1 else f"{number(count)} partitions are"


def _concern(level: str, text: str, names: Sequence[str], href: Any) -> Concern:
    shown = tuple((each or "(empty)", href(each)) for each in names[:MAX_NAMED])
    return Concern(level, text, shown, max(0, len(names) - MAX_NAMED))


def _to_topic(name: str) -> str:
    return link("/topic", name=name)


def _to_group(name: str) -> str:
    return link("/group", name=name)


def _to_transaction(name: str) -> str:
    return link("/transaction", id=name)


def _to_broker(node_id: str) -> str:
    return link("/broker", id=node_id)


def _to_brokers(_: str) -> str:
    return "/brokers"
