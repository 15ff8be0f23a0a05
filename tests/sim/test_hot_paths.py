"""The guard of the hot paths: their counts are those kept in hot_path_counts.json, so that a regression is seen."""

import sys

import pytest

from tests.sim.hot_paths import COUNTED_ON, count_all, kept

MORE, LESS = 1.02, 0.95
"""How far a count may lie from the one kept: what another patch release of CPython may change, and no more."""

HOW = "if that is meant: python -m tests.sim.hot_paths --update, and say why in the commit"


@pytest.mark.skipif(sys.version_info[:2] != COUNTED_ON, reason="bytecode is counted on CPython 3.11")
def test_hot_paths_cost_what_they_did():
    found, before = count_all(), kept()
    assert found.keys() == before.keys(), HOW
    changed = [
        f"{path}: {found[path][figure]:.0f} {figure}, {before[path][figure]:.0f} are kept"
        for path in before
        for figure in before[path]
        if not LESS <= found[path][figure] / before[path][figure] <= MORE
    ]
    assert not changed, "\n".join([*changed, HOW])


@pytest.mark.skipif(sys.version_info[:2] != COUNTED_ON, reason="bytecode is counted on CPython 3.11")
def test_counting_twice_counts_the_same():
    assert count_all() == count_all()
