"""A node's metrics in Prometheus' text format, or OpenMetrics'.

kafkapy.metrics.names chooses the names (names.py). Rendering runs on the admin thread, not on the event loop.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import isnan
from typing import TYPE_CHECKING, Final

from kafkapy.gauge import BucketCounts, Distribution, Gauge, Measured, Row
from kafkapy.server.admin.filters import SeriesFilter
from kafkapy.server.admin.names import (
    COUNTER,
    DIALECTS,
    GAUGE,
    HISTOGRAM,
    MAXIMUM_SUFFIX,
    SUMMARY,
    UNTYPED,
    Named,
    Tags,
    strimzi_name,
    topic_in_label,
)
from kafkapy.server.admin.windows import QUANTILES, Windows

if TYPE_CHECKING:
    from kafkapy.server.admin.rules import Bean, Rules

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
QUANTILE_LABELS: Final = tuple((("quantile", f"{quantile:.3f}".removesuffix("0")),) for quantile in QUANTILES)
SAMPLES_PER_STEP: Final = 250
"""Some 0.3 ms of work."""
FAMILY_SAMPLES: Final = 10
"""What the text of a family without samples costs, in samples."""
EXTERNAL: Final = "not a metric of Apache Kafka"


class _Family:
    """The samples of one name."""

    __slots__ = ("help", "kind", "labels", "lines", "name")

    def __init__(self, named: Named, described: str) -> None:
        self.name, self.kind, self.labels = named
        self.help = described
        self.lines: list[str] = []


class Exposition:
    """Renders the metrics of a node, scrape by scrape. Used by one thread at a time."""

    def __init__(self, names: str = "strimzi", shown: SeriesFilter | None = None, rules: "Rules | None" = None) -> None:
        """`names`: kafkapy.metrics.names. `shown`: which series are shown, all if None.

        `rules`: these name Kafka's metrics instead.
        """
        self._rules = rules
        self._shown = shown if shown is not None else SeriesFilter()
        self._dialects = DIALECTS[names]
        self._windows = Windows()
        self.content_type = TEXT
        self.body = b""
        """What was rendered last."""
        self._families: dict[str, _Family] = {}
        self._of: dict[tuple[str, str, bool], Sequence[_Family]] = {}
        self._of_row: dict[tuple[tuple[str, str], ...], list[list[tuple[_Family, int]]]] = {}
        self._labels: dict[tuple[Tags, Callable[[Tags], Tags]], str | None] = {}
        self._joined: set[str | None] = set()
        """The labels in use that have a topic's name in their own."""

    def render(self, measured: Iterable[Measured], accept: str, now_s: float) -> Iterator[None]:
        """Render in steps of SAMPLES_PER_STEP; then `content_type` and `body` are the result.

        accept: the Accept header. now_s: of a monotonic clock.
        """
        self._forget()
        samples = 0
        for each in measured:
            if isinstance(each, BucketCounts):
                self._add_buckets(each)
                samples += len(each.counts) + 2
            elif self._rules is not None and not _is_external(each):
                samples += self._add_by_rules(self._rules, each, now_s)
            elif isinstance(each, Row):
                self._add_row(each)
                samples += len(each.columns)
            elif isinstance(each, Gauge):
                self._add(each.group, each.name, each.value, each.tags, is_counter=each.is_counter)
                samples += 1
            else:
                self._add_distribution(each, now_s)
                samples += len(QUANTILES)
            if samples >= SAMPLES_PER_STEP:
                samples = 0
                yield
        is_open = "application/openmetrics-text" in accept
        parts = []
        for family in self._families.values():
            parts.append(_text(family, is_open=is_open))
            samples += FAMILY_SAMPLES + len(family.lines)
            if samples >= SAMPLES_PER_STEP:  # not at each: clients may push metrics of 10,000 names
                samples = 0
                yield
        if is_open:
            parts.append("# EOF\n")
        self._forget()
        self.content_type = OPEN_METRICS if is_open else TEXT
        self.body = "".join(parts).encode()

    def _forget(self) -> None:
        """Drop what belongs to one scrape."""
        self._families, self._of, self._of_row, self._labels = {}, {}, {}, {}
        self._joined = set()

    def _add_by_rules(self, rules: "Rules", measured: "Bean", now_s: float) -> int:
        """Add the samples that the rules make of a measurement; return how much work that was, in samples."""
        for sample in rules.apply(measured, self._windows, now_s):
            family = self._family(Named(sample.name, sample.kind), sample.help or "by kafkapy.metrics.rules")
            labels = self._label_text(sample.tags, family) if sample.tags else ""
            if labels is not None:
                family.lines.append(f"{sample.name}{labels} {'NaN' if isnan(sample.value) else repr(sample.value)}\n")
        return len(measured.columns) if isinstance(measured, Row) else len(QUANTILES)

    def _add_row(self, row: Row) -> None:
        groups = self._of_row.get(row.columns)
        if groups is None:
            groups = self._of_row[row.columns] = self._groups_of(row.columns)
        values = row.values
        for families in groups:
            labels = self._label_text(row.tags, families[0][0])
            if labels is not None:
                for family, index in families:
                    family.lines.append(f"{family.name}{labels} {values[index]}\n")

    def _groups_of(self, columns: tuple[tuple[str, str], ...]) -> list[list[tuple[_Family, int]]]:
        """Return the families of a row's columns, each with the index of its value, grouped by how labels are made."""
        groups: dict[Callable[[Tags], Tags], list[tuple[_Family, int]]] = {}
        for index, (group, name) in enumerate(columns):
            for family in self._find(group, name, is_counter=False):
                groups.setdefault(family.labels, []).append((family, index))
        return list(groups.values())

    def _add_distribution(self, distribution: Distribution, now_s: float) -> None:
        group, name, tags = distribution[:3]
        count, values = self._windows.read(distribution, now_s)
        if not group:
            self._add_summary(name, count, values)
            return
        self._add(group, name, count, tags, is_counter=True)
        for label, value in zip(QUANTILE_LABELS, values, strict=True):
            self._add(group, name, value, tags + label, is_counter=False)

    def _add_summary(self, name: str, count: int, values: list[float]) -> None:
        """Add a distribution of our own, as a summary of Prometheus without labels."""
        family = self._family(Named(name, SUMMARY), EXTERNAL)
        for label, value in zip(QUANTILE_LABELS, values, strict=True):
            family.lines.append(f"{name}{self._label_text(label, family)} {value!r}\n")
        family.lines.append(f"{name}_count {count}\n")

    def _add_buckets(self, counts: BucketCounts) -> None:
        """Add a histogram of others, under its own name."""
        family = self._family(Named(counts.name, HISTOGRAM), EXTERNAL)
        text = self._label_text(counts.tags, family)
        if text is None:
            return
        labels = text[1:-1] + "," if counts.tags else ""
        reached = 0
        for bound, count in zip((*counts.bounds, "+Inf"), counts.counts, strict=True):
            reached += count
            family.lines.append(f'{counts.name}_bucket{{{labels}le="{bound}"}} {reached}\n')
        if counts.total is not None:
            family.lines.append(f"{counts.name}_sum{text} {counts.total!r}\n")
        family.lines.append(f"{counts.name}_count{text} {reached}\n")

    def _add(self, group: str, name: str, value: float, tags: Tags, *, is_counter: bool) -> None:
        families = self._of.get((group, name, is_counter))
        if families is None:
            families = self._of[group, name, is_counter] = self._find(group, name, is_counter=is_counter)
        for family in families:
            labels = self._label_text(tags, family) if tags else ""
            if labels is not None:
                family.lines.append(f"{family.name}{labels} {'NaN' if isnan(value) else repr(value)}\n")

    def _find(self, group: str, name: str, *, is_counter: bool) -> Sequence[_Family]:
        if not group:
            return [self._family(Named(name, COUNTER if is_counter else GAUGE), EXTERNAL)]
        described = f"{group},name={name}"
        return [self._family(dialect(group, name, is_counter=is_counter), described) for dialect in self._dialects]

    def _family(self, named: Named, described: str) -> _Family:
        family = self._families.get(named.name)
        if family is None:
            family = self._families[named.name] = _Family(named, described)
        return family

    def _label_text(self, tags: Tags, family: _Family) -> str | None:
        """Return the labels in braces; None if the series is not shown."""
        key = (tags, family.labels)
        if key in self._labels:
            return self._labels[key]
        text = None
        if self._shown.shows(tags):
            labels = ",".join(f'{label}="{_escaped(value)}"' for label, value in family.labels(tags))
            text = f"{{{labels}}}"
            if family.labels is topic_in_label:  # a-b and a_b: one of them is shown
                text = None if text in self._joined else text
                self._joined.add(text)
        self._labels[key] = text
        return text


def exposition(measured: Iterable[Measured], accept: str) -> tuple[str, bytes]:
    """Return content type and body of one scrape, by Strimzi's names."""
    exposition = Exposition()
    for _ in exposition.render(measured, accept, 0.0):
        pass
    return exposition.content_type, exposition.body


def prometheus_name(gauge: Gauge) -> str:
    """Return a gauge's name by Strimzi's rules."""
    return strimzi_name(gauge.group, gauge.name, is_counter=gauge.is_counter).name if gauge.group else gauge.name


def _is_external(measured: "Bean") -> bool:
    """Whether the group's metrics are not Apache Kafka's."""
    return not (measured.columns[0][0] if isinstance(measured, Row) else measured.group)


def _text(family: _Family, *, is_open: bool) -> str:
    name, kind = family.name, family.kind
    if is_open and name.endswith(MAXIMUM_SUFFIX):
        kind = UNTYPED  # it falls, and may be NaN, as no counter of OpenMetrics
    if is_open:
        name = name.removesuffix("_total") if kind == COUNTER else name
        kind = "unknown" if kind == UNTYPED else kind
    described = family.help.replace("\\", "\\\\").replace("\n", "\\n")  # a rule may take a client id into it
    return f"# HELP {name} {described}\n# TYPE {name} {kind}\n{''.join(family.lines)}"


def _escaped(value: str) -> str:
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return value
