"""File descriptors that a file of tests leaves open: a worker runs hundreds of such files in one process."""

import gc
import os
import tempfile
from pathlib import Path

DIRECTORY = Path("/proc/self/fd")
"""Where the system has one: Linux."""

MAX_LEFT = 60
"""What a file may leave open: a fixture of the session may begin in it, such as a broker or a JVM with its pipes, and a
broker keeps the connections that it has muted for a quota until the time is over: 23 after test_mutation_rates.py."""

_RUNNING = f"{tempfile.gettempdir()}/kafkapy-"
"""What the data directories of embedded brokers begin with. They are deleted when a broker stops."""


class Descriptors:
    """Counts the descriptors of this process, but not the files of brokers that still run."""

    def __init__(self) -> None:
        self._count = len(opened())

    def left_open(self) -> list[str]:
        """Return all that is open if it is much more than at the last call, else nothing. Collects garbage first."""
        found = opened()
        if len(found) - self._count > MAX_LEFT:
            gc.collect()
            found = opened()
        count, self._count = self._count, len(found)
        return found if len(found) - count > MAX_LEFT else []


def opened() -> list[str]:
    """Return what each descriptor leads to, those opened last at the end."""
    if not DIRECTORY.is_dir():
        return []
    targets = (_target(number) for number in sorted(map(int, os.listdir(DIRECTORY))))
    return [each for each in targets if not each.startswith(_RUNNING) or each.endswith(" (deleted)")]


def _target(number: int) -> str:
    try:
        return os.readlink(DIRECTORY / str(number))
    except FileNotFoundError:  # the directory's own, which was read
        return "closed"
