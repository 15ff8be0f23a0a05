"""Produce requests to several partitions are served by the fast path as by their handler: as test_small_produces.py."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from tests.property.test_small_produces import CONFIGS, HOUR_MS, ODD, PLAIN, ProduceCase, of, serve
from tests.simulator.loop import run
from tests.support.copying import IS_SOAKED

PARTITIONS = 6
IN_ONE_BATCH = [each for each in ODD if each.flip is None and not each.tail]
"""What is unusual about a batch, beside which others are not."""
LARGE = [b"v" * 30_000, b"w" * 40_000]
"""Two of these batches and a few more are a frame that is not received in one piece."""


def wide(*cases: ProduceCase, **fields: Any) -> ProduceCase:
    """Return one request with these batches, each for a partition of its own, unless it is for one above 0."""
    placed = [replace(case, partition=case.partition or number) for number, case in enumerate(cases)]
    return replace(placed[0], beside=tuple(placed[1:]), **fields)


USUAL = wide(PLAIN, PLAIN, PLAIN)
WHOLE = [
    *(replace(USUAL, acks=acks) for acks in (-1, 0, 2)),
    *(replace(USUAL, version=version) for version in (12, 11, 10, 9, 8, 3)),
    *(replace(USUAL, client_id=client_id) for client_id in (None, "", "another", "\u00fc", "c" * 300)),
    *(replace(USUAL, flip=flip) for flip in range(320)),
    *(replace(USUAL, version=11, flip=flip) for flip in range(210, 300)),
    replace(USUAL, tail=b"\1"),
    wide(PLAIN, PLAIN, replace(PLAIN, partition=1), PLAIN),  # one is named twice
    wide(PLAIN, replace(PLAIN, partition=PARTITIONS), PLAIN),  # there is no such partition
    wide(*[replace(PLAIN, partition=number % PARTITIONS) for number in range(40)]),
    *(wide(of(*LARGE), of(*LARGE), *(count * [PLAIN])) for count in range(4)),
    *(wide(of(*LARGE), of(*LARGE), odd) for odd in IN_ONE_BATCH[20:50]),
    *(wide(of(*LARGE), of(*LARGE), of(*LARGE), of(*LARGE)) for _ in range(2)),
    wide(PLAIN, of(*[b""] * 4_097, age_ms=-2 * HOUR_MS), PLAIN),  # a worker names the records that are refused
    wide(*(replace(PLAIN, producer=(3, 0, 0)) for _ in range(4))),
    wide(*(replace(PLAIN, producer=(3, 0, gap)) for gap in (0, -1, 1, 0))),
    wide(*(replace(PLAIN, producer=(3, 1, 0)) for _ in range(4))),
]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_an_odd_batch_among_others_has_its_outcome_and_they_have_theirs(config: dict[str, str]) -> None:
    pieces = [[USUAL, USUAL], [wide(*([PLAIN] * PARTITIONS)), USUAL]]
    step = 7 if config else 1  # with each config a part of them, which takes a second; with none all
    for number, odd in enumerate(IN_ONE_BATCH[::step], start=100):
        usual = replace(PLAIN, producer=(number, 0, 0))
        pieces.append([wide(usual, odd, usual), wide(odd, usual), USUAL, wide(usual, usual, usual, odd)])
    pieces += [[USUAL, odd, odd, USUAL] for odd in WHOLE[::step]]
    together, alone = (run(lambda loop, way=way: serve(loop, config, pieces, way, PARTITIONS)) for way in (True, False))
    assert together == alone


@pytest.mark.parametrize("seed", range(6 if IS_SOAKED else 3))
def test_whatever_is_sent_to_several_partitions_has_the_outcome_of_the_handler(seed: int) -> None:
    random = Random(seed)
    usual = [
        PLAIN,
        PLAIN,
        of(b"1" * 700, b"2" * 700, b"3"),
        *(replace(PLAIN, producer=(number, 0, 0)) for number in (1, 2)),
    ]

    def request() -> ProduceCase:
        cases = [random.choice(usual if random.random() < 0.95 else IN_ONE_BATCH) for _ in range(random.randint(1, 5))]
        return wide(*cases, acks=random.choice((1, 1, -1)), version=random.choice((9, 11, 12, 13, 13, 13)))

    pieces = [[request() for _ in range(random.randint(1, 12))] for _ in range(60)]
    together, alone = (run(lambda loop, way=way: serve(loop, {}, pieces, way, PARTITIONS)) for way in (True, False))
    assert together == alone
