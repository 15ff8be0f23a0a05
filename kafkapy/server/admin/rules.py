"""kafkapy.metrics.rules: rules of Prometheus' JMX exporter, so that existing dashboards keep working.

A rule matches the text that the exporter makes of an MBean's attribute, and says what the metric is called:

    kafka.server<type=BrokerTopicMetrics, name=BytesInPerSec, topic=t><>Count: 42

These keys of a file are used: rules (pattern, name, labels, type, value, valueFactor, help, attrNameSnakeCase),
lowercaseOutputName, lowercaseOutputLabelNames, includeObjectNames and excludeObjectNames (with their old names
whitelist... and blacklist...). Keys for the connection to a JVM are ignored.

Deviation: Apache Kafka's exporter takes Java's patterns and files of any size. Here patterns are those of RE2, whose
time is linear in the text, and a file may have MAX_BYTES and MAX_RULES, because the event loop applies them.
"""

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from kafkapy.errors import ConfigError
from kafkapy.gauge import Distribution, Gauge, Row
from kafkapy.named_tuple import NamedTuple
from kafkapy.server.admin.filters import compiled
from kafkapy.server.admin.names import COUNTER, DEPRECATED_PREFIX, GAUGE, OBJECT_NAME, UNTYPED, Tags
from kafkapy.server.admin.windows import QUANTILES, Windows

KEY: Final = "kafkapy.metrics.rules"
MAX_BYTES: Final = 1 << 20
"""Strimzi's file has 10 KB."""
MAX_RULES: Final = 1000
"""Each is a pattern that may be tried for each metric; Strimzi has some 40."""
MAX_REMEMBERED: Final = 500_000
"""Attributes whose names are remembered from scrape to scrape."""
TYPES: Final = {"COUNTER": COUNTER, "GAUGE": GAUGE, "UNTYPED": UNTYPED, "UNKNOWN": UNTYPED}
QUOTA_TYPES: Final = ("Produce", "Fetch", "Request", "ControllerMutation")
PERCENTILES: Final = tuple(f"{f'{quantile:.3f}'[2:].removesuffix('0')}thPercentile" for quantile in QUANTILES)
_REFERENCE: Final = re.compile(r"\$(\d)")
_UNQUOTED: Final = re.compile(r"[a-zA-Z0-9_\-%. \t]*")
_ESCAPED: Final = re.compile(r'["*?\\\n]')
"""What ObjectName.quote escapes."""
_WORD_END: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


Bean = Gauge | Distribution | Row
"""What Apache Kafka has MBeans of."""


class Sample(NamedTuple):
    name: str
    kind: str
    help: str
    tags: Tags
    value: float


class _Attribute(NamedTuple):
    """One attribute of an MBean; `properties` are those of its name in order, the type first."""

    domain: str
    properties: Tags
    name: str

    @property
    def text(self) -> str:
        properties = ", ".join(f"{key}={value}" for key, value in self.properties)
        return f"{self.domain}<{properties}><>{self.name}: "


class _Named(NamedTuple):
    """The metric that a rule makes of an attribute; `value` replaces the attribute's own."""

    name: str
    kind: str
    help: str
    tags: Tags
    value: float | None
    factor: float


class _Rule:
    """One rule. Raises ConfigError if it is invalid."""

    def __init__(self, path: str, given: Any) -> None:
        if not isinstance(given, Mapping):
            raise ConfigError(KEY, path, f"a rule is a mapping, not {given}")
        pattern = given.get("pattern")
        self.pattern = None if pattern is None else compiled(KEY, f"^.*(?:{pattern}).*$")
        self.name: str | None = given.get("name")
        self.labels: dict[str, str] = {str(key): str(value) for key, value in (given.get("labels") or {}).items()}
        kind = str(given.get("type", "UNTYPED")).upper()
        if kind not in TYPES:
            raise ConfigError(KEY, path, f"type {kind} of a rule is none of {', '.join(TYPES)}")
        self.kind = TYPES[kind]
        value = given.get("value")
        self.value = None if value is None else str(value)
        self.factor = float(given.get("valueFactor", 1))
        self.help = str(given.get("help", ""))
        self.is_snake_case = bool(given.get("attrNameSnakeCase"))


class Rules:
    """The rules of one file, applied to measured attributes. Used by one thread at a time."""

    def __init__(self, path: str) -> None:
        """Raises ConfigError, naming the file, if it cannot be used."""
        given = _load(path)
        listed = given.get("rules") or [{}]
        if not isinstance(listed, list) or len(listed) > MAX_RULES:
            raise ConfigError(KEY, path, f"rules must be a list of at most {MAX_RULES}")
        self._rules = [_Rule(path, each) for each in listed]
        self._is_lower = bool(given.get("lowercaseOutputName"))
        self._are_labels_lower = bool(given.get("lowercaseOutputLabelNames"))
        self._included = given.get("includeObjectNames", given.get("whitelistObjectNames"))
        self._excluded = given.get("excludeObjectNames", given.get("blacklistObjectNames")) or []
        self._known: dict[_Attribute, _Named | None] = {}

    def apply(self, measured: Bean, windows: Windows, now_s: float) -> Iterator[Sample]:
        """Yield the metrics that the rules make of something measured."""
        if not isinstance(measured, Row) and measured.group.startswith(DEPRECATED_PREFIX):
            return  # the rules would give it the name and the labels of what it is called now
        for attribute, value in _attributes(measured, windows, now_s):
            named = self._known[attribute] if attribute in self._known else self._name(attribute, value)
            if named is not None:
                shown = value if named.value is None else named.value
                yield Sample(
                    named.name, named.kind, named.help, named.tags, shown if named.factor == 1 else shown * named.factor
                )

    def _name(self, attribute: _Attribute, value: float) -> _Named | None:
        """Return the result of the first rule that matches an attribute, None if none does."""
        named, depends_on_value = None, False
        if self._is_wanted(attribute):
            named, depends_on_value = self._match(attribute, value)
        if not depends_on_value:
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            self._known[attribute] = named
        return named

    def _match(self, attribute: _Attribute, value: float) -> tuple[_Named | None, bool]:
        text = attribute.text
        for rule in self._rules:
            if rule.is_snake_case:
                text = attribute._replace(name=_WORD_END.sub("_", attribute.name).lower()).text
            match = None if rule.pattern is None else rule.pattern.match(f"{text}{value}")
            if rule.pattern is None or match is not None:
                groups = () if match is None else match.groups()
                ends = [match.end(index + 1) for index in range(len(groups))] if match is not None else []
                return self._named(rule, attribute, groups), any(end > len(text) for end in ends)
        return None, False

    def _named(self, rule: _Rule, attribute: _Attribute, groups: tuple[str | None, ...]) -> _Named | None:
        def filled(template: str) -> str:
            return _REFERENCE.sub(lambda found: _group(groups, int(found[1])), template)

        if rule.name is None:
            (_, kind), *others = attribute.properties
            name, labels = f"{attribute.domain}_{kind}_{attribute.name}", dict(others)
        else:
            name = filled(rule.name)
            labels = {filled(key): filled(value) for key, value in rule.labels.items()}
        if not name:
            return None
        name = _collapsed(name).lower() if self._is_lower else _collapsed(name)
        if rule.kind == COUNTER and not name.endswith("_total"):
            name += "_total"
        tags = tuple((self._label(key), value) for key, value in labels.items() if key and value)
        return _Named(name, rule.kind, filled(rule.help), tags, _number(rule.value, filled), rule.factor)

    def _label(self, name: str) -> str:
        safe = _collapsed(name)
        return safe.lower() if self._are_labels_lower else safe

    def _is_wanted(self, attribute: _Attribute) -> bool:
        if any(_matches(pattern, attribute) for pattern in self._excluded):
            return False
        return self._included is None or any(_matches(pattern, attribute) for pattern in self._included)


def _load(path: str) -> Mapping[str, Any]:
    try:
        import yaml  # needed for this key only
    except ImportError:
        raise ConfigError(KEY, path, "it needs PyYAML: pip install pyyaml") from None
    try:
        with Path(path).open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(KEY, path, f"it cannot be read: {error.strerror}") from None
    if len(text) > MAX_BYTES:
        raise ConfigError(KEY, path, f"it is larger than {MAX_BYTES} bytes")
    try:
        given = yaml.safe_load(text)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(KEY, path, f"it is no YAML: {error}") from None
    if not isinstance(given, Mapping):
        raise ConfigError(KEY, path, "it has no rules")
    return given


def _attributes(measured: Bean, windows: Windows, now_s: float) -> Iterator[tuple[_Attribute, float]]:
    if isinstance(measured, Row):
        for (group, name), value in zip(measured.columns, measured.values, strict=True):
            yield _attribute(group, name, measured.tags, "Value"), value
    elif isinstance(measured, Distribution):
        count, values = windows.read(measured, now_s)
        yield _attribute(measured.group, measured.name, measured.tags, "Count"), count
        for percentile, value in zip(PERCENTILES, values, strict=True):
            yield _attribute(measured.group, measured.name, measured.tags, percentile), value
    elif measured.is_counter:
        yield _attribute(measured.group, measured.name, measured.tags, "Count"), measured.value
    else:
        is_rate = measured.name.endswith("HandlerAvgIdlePercent")
        attribute = "MeanRate" if is_rate else "Value"
        yield _attribute(measured.group, measured.name, measured.tags, attribute), measured.value


def _attribute(group: str, name: str, tags: Tags, attribute: str) -> _Attribute:
    """Return an attribute. Metrics of Kafka's own library, not Yammer's, are attributes of one MBean of their type."""
    domain, _, kind = group.partition(":type=")
    given = [tag for tag in tags if tag[0] != OBJECT_NAME]
    ordered = tuple((key, _quoted(value)) for key, value in sorted(given, key=_is_partition))
    if kind.endswith("-metrics") or kind in QUOTA_TYPES:
        return _Attribute(domain, (("type", kind), *ordered), name)
    return _Attribute(domain, (("type", kind), ("name", name), *ordered), attribute)


def _quoted(value: str) -> str:
    """Return a property's value as Apache Kafka has it in an MBean's name: quoted, if it has unusual characters."""
    return value if _UNQUOTED.fullmatch(value) else f'"{_ESCAPED.sub(_escape, value)}"'


def _escape(found: re.Match[str]) -> str:
    return "\\n" if found[0] == "\n" else f"\\{found[0]}"


def _is_partition(tag: tuple[str, str]) -> bool:
    return tag[0] == "partition"


def _matches(pattern: object, attribute: _Attribute) -> bool:
    """Whether an MBean's name matches a pattern such as kafka.server:type=ReplicaManager,*."""
    domain, _, listed = str(pattern).partition(":")
    wanted = [each.strip() for each in listed.split(",") if each.strip()]
    is_open = "*" in wanted
    properties = dict(attribute.properties)
    named = dict(each.split("=", 1) for each in wanted if "=" in each)
    return (
        fnmatchcase(attribute.domain, domain)
        and (is_open or named.keys() == properties.keys())
        and all(fnmatchcase(properties.get(key, "").strip('"'), value.strip('"')) for key, value in named.items())
    )


def _group(groups: tuple[str | None, ...], number: int) -> str:
    return (groups[number - 1] or "") if 0 < number <= len(groups) else ""


def _collapsed(name: str) -> str:
    """Return a name with an underscore for each run of characters that names must not have."""
    return re.sub(r"[^a-zA-Z0-9:]+", "_", name)


def _number(value: str | None, filled: Any) -> float | None:
    if value is None:
        return None
    try:
        return float(filled(value))
    except ValueError:
        return None
