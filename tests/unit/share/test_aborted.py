"""Acquired records: without those of some batches, as of aborted transactions, and with neighbours as one."""

import pytest

from kafkapy.share.aborted import without
from kafkapy.share.acquisition import joined
from kafkapy.share.fetched import AcquiredRecords, FetchedBatch

Parts = list[tuple[int, int, int]]


@pytest.mark.parametrize(
    ("acquired", "batches", "expected"),
    [
        (
            [(1, 5, 1), (10, 15, 2), (20, 25, 1)],
            [(2, 4), (12, 14)],
            [(1, 1, 1), (5, 5, 1), (10, 11, 2), (15, 15, 2), (20, 25, 1)],
        ),
        (
            [(1, 4, 3), (5, 8, 3), (9, 30, 2), (31, 40, 3)],
            [(5, 25), (31, 35)],
            [(1, 4, 3), (26, 30, 2), (36, 40, 3)],
        ),
        ([(1, 4, 3), (5, 8, 3)], [], [(1, 4, 3), (5, 8, 3)]),
        ([(0, 19, 1)], [(8, 8), (18, 18)], [(0, 7, 1), (9, 17, 1), (19, 19, 1)]),
    ],
)
def test_batches_are_taken_out_of_acquired_records(
    acquired: Parts, batches: list[tuple[int, int]], expected: Parts
) -> None:
    left = without([AcquiredRecords(*part) for part in acquired], [FetchedBatch(*each) for each in batches])
    assert [tuple(part) for part in left] == expected


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([], []),
        ([(5, 5, 4)], [(5, 5, 4)]),
        ([(0, 0, 1), (1, 1, 1), (2, 2, 2), (4, 4, 2), (5, 5, 2)], [(0, 1, 1), (2, 2, 2), (4, 5, 2)]),
        ([(number, number, 1) for number in range(5)], [(0, 4, 1)]),
        (
            [(0, 3, 1), (4, 4, 1), (5, 8, 2), (10, 15, 2), (16, 20, 2)],
            [(0, 4, 1), (5, 8, 2), (10, 20, 2)],
        ),
        ([(0, 0, 1), (2, 2, 1), (4, 4, 1)], [(0, 0, 1), (2, 2, 1), (4, 4, 1)]),
        ([(0, 0, 1), (1, 1, 2), (2, 2, 3)], [(0, 0, 1), (1, 1, 2), (2, 2, 3)]),
    ],
)
def test_neighbours_that_were_delivered_as_often_are_one(parts: Parts, expected: Parts) -> None:
    assert [tuple(part) for part in joined([AcquiredRecords(*part) for part in parts])] == expected
