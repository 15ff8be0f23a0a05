"""Replication under faults, seed by seed: `python -m pytest tests/sim/test_replica_lives.py -k 17` repeats one.

KAFKAPY_SOAK_SEEDS=N runs the seeds 0 to N - 1. The planted faults show that the checker sees what it is for.
"""

import os
from collections.abc import Callable
from typing import Any

import pytest

from kafkapy.metadata.partitions import PartitionControl
from kafkapy.replication.brokers import ReplicaBrokers
from kafkapy.replication.follower_log import FollowerLogs
from kafkapy.replication.partition import Partition
from tests.simulator.loop import run
from tests.simulator.replica_lives import live
from tests.support.interpreter import needs_interpreter

SEEDS = int(os.environ.get("KAFKAPY_SOAK_SEEDS", "0")) or 8
FAULTY_SEEDS = 60
"""A planted fault has to be found within so many from the one where it was found first."""


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    run(live, seed=seed)


def acknowledge_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "acknowledgement", lambda *_: (True, 0))


def commit_below_min_isr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "is_under_min_isr", property(lambda _self: False))


def never_truncate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FollowerLogs, "truncate", lambda _self, _partition, _offset: None)


def trust_any_broker_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    eligible = ReplicaBrokers.is_eligible
    monkeypatch.setattr(ReplicaBrokers, "is_stale", lambda *_: False)
    monkeypatch.setattr(ReplicaBrokers, "is_eligible", lambda self, broker_id, _epoch: eligible(self, broker_id, -1))
    may_join = PartitionControl._may_join_isr
    monkeypatch.setattr(
        PartitionControl, "_may_join_isr", lambda self, broker_id, _epoch: may_join(self, broker_id, -1)
    )


def commit_what_the_leader_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "_smallest_in_sync_end_offset", lambda _self, log, _now_ms: log.log_end_offset)


@needs_interpreter("faults are planted by replacing methods")
@pytest.mark.parametrize(
    ("plant", "first_seed"),
    [
        (acknowledge_at_once, 0),
        (commit_what_the_leader_has, 0),
        (commit_below_min_isr, 0),
        (never_truncate, 0),
        (trust_any_broker_epoch, 28),
    ],
)
def test_a_planted_fault_is_found(
    plant: Callable[[Any], None], first_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(first_seed, first_seed + FAULTY_SEEDS):
        try:
            run(live, seed=seed)
        except AssertionError:
            return
    pytest.fail(f"not found in {FAULTY_SEEDS} seeds")
