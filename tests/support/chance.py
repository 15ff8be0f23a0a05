"""Random numbers for tests: kafkapy.seams.Random from a seed."""

import random


class SeededRandom:
    """The same numbers on every run."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def uuid(self) -> bytes:
        return self._random.randbytes(16)

    def randrange(self, start: int, stop: int) -> int:
        return self._random.randrange(start, stop)
