"""Merging the runs of offsets of a share partition's state: whatever they are, each offset is in the right state."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from kafkapy.share.persister import StateBatch
from kafkapy.share.state_batches import combine, is_combined, merge


@st.composite
def batches(draw: st.DrawFn) -> list[StateBatch]:
    return [
        StateBatch(first, first + draw(st.integers(-1, 8)), draw(st.sampled_from((0, 2, 4))), draw(st.integers(1, 3)))
        for first in draw(st.lists(st.integers(0, 40), max_size=12))
    ]


STARTS = st.sampled_from((-1, 0, 10, 20, 60))


def states_of(runs: Sequence[StateBatch], start_offset: int) -> dict[int, tuple[int, int]]:
    """Return (delivery count, delivery state) of each offset; the greatest of what is said of it."""
    found: dict[int, tuple[int, int]] = {}
    for first, last, state, count in runs:
        for offset in range(max(first, start_offset), last + 1):
            found[offset] = max(found.get(offset, (0, 0)), (count, state))
    return found


@given(batches(), STARTS)
def test_each_offset_keeps_the_highest_of_what_is_said_of_it(runs: list[StateBatch], start_offset: int) -> None:
    combined = combine(runs, start_offset)
    assert states_of(combined, -1) == states_of(runs, start_offset)
    assert is_combined(combined)


@given(batches(), batches(), STARTS)
def test_a_merge_into_a_state_is_as_if_all_were_combined(
    runs: list[StateBatch], written: list[StateBatch], start_offset: int
) -> None:
    state = combine(runs, -1)
    before = list(state)
    assert merge(state, written, start_offset) == combine([*state, *written], start_offset)
    assert state == before, "a state may have been handed out"
