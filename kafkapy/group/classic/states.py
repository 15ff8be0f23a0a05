"""The states of a classic group, and the allowed transitions.

EMPTY                  no members; there may be offsets
PREPARING_REBALANCE    members must join again; JoinGroups are parked until all have joined, or until the time-out
COMPLETING_REBALANCE   a generation has begun; SyncGroups are parked until the leader's, which has the assignment
STABLE                 every member has its assignment and sends heartbeats
DEAD                   deleted, or moved to another coordinator

A generation begins with COMPLETING_REBALANCE, or with EMPTY if no member is left. Names are Kafka's, as ListGroups and
DescribeGroups show them.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final


class ClassicState(Enum):
    """The values are the names that clients see."""

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
