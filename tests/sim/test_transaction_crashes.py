"""A whole broker and its transactional clients, over many lives that end with kill -9 or a power cut.

KAFKAPY_SOAK_SEEDS multiplies the seeds, and takes every change of the disk instead of some.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from random import Random

import pytest

from tests.simulator.crash_enumeration import KEEPS, SOAK_FACTOR, Crash, Moment, crashes
from tests.simulator.transaction_crashes import FLUSHED, TransactionComputer
from tests.support.history import NOT_ACKNOWLEDGED, Event, Finish, Write
from tests.support.history_checker import Anomaly, Kind, find_anomalies

LIVES = 3
UNFLUSHED: dict[str, str] = {}
STRUCTURE = {Kind.DUPLICATE, Kind.UNSENT, Kind.REORDERING}
"""What a power cut may not come to, however little was flushed."""
STRIDE = 97 if SOAK_FACTOR == 1 else 1


def lived(computer: TransactionComputer, *, is_power_cut: bool) -> list[Event]:
    """Return the history of some lives that ended amid changes of the disk, and of a last one that looks."""
    random = Random(computer.seed)
    computer.begin()
    for _ in range(LIVES):
        keep = random.choice(KEEPS) if is_power_cut else "all"
        computer.live(keep=keep, dies_at=random.randrange(50, 1500))
    return computer.end()


def broken_structure(history: list[Event]) -> list[Anomaly]:
    """Return what is wrong with what is there in the end, whatever was promised."""
    writes = [replace(event, offset=NOT_ACKNOWLEDGED) for event in history if isinstance(event, Write)]
    finishes = [event for event in history if isinstance(event, Finish)]
    return [anomaly for anomaly in find_anomalies([*writes, *finishes]) if anomaly.kind in STRUCTURE]


@pytest.mark.parametrize("seed", range(4 * SOAK_FACTOR))
def test_kills_and_lost_responses_leave_no_anomaly(seed: int) -> None:
    assert not find_anomalies(lived(TransactionComputer(seed), is_power_cut=False))


@pytest.mark.parametrize("seed", range(2 * SOAK_FACTOR))
def test_power_cuts_take_nothing_that_was_answered_if_all_is_flushed(seed: int) -> None:
    assert not find_anomalies(lived(TransactionComputer(seed, FLUSHED), is_power_cut=True))


@pytest.mark.parametrize("seed", range(2 * SOAK_FACTOR))
def test_every_client_goes_on_after_power_cuts_whatever_they_took(seed: int) -> None:
    """Hanging transactions, which may be left as with Apache Kafka, are aborted by hand."""
    computer = TransactionComputer(seed, UNFLUSHED, may_hang=True)
    assert not broken_structure(lived(computer, is_power_cut=True))


@cache
def moments_of(flush_messages: str) -> list[Moment]:
    """Return the moments before each change of the disk of some hundred milliseconds of work."""
    computer = TransactionComputer(1, {"log_flush_interval_messages": flush_messages} if flush_messages else {})
    computer.begin()
    return computer.recorded_life(0.4)


def recoveries(flush_messages: str) -> Iterator[tuple[Crash, TransactionComputer]]:
    properties = FLUSHED if flush_messages else UNFLUSHED
    for number, crash in enumerate(crashes(moments_of(flush_messages), stride=STRIDE)):
        computer = TransactionComputer(
            number, properties, disk=crash.disk, first_number=1000, may_hang=not flush_messages
        )
        computer.stage.history = list(crash.promise)
        yield crash, computer


def test_a_power_cut_at_any_change_takes_nothing_that_was_answered_if_all_is_flushed() -> None:
    for crash, computer in recoveries("1"):
        anomalies = find_anomalies(computer.end())
        assert not anomalies, (str(crash), anomalies[:5])


def test_a_power_cut_at_any_change_leaves_a_broker_that_every_client_can_go_on_with() -> None:
    for crash, computer in recoveries(""):
        broken = broken_structure(computer.end())
        assert not broken, (str(crash), broken[:5])
