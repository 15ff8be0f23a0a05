"""As test_share_lives.py, of a group with dead letters, whose topic loses its leader and whose broker dies at times.

Every record that was given up is in the dead-letter topic, none that was accepted; once, unless the broker died. One
whose lock timed out for the last time while a write of its release failed is archived without, as in Apache Kafka: its
state is not written.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping

import pytest

from kafkapy.share.record_state import RecordState
from tests.sim.test_share_lives import RECORDS, Life
from tests.simulator.loop import SimLoop
from tests.support.dead_letters import LetterShares

SEEDS = range(60)
LONGEST_WITHOUT_LEADER_S = 15
LONGEST_WITH_LEADER_S = 40, 60
"""Four backoffs last 24 to 36 s: no letter is given up, and none is tried in two elections alone."""


class LetterLife(Life):
    shares: LetterShares

    def __init__(self, loop: SimLoop, seed: int, *, may_die: bool) -> None:
        super().__init__(loop, seed)
        self.may_die = may_die
        self.death_count = 0

    def new_shares(self, **own: str) -> LetterShares:
        copied = str(self.dice.random() < 0.5).lower()
        return LetterShares(self.loop, errors_deadletterqueue_copy_record_enable=copied, **own)

    async def disturb(self) -> None:
        disturbing = self.loop.create_task(super().disturb())
        for _ in range(10):
            await asyncio.sleep(self.dice.uniform(*LONGEST_WITH_LEADER_S))
            self.shares.elect(-1)
            if self.may_die and self.dice.random() < 0.5:
                await asyncio.sleep(self.dice.uniform(0, 1))
                await self.die()
            await asyncio.sleep(self.dice.uniform(0, LONGEST_WITHOUT_LEADER_S))
            self.shares.elect(1)
            if self.may_die and self.dice.random() < 0.3:
                await self.die()
        await disturbing

    async def die(self) -> None:
        """Let the broker be killed, and start on the states that were persisted; nobody got the responses under way."""
        self.death_count += 1
        for consumer in self.consumers:
            consumer.cancel()
        closing = self.loop.create_task(self.shares.partitions.close())
        await asyncio.gather(*self.consumers, return_exceptions=True)
        await closing
        self.checker.holder.clear()
        self.checker.counts.clear()
        self.shares.partitions = self.shares.new_partitions()
        self.start_consumers()

    async def check(self) -> None:
        found = Counter(self.shares.letter_offsets())
        missing, wrong, twice = judge(found, self.persisted())
        assert missing == set()
        assert not wrong or self.death_count
        assert not twice or self.death_count, f"{twice} twice"

    def persisted(self) -> dict[int, RecordState]:
        """Return the last state of each record that was written."""
        return {
            offset: RecordState(batch.delivery_state)
            for write in self.shares.persister.writes
            for batch in write.state_batches
            for offset in range(batch.first_offset, batch.last_offset + 1)
        }


def judge(found: Mapping[int, int], states: Mapping[int, RecordState]) -> tuple[set[int], set[int], set[int]]:
    """Return the offsets that have no letter, those accepted that have one, and those that have several."""
    accepted = {offset for offset, state in states.items() if state is RecordState.ACKNOWLEDGED}
    given_up = {offset for offset, state in states.items() if state in (RecordState.ARCHIVING, RecordState.ARCHIVED)}
    return given_up - found.keys(), accepted & found.keys(), {offset for offset, count in found.items() if count > 1}


@pytest.mark.parametrize("seed", SEEDS)
async def test_what_is_given_up_is_a_dead_letter_once(loop: SimLoop, seed: int) -> None:
    life = LetterLife(loop, seed, may_die=False)
    await life.run()
    await life.check()


@pytest.mark.parametrize("seed", SEEDS)
async def test_no_dead_letter_is_lost_when_the_broker_dies(loop: SimLoop, seed: int) -> None:
    life = LetterLife(loop, seed, may_die=True)
    await life.run()
    await life.check()


def test_the_judge_finds_what_is_lost_wrong_or_there_twice() -> None:
    states = dict.fromkeys(range(RECORDS), RecordState.ACKNOWLEDGED) | dict.fromkeys((1, 2), RecordState.ARCHIVED)
    assert judge({1: 1, 2: 1}, states) == (set(), set(), set())
    assert judge({1: 1}, states) == ({2}, set(), set())
    assert judge({1: 1, 2: 1, 3: 1}, states) == (set(), {3}, set())
    assert judge({1: 2, 2: 1}, states) == (set(), set(), {1})
