"""Streams groups in whole clusters under faults; what happens and is checked: tests/simulator/streams_lives.py.

KAFKAPY_SOAK_SEEDS multiplies the seeds; a failure names the command that repeats its seed.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kafkapy.group.streams import heartbeat
from kafkapy.group.streams.assignors import ASSIGNORS
from kafkapy.group.streams.group import StreamsGroup
from kafkapy.group.streams.tasks import EMPTY_TASKS
from kafkapy.runtime.coordinators.shard_host import ShardHost
from tests.simulator.cluster_plan import NODES, Plan
from tests.simulator.crash_enumeration import SOAK_FACTOR
from tests.simulator.process_lives import ProcessLoop
from tests.simulator.streams_checker import ToldTasks
from tests.simulator.streams_lives import StreamsLives, live
from tests.support.interpreter import needs_interpreter

SEEDS = range(20 * SOAK_FACTOR)
SEEN: dict[int, Counter[str]] = {}
"""By seed, what members did and the responses they got, and what happened to the cluster."""


@pytest.mark.parametrize("seed", SEEDS)
def test_tasks_have_one_owner_and_none_hangs_after_the_last_fault(seed: int) -> None:
    seen: Counter[str] = Counter()

    def watched(loop: ProcessLoop, seed: int) -> StreamsLives:
        lives = StreamsLives(loop, seed)
        lives.application.seen = seen
        return lives

    history = "\n".join(live(seed, watched)[0])
    seen.update(event for event in EVENTS if event in history)
    SEEN[seed] = seen


EVENTS = ("dies at", "(killed)", "the coordinator is to be", "application-2", "is full", "_grow")


def test_lives_have_all_that_they_are_for() -> None:
    if len(SEEN) < len(SEEDS):
        pytest.skip("judged where all seeds of this file were run, and none has failed")
    seen = sum(SEEN.values(), Counter[str]())
    expected = {"commit", "refused commit", "static member", "dynamic member", "warm-up", "standby", "leave", "crash"}
    expected |= {"status 0", "UNRELEASED_INSTANCE_ID", "UNKNOWN_MEMBER_ID", *EVENTS}
    assert not {each for each in expected if not seen[each]}, seen


# -- each rule finds a fault that is planted --------------------------------------------------------------------------


def respond_before_it_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def committed(_self: Any) -> None:
        pass

    monkeypatch.setattr(ShardHost, "committed", committed)


def respond_at_once_while_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the one before, if nobody looks into the coordinators: the responses that members get tell it, too."""
    respond_before_it_is_committed(monkeypatch)
    monkeypatch.setattr(ToldTasks, "check_coordinator", lambda *_: None)


def respond_at_once_and_fence_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    respond_at_once_while_nobody_looks(monkeypatch)
    monkeypatch.setattr(ToldTasks, "note_tasks", lambda *_: None)
    monkeypatch.setattr(heartbeat, "check_epoch", lambda *_: None)


def take_commits_of_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StreamsGroup, "check_offset_commit", lambda *_, **__: None)


def leave_a_member_of_a_cluster_without_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    assign = ASSIGNORS["sticky"]

    def lazy(spec: Any) -> Any:
        assigned = yield from assign(spec)
        return {**assigned, next(each for each in assigned if assigned[each].active): EMPTY_TASKS}

    monkeypatch.setitem(ASSIGNORS, "sticky", lazy)


MAX_TRIED = 80
"""Seeds: odd ones have an assignor of their own. The first one has met the fault, until something else is drawn."""
CUT_OFF = Plan(
    roles=NODES,
    has_transactions=False,
    clients=(),
    transactor_count=0,
    faults=(("isolate", "move_coordinator"), ("isolate", "kill")),
    faults_s=6.0,
    pause_s=0.3,
)
"""The coordinator is cut off from the other nodes again and again, while members reach it."""


def live_cut_off(loop: ProcessLoop, seed: int) -> StreamsLives:
    return StreamsLives(loop, seed, CUT_OFF)


@pytest.mark.parametrize(
    ("plant", "told", "first_seed"),
    [
        (respond_before_it_is_committed, "a member was told", 0),
        (respond_at_once_while_nobody_looks, "are told to run", 8),
        (respond_at_once_and_fence_nobody, "and is told", 26),
        (take_commits_of_anybody, "committed an offset of", 18),
        (leave_a_member_of_a_cluster_without_tasks, "run, not", 0),
    ],
)
@needs_interpreter("it replaces functions, which compiled code calls directly")
def test_a_fault_planted_in_a_cluster_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], told: str, first_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    found = []
    for seed in range(first_seed, first_seed + MAX_TRIED, 2):
        try:
            live(seed, live_cut_off)
        except AssertionError as error:
            found.append(str(error))
            if told in found[-1]:
                return
    pytest.fail(f"no seed has found it: {found}")
