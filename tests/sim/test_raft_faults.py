"""Seeded runs of Raft clusters in which messages come twice, clocks jump, files are torn, and disks are replaced.

KAFKAPY_SOAK_SEEDS multiplies the number of seeds (default 1: 200 runs); a failing one is pytest's `path::test[seed]`.
"""

from functools import partial
from typing import Any

import pytest

from tests.simulator import raft_runs
from tests.simulator.raft_cluster import Cluster
from tests.simulator.raft_faults import DiskNode, Faults
from tests.simulator.raft_runs import reach, seeds


def started(seed: int, voter_count: int, observer_count: int = 0, *, tears: float = 0.0, **options: Any) -> Cluster:
    new_node = partial(DiskNode, tears=tears)
    return raft_runs.started(
        seed, voter_count, observer_count, takes_snapshots=seed % 3 > 0, new_node=new_node, **options
    )


def finish(cluster: Cluster) -> None:
    """Heal; all go on, and agree."""
    Faults(cluster).heal()
    reach(cluster, 10)
    cluster.check_end()


@pytest.mark.parametrize("seed", seeds(40))
def test_messages_that_come_twice_and_late_do_no_harm(seed: int) -> None:
    cluster = started(seed, 3 + seed % 3, seed % 2, duplicates=0.1 + 0.1 * (seed % 4), loss=0.05 * (seed % 3))
    faults = Faults(cluster)
    faults.some(faults.restart, faults.cut_off, lambda: None, count=6)
    finish(cluster)


@pytest.mark.parametrize("seed", seeds(40))
def test_clocks_that_jump_ahead_cost_time_only(seed: int) -> None:
    cluster = started(seed, 1 + seed % 5, seed % 3, loss=0.05 * (seed % 2), kraft_version=seed % 2)
    faults = Faults(cluster)
    faults.some(faults.jump_clock, faults.jump_clock, faults.jump_all_clocks, faults.restart, count=6)
    finish(cluster)


@pytest.mark.parametrize("seed", seeds(40))
def test_power_cuts_amid_a_vote_leave_the_old_vote_or_the_new_one(seed: int) -> None:
    cluster = started(seed, 3 + seed % 3, seed % 2, tears=0.3, kraft_version=seed % 2)
    faults = Faults(cluster)
    faults.some(faults.restart, faults.cut_off, faults.jump_clock, count=6)
    for node in cluster.nodes.values():
        node._tears = 0.0  # type: ignore[attr-defined]
    finish(cluster)


@pytest.mark.parametrize("seed", seeds(40))
def test_voters_with_lost_disks_are_replaced_amid_snapshots_and_other_changes(seed: int) -> None:
    cluster = started(seed, 3 + seed % 2, 2, loss=0.03 * (seed % 2))
    faults = Faults(cluster)
    faults.some(faults.lose_disk, faults.change_voters, faults.change_voters, faults.restart, count=10)
    finish(cluster)


@pytest.mark.parametrize("seed", seeds(40))
def test_all_faults_at_once_do_no_harm(seed: int) -> None:
    cluster = started(seed, 3 + seed % 3, 2, loss=0.05 * (seed % 3), duplicates=0.1 * (seed % 2), tears=0.1)
    faults = Faults(cluster)
    faults.some(
        faults.restart, faults.cut_off, faults.jump_clock, faults.lose_disk, faults.change_voters,
        faults.change_voters_amid_a_cut,
        count=12,
    )  # fmt: skip
    finish(cluster)
