"""The expressions of groups are matched in turns, one group at a time, and only with topics that were added since."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kafkapy.errors import ApiError
from kafkapy.group.consumer.subscriptions import ResolvedRegex
from kafkapy.metadata.image import MetadataImage
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.runtime.coordinators import regex_matching
from kafkapy.runtime.coordinators.regex_matching import STEPS_PER_TURN, GroupToMatch, RegexMatching
from tests.simulator.loop import START_WALL_MS, SimClock, SimLoop
from tests.support.consumer_groups import image_of


class Matching:
    """A RegexMatching whose groups may describe all topics, or those of `allowed`."""

    def __init__(self, loop: SimLoop, image: MetadataImage) -> None:
        self.image = image
        self.resolved: list[tuple[str, dict[str, ResolvedRegex]]] = []
        self.requested: list[str] = []
        self.hashed: list[str] = []
        self.error: ApiError | None = None
        self._loop = loop
        self.matching = RegexMatching(image=lambda: self.image, clock=SimClock(loop), on_matched=self._on_matched)

    def request(self, group_id: str, *regexes: str, allows: Callable[[str], bool] = lambda _: True) -> None:
        def may_describe(topic: str) -> bool:
            self.requested.append(topic)
            return allows(topic)

        group = GroupToMatch(set(regexes), may_describe, lambda topic, _image: self.hashed.append(topic.name))
        self.matching.request(group_id, group)

    async def done(self) -> None:
        assert self.matching.task is not None
        await self.matching.task

    def _on_matched(self, group_id: str, matches: Mapping[str, ResolvedRegex]) -> None:
        if self.error is not None:
            raise self.error
        self.resolved.append((group_id, dict(matches)))


async def test_what_matches_and_may_be_described_is_resolved(loop: SimLoop) -> None:
    matching = Matching(loop, image_of(7, foo=1, food=1, bar=1))
    matching.request("g", "foo.*", "b.r", allows=lambda topic: topic != "food")
    await matching.done()
    ((group_id, matches),) = matching.resolved
    assert group_id == "g"
    assert {regex: (found.topics, found.version) for regex, found in matches.items()} == {
        "foo.*": ({"foo"}, 7),
        "b.r": ({"bar"}, 7),
    }
    assert all(found.timestamp_ms >= START_WALL_MS for found in matches.values())
    assert sorted(matching.requested) == ["bar", "foo", "food"]
    assert sorted(matching.hashed) == ["bar", "foo"]


async def test_many_topics_leave_the_loop_to_others_in_between(loop: SimLoop) -> None:
    matching = Matching(loop, image_of(**{f"t{number}": 1 for number in range(4 * STEPS_PER_TURN)}))
    matching.request("g", "t.*1")
    passes = 0
    while not matching.resolved:
        await asyncio.sleep(0.001)
        passes += 1
    assert passes >= 4
    assert len(matching.resolved[0][1]["t.*1"].topics) == STEPS_PER_TURN * 4 // 10


async def test_a_topic_that_is_deleted_meanwhile_is_not_hashed(loop: SimLoop) -> None:
    matching = Matching(loop, image_of(**{f"t{number}": 1 for number in range(4 * STEPS_PER_TURN)}))
    matching.request("g", "t.*")
    while not matching.hashed:
        await asyncio.sleep(0.001)
    before = list(matching.hashed)
    matching.image = image_of(t0=1)
    await matching.done()
    assert set(matching.hashed[len(before) :]) <= {"t0"}
    assert len(before) < STEPS_PER_TURN * 4


async def test_groups_come_one_after_another_each_once(loop: SimLoop) -> None:
    matching = Matching(loop, image_of(a=1, b=1))
    for group_id in ("g", "h", "g"):
        matching.request(group_id, "a|b")
    await matching.done()
    assert [group_id for group_id, _ in matching.resolved] == ["g", "h"]
    matching.request("g", "a")
    await matching.done()
    assert matching.resolved[2][1]["a"].topics == {"a"}


async def test_a_group_that_has_moved_or_fails_holds_up_no_other(
    loop: SimLoop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="kafkapy.group")

    matching = Matching(loop, image_of(a=1))
    matching.error = ApiError(ErrorCode.NOT_COORDINATOR)
    matching.request("g", "a")
    await matching.done()
    matching.error = None

    def fails(_topic: str) -> bool:
        raise ValueError("a mistake")

    matching.request("g", "a", allows=fails)
    matching.request("h", "a")
    await matching.done()
    assert [group_id for group_id, _ in matching.resolved] == ["h"]
    assert [record.levelname for record in caplog.records] == ["INFO", "ERROR"]


async def test_topics_are_matched_once_and_what_is_kept_is_bounded(
    loop: SimLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The count of matches is what the compiled expressions were asked for."""
    monkeypatch.setattr(regex_matching, "MAX_KEPT", 40)

    matching = Matching(loop, image_of(a=1, b=1))
    kept: Any = matching.matching._kept
    for regex in ("a", "b", "a", "a|b"):
        matching.request("g", regex)
        await matching.done()
    assert list(kept) == ["a", "a|b"], "the one that was used last stays"
    matching.image = image_of(a=1, c=1)
    matching.request("g", "a|b")
    await matching.done()
    assert matching.resolved[-1][1]["a|b"].topics == {"a"}
    assert kept["a|b"].seen == {"a", "c"}


async def test_expressions_that_match_nothing_are_not_kept_without_bound(loop: SimLoop) -> None:
    """A member may subscribe to another one of 32,768 characters with each heartbeat."""

    matching = Matching(loop, image_of(a=1))
    kept: Any = matching.matching._kept
    for number in range(100):
        matching.request("g", f"{number:030000}")
        await matching.done()
    assert sum(map(len, kept)) <= regex_matching.MAX_KEPT
