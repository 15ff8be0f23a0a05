"""The system's clock and randomness."""

import os
import time
from typing import Final

from kafkapy.types import Uuid, uuid_to_string

CLOCK_OFFSET: Final = "KAFKAPY_CLOCK_OFFSET_MS"
"""Environment variable for tests of clocks that differ: milliseconds that a node's wall clock is ahead."""


class SystemClock:
    """A seams.Clock on the system's clocks."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()


class ShiftedClock(SystemClock):
    """A system clock whose wall clock is some milliseconds ahead, or behind."""

    def __init__(self, offset_ms: int) -> None:
        self._offset_ms = offset_ms

    def wall_ms(self) -> int:
        return super().wall_ms() + self._offset_ms


def clock_of_environment() -> SystemClock:
    """Return the system's clock, shifted if KAFKAPY_CLOCK_OFFSET_MS is set."""
    offset_ms = int(os.environ.get(CLOCK_OFFSET, "0"))
    return ShiftedClock(offset_ms) if offset_ms else SystemClock()


class SystemRandom:
    """A seams.Random on the system's entropy."""

    def uuid(self) -> Uuid:
        while True:
            raw = bytearray(os.urandom(16))
            raw[6] = raw[6] & 0x0F | 0x40
            raw[8] = raw[8] & 0x3F | 0x80
            uuid = bytes(raw)
            if not uuid_to_string(uuid).startswith("-"):
                return uuid

    def randrange(self, start: int, stop: int) -> int:
        """Return a number of [start, stop). None is likelier than another by more than 2**-64 of its chance."""
        span = stop - start
        assert span > 0, "an empty range"
        return start + int.from_bytes(os.urandom(span.bit_length() // 8 + 9)) % span
