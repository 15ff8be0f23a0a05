"""Whole clusters to which happens what a year brings: tests/simulator/year_lives.py says what.

KAFKAPY_SOAK_SEEDS=20 (make soak) runs 10,000 seeds; a failure names the command that repeats its seed. The planted
faults show that the checker sees what it is for.
"""

import ast
import asyncio
import random
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.metadata.configs import ConfigControl
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.storage.log import retention
from kafkapy.storage.log.log import Log
from kafkapy.types import TopicPartition
from tests.simulator import year_lives
from tests.simulator.cluster_checker import ViolationError
from tests.simulator.cluster_clients import LostError
from tests.simulator.cluster_lives import TOPIC
from tests.simulator.crash_enumeration import SOAK_FACTOR
from tests.simulator.year_lives import Reader, Trimmer, YearChecker, live_a_year
from tests.support.interpreter import needs_interpreter

WHERE = TopicPartition(TOPIC, 0)
SEEDS = [*range(21), 1201, 3383, 4430, 20345] if SOAK_FACTOR == 1 else range(500 * SOAK_FACTOR)
"""1201: a replica came back into sync while late requests were sent. 3383: one was truncated after its retention.
4430: a power cut kept the name of a segment of a compacted log, not its records. 20345: a stop failed a request whose
connection was gone."""
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


# ---- each rule of the checker that no planted fault above has raise


def checker_of(**known: Any) -> YearChecker:
    """Return a checker that knows this much, of no world."""
    checker = YearChecker.__new__(YearChecker)
    nothing = {"acknowledged": {}, "_seen": {}, "_refused": {}, "_order": {}, "deleted_to": {}, "_has_retention": False}
    for name, value in {**nothing, **known}.items():
        setattr(checker, name, value)
    return checker


@pytest.mark.parametrize(
    "known", [{"acknowledged": {WHERE: {3: b"a"}}}, {"_seen": {WHERE: {3: b"a"}}}, {"_refused": {WHERE: {b"b"}}}]
)
def test_a_record_is_another_or_was_refused(known: dict[str, Any]) -> None:
    checker_of()._check_records(WHERE, {3: b"b"})
    with pytest.raises(ViolationError):
        checker_of(**known)._check_records(WHERE, {3: b"b"})


def test_a_number_is_missing_or_the_last_ones_are() -> None:
    final = {0: b"p 4", 1: b"p 5"}
    checker_of()._check_order("p", [b""] * 6, final)
    with pytest.raises(ViolationError, match="there is"):
        checker_of()._check_order("p", [], {0: b"p 4", 1: b"p 6"})
    with pytest.raises(ViolationError, match="5 is the last number"):
        checker_of()._check_order("p", [b""] * 7, final)


def test_more_is_gone_than_was_to_be_deleted() -> None:
    log = SimpleNamespace(log_start_offset=5, segments=[SimpleNamespace(size=year_lives.RETENTION_BYTES)])
    checker_of(deleted_to={WHERE: 5})._check_starts(WHERE, [log])
    checker_of(_has_retention=True)._check_starts(WHERE, [log])
    with pytest.raises(ViolationError):
        checker_of(deleted_to={WHERE: 4})._check_starts(WHERE, [log])
    less = SimpleNamespace(log_start_offset=5, segments=[SimpleNamespace(size=year_lives.RETENTION_BYTES - 1)])
    checker_of(_has_retention=True)._check_starts(WHERE, [log, less])
    with pytest.raises(ViolationError):
        checker_of(_has_retention=True)._check_starts(WHERE, [less, less])


def test_replicas_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(year_lives, "records", lambda log, _start: log.content)
    logs = [SimpleNamespace(log_start_offset=0, segments=[], content=[(0, None, b"a")]) for _ in range(2)]
    hosted = [SimpleNamespace(log=log) for log in logs]
    computers = [SimpleNamespace(partition=lambda _, each=each: each) for each in hosted]
    world = SimpleNamespace(registrations=lambda: {WHERE: SimpleNamespace(replicas=(0, 1))}, computers=computers)
    checker_of(_world=world)._check_logs()
    logs[1].content = [(0, None, b"b")]
    with pytest.raises(ViolationError, match="differ"):
        checker_of(_world=world)._check_logs()


class Answering:
    """Connections on which each request is answered so."""

    def __init__(self, **response: int) -> None:
        self._response = SimpleNamespace(partitions=[SimpleNamespace(error_code=0, **response)])

    async def call(self, *_request: Any) -> Any:
        return SimpleNamespace(topics=[self._response])


def test_a_reader_is_sent_back_to_what_it_has_read() -> None:
    reader = Reader.__new__(Reader)
    reader.position, reader.name, reader._topic, reader._last_epoch = 5, "reader", TOPIC, 0
    place: Any = SimpleNamespace(leader_id=1, leader_epoch=0)
    reader.connections = Answering(offset=6)  # type: ignore[assignment]
    asyncio.run(reader._recover(place, 1, ErrorCode.OFFSET_OUT_OF_RANGE))
    assert reader.position == 6
    with pytest.raises(ViolationError):
        asyncio.run(reader._recover(place, 1, ErrorCode.OFFSET_OUT_OF_RANGE))
    reader._last_epoch = 1
    with pytest.raises(LostError):  # of a node that does not know the leader yet
        asyncio.run(reader._recover(place, 1, ErrorCode.OFFSET_OUT_OF_RANGE))


def test_what_was_deleted_is_there() -> None:
    trimmer = Trimmer.__new__(Trimmer)
    trimmer.world = SimpleNamespace(loop=SimpleNamespace(rng=random.Random(1)))  # type: ignore[assignment]
    trimmer.checker = checker_of(acknowledged={WHERE: {100: b"a"}})
    trimmer.connections = Answering(low_watermark=0)  # type: ignore[assignment]

    async def place(*_where: Any) -> Any:
        return SimpleNamespace(leader_id=1)

    trimmer.place = place  # type: ignore[method-assign]
    with pytest.raises(ViolationError):
        asyncio.run(trimmer.step())
