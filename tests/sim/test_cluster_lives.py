"""Whole clusters under faults, seed by seed; a failure names the command that repeats its seed.

KAFKAPY_SOAK_SEEDS=20 (make soak) runs 10,000 seeds.
"""

import pytest

from tests.simulator.cluster_lives import live
from tests.simulator.crash_enumeration import SOAK_FACTOR

SEEDS = 5 if SOAK_FACTOR == 1 else 500 * SOAK_FACTOR


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_cluster_loses_nothing_and_recovers(seed: int) -> None:
    live(seed)
