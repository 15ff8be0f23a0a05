"""What a run of a whole cluster is made of, drawn from its seed: nodes, clients, and kinds of faults.

A short run has one to five kinds of faults for some seconds: so many seeds are cheap, and together cover many
combinations. A long one has all of them for twelve seconds. Seeds of the tests are short ones, of three families:

    0, 3, 6, ...   three nodes that are brokers and controllers, plain clients
    1, 4, 7, ...   such nodes, transactional clients and members of groups
    2, 5, 8, ...   other nodes: a broker more, or controllers of their own; clients of either kind

Seeds from SHORT_SEEDS on have an administrator, too, who changes replication factors, cancels and elects.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tests.simulator.cluster_world import combined
from tests.simulator.crash_enumeration import SOAK_FACTOR

TESTED_SEEDS: Final = (200, 50, 50)
"""How many of each family."""
FAMILIES: Final = len(TESTED_SEEDS)
SHORT_SEEDS: Final = FAMILIES * max(TESTED_SEEDS)
"""From here on (make soak: 10,000) a seed out of LONG_EVERY is a long run."""
LONG_EVERY: Final = 40
NODES: Final = combined(3)
MORE_NODES: Final[Sequence[Mapping[int, str]]] = (
    {**combined(3), 4: "broker"},
    {**combined(3), 4: "broker"},
    {1: "broker", 2: "broker", 3: "broker", 11: "controller", 12: "controller", 13: "controller"},
)
NETWORK: Final = ("cut", "isolate", "lose", "slow", "skew")
PROCESSES: Final = ("kill", "kill_some", "power", "power", "pause", "stop")
DISKS: Final = ("reassign", "fill", "fail_disk")
ADMINISTERED: Final = (*DISKS, "administer", "administer")
"""Names of methods of ClusterLives. Faults of one line happen one after the other, those of several at once."""
CLIENTS: Final = ("idempotent-1", "plain-0", "moved", "group-0", "members", "flood")
"""Beside a producer and a consumer of the same partition, which are always there."""
TRANSACTORS: Final = 2


@dataclass(frozen=True, slots=True)
class Plan:
    """faults: a line each of what may happen at once. pause_s: the longest time between two faults of a line.

    fetches_little: followers get one batch a fetch, so that those that were away are behind for long.
    flushes_often: partitions are flushed after each few records, so that an fsync of theirs can fail.
    loses_coordinator: before all other faults the coordinator of a group with members is isolated.
    has_calm_clients: once all is healed, clients that have done their part do little until all have, and all is whole.
    """

    roles: Mapping[int, str]
    has_transactions: bool
    clients: tuple[str, ...]
    transactor_count: int
    faults: tuple[tuple[str, ...], ...]
    faults_s: float
    pause_s: float
    fetches_little: bool = False
    has_calm_clients: bool = False
    flushes_often: bool = False
    loses_coordinator: bool = False
    min_isr: int = 2
    topic_configs: tuple[tuple[str, str], ...] = ()
    """Of the clients' topics."""
    offsets_configs: tuple[tuple[str, str], ...] = ()
    """Of __consumer_offsets."""


def seeds_of(family: int) -> range:
    """Return the seeds of a family, as many as this run of the tests wants."""
    return range(family, FAMILIES * TESTED_SEEDS[family] if SOAK_FACTOR == 1 else 500 * SOAK_FACTOR, FAMILIES)


def plan_of(seed: int) -> Plan:
    chance = random.Random(f"plan {seed}")
    family = seed % FAMILIES
    roles = NODES if family < 2 else chance.choice(MORE_NODES)
    has_transactions = family == 1 or (family == 2 and chance.random() < 0.4)
    disks = DISKS if seed < SHORT_SEEDS else ADMINISTERED
    if seed >= SHORT_SEEDS and seed % LONG_EVERY == 0:
        return Plan(roles, has_transactions, CLIENTS, TRANSACTORS, (NETWORK, disks, PROCESSES), 12.0, 1.5)
    faults = (
        some(chance, NETWORK, (0, 1, 1, 2)),
        some(chance, disks, (0, 1, 1, 2)),
        some(chance, PROCESSES, (1, 1, 2)),
    )
    plan = Plan(
        roles,
        has_transactions,
        some(chance, CLIENTS, (1, 2)),
        chance.randrange(1, TRANSACTORS + 1),
        tuple(line for line in faults if line),
        chance.uniform(1.3, 2.8),
        chance.choice((0.3, 0.6, 1.0)),
        chance.random() < 0.35,
        chance.random() < 0.5,
        chance.random() < 0.2,
    )
    if "members" in plan.clients and not has_transactions and chance.random() < 0.5:
        return replace(plan, loses_coordinator=True)
    return plan


def some(chance: random.Random, names: Sequence[str], counts: Sequence[int]) -> tuple[str, ...]:
    """Return some of the names, each once."""
    return tuple(dict.fromkeys(chance.sample(names, chance.choice(counts))))
