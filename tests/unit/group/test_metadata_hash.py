"""The hash of subscribed topics, XXH3 with seed 0, against values of hash4j, with which Apache Kafka hashes."""

import pytest

from kafkapy.group.metadata_hash import hash_of

HASHES = {
    0: 3244421341483603138,
    1: 5502495245947142431,
    3: 1582743943441612892,
    4: -2549016526957988167,
    8: -2394039629164210130,
    9: -3754995788605292611,
    16: 9099606716676871632,
    17: 2345212530088924167,
    64: -2508381663727503547,
    128: -492175581222641016,
    129: -506823097681485574,
    200: 1368452603177808973,
    240: -3690920546649497853,
    241: 809349449570470400,
    256: -1403514104434996620,
    512: -1170120971253711958,
    1023: -1093476622474739461,
    1024: 2575082683865311686,
    1025: -4566685497618039422,
    1088: -6815162950983329211,
    2048: 1870957339171033971,
    5000: 6169931020318013678,
}
"""By length; byte i of each input is (31 i + 7) mod 256."""


@pytest.mark.parametrize("length", HASHES)
def test_hash_is_that_of_hash4j(length: int) -> None:
    data = bytes((index * 31 + 7) & 0xFF for index in range(length))

    assert hash_of(data) == HASHES[length]
