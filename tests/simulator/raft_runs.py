"""What seeded runs of Raft clusters have in common: how many there are, how a cluster starts, what it waits for.

KAFKAPY_SOAK_SEEDS=N runs 500 N seeds of each property (make soak: 10,000).
"""

import os
import random
from typing import Any

from kafkapy.raft.messages import AddVoterRequest, RemoveVoterRequest
from tests.simulator.raft_cluster import (
    KAFKAS_TIMEOUTS,
    SHORT_TIMEOUTS,
    Cluster,
    ClusterOptions,
    Node,
    key_of,
    voter_of,
)

FACTOR = int(os.environ.get("KAFKAPY_SOAK_SEEDS", "1"))
APPEND_MS = (20, 50, 120)
"""One of these is how often a seed's leader appends a batch."""


def seeds(count: int) -> range:
    return range(count if FACTOR == 1 else 500 * FACTOR)


def started(seed: int, voter_count: int, observer_count: int = 0, **options: Any) -> Cluster:
    """Return a running cluster: a seed out of twelve has Apache Kafka's time-outs, the others have shorter ones."""
    pace = random.Random(f"pace {seed}")
    timeouts = KAFKAS_TIMEOUTS if pace.randrange(12) == 0 else SHORT_TIMEOUTS
    cluster = Cluster(seed, voter_count, observer_count, ClusterOptions(timeouts=timeouts, **options))
    cluster.start_all()
    cluster.append_every(pace.choice(APPEND_MS))
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


def change_voters(cluster: Cluster) -> None:
    """Ask the leader for some change, until one is accepted; a removed leader resigns."""
    for _ in range(50):
        cluster.run_for(cluster.patience_ms // 15)
        leader = the_leader(cluster)
        assert leader.core is not None
        voter_ids = leader.core.voters.current.ids
        outsiders = [node_id for node_id in cluster.nodes if node_id not in voter_ids]
        if outsiders and (len(voter_ids) <= 3 or cluster.rng.random() < 0.5):
            voter = voter_of(cluster.rng.choice(outsiders))
            responses = cluster.client_request(leader, AddVoterRequest(voter=voter, timeout_ms=5000))
        else:
            victim = key_of(cluster.rng.choice(voter_ids))
            responses = cluster.client_request(leader, RemoveVoterRequest(voter=victim))
        if not responses or responses[0].error == 0:
            return
    raise AssertionError(f"seed {cluster.seed}: no voter change was accepted: {responses}")
