"""The schedule by which a group's regular expressions are matched with the cluster's topics.

Matching an expression takes about 10 us per topic. So after each heartbeat a limited number is matched; the rest after
the group's next heartbeats.
"""

from typing import Final

from kafkapy.group.consumer.subscriptions import ResolvedRegex, Subscriptions
from kafkapy.metadata.image import MetadataImage

REFRESH_MIN_MS: Final = 10_000
"""The minimum time between refreshes because of new topics."""
MATCHES_PER_HEARTBEAT: Final = 10_000
"""The maximum of topics times expressions, about 0.1 s of work; one expression is always matched."""


class RegexSchedule:
    """The schedule of one group: soft state. A new coordinator starts with the unresolved expressions."""

    def __init__(self) -> None:
        self._matched_topics: frozenset[str] | None = None
        """The topics that existed when the last refresh began."""
        self._stale: dict[str, ResolvedRegex] = {}
        """What the refresh in progress has still to replace: a result may be lost on its way, or be of older topics."""
        self._refresh_version = 0
        """The version of the metadata with which that refresh began."""

    def due(
        self, subscriptions: Subscriptions, image: MetadataImage, wall_ms: int, *, refresh_interval_ms: int
    ) -> set[str]:
        """Return the expressions to match now: new ones first, then, if a refresh is due, all others in turn.

        A refresh is due if a resolution is older than refresh_interval_ms, or REFRESH_MIN_MS with new topics. What is
        due stays so until it is resolved.
        """
        names = image.topics.by_name
        unresolved = subscriptions.regexes.keys() - subscriptions.resolved.keys()
        self._stale = {
            regex: before
            for regex, before in self._stale.items()
            if self._is_stale(before, subscriptions.resolved.get(regex))
        }
        if self._must_refresh(subscriptions, image, wall_ms, refresh_interval_ms):
            self._matched_topics = frozenset(names)
            self._stale = dict(subscriptions.resolved)
            self._refresh_version = image.provenance.last_offset
        waiting = [*sorted(unresolved), *sorted(self._stale)]
        due = set(waiting[: max(MATCHES_PER_HEARTBEAT // max(len(names), 1), 1)])
        assert due or not waiting, "an expression would wait for ever where there are very many topics"
        return due

    def _is_stale(self, before: ResolvedRegex, now: ResolvedRegex | None) -> bool:
        """Whether an expression is still to be resolved by the refresh in progress; now None: nobody has it."""
        return now is not None and (now is before or now.version < self._refresh_version)

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
