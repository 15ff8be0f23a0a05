"""The subscriptions of a group: topic names counted over its members, and resolved regular expressions."""

from collections.abc import Generator, Iterable, Set
from dataclasses import field
from typing import Any

from kafkapy.config.patterns import PatternError, check, compiled
from kafkapy.dataclass import dataclass
from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that a regular expression matched, with the metadata offset (`version`) and the wall clock then."""

    topics: frozenset[str] = frozenset()
    version: int = 0
    timestamp_ms: int = 0


@dataclass(slots=True)
class Subscriptions:
    """The number of members that subscribe to each name and each regular expression, and the expressions' topics."""

    names: dict[str, int] = field(default_factory=dict)
    regexes: dict[str, int] = field(default_factory=dict)
    resolved: dict[str, ResolvedRegex] = field(default_factory=dict)

    def copy(self) -> "Subscriptions":
        return Subscriptions(dict(self.names), dict(self.regexes), dict(self.resolved))

    def add(self, names: Iterable[str], regex: str) -> None:
        for name in names:
            self.names[name] = self.names.get(name, 0) + 1
        if regex:
            self.regexes[regex] = self.regexes.get(regex, 0) + 1

    def remove(self, names: Iterable[str], regex: str) -> None:
        for name in names:
            _decrement(self.names, name)
        if regex:
            _decrement(self.regexes, regex)

    def forget_unused(self) -> list[str]:
        """Drop the resolved topics of expressions that no member subscribes to; return those expressions."""
        unused = [regex for regex in self.resolved if regex not in self.regexes]
        for regex in unused:
            del self.resolved[regex]
        return unused

    def topics(self) -> set[str]:
        """Return the names of all topics that the group subscribes to, existing or not."""
        topics = set(self.names)
        for resolved in self.resolved.values():
            topics |= resolved.topics
        return topics

    def has(self, topic: str) -> bool:
        """Whether a member subscribes to a topic."""
        return topic in self.names or any(topic in resolved.topics for resolved in self.resolved.values())

    def topics_of(self, names: frozenset[str], regex: str) -> frozenset[str]:
        """Return the topics that one member subscribes to; an unresolved expression matches nothing."""
        resolved = self.resolved.get(regex) if regex else None
        return names if resolved is None else names | resolved.topics

    def is_homogeneous(self, member_count: int) -> bool:
        """Whether all members subscribe to the same topics, in the same way (all by name, or all by one expression)."""
        assert all(count <= member_count for count in self.names.values()), "a name has more subscribers than members"
        if not self.regexes:
            return all(count == member_count for count in self.names.values())
        return not self.names and next(iter(self.regexes.values())) == member_count


def _decrement(counts: dict[str, int], key: str) -> None:
    count = counts.get(key, 0)
    assert count > 0, f"{key} loses a subscriber that it has not"
    if count > 1:
        counts[key] = count - 1
    else:
        del counts[key]


def check_regex(regex: str) -> None:
    """Check a SubscribedTopicRegex by the syntax of RE2, as Kafka specifies.

    Raises INVALID_REGULAR_EXPRESSION, also if google-re2 is not installed.
    """
    try:
        check(regex)
    except PatternError as error:
        reason = str(error).removesuffix(f": {regex}")  # RE2 may repeat it
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {reason}.",
        ) from error


@dataclass(frozen=True, slots=True)
class TopicMatches:
    """The result of matching an expression: the topic names it was matched with, and those that it matches."""

    seen: Set[str] = frozenset()
    topics: Set[str] = frozenset()


def match_topics(regex: str, names: frozenset[str], before: TopicMatches) -> Generator[None, None, TopicMatches]:
    """Match an expression against the whole names of topics, except those that `before` has seen.

    Yields after each name, so that the caller can run it in turns (runtime/turns.py): a match takes some 10 us, and
    0.5 ms with the worst expressions.
    """
    topics = set()
    pattern = None
    for name in names:
        if name in before.seen:
            if name in before.topics:
                topics.add(name)
        else:
            pattern = pattern or _compiled(regex)
            if pattern is None:
                break  # it was valid at subscription, perhaps on a broker with another RE2
            if pattern.fullmatch(name) is not None:
                topics.add(name)
        yield
    return TopicMatches(names, topics)


def _compiled(regex: str) -> Any:
    try:
        return compiled(regex)
    except PatternError:
        return None
