"""Seeded runs of Raft clusters: elections, partitions, majorities, leaders that fail one after the other.

KAFKAPY_SOAK_SEEDS=N runs 500 N seeds of each property (make soak: 10,000); a failing one is path::test[seed].
"""

import pytest

from tests.simulator.raft_cluster import Node
from tests.simulator.raft_runs import others, reach, seeds, started, the_leader

SEEDS = 200


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_a_leader_is_elected_and_all_replicas_catch_up(seed: int) -> None:
    cluster = started(seed, 1 + seed % 5, seed % 6, kraft_version=seed % 2, takes_snapshots=seed % 3 == 0)
    reach(cluster, 10)
    cluster.check_end()


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_another_leader_is_elected_after_the_first_one_fails_or_resigns(seed: int) -> None:
    cluster = started(seed, 3 + seed % 3, seed % 3, takes_snapshots=seed % 2 == 0)
    reach(cluster, 10)
    former = the_leader(cluster)
    if seed % 4 < 2:
        former.kill()
    else:
        cluster.resign(former)
        reach(cluster, 20)
        former.kill()
    reach(cluster, 20, others(cluster, former))
    former.start()
    reach(cluster, 10)
    cluster.check_end()


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_another_leader_is_elected_after_the_first_one_is_cut_off(seed: int) -> None:
    cluster = started(seed, 3 + seed % 3, seed % 3, takes_snapshots=seed % 2 == 0)
    reach(cluster, 10)
    former = the_leader(cluster)
    cluster.partitioned = {former.node_id}
    reach(cluster, 20, others(cluster, former))
    cluster.partitioned = set()
    reach(cluster, 10)
    cluster.check_end()


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_a_reachable_majority_makes_progress(seed: int) -> None:
    cluster = started(seed, 5, takes_snapshots=seed % 2 == 0)
    reach(cluster, 10)
    leader = the_leader(cluster)
    other = cluster.rng.choice(others(cluster, leader))
    cluster.partitioned = {leader.node_id, other}
    majority = [node_id for node_id in cluster.nodes if node_id not in cluster.partitioned]
    reach(cluster, 20, majority)
    cluster.partitioned = set()
    reach(cluster, 10)
    cluster.check_end()


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_progress_goes_on_after_leaders_fail_one_after_the_other(seed: int) -> None:
    cluster = started(seed, 5, takes_snapshots=seed % 2 == 0)
    killed: list[Node] = []
    for _ in range(4):
        reach(cluster, 10, others(cluster, *killed))
        leader = the_leader(cluster)
        leader.kill()
        killed.append(leader)
        if len(killed) == 2:
            killed.pop(0).start()
    reach(cluster, 10, others(cluster, *killed))
    cluster.check_end()
