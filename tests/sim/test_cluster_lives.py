"""Whole clusters under faults, seed by seed; a failure names the command that repeats its seed.

KAFKAPY_SOAK_SEEDS=20 (make soak) runs 10,000 seeds. Four seeds out of eight have transactional clients.
"""

import os
import subprocess
import sys

import pytest

from tests.simulator.cluster_lives import live
from tests.simulator.crash_enumeration import SOAK_FACTOR

SEEDS = 12 if SOAK_FACTOR == 1 else 500 * SOAK_FACTOR
REPEATED_SEED = 5
"""A quick one with transactional clients."""


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_cluster_loses_nothing_and_recovers(seed: int) -> None:
    live(seed)


def test_a_seed_is_the_same_run_in_any_process() -> None:
    command = [sys.executable, "-m", "tests.simulator.cluster_lives", str(REPEATED_SEED)]
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    repeated = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert repeated.stdout.splitlines() == live(REPEATED_SEED)
