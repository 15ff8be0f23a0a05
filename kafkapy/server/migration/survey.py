"""The data about a cluster that `kafkapy cluster check` collects."""

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from kafkapy.dataclass import dataclass

OFFLINE: Final = -1


@dataclass(slots=True)
class Broker:
    """One broker's own responses. `problem`: why it could not be queried; the other fields are empty then."""

    node_id: int
    problem: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Explicitly set values, from the file or set at run time. Secrets are not returned: they are HIDDEN."""
    features: Mapping[str, int] = field(default_factory=dict)
    """The finalized levels."""
    apis: frozenset[int] = frozenset()
    group_types: Mapping[str, str] = field(default_factory=dict)
    """Type of each group that it coordinates: classic, consumer, share, streams; "" if the broker does not report
    it."""
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
    """`fenced`: registered but fenced brokers. `reassigned`: partitions being moved.

    `subscriptions`: of client metrics (KIP-714).
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
"""Stands for a value that a broker does not return."""
