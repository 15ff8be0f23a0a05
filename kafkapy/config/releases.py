"""The names of metadata.version's levels: 33 is 4.4-IV2. Source: MetadataVersion of Apache Kafka 4.4.0.

The levels that change what is done here have constants in kafkapy.metadata.features.
"""

from typing import Final

RELEASES: Final = {
    "3.3-IV3": 7, "3.4-IV0": 8, "3.5-IV0": 9, "3.5-IV1": 10, "3.5-IV2": 11, "3.6-IV0": 12, "3.6-IV1": 13,
    "3.6-IV2": 14, "3.7-IV0": 15, "3.7-IV1": 16, "3.7-IV2": 17, "3.7-IV3": 18, "3.7-IV4": 19, "3.8-IV0": 20,
    "3.9-IV0": 21, "4.0-IV0": 22, "4.0-IV1": 23, "4.0-IV2": 24, "4.0-IV3": 25, "4.1-IV0": 26, "4.1-IV1": 27,
    "4.2-IV0": 28, "4.2-IV1": 29, "4.3-IV0": 30, "4.4-IV0": 31, "4.4-IV1": 32, "4.4-IV2": 33,
}  # fmt: skip
"""Levels of metadata.version by name."""

IMITATED: Final = {
    "2.8": RELEASES["3.3-IV3"],
    "3.9": RELEASES["3.9-IV0"],
    "4.1": RELEASES["4.1-IV1"],
    "4.3": RELEASES["4.3-IV0"],
    "4.4": RELEASES["4.4-IV2"],
}
"""The level of a new directory, by the release that the broker imitates. 2.8 had no levels: it gets the oldest."""


def release_of(level: int) -> str | None:
    """Return the name of a level, None if this version does not know it."""
    return next((name for name, each in RELEASES.items() if each == level), None)
