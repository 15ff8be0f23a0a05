"""kafkapy.metrics.topics and kafkapy.metrics.groups: which topics and groups have series of their own.

Each series costs the system that stores the metrics. The sums over all topics are not affected.
"""

from typing import Any, Final

from kafkapy.config import patterns
from kafkapy.config.patterns import PatternError
from kafkapy.errors import ConfigError
from kafkapy.server.admin.names import Tags

ALL: Final = ".*"
MAX_REMEMBERED: Final = 100_000
"""Names with cached results: any client that may create topics or groups adds to them."""
MAX_REMEMBERED_NAME: Final = 249
"""Characters, the maximum of a topic name. Groups, and the labels of clients' own metrics, may be longer."""
LABELS: Final = {"topic": "topics", "consumergroup": "groups", "group": "groups"}


class SeriesFilter:
    """Decides by its labels whether a series is shown. Patterns match whole names."""

    def __init__(self, topics: str = ALL, groups: str = ALL) -> None:
        """Raises ConfigError for a pattern that is not one of RE2."""
        self._patterns: dict[str, Any] = {}
        for label, pattern in (("topic", topics), ("consumergroup", groups), ("group", groups)):
            if pattern != ALL:
                self._patterns[label] = compiled(f"kafkapy.metrics.{LABELS[label]}", pattern)
        self._known: dict[tuple[str, str], bool] = {}

    def shows(self, tags: Tags) -> bool:
        if not self._patterns:
            return True
        return all(self._matches(tag) for tag in tags if tag[0] in self._patterns)

    def _matches(self, tag: tuple[str, str]) -> bool:
        found = self._known.get(tag)
        if found is None:
            found = self._patterns[tag[0]].fullmatch(tag[1]) is not None
            if len(tag[1]) <= MAX_REMEMBERED_NAME and tag[1].isascii():
                if len(self._known) >= MAX_REMEMBERED:
                    self._known.clear()
                self._known[tag] = found
        return found


def compiled(key: str, pattern: str) -> Any:
    """Return a pattern compiled by RE2, whose time is linear in the text. Raises ConfigError, naming the key."""
    try:
        return patterns.compiled(pattern, is_trusted=True)
    except PatternError as error:
        raise ConfigError(key, pattern, str(error)) from None
