"""The loads that measure parts of a broker do their work: each has a figure for each of its operations."""

import pytest

from tests.simulator.part_costs import LOADS, Meter

FIGURES = {
    "followers": 3,
    "consumer_groups": 2,
    "classic_groups": 2,
    "raft": 2,
    "timers": 2,
    "waiting_fetches": 1,
    "recovery": 3,
}


@pytest.mark.parametrize("name", LOADS)
def test_a_load_has_a_figure_for_each_of_its_operations(name: str) -> None:
    meter = Meter(0.001)
    LOADS[name](meter)
    assert len(meter.figures) == FIGURES[name]
    assert all(microseconds > 0 for microseconds in meter.figures.values()), meter.figures
