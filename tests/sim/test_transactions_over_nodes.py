"""Transactions over three simulated nodes, one at a time cut off and taken for dead."""

import pytest

from tests.simulator.crash_enumeration import SOAK_FACTOR
from tests.simulator.transaction_nodes import simulate


@pytest.mark.parametrize("seed", range(5 * SOAK_FACTOR))
def test_what_is_decided_stands_whichever_node_is_lost(seed: int) -> None:
    world = simulate(seed)
    assert sum(len(outcomes.committed) for outcomes in world.outcomes.values()) > 5
