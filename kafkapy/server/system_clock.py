"""The system's clock and randomness."""

import os
import random
import time

from kafkapy.types import Uuid, uuid_to_string


class SystemClock:
    """A seams.Clock on the system's clocks."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()


class SystemRandom:
    """A seams.Random on the system's entropy."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def uuid(self) -> Uuid:
        while True:
            raw = bytearray(os.urandom(16))
            raw[6] = raw[6] & 0x0F | 0x40
            raw[8] = raw[8] & 0x3F | 0x80
            uuid = bytes(raw)
            if not uuid_to_string(uuid).startswith("-"):
                return uuid

    def randrange(self, start: int, stop: int) -> int:
        return self._random.randrange(start, stop)
