"""What `kafkapy cluster check` has to know of a cluster before its nodes can become kafkapy's."""

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from kafkapy.dataclass import dataclass

OFFLINE: Final = -1


@dataclass(slots=True)
class Broker:
    """One broker, asked itself. `problem` says why it could not be asked; then there is nothing else."""

    node_id: int
    problem: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    """What is set: by the file, or at run time. Secrets are not told, they are HIDDEN."""
    features: Mapping[str, int] = field(default_factory=dict)
    """The finalized levels."""
    apis: frozenset[int] = frozenset()
    group_types: Mapping[str, str] = field(default_factory=dict)
    """By group that it coordinates: classic, consumer, share, streams; "" from a broker that does not tell."""
    offline_log_dirs: tuple[str, ...] = ()


@dataclass(slots=True)
class Partition:
    name: str
    leader_id: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(slots=True)
class Topic:
    name: str
    partitions: list[Partition]
    min_insync_replicas: int = 1
    is_remote: bool = False


@dataclass(slots=True)
class Voter:
    node_id: int
    log_end_offset: int
    is_caught_up: bool


@dataclass(slots=True)
class Survey:
    """`fenced`: brokers that are registered and not alive. `reassigned`: partitions that move. `subscriptions`: of
    clients' metrics (KIP-714).
    """

    cluster_id: str
    brokers: list[Broker]
    fenced: list[int]
    leader_id: int
    voters: list[Voter]
    topics: list[Topic]
    reassigned: list[str] = field(default_factory=list)
    subscriptions: list[str] = field(default_factory=list)


HIDDEN: Final = "[hidden]"
"""Stands for a value that a broker does not tell."""
