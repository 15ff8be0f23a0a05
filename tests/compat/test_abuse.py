"""Rows of `make abuse` whose growth the broker's keys bound: they fail as soon as the bound does not hold."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.abuse import broker, run
from benchmarks.attack import Attack
from benchmarks.attacks_on_memory import MEMORY_ATTACKS
from harness.servers import Kafkapy

pytestmark = [pytest.mark.long, pytest.mark.ours]

SECONDS = 5


def without_bound(_directory: Path) -> dict[str, str]:
    """The fault: producers are kept as if there were no bound."""
    return {"kafkapy.producers.max": str(1 << 30)}


def faults_of(attack: Attack) -> list[str]:
    """Attack a broker; return why the row fails, waits aside, which a busy machine makes long."""
    with broker(attack, Kafkapy) as server:
        outcome = run(attack, server, SECONDS)
    return replace(outcome, wait_ms=0).faults(attack)


def test_the_row_of_guessed_producer_ids_fails_without_their_bound() -> None:
    (guessed,) = (each for each in MEMORY_ATTACKS if each.name == "producer-ids-guessed")
    assert faults_of(guessed) == []
    (fault,) = faults_of(replace(guessed, properties=without_bound))
    assert fault.startswith("a growth of ")


def test_a_row_that_attacked_nobody_fails() -> None:
    (guessed,) = (each for each in MEMORY_ATTACKS if each.name == "producer-ids-guessed")
    (fault,) = faults_of(replace(guessed, peer=lambda _server, _is_over: None, min_answered=0))
    assert fault.startswith("saw nothing: a growth of ")
