"""What a leader makes of a fetch position, and where a follower cuts."""

import pytest

from kafkapy.raft.log_view import FetchPositionKind, LogView
from kafkapy.types import OffsetAndEpoch


def a_log() -> LogView:
    """Epoch 1 at [0, 10), epoch 3 at [10, 20), epoch 4 at [20, 25)."""
    view = LogView()
    for base_offset, last_offset, leader_epoch in [(0, 9, 1), (10, 14, 3), (15, 19, 3), (20, 24, 4)]:
        view.append(base_offset, last_offset, leader_epoch)
    return view


def a_trimmed_log() -> LogView:
    """The same log behind a snapshot at 12."""
    view = a_log()
    view.add_snapshot(OffsetAndEpoch(12, 3))
    view.advance_start(12)
    return view


@pytest.mark.parametrize(
    ("offset", "leader_epoch", "kind", "position"),
    [
        (0, 0, FetchPositionKind.VALID, (0, 0)),
        (25, 4, FetchPositionKind.VALID, (25, 4)),
        (15, 3, FetchPositionKind.VALID, (15, 3)),
        (20, 3, FetchPositionKind.VALID, (20, 3)),
        (22, 3, FetchPositionKind.DIVERGING, (20, 3)),
        (12, 1, FetchPositionKind.DIVERGING, (10, 1)),
        (12, 2, FetchPositionKind.DIVERGING, (10, 1)),
        (26, 4, FetchPositionKind.DIVERGING, (25, 4)),
        (25, 9, FetchPositionKind.DIVERGING, (25, 4)),
        (5, 0, FetchPositionKind.DIVERGING, (0, 0)),
    ],
)
def test_a_fetch_position_is_a_prefix_or_diverges(
    offset: int, leader_epoch: int, kind: FetchPositionKind, position: tuple[int, int]
) -> None:
    assert a_log().validate(offset, leader_epoch) == (kind, position)


@pytest.mark.parametrize(
    ("offset", "leader_epoch", "kind", "position"),
    [
        (0, 0, FetchPositionKind.SNAPSHOT, (12, 3)),
        (11, 3, FetchPositionKind.SNAPSHOT, (12, 3)),
        (12, 3, FetchPositionKind.VALID, (12, 3)),
        (12, 4, FetchPositionKind.SNAPSHOT, (12, 3)),
        (15, 1, FetchPositionKind.SNAPSHOT, (12, 3)),
        (15, 3, FetchPositionKind.VALID, (15, 3)),
        (24, 3, FetchPositionKind.DIVERGING, (20, 3)),
    ],
)
def test_whoever_lacks_the_trimmed_prefix_starts_from_the_snapshot(
    offset: int, leader_epoch: int, kind: FetchPositionKind, position: tuple[int, int]
) -> None:
    assert a_trimmed_log().validate(offset, leader_epoch) == (kind, position)


@pytest.mark.parametrize(
    ("diverging", "offset"), [((20, 3), 20), ((13, 3), 13), ((10, 2), 10), ((10, 1), 10), ((4, 0), 0)]
)
def test_a_follower_cuts_where_both_logs_agree(diverging: tuple[int, int], offset: int) -> None:
    assert a_log().truncation_offset(OffsetAndEpoch(*diverging)) == offset


def test_truncation_forgets_epochs_and_old_syncs() -> None:
    view = a_log()
    view.set_durable(25, view.generation)
    generation = view.generation
    view.truncate_to(15)
    assert view.end == (15, 3)
    assert view.durable_end_offset == 15
    view.append(15, 19, 5)
    assert not view.set_durable(20, generation)
    assert view.durable_end_offset == 15
    assert view.set_durable(20, view.generation)


def test_an_empty_log_ends_with_its_snapshot() -> None:
    view = a_log()
    view.reset_to_snapshot(OffsetAndEpoch(40, 6))
    assert (view.start_offset, view.end, view.durable_end_offset) == (40, (40, 6), 40)
    assert view.validate(40, 6) == (FetchPositionKind.VALID, (40, 6))


def test_a_log_may_begin_with_an_older_epoch_than_its_latest_snapshot() -> None:
    """Recovery reads the whole log, which starts before the snapshots that stand for parts of it."""
    view = LogView(snapshots=[OffsetAndEpoch(20, 3)])
    view.append(0, 9, 1)
    view.append(10, 24, 3)
    assert view.end == (25, 3)
