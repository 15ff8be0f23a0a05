"""MetadataPublisher in virtual time; what a change means is whatever the test says."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from kafkapy.metadata.delta import MetadataDelta
from kafkapy.metadata.image import EMPTY_IMAGE, MetadataImage, Provenance
from kafkapy.runtime.broker.metadata_publisher import STEPS_PER_TURN, MetadataPublisher
from kafkapy.runtime.turns import PAUSE_MS, TURN_MS
from tests.simulator.loop import SimClock, SimLoop
from tests.support.controllers import Cluster
from tests.support.metadata_services import InstantController


class Publishing:
    """A MetadataPublisher of images whose offset is the number of steps that they take, of `step_ms` each."""

    def __init__(self, loop: SimLoop, step_ms: float = 0.0) -> None:
        self.loop = loop
        self.step_ms = step_ms
        self.fails_at = -1
        self.done: list[tuple[int, int]] = []
        self.failures: list[BaseException] = []
        controller: Any = InstantController(Cluster())
        clock = SimClock(loop)
        self.counted: list[int] = []
        self.publisher = MetadataPublisher(
            controller, self._steps, clock=clock, on_fatal=self.failures.append, on_steps=self.counted.append
        )

    def commit(self, step_count: int) -> None:
        self.publisher.on_image(MetadataDelta(EMPTY_IMAGE), MetadataImage(Provenance(step_count, 1, 0)))

    def _steps(self, _: MetadataDelta, image: MetadataImage) -> Iterator[None]:
        step_count = image.provenance.last_offset
        for number in range(step_count):
            self.loop.block(self.step_ms)
            self.done.append((step_count, number))
            assert number != self.fails_at
            yield

    async def longest_wait_ms(self) -> float:
        """Return how long the loop was held at most, until all is applied."""
        longest = 0.0
        while self.publisher.is_behind:
            before = self.loop.time()
            await asyncio.sleep(0.0001)
            longest = max(longest, self.loop.time() - before)
        return longest * 1000


async def test_a_small_change_is_applied_at_once(loop: SimLoop) -> None:
    publishing = Publishing(loop)
    publishing.commit(STEPS_PER_TURN - 1)
    assert len(publishing.done) == STEPS_PER_TURN - 1
    assert not publishing.publisher.is_behind
    await publishing.publisher.caught_up()


async def test_a_large_change_gives_way_to_others(loop: SimLoop) -> None:
    publishing = Publishing(loop, step_ms=0.3)
    publishing.commit(1000)
    assert publishing.publisher.is_behind
    assert TURN_MS <= await publishing.longest_wait_ms() <= TURN_MS + PAUSE_MS + 1
    assert len(publishing.done) == 1000


async def test_the_steps_of_each_turn_are_counted(loop: SimLoop) -> None:
    publishing = Publishing(loop)
    publishing.commit(2 * STEPS_PER_TURN + 5)
    assert publishing.counted == [STEPS_PER_TURN]
    await publishing.publisher.caught_up()
    assert publishing.counted == [STEPS_PER_TURN, STEPS_PER_TURN, 5 + 1], "the last one finds the end"


async def test_steps_that_take_no_time_give_way_too(loop: SimLoop) -> None:
    publishing = Publishing(loop)
    publishing.commit(10 * STEPS_PER_TURN)
    assert len(publishing.done) == STEPS_PER_TURN


async def test_changes_are_applied_in_their_order(loop: SimLoop) -> None:
    publishing = Publishing(loop, step_ms=1)
    for step_count in (300, 2, 200):
        publishing.commit(step_count)
    await publishing.publisher.caught_up()
    assert publishing.done == [(count, number) for count in (300, 2, 200) for number in range(count)]


async def test_a_waiter_wakes_once_what_was_committed_before_it_waited_is_applied(loop: SimLoop) -> None:
    publishing = Publishing(loop, step_ms=1)
    publishing.commit(300)
    first = asyncio.ensure_future(publishing.publisher.caught_up())
    await asyncio.sleep(0)
    publishing.commit(200)
    second = asyncio.ensure_future(publishing.publisher.caught_up())
    await first
    assert 300 <= len(publishing.done) < 310
    await second
    assert len(publishing.done) == 500


async def test_a_change_that_cannot_be_applied_stops_the_process(loop: SimLoop) -> None:
    publishing = Publishing(loop)
    publishing.fails_at = 666
    publishing.commit(1000)
    waiting = asyncio.ensure_future(publishing.publisher.caught_up())
    publishing.commit(5)
    with pytest.raises(AssertionError):
        await waiting
    assert [type(failure) for failure in publishing.failures] == [AssertionError]
    assert publishing.done[-1] == (1000, 666)
    publishing.commit(5)
    assert publishing.done[-1] == (1000, 666)


async def test_a_stop_leaves_the_rest_to_the_next_start(loop: SimLoop) -> None:
    publishing = Publishing(loop)
    publishing.commit(1000)
    waiting = asyncio.ensure_future(publishing.publisher.caught_up())
    await asyncio.sleep(0)
    done_count = len(publishing.done)
    publishing.publisher.close()
    await asyncio.sleep(1)
    assert waiting.cancelled()
    assert len(publishing.done) == done_count < 1000
