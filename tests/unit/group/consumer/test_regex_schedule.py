"""How many regular expressions a heartbeat matches, and when again."""

from kafkapy.group.consumer.regex_schedule import MATCHES_PER_HEARTBEAT, REFRESH_MIN_MS, RegexSchedule
from kafkapy.group.consumer.subscriptions import ResolvedRegex, Subscriptions
from kafkapy.metadata.image import MetadataImage
from tests.support.consumer_groups import image_of

INTERVAL_MS = 600_000


class Group:
    """A schedule whose expressions are resolved as soon as they are due."""

    def __init__(self, *regexes: str) -> None:
        self.schedule = RegexSchedule()
        self.subscriptions = Subscriptions(regexes=dict.fromkeys(regexes, 1))

    def beat(self, image: MetadataImage, wall_ms: int) -> set[str]:
        due = self.schedule.due(self.subscriptions, image, wall_ms, refresh_interval_ms=INTERVAL_MS)
        for regex in due:
            self.subscriptions.resolved[regex] = ResolvedRegex(
                version=image.provenance.last_offset, timestamp_ms=wall_ms
            )
        return due


def topics(count: int, **more: int) -> MetadataImage:
    return image_of(**{f"t{number}": 1 for number in range(count)}, **more)


def test_a_heartbeat_matches_as_many_expressions_as_the_topics_allow() -> None:
    image = topics(MATCHES_PER_HEARTBEAT // 2)
    group = Group("a", "b", "c", "d", "e")
    assert [group.beat(image, 0) for _ in range(4)] == [{"a", "b"}, {"c", "d"}, {"e"}, set()]


def test_however_many_topics_there_are_one_is_matched() -> None:
    group = Group("a", "b")
    assert [group.beat(topics(MATCHES_PER_HEARTBEAT + 1), 0) for _ in range(3)] == [{"a"}, {"b"}, set()]


def test_a_refresh_comes_to_every_expression_once() -> None:
    image = topics(MATCHES_PER_HEARTBEAT // 2)
    group = Group("a", "b", "c")
    group.beat(image, 0)
    group.beat(image, 0)
    for now_ms in (INTERVAL_MS, INTERVAL_MS + 1):
        image = topics(MATCHES_PER_HEARTBEAT // 2 - 1, new=1)
        matched = [group.beat(image, now_ms), group.beat(image, now_ms), group.beat(image, now_ms)]
        expected = [{"a", "b"}, {"c"}, set()] if now_ms == INTERVAL_MS else [set()] * 3
        assert matched == expected


def test_new_topics_are_matched_after_a_while_and_a_new_expression_at_once() -> None:
    group = Group("a")
    group.beat(topics(1), 0)
    grown = topics(2)
    assert group.beat(grown, REFRESH_MIN_MS) == set()
    group.subscriptions.regexes["b"] = 1
    assert group.beat(grown, REFRESH_MIN_MS) == {"b"}
    assert group.beat(grown, REFRESH_MIN_MS + 1) == {"a", "b"}


def test_an_expression_that_nobody_has_any_more_holds_no_refresh_up() -> None:
    image = topics(MATCHES_PER_HEARTBEAT)
    group = Group("a", "b")
    group.beat(image, 0)
    group.beat(image, 0)
    assert group.beat(image, INTERVAL_MS + 1) == {"a"}
    del group.subscriptions.regexes["b"], group.subscriptions.resolved["b"]
    assert group.beat(image, INTERVAL_MS + 1) == set()
    assert group.beat(image, 2 * INTERVAL_MS + 2) == {"a"}


def test_what_is_not_resolved_or_with_older_topics_stays_due() -> None:
    """The group may have had others in work, or its coordinator may not have written the result."""
    group = Group("a", "b")
    group.beat(topics(1), 0)
    grown = image_of(7, t0=1, t1=1)
    later_ms = REFRESH_MIN_MS + 1
    for version, due in [(None, {"a", "b"}), (None, {"a", "b"}), (6, {"a", "b"}), (7, {"b"})]:
        if version is not None:
            group.subscriptions.resolved["a"] = ResolvedRegex(version=version, timestamp_ms=later_ms)
        assert group.schedule.due(group.subscriptions, grown, later_ms, refresh_interval_ms=INTERVAL_MS) == due
