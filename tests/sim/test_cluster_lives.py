"""Whole clusters of three nodes under faults, with clients that produce, consume and commit.

KAFKAPY_SOAK_SEEDS=20 (make soak) runs 10,000 seeds; a failure names the command that repeats its seed.
"""

import os
import subprocess
import sys

import pytest

from tests.simulator.cluster_effects import FAILED_OPERATIONS, MIN_SHARE_OF_OPERATION, MIN_SHARES, EffectsOfSeeds
from tests.simulator.cluster_lives import live, live_and_count
from tests.simulator.cluster_plan import seeds_of

REPEATED_SEED = 4
"""One with transactional clients."""
EFFECTS = EffectsOfSeeds()


@pytest.mark.parametrize("seed", seeds_of(0))
def test_a_cluster_loses_nothing_and_recovers(seed: int) -> None:
    EFFECTS.note(seed, live_and_count(seed)[1])


def test_the_faults_of_disks_took_effect() -> None:
    if len(EFFECTS) < len(seeds_of(0)):
        pytest.skip("judged where all seeds of this file were run, and none has failed")
    EFFECTS.check({**MIN_SHARES, "full": 0.1, **dict.fromkeys(FAILED_OPERATIONS, MIN_SHARE_OF_OPERATION)})


def test_a_seed_is_the_same_run_in_any_process() -> None:
    command = [sys.executable, "-m", "tests.simulator.cluster_lives", str(REPEATED_SEED)]
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    repeated = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert repeated.stdout.splitlines() == live(REPEATED_SEED)
