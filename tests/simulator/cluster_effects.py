"""Which faults of disks took effect in the seeds of a test file, and in how many of them they have to.

A fault that nothing meets proves nothing: a disk that is full for a second in which nothing is written, a loss of power
before anything was written. So the tests count what operations met; the last test of a file judges the counts of all.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

FAILED_OPERATIONS: Final = ("write", "sync", "read", "rename")
MIN_SHARES: Final[Mapping[str, float]] = {"full": 0.04, "failed": 0.12, "forgotten records": 0.06}
"""In so many of the seeds a write finds a disk full, an operation fails, a crash takes what was not synced."""
MIN_SHARE_OF_OPERATION: Final = 0.015
"""Of each of FAILED_OPERATIONS, where there are many seeds."""


class EffectsOfSeeds:
    """What the seeds of a test file have had, so far."""

    def __init__(self) -> None:
        self._of: dict[int, set[str]] = {}

    def note(self, seed: int, effects: Counter[str]) -> None:
        kinds = {kind for kind, count in effects.items() if count}
        self._of[seed] = kinds | ({"failed"} if kinds & set(FAILED_OPERATIONS) else set())

    def __len__(self) -> int:
        return len(self._of)

    def share(self, kind: str) -> float:
        """Return in which share of the seeds a kind of fault took effect."""
        return sum(kind in kinds for kinds in self._of.values()) / len(self._of)

    def check(self, min_shares: Mapping[str, float] = MIN_SHARES) -> None:
        """Raise AssertionError if a kind of fault took effect too seldom."""
        shares = {kind: self.share(kind) for kind in min_shares}
        print(f"faults took effect, in {len(self)} seeds: {shares}")
        for kind, share in shares.items():
            assert share >= min_shares[kind], f"{kind}: in {share:.1%} of the seeds, not {min_shares[kind]:.1%}"
