"""Which regular expressions of a group a heartbeat has to match against the topics, and how many.

An expression takes some 10 us a topic, on the event loop. So a heartbeat matches few: those that come first are matched
now, the others in the group's next heartbeats.
"""

from typing import Final

from kafkapy.group.consumer.subscriptions import Subscriptions
from kafkapy.metadata.image import MetadataImage

REFRESH_MIN_MS: Final = 10_000
"""New topics make a group match its regular expressions again, but no more often than this."""
MATCHES_PER_HEARTBEAT: Final = 10_000
"""Topics times expressions, unless that is less than one expression: 0.1 s."""


class RegexSchedule:
    """One group's. Not in the log: another coordinator begins with the expressions that are not resolved."""

    def __init__(self) -> None:
        self._matched_topics: frozenset[str] | None = None
        """The topics that there were when the last refresh began."""
        self._stale: set[str] = set()
        """Expressions that the refresh under way has not come to yet."""

    def due(
        self, subscriptions: Subscriptions, image: MetadataImage, wall_ms: int, *, refresh_interval_ms: int
    ) -> set[str]:
        """Return the expressions to match now: new ones first, then all if topics came or the last time is long ago."""
        names = image.topics.by_name
        unresolved = subscriptions.regexes.keys() - subscriptions.resolved.keys()
        self._stale &= subscriptions.resolved.keys()
        if self._must_refresh(subscriptions, image, wall_ms, refresh_interval_ms):
            self._matched_topics = frozenset(names)
            self._stale = set(subscriptions.resolved)
        waiting = [*sorted(unresolved), *sorted(self._stale)]
        due = set(waiting[: max(MATCHES_PER_HEARTBEAT // max(len(names), 1), 1)])
        self._stale -= due
        return due

    def _must_refresh(
        self, subscriptions: Subscriptions, image: MetadataImage, wall_ms: int, refresh_interval_ms: int
    ) -> bool:
        if self._stale:
            return False
        if not subscriptions.resolved:
            self._matched_topics = frozenset(image.topics.by_name)
            return False
        age_ms = wall_ms - min(resolved.timestamp_ms for resolved in subscriptions.resolved.values())
        if age_ms > refresh_interval_ms:
            return True
        return age_ms > REFRESH_MIN_MS and self._has_new_topics(image)

    def _has_new_topics(self, image: MetadataImage) -> bool:
        matched = self._matched_topics
        return matched is None or any(name not in matched for name in image.topics.by_name)
