"""Whole clusters of three nodes under faults, with transactional clients and members of groups.

KAFKAPY_SOAK_SEEDS=20 (make soak) runs 10,000 seeds; a failure names the command that repeats its seed.
"""

import pytest

from tests.simulator.cluster_effects import EffectsOfSeeds
from tests.simulator.cluster_lives import live_and_count
from tests.simulator.cluster_plan import seeds_of

pytestmark = pytest.mark.long

EFFECTS = EffectsOfSeeds()


@pytest.mark.parametrize("seed", seeds_of(1))
def test_a_cluster_keeps_transactions_whole_and_recovers(seed: int) -> None:
    EFFECTS.note(seed, live_and_count(seed)[1])


def test_the_faults_of_disks_took_effect() -> None:
    if len(EFFECTS) < len(seeds_of(1)):
        pytest.skip("judged where all seeds of this file were run, and none has failed")
    EFFECTS.check()
