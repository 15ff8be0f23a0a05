"""Seeded runs of Raft clusters: nodes that die and lose what was not synced, lost messages and disks, voter changes.

KAFKAPY_SOAK_SEEDS=N runs 500 N seeds of each property (make soak: 10,000); a failing one is path::test[seed].
"""

import pytest

from tests.simulator.raft_cluster import Platter
from tests.simulator.raft_runs import change_voters, others, reach, seeds, started, the_leader

SEEDS = 200


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_the_cluster_recovers_after_all_nodes_were_killed(seed: int) -> None:
    cluster = started(seed, 1 + seed % 5, seed % 3, takes_snapshots=seed % 2 == 0)
    for _ in range(2):
        reach(cluster, 5 + seed % 20)
        for node in cluster.nodes.values():
            node.kill()
        cluster.run_for(50)
        committed = cluster.highest_committed()
        cluster.start_all()
        cluster.run_until(lambda limit=committed: cluster.all_reached(limit + 10))  # type: ignore[misc]
    cluster.check_end()


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_messages_lost_at_random_and_nodes_killed_at_random_do_no_harm(seed: int) -> None:
    cluster = started(seed, 3 + 2 * (seed % 2), 1, loss=0.05 + 0.15 * (seed % 3), takes_snapshots=True)
    for _ in range(12):
        cluster.run_for(cluster.rng.randrange(cluster.patience_ms // 15, cluster.patience_ms))
        node = cluster.rng.choice(list(cluster.nodes.values()))
        action = cluster.rng.randrange(4)
        if action == 0:
            cluster.partitioned = set(cluster.rng.sample(list(cluster.nodes), 2))
        elif action == 1:
            cluster.partitioned = set()
        elif node.is_running:
            node.kill()
        else:
            node.start()
    cluster.partitioned, cluster.loss = set(), 0.0
    for node in cluster.nodes.values():
        if not node.is_running:
            node.start()
    reach(cluster, 10)
    cluster.check_end()


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_a_voter_that_lost_its_disk_is_filled_again(seed: int) -> None:
    cluster = started(seed, 3, takes_snapshots=seed % 2 == 0)
    reach(cluster, 20)
    victim = cluster.nodes[cluster.rng.choice(others(cluster, the_leader(cluster)))]
    victim.kill()
    cluster.run_for(100)
    victim.platter = Platter(election=victim.platter.election)
    reach(cluster, 10, others(cluster, victim))
    victim.start()
    reach(cluster, 10)
    cluster.check_end()


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_voters_are_added_and_removed_while_nodes_fail(seed: int) -> None:
    cluster = started(seed, 1 + seed % 4, 2, loss=0.02 * (seed % 3), takes_snapshots=seed % 2 == 0)
    reach(cluster, 10)
    for _ in range(5):
        change_voters(cluster)
        if cluster.rng.random() < 0.4:
            node = cluster.rng.choice([node for node in cluster.nodes.values() if node.is_running])
            node.kill()
            cluster.run_for(cluster.rng.randrange(cluster.patience_ms))
            node.start()
        reach(cluster, 10)
    cluster.loss = 0.0
    reach(cluster, 10)
    cluster.check_end()
