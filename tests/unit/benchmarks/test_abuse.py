"""When a row of `make abuse` fails: what was measured is planted here."""

from dataclasses import replace

import pytest

from benchmarks.abuse import ATTACKS, Outcome
from benchmarks.attack import Attack

OF_KEYS = Attack("of-keys", lambda _server, _is_over: None, 1, keys_mb=8, min_mb=4, min_answered=500, max_mb=16)


def outcome(*, wait_ms: float = 20, cpu_ms: float = 20, growth_mb: float = 6, answered: int = 500) -> Outcome:
    return Outcome(wait_ms, p99_ms=5, cpu_ms=cpu_ms, growth_mb=growth_mb, answered_count=answered, figure="")


@pytest.mark.parametrize(
    ("measured", "fault"),
    [
        (outcome(growth_mb=25), "a growth of 25 MiB, 24 are allowed"),
        (outcome(growth_mb=3), "saw nothing: a growth of 3 MiB, 4 were to be reached"),
        (outcome(growth_mb=-200), "saw nothing: a growth of -200 MiB, 4 were to be reached"),
        (outcome(answered=499), "saw nothing: 499 responses, 500 were to be reached"),
        (outcome(wait_ms=400, cpu_ms=300), "a wait of 300 ms, 250 are allowed"),
    ],
)
def test_a_row_fails(measured: Outcome, fault: str) -> None:
    assert measured.faults(OF_KEYS) == [fault]


@pytest.mark.parametrize("measured", [outcome(), outcome(growth_mb=24), outcome(wait_ms=400, cpu_ms=100)])
def test_a_row_holds(measured: Outcome) -> None:
    assert measured.faults(OF_KEYS) == []


def test_a_row_of_keys_has_to_say_what_it_reaches() -> None:
    with pytest.raises(AssertionError, match="of-keys"):
        replace(OF_KEYS, min_mb=0)


def test_growth_is_told_although_few_requests_were_answered() -> None:
    assert outcome(answered=1, growth_mb=25).faults(OF_KEYS) == ["a growth of 25 MiB, 24 are allowed"]


def test_no_row_may_grow_by_more_than_is_promised() -> None:
    assert all(each.max_mb <= 64 for each in ATTACKS)
