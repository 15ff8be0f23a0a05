"""The cache of open files: what an opening costs once all places are taken."""

import time
from typing import Any, cast

from kafkapy.storage.segment.open_files import CutFile, FileHandle, OpenFiles

FEW, MANY = 1_000, 16_000


class EmptyFiles:
    """A disk on which every file is there and empty, so that opening one costs nothing."""

    def open(self, path: str, *, create: bool = False) -> CutFile:
        return CutFile(path)


def cpu_of_one_more(file_count: int) -> float:
    """Return the CPU seconds of opening a file while so many are open, as many as may be, and all were used."""
    files = OpenFiles(cast(Any, EmptyFiles()), capacity=file_count)
    for number in range(file_count):
        FileHandle(files, f"/logs/{number}").create()
    last = FileHandle(files, "/logs/last")
    start = time.thread_time()
    last.create()
    taken = time.thread_time() - start
    assert len(files) == file_count
    return taken


def test_one_more_file_costs_at_most_a_look_at_each_that_is_open() -> None:
    least = min(cpu_of_one_more(FEW) for _ in range(5))
    most = min(cpu_of_one_more(MANY) for _ in range(2))
    assert most < 4 * (MANY / FEW) * least, f"{least:.6f} s with {FEW} open files, {most:.6f} s with {MANY}"
