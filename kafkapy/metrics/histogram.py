"""Histograms with logarithmic buckets: a value is counted by one increment of a list.

A value below 16 has a bucket of its own. Above, each power of two is divided into eight buckets, so that a quantile is
off by at most 6.25 %. Values: integers >= 0, for example microseconds or bytes.

    counts = new_histogram()
    counts[SMALL[value] if value < SMALL_VALUES else bucket_of(value)] += 1

Deviation: Apache Kafka's histograms are random samples in which old values decay. Here they count every value, and
quantiles are those of the last minutes (kafkapy/server/admin/windows.py), because no outlier is then missed.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

Histogram: TypeAlias = "list[int]"

LAST_BUCKET: Final = 8 * 60
"""Values up to 2**63 have a bucket."""
SMALL_VALUES: Final = 4096


def bucket_of(value: int) -> int:
    """Return the index of a value's bucket."""
    if value < 16:
        return value if value > 0 else 0
    shift = value.bit_length() - 4
    return min((shift << 3) + (value >> shift), LAST_BUCKET)


SMALL: Final = bytes(range(16)) + b"".join(
    bytes([bucket]) * (1 << (bucket >> 3) - 1) for bucket in range(16, bucket_of(SMALL_VALUES))
)
"""The buckets of small values, by value. Made by buckets, not by values: every start imports it."""


def new_histogram() -> Histogram:
    return [0] * (LAST_BUCKET + 1)


def middle_of(bucket: int) -> float:
    """Return the middle of a bucket's values."""
    if bucket < 16:
        return bucket
    shift = (bucket >> 3) - 1
    lowest = (8 + (bucket & 7)) << shift
    return lowest + ((1 << shift) - 1) / 2


def quantiles(counts: Sequence[int], wanted: Sequence[float]) -> list[float]:
    """Return the values at ascending quantiles (0 < q <= 1); zeros if nothing was counted."""
    total = sum(counts)
    if not total:
        return [0.0] * len(wanted)
    found: list[float] = []
    reached = 0
    for bucket, count in enumerate(counts):
        if count:
            reached += count
            while len(found) < len(wanted) and reached >= wanted[len(found)] * total:
                found.append(middle_of(bucket))
            if len(found) == len(wanted):
                break
    return found
