"""The tiers of the tests: `make test` leaves out what is marked long, and nothing but that; CI runs every test."""

import re

import pytest

from tests.support.pages import ROOT

MAKEFILE = (ROOT / "Makefile").read_text()
ONLY_SOAKED = re.compile(
    r'import .*\bonly_soaked\b|"KAFKAPY_SOAK_SEEDS" not in os.environ|os.environ.get\("KAFKAPY_SOAK_SEEDS"'
)
"""How a file says that some of its tests, or some of their parameters, are for `make soak` alone."""


def recipe(target: str) -> str:
    """Return the lines of a target."""
    found = re.search(rf"^{target}:[^\n]*\n((?:\t[^\n]*\n)+)", MAKEFILE, re.M)
    assert found is not None, target
    return found[1]


@pytest.mark.parametrize(
    ("target", "left_out"),
    [
        ("test", ["not long"]),
        ("test-fast", ["not compat and not spark and not long"]),
        ("test-all", []),
    ],
)
def test_a_tier_leaves_out_what_its_markers_say(target: str, left_out: list[str]) -> None:
    assert re.findall(r'-m "([^"]*)"', recipe(target)) == left_out
    assert "--ignore" not in recipe(target)


def test_ci_runs_every_test() -> None:
    assert "\nJOBS=5 make test-all &&" in (ROOT / ".ci" / "run").read_text()


def test_each_run_shows_the_ten_slowest() -> None:
    assert [recipe(target).count("$(PYTEST)") for target in ("test", "test-all", "test-fast")] == [1, 1, 1]
    assert re.search(r"^PYTEST := .*--durations=10$", MAKEFILE, re.M)


def test_what_only_a_soak_runs_is_in_its_recipe() -> None:
    named = set(re.findall(r"test_\w+(?=\.py)", recipe("soak"))) | {f"test_{name}" for name in soaked_once()}
    files = {path.stem: path.read_text() for path in (ROOT / "tests" / "compat").glob("test_*.py")}
    assert sorted(name for name, text in files.items() if ONLY_SOAKED.search(text) and name not in named) == []
    assert sorted(name for name in named if not list((ROOT / "tests").glob(f"*/{name}.py"))) == []


def soaked_once() -> list[str]:
    found = re.search(r"^SOAKED_ONCE := ((?:.*\\\n)*.*)$", MAKEFILE, re.M)
    assert found is not None
    return found[1].replace("\\\n", " ").split()


@pytest.mark.parametrize("seed", range(12))
def test_seeds_after_the_tenth_are_long(seed: int, request: pytest.FixtureRequest) -> None:
    assert (request.node.get_closest_marker("long") is not None) == (seed >= 10)
