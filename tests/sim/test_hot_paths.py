"""The guard of the hot paths: their counts are those kept in hot_path_counts.json, so that a regression is seen."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulator.hot_paths import COUNTED_ON, Counts, kept
from tests.support.interpreter import needs_interpreter

MORE, LESS = 1.02, 0.95
"""How far a count may lie from the one kept: what another patch release of CPython may change, and no more."""

HOW = "if that is meant: python -m tests.simulator.hot_paths --update, and say why in the commit"
ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.skipif(sys.version_info[:2] != COUNTED_ON, reason="bytecode is counted on CPython 3.11"),
    needs_interpreter("it counts bytecode"),
]


def count_apart(hash_seed: str) -> Counts:
    """Count in a process of its own: what other tests have left in this one (logging, caches) is not to count."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.simulator.hot_paths", "--json"]
    output = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=600)
    counts: Counts = json.loads(output.stdout)
    return counts


@pytest.fixture(scope="module")
def found() -> Counts:
    return count_apart("1")


def test_hot_paths_cost_what_they_did(found: Counts) -> None:
    before = kept()
    assert found.keys() == before.keys(), HOW
    changed = [
        f"{path}: {found[path][figure]:.0f} {figure}, {before[path][figure]:.0f} are kept"
        for path in before
        for figure in before[path]
        if not LESS <= found[path][figure] / before[path][figure] <= MORE
    ]
    assert not changed, "\n".join([*changed, HOW])


def test_counts_are_the_same_whatever_the_hash_seed(found: Counts) -> None:
    assert count_apart("2") == found
