"""Matches the regular expressions of KIP-848 groups with the cluster's topics: in turns, one group at a time, in order.

What an expression matches is kept, for all groups: only topics that were added since are matched then. Deviation:
Apache Kafka matches all topics again, on another thread. Here it is done on the event loop, in turns, because there is
one thread.
"""

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping, Set
from typing import Final

from kafkapy.dataclass import dataclass
from kafkapy.errors import ApiError
from kafkapy.group.consumer.subscriptions import ResolvedRegex, TopicMatches, match_topics
from kafkapy.metadata.image import MetadataImage, TopicImage
from kafkapy.runtime.turns import in_turns
from kafkapy.seams import Clock

logger = logging.getLogger("kafkapy.group")

STEPS_PER_TURN: Final = 1_000
"""Topics after which a turn ends at the latest. Most turns end by time."""
MAX_KEPT: Final = 500_000
"""Entries kept over all expressions: names of topics in sets (50 bytes), as 25 expressions of 10,000 topics have. An
expression counts, too: a client may ask for any number of them, however few topics there are."""
EXPRESSION_ENTRIES: Final = 10


@dataclass(frozen=True, slots=True)
class GroupToMatch:
    """Expressions of a group, and whether the member whose heartbeat brought them may describe a topic."""

    regexes: Set[str]
    may_describe: Callable[[str], bool]
    prepare_hash: Callable[[TopicImage, MetadataImage], None]


class RegexMatching:
    """The groups whose expressions are to be matched, each at most once. Its task ends when there are none."""

    def __init__(
        self,
        *,
        image: Callable[[], MetadataImage],
        clock: Clock,
        on_matched: Callable[[str, Mapping[str, ResolvedRegex]], None],
    ) -> None:
        """on_matched(group_id, matches) raises ApiError if the group's coordinator has moved."""
        self._image = image
        self._clock = clock
        self._on_matched = on_matched
        self._groups: dict[str, GroupToMatch] = {}
        self._topics, self._names = image().topics, frozenset[str]()
        """The topics that there were last, and their names once they are needed: shared by what is kept."""
        self._kept: dict[str, TopicMatches] = {}
        """By expression, the one used last at the end."""
        self._kept_entries = 0
        self.task: asyncio.Task[None] | None = None

    def request(self, group_id: str, group: GroupToMatch) -> None:
        """Match expressions of a group, unless some of the group's are in work: its next heartbeat asks again."""
        if group_id in self._groups:
            return
        self._groups[group_id] = group
        if self.task is None or self.task.done():
            self.task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while self._groups:
            group_id, group = next(iter(self._groups.items()))
            try:
                matches = {regex: await self._resolve(regex, group) for regex in sorted(group.regexes)}
                self._on_matched(group_id, matches)
            except ApiError as error:
                logger.info("Could not keep what the expressions of group %s match: %s", group_id, error)
            except Exception:
                logger.exception("Matching the expressions of group %s failed", group_id)
            finally:
                del self._groups[group_id]

    async def _resolve(self, regex: str, group: GroupToMatch) -> ResolvedRegex:
        image = self._image()
        topics = await in_turns(self._steps(regex, group, image), self._clock, STEPS_PER_TURN)
        return ResolvedRegex(topics, image.provenance.last_offset, self._clock.wall_ms())

    def _steps(self, regex: str, group: GroupToMatch, image: MetadataImage) -> Generator[None, None, frozenset[str]]:
        """Return the topics that the expression matches and the member may describe; yield after each."""
        if self._topics is not image.topics or not self._names:
            self._topics, self._names = image.topics, frozenset(image.topics.by_name)
        names = self._names
        found = yield from match_topics(regex, names, self._pop_kept(regex))
        self._keep(regex, found)
        topics = set()
        for name in found.topics:
            if group.may_describe(name):
                topics.add(name)
                current = self._image()  # a topic deleted meanwhile was dropped from the hashes, and must not come back
                if (topic := current.topics.by_name.get(name)) is not None:
                    group.prepare_hash(topic, current)
            yield
        return frozenset(topics)

    def _pop_kept(self, regex: str) -> TopicMatches:
        if regex not in self._kept:
            return TopicMatches()
        found = self._kept.pop(regex)
        self._kept_entries -= _entries(regex, found)
        return found

    def _keep(self, regex: str, found: TopicMatches) -> None:
        """Keep the topics that an expression matches; beyond MAX_KEPT drop the least recently used."""
        self._kept[regex] = found
        self._kept_entries += _entries(regex, found)
        while self._kept_entries > MAX_KEPT:
            self._pop_kept(next(iter(self._kept)))


def _entries(regex: str, found: TopicMatches) -> int:
    return EXPRESSION_ENTRIES + len(regex) + len(found.seen) + len(found.topics)
