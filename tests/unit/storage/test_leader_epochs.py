import pytest

from kafkapy.storage.leader_epochs import EpochEntry, LeaderEpochs
from kafkapy.types import OffsetAndEpoch


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs(EpochEntry(*entry) for entry in entries)


def listed(chain: LeaderEpochs) -> list[tuple[int, int]]:
    return [tuple(entry) for entry in chain.entries]  # type: ignore[misc]


def test_an_epoch_is_noted_once() -> None:
    chain = epochs((0, 0))
    assert chain.assign(1, 10)
    assert not chain.assign(1, 10)
    assert not chain.assign(1, 15)
    assert listed(chain) == [(0, 0), (1, 10)]
    assert chain.is_dirty


@pytest.mark.parametrize(
    ("entry", "left"),
    [
        ((3, 30), [(0, 0), (1, 10), (2, 20), (3, 30)]),
        ((3, 20), [(0, 0), (1, 10), (3, 20)]),  # the leader of epoch 2 wrote nothing
        ((3, 5), [(0, 0), (3, 5)]),
        ((1, 25), [(0, 0), (1, 25)]),
        ((2, 15), [(0, 0), (1, 10), (2, 15)]),
        ((0, 0), [(0, 0)]),
    ],
)
def test_entries_that_a_new_one_contradicts_go(entry: tuple[int, int], left: list[tuple[int, int]]) -> None:
    chain = epochs((0, 0), (1, 10), (2, 20))
    chain.assign(*entry)
    assert listed(chain) == left


@pytest.mark.parametrize(
    ("leader_epoch", "expected"),
    [
        (-1, None),
        (0, OffsetAndEpoch(5, 0)),  # below all known: itself, and where the first known begins
        (1, OffsetAndEpoch(5, 1)),
        (2, OffsetAndEpoch(20, 2)),
        (3, OffsetAndEpoch(20, 2)),  # never was: the one before it
        (4, OffsetAndEpoch(100, 4)),  # the latest: the log's end
        (5, None),
    ],
)
def test_the_end_of_an_epoch_is_where_the_next_begins(leader_epoch: int, expected: OffsetAndEpoch | None) -> None:
    assert epochs((2, 5), (4, 20)).end_offset_for(leader_epoch, log_end_offset=100) == expected


def test_an_empty_chain_knows_nothing() -> None:
    chain = epochs()
    assert chain.end_offset_for(0, 10) is None
    assert (chain.latest_epoch, chain.earliest) == (None, None)


@pytest.mark.parametrize(
    ("end_offset", "left"),
    [(100, [(0, 0), (1, 10), (2, 20)]), (20, [(0, 0), (1, 10)]), (11, [(0, 0), (1, 10)]), (0, [])],
)
def test_truncation_drops_epochs_that_begin_behind_the_end(end_offset: int, left: list[tuple[int, int]]) -> None:
    chain = epochs((0, 0), (1, 10), (2, 20))
    assert chain.truncate_to(end_offset) == (len(left) < 3)
    assert listed(chain) == left


@pytest.mark.parametrize(
    ("start_offset", "left"),
    [
        (0, [(0, 0), (1, 10), (2, 20)]),
        (5, [(0, 5), (1, 10), (2, 20)]),
        (10, [(1, 10), (2, 20)]),
        (15, [(1, 15), (2, 20)]),
        (99, [(2, 99)]),
    ],
)
def test_truncation_from_the_start_moves_the_first_epoch(start_offset: int, left: list[tuple[int, int]]) -> None:
    chain = epochs((0, 0), (1, 10), (2, 20))
    chain.truncate_from_start(start_offset)
    assert listed(chain) == left


def test_a_loaded_chain_is_clean() -> None:
    assert not epochs((0, 0), (1, 10)).is_dirty


@pytest.mark.parametrize(
    ("start_offset", "end_offset", "is_dirty"), [(0, 0, False), (5, 30, False), (0, 20, True), (0, 30, False)]
)
def test_a_load_has_the_file_written_if_records_of_an_epoch_left_could_follow(
    start_offset: int, end_offset: int, is_dirty: bool
) -> None:
    """Else the next load would give them to the epoch at 20, which is in the file."""
    chain = epochs((0, 0), (1, 10), (2, 20))
    chain.clip(start_offset, end_offset)
    assert chain.is_dirty is is_dirty
