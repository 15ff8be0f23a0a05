"""Crash enumeration: a script runs once, and the machine stops in place of each change that it made to its disk.

    recorder = Recorder(disk, promise=lambda: script.promise())
    script.run()
    for crash in crashes(recorder.moments):
        ...                                     # recover from crash.disk; hold what is found to crash.promise

A moment is a copy of the disk (page cache, platter, what was under way) and of what had been promised until then.
`Outcomes` counts what recovery found, and prints a table: a row for what was under way, a column for what disks keep.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.simulator.disk import CHANGES, Keep, SimDisk

KEEPS: tuple[Keep, ...] = ("all", "none", "torn", "reordered")
SOAK_FACTOR = int(os.environ.get("KAFKAPY_SOAK_SEEDS", "1"))
"""How many times as many seeds as in CI; `make soak` sets it, for every simulation of the project."""


@dataclass(slots=True)
class Moment:
    """The machine is about to make a change: `operation` on `path`, within the script's step `doing`."""

    number: int
    doing: str
    operation: str
    path: str
    disk: SimDisk
    promise: Any

    def __str__(self) -> str:
        return f"moment {self.number}: {self.operation} {self.path} while {self.doing}"


class Recorder:
    """Watches a disk and keeps a Moment before each of its changes. `doing` is the script's to set."""

    def __init__(self, disk: SimDisk, promise: Callable[[], Any]) -> None:
        self.moments: list[Moment] = []
        self.doing = "starting"
        self._disk = disk
        self._promise = promise
        disk.hook = self._before

    def _before(self, operation: str, path: str) -> None:
        if operation in CHANGES:
            number = len(self.moments)
            disk = self._disk.fork(number)
            self.moments.append(Moment(number, self.doing, operation, path, disk, self._promise()))

    def finish(self) -> list[Moment]:
        """End with the moment behind the last change; return all."""
        self._before(CHANGES[0], "nothing")
        self._disk.hook = None
        return self.moments


@dataclass(slots=True)
class Crash:
    """The power is back: `disk` is what was kept of a moment's disk."""

    moment: Moment
    keep: Keep
    disk: SimDisk

    @property
    def promise(self) -> Any:
        return self.moment.promise

    def __str__(self) -> str:
        return f"{self.keep} kept at {self.moment}"


def crashes(moments: Iterable[Moment], keeps: Iterable[Keep] = KEEPS, *, stride: int = 1) -> Iterator[Crash]:
    """Yield every moment under every idea of what a disk keeps; with a stride, every so many, each keep shifted."""
    for shift, keep in enumerate(keeps):
        for moment in moments:
            if (moment.number + shift) % stride == 0:
                disk = moment.disk.fork(moment.number * len(KEEPS) + shift)
                disk.crash(keep)
                yield Crash(moment, keep, disk)


class Outcomes:
    """What recoveries found, counted."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, Keep, str]] = Counter()
        self.recoveries = 0

    def add(self, crash: Crash, outcome: str) -> None:
        self.recoveries += 1
        self._counts[crash.moment.doing, crash.keep, outcome] += 1

    def count(self, outcome: str) -> int:
        return sum(count for (_, _, name), count in self._counts.items() if name == outcome)

    def table(self, outcomes: tuple[str, ...]) -> str:
        """Return the counts of these outcomes, separated by slashes, by what was under way and what disks keep."""
        lines = [f"{'crash while':<16}" + "".join(f"{keep:>20}" for keep in KEEPS)]
        rows = sorted({doing for doing, _, _ in self._counts})
        for doing in [*rows, "all of them"]:
            cells = ["/".join(str(self._cell(doing, keep, each)) for each in outcomes) for keep in KEEPS]
            lines.append(f"{doing:<16}" + "".join(f"{cell:>20}" for cell in cells))
        return "\n".join([f"{self.recoveries} recoveries; " + " / ".join(outcomes), *lines])

    def _cell(self, doing: str, keep: Keep, outcome: str) -> int:
        if doing != "all of them":
            return self._counts[doing, keep, outcome]
        return sum(count for (_, kept, name), count in self._counts.items() if (kept, name) == (keep, outcome))
