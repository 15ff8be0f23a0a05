"""A queue on a whole broker in virtual time, over lives that end with kill -9 or a power cut at any change of the disk.

Membership, the states' coordinator and share partitions run together: no record is lost, in two hands, delivered again
once it is done, or left over. KAFKAPY_SOAK_SEEDS multiplies the seeds.
"""

from random import Random

import pytest

from tests.simulator.crash_enumeration import KEEPS, SOAK_FACTOR
from tests.simulator.share_queue_lives import FLUSHED, QueueComputer
from tests.support.share_history import Act

LIVES = 3


def lived(computer: QueueComputer, seed: int, *, is_power_cut: bool = False) -> None:
    random = Random(seed)
    computer.begin()
    for _ in range(LIVES):
        computer.live(keep=random.choice(KEEPS) if is_power_cut else "all", dies_at=random.randrange(30, 1_200))
    assert computer.end() == []


@pytest.mark.parametrize("seed", range(6 * SOAK_FACTOR))
def test_a_killed_broker_loses_and_repeats_nothing(seed: int) -> None:
    lived(QueueComputer(seed), seed)


@pytest.mark.parametrize("seed", range(4 * SOAK_FACTOR))
def test_a_power_cut_loses_and_repeats_nothing_if_all_is_flushed(seed: int) -> None:
    lived(QueueComputer(seed, FLUSHED), seed, is_power_cut=True)


def test_lives_have_all_that_they_are_for() -> None:
    computer = QueueComputer(1)
    lived(computer, 1)
    acts = {event.act for event in computer.events}
    assert acts == set(Act)
    assert any(computer.deleted_before.values())
    assert len(computer.sent) > 100
