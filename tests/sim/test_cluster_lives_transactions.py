"""Whole clusters of three nodes under faults, with transactional clients and members of groups.

KAFKAPY_SOAK_SEEDS=20 (make soak) runs 10,000 seeds; a failure names the command that repeats its seed.
"""

import pytest

from tests.simulator.cluster_lives import live
from tests.simulator.cluster_plan import seeds_of


@pytest.mark.parametrize("seed", seeds_of(1))
def test_a_cluster_keeps_transactions_whole_and_recovers(seed: int) -> None:
    live(seed)
