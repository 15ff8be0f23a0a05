"""Merges the runs of offsets of a share partition's state with those of a write.

The offsets of a state are kept as runs (StateBatch), in order, disjoint, and no two that touch in the same state with
the same delivery count. A write names the offsets that have changed. Where runs overlap, the one with the higher
delivery count wins, of equal counts the one with the higher delivery state: an earlier delivery never undoes a later
one. Offsets below the start offset are removed.

    state  [0, 9] available, delivered once        merged  [0, 2] available, once
    write  [3, 4] acknowledged, delivered once             [3, 4] acknowledged, once
                                                           [5, 9] available, once

Deviation: Apache Kafka fails with UNKNOWN_SERVER_ERROR on a run that ends before it begins if there are others, and
keeps it if there are none. Here such a run is ignored, because it has no offset.

Source: Apache Kafka 4.4.0's PersisterStateBatchCombiner.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from kafkapy.share.persister import UNINITIALIZED_OFFSET, StateBatch


def combine(batches: Sequence[StateBatch], start_offset: int) -> list[StateBatch]:
    """Return runs in order and disjoint, from start_offset on (UNINITIALIZED_OFFSET: all). The input may overlap."""
    kept = _from_start(batches, start_offset)
    return _swept(kept) if len(kept) > 1 else kept


def merge(state: list[StateBatch], written: Sequence[StateBatch], start_offset: int) -> list[StateBatch]:
    """Like `combine` of both, for a state that is combined: visits only the runs that the written ones touch.

    A state may have thousands of runs, and a write mostly changes some at one place.
    """
    state = _cut(state, start_offset)
    changed = _from_start(written, start_offset)
    if not changed:
        return state
    if not state:
        return _swept(changed) if len(changed) > 1 else changed
    first_offset = min(batch.first_offset for batch in changed)
    last_offset = max(batch.last_offset for batch in changed)
    # The run that ends just before is included: it may be joined.
    start = bisect_left(state, first_offset - 1, key=_last_offset)
    end = bisect_right(state, last_offset + 1, key=_first_offset)
    touched = state[start:end] + changed
    return state[:start] + (_swept(touched) if len(touched) > 1 else touched) + state[end:]


def is_combined(batches: Sequence[StateBatch]) -> bool:
    """Whether the runs are in order, disjoint, and joined if they can be."""
    for index in range(1, len(batches)):
        before, batch = batches[index - 1], batches[index]
        if batch.first_offset <= before.last_offset:
            return False
        if batch.first_offset == before.last_offset + 1 and batch[2:] == before[2:]:
            return False
    return all(batch.first_offset <= batch.last_offset for batch in batches)


def _first_offset(batch: StateBatch) -> int:
    return batch.first_offset


def _last_offset(batch: StateBatch) -> int:
    return batch.last_offset


def _from_start(batches: Sequence[StateBatch], start_offset: int) -> list[StateBatch]:
    """Return the parts of the runs from the start offset on, without empty ones."""
    if start_offset == UNINITIALIZED_OFFSET:
        return [batch for batch in batches if batch.first_offset <= batch.last_offset]
    return [
        batch if batch.first_offset >= start_offset else StateBatch(start_offset, *batch[1:])
        for batch in batches
        if batch.last_offset >= start_offset and batch.first_offset <= batch.last_offset
    ]


def _cut(state: list[StateBatch], start_offset: int) -> list[StateBatch]:
    """Return a combined state from the start offset on."""
    if start_offset == UNINITIALIZED_OFFSET or not state or state[0].first_offset >= start_offset:
        return state
    start = bisect_left(state, start_offset, key=_last_offset)
    kept = state[start:]
    if kept and kept[0].first_offset < start_offset:
        kept[0] = StateBatch(start_offset, *kept[0][1:])
    return kept


def _swept(batches: Sequence[StateBatch]) -> list[StateBatch]:
    """Return combined runs: visit all offsets at which a run begins or has ended, and count the open runs.

    `open_counts`: how many runs are open there, by (delivery count, delivery state); the greatest wins.
    """
    edges = [(batch.first_offset, 1, batch) for batch in batches]
    edges += [(batch.last_offset + 1, -1, batch) for batch in batches]
    edges.sort()
    combined: list[StateBatch] = []
    open_counts: dict[tuple[int, int], int] = {}
    open_since = edges[0][0]
    for offset, change, batch in edges:
        if offset > open_since:
            if open_counts:
                _add(combined, open_since, offset - 1, max(open_counts))
            open_since = offset
        priority = (batch.delivery_count, batch.delivery_state)
        count = open_counts.get(priority, 0) + change
        assert count >= 0, f"a run ends at {offset} that has not begun"
        if count:
            open_counts[priority] = count
        else:
            del open_counts[priority]
    assert not open_counts, f"runs that never end: {open_counts}"
    return combined


def _add(combined: list[StateBatch], first_offset: int, last_offset: int, priority: tuple[int, int]) -> None:
    """Add a run, or extend the last one, if both are in the same state."""
    delivery_count, delivery_state = priority
    if combined:
        before = combined[-1]
        if (
            before.last_offset + 1 == first_offset
            and before.delivery_state == delivery_state
            and before.delivery_count == delivery_count
        ):
            first_offset = combined.pop().first_offset
    combined.append(StateBatch(first_offset, last_offset, delivery_state, delivery_count))
