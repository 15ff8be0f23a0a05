"""Seeded runs of Raft clusters: elections, failures, partitions, lost data, snapshots, voter changes.

KAFKAPY_SOAK_SEEDS=N runs 500 N seeds of each property (make soak: 10,000); without it there are some 1,000 runs.
"""

import os

import pytest

from kafkapy.raft.messages import AddVoterRequest, RemoveVoterRequest
from tests.simulator.raft_cluster import Cluster, Node, Platter, key_of, voter_of

FACTOR = int(os.environ.get("KAFKAPY_SOAK_SEEDS", "1"))


def seeds(count: int) -> range:
    return range(count if FACTOR == 1 else 500 * FACTOR)


def started(seed: int, voter_count: int, observer_count: int = 0, **options: object) -> Cluster:
    cluster = Cluster(seed, voter_count, observer_count, **options)  # type: ignore[arg-type]
    cluster.start_all()
    cluster.append_every(20)
    return cluster


def reach(cluster: Cluster, more: int, node_ids: list[int] | None = None) -> None:
    """Run until all of these nodes have `more` records committed than anybody had."""
    target = cluster.highest_committed() + more
    cluster.run_until(lambda: cluster.all_reached(target, node_ids))


def others(cluster: Cluster, *without: Node) -> list[int]:
    return [node_id for node_id in cluster.nodes if node_id not in [node.node_id for node in without]]


def the_leader(cluster: Cluster) -> Node:
    cluster.run_until(lambda: cluster.leader() is not None)
    leader = cluster.leader()
    assert leader is not None
    return leader


@pytest.mark.parametrize("seed", seeds(200))
def test_a_leader_is_elected_and_all_replicas_catch_up(seed: int) -> None:
    cluster = started(seed, 1 + seed % 5, seed % 6, kraft_version=seed % 2, takes_snapshots=seed % 3 == 0)
    reach(cluster, 10)
    cluster.check_end()


@pytest.mark.parametrize("seed", seeds(100))
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


@pytest.mark.parametrize("seed", seeds(200))
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


@pytest.mark.parametrize("seed", seeds(80))
def test_another_leader_is_elected_after_the_first_one_is_cut_off(seed: int) -> None:
    cluster = started(seed, 3 + seed % 3, seed % 3, takes_snapshots=seed % 2 == 0)
    reach(cluster, 10)
    former = the_leader(cluster)
    cluster.partitioned = {former.node_id}
    reach(cluster, 20, others(cluster, former))
    cluster.partitioned = set()
    reach(cluster, 10)
    cluster.check_end()


@pytest.mark.parametrize("seed", seeds(80))
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


@pytest.mark.parametrize("seed", seeds(30))
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


@pytest.mark.parametrize("seed", seeds(60))
def test_messages_lost_at_random_and_nodes_killed_at_random_do_no_harm(seed: int) -> None:
    cluster = started(seed, 3 + 2 * (seed % 2), 1, loss=0.05 + 0.15 * (seed % 3), takes_snapshots=True)
    for _ in range(12):
        cluster.run_for(cluster.rng.randrange(200, 3000))
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


@pytest.mark.parametrize("seed", seeds(200))
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


@pytest.mark.parametrize("seed", seeds(60))
def test_voters_are_added_and_removed_while_nodes_fail(seed: int) -> None:
    cluster = started(seed, 1 + seed % 4, 2, loss=0.02 * (seed % 3), takes_snapshots=seed % 2 == 0)
    reach(cluster, 10)
    for _ in range(5):
        change_voters(cluster)
        if cluster.rng.random() < 0.4:
            node = cluster.rng.choice([node for node in cluster.nodes.values() if node.is_running])
            node.kill()
            cluster.run_for(cluster.rng.randrange(0, 3000))
            node.start()
        reach(cluster, 10)
    cluster.loss = 0.0
    reach(cluster, 10)
    cluster.check_end()


def change_voters(cluster: Cluster) -> None:
    """Ask the leader for some change, until one is accepted; a removed leader resigns."""
    for _ in range(50):
        cluster.run_for(200)
        leader = the_leader(cluster)
        assert leader.core is not None
        voter_ids = leader.core.voters.current.ids
        outsiders = [node_id for node_id in cluster.nodes if node_id not in voter_ids]
        if outsiders and (len(voter_ids) <= 3 or cluster.rng.random() < 0.5):
            voter = voter_of(cluster.rng.choice(outsiders))
            answers = cluster.ask(leader, AddVoterRequest(voter=voter, timeout_ms=5000))
        else:
            victim = key_of(cluster.rng.choice(voter_ids))
            answers = cluster.ask(leader, RemoveVoterRequest(voter=victim, timeout_ms=5000))
        if not answers or answers[0].error == 0:
            return
    raise AssertionError(f"seed {cluster.seed}: no voter change was accepted: {answers}")
