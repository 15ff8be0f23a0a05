"""Whole clusters to which happens what a year brings: tests/simulator/year_lives.py says what.

KAFKAPY_SOAK_SEEDS=20 (make soak) runs 10,000 seeds; a failure names the command that repeats its seed. The planted
faults show that the checker sees what it is for.
"""

import ast
from collections import Counter
from collections.abc import Callable

import pytest

from kafkapy.metadata.configs import ConfigControl
from kafkapy.storage.log import retention
from kafkapy.storage.log.log import Log
from tests.simulator.crash_enumeration import SOAK_FACTOR
from tests.simulator.year_lives import live_a_year
from tests.support.interpreter import needs_interpreter

SEEDS = range(22 if SOAK_FACTOR == 1 else 500 * SOAK_FACTOR)
FAULTY_SEEDS = 60
"""A planted fault has to be found within so many: from the one where it was found first, by make soak from 0 on."""
EXPECTED = {
    "compacted records",
    "moves between directories",
    "records read from followers",
    "replicas in the second directory",
    "rolled segments",
    "starts that moved",
    "unclean elections",
    "voters that left",
}
EFFECTS: dict[int, Counter[str]] = {}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_year_loses_nothing_that_it_should_keep(seed: int) -> None:
    history = live_a_year(seed)
    (line,) = [each for each in history if "effects: " in each]
    EFFECTS[seed] = Counter(ast.literal_eval(line.partition("effects: ")[2]))


def test_what_a_year_brings_took_place() -> None:
    if len(EFFECTS) < len(SEEDS):
        pytest.skip("judged where all seeds of this file were run, and none has failed")
    assert {effect for each in EFFECTS.values() for effect, count in each.items() if count} == EXPECTED


def retain_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_count_over_size", lambda _segments, deletable, _bytes: len(deletable))


def delete_all_that_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    advance = Log.maybe_increment_log_start_offset
    monkeypatch.setattr(
        Log, "maybe_increment_log_start_offset", lambda self, _offset: advance(self, self.high_watermark)
    )


def elect_who_is_not_in_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConfigControl, "is_unclean_election_enabled", lambda *_: True)


@needs_interpreter("faults are planted by replacing methods")
@pytest.mark.parametrize(
    ("plant", "first_seed"),
    [
        (retain_too_little, 0),
        (delete_all_that_is_committed, 0),
        (elect_who_is_not_in_sync, 44),
    ],
)
def test_a_planted_fault_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], first_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    monkeypatch.setattr("tests.simulator.cluster_lives.HEAL_S", 20.0)
    first_seed = first_seed if SOAK_FACTOR == 1 else 0
    for seed in range(first_seed, first_seed + FAULTY_SEEDS):
        try:
            live_a_year(seed)
        except AssertionError as error:
            print(f"{plant.__name__} is found by seed {seed}: {error}")
            return
    pytest.fail(f"not found in {FAULTY_SEEDS} seeds")
