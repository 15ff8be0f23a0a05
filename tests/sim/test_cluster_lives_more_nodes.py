"""Whole clusters of four nodes, or of three controllers and three brokers, under faults.

KAFKAPY_SOAK_SEEDS=20 (make soak) runs 10,000 seeds; a failure names the command that repeats its seed.
"""

import pytest

from tests.simulator.cluster_effects import EffectsOfSeeds
from tests.simulator.cluster_lives import live, live_and_count
from tests.simulator.cluster_plan import seeds_of

EFFECTS = EffectsOfSeeds()

ADMINISTERED_SEED = 695
"""Changes of replicas and their number, cancellations and elections, while nodes are stopped."""


@pytest.mark.parametrize("seed", seeds_of(2))
def test_a_larger_cluster_loses_nothing_and_recovers(seed: int) -> None:
    EFFECTS.note(seed, live_and_count(seed)[1])


def test_the_faults_of_disks_took_effect() -> None:
    if len(EFFECTS) < len(seeds_of(2)):
        pytest.skip("judged where all seeds of this file were run, and none has failed")
    EFFECTS.check()


def test_replicas_are_changed_and_leaders_elected_meanwhile() -> None:
    history = live(ADMINISTERED_SEED)
    assert any("elected: 0" in line for line in history)
    assert any("replicas [" in line and line.endswith(": 0") for line in history)
