"""States of share partitions on a whole broker in virtual time, over many lives that end with kill -9 or a power cut.

KAFKAPY_SOAK_SEEDS multiplies the seeds.
"""

from random import Random

import pytest

from tests.simulator.crash_enumeration import KEEPS, SOAK_FACTOR
from tests.simulator.share_state_lives import FLUSHED, ShareComputer

LIVES = 4


def lived(computer: ShareComputer, seed: int, *, is_power_cut: bool = False) -> None:
    random = Random(seed)
    computer.begin()
    for _ in range(LIVES):
        keep = random.choice(KEEPS) if is_power_cut else "all"
        computer.live(keep=keep, dies_at=random.randrange(30, 900))
    computer.end()


@pytest.mark.parametrize("seed", range(4 * SOAK_FACTOR))
def test_a_kill_loses_no_write_that_was_answered(seed: int) -> None:
    lived(ShareComputer(seed), seed)


@pytest.mark.parametrize("seed", range(4 * SOAK_FACTOR))
def test_a_power_cut_loses_no_write_that_was_answered_if_all_is_flushed(seed: int) -> None:
    lived(ShareComputer(seed, FLUSHED), seed, is_power_cut=True)


def test_the_log_is_pruned_under_load_and_loaded_from_there() -> None:
    computer = ShareComputer(1)
    computer.begin()
    computer.live(seconds=20)
    assert computer.pruned_count > 5
    assert sum(writer.answered for writer in computer.writers) > 500
    computer.end()
