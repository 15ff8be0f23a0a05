"""Transactions over many lives of a simulated node, killed at any change of its disk."""

import pytest

from tests.simulator.crash_enumeration import SOAK_FACTOR
from tests.simulator.transaction_lives import World

LIVES = 4


@pytest.mark.parametrize("seed", range(4 * SOAK_FACTOR))
def test_what_is_decided_stands_and_every_producer_goes_on(seed: int) -> None:
    world = World(seed)
    for _ in range(LIVES):
        world.live()
    world.check()
    assert sum(len(each.committed) for each in world.outcomes.values()) > 0
