"""The states of a classic group, and the only ways from one to another.

EMPTY                  no members; offsets may live on
PREPARING_REBALANCE    members are asked to join again; their JoinGroups wait until all have, or the time is over
COMPLETING_REBALANCE   a generation has begun; SyncGroups wait for the leader's, which brings the assignment
STABLE                 every member has its assignment, and heartbeats
DEAD                   deleted, or moved to another coordinator

A generation begins with COMPLETING_REBALANCE, or with EMPTY when nobody is left. Names are Kafka's, as ListGroups and
DescribeGroups show them.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final


class ClassicState(Enum):
    """The values are what clients are shown."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


NEXT_STATES: Final[Mapping[ClassicState, frozenset[ClassicState]]] = {
    ClassicState.EMPTY: frozenset({ClassicState.PREPARING_REBALANCE, ClassicState.DEAD}),
    ClassicState.PREPARING_REBALANCE: frozenset(
        {ClassicState.COMPLETING_REBALANCE, ClassicState.EMPTY, ClassicState.DEAD}
    ),
    ClassicState.COMPLETING_REBALANCE: frozenset(
        {ClassicState.STABLE, ClassicState.PREPARING_REBALANCE, ClassicState.DEAD}
    ),
    ClassicState.STABLE: frozenset({ClassicState.PREPARING_REBALANCE, ClassicState.DEAD}),
    ClassicState.DEAD: frozenset(),
}
