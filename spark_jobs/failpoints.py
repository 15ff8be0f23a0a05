"""Named places at which a test stops or kills a job, or an executor; without SPARK_JOBS_FAILPOINTS they do nothing.

The variable names a directory. A file PLACE in it arms a place. The first process that reaches the place renames the
file to PLACE.passed, and does what it says: "kill" itself with SIGKILL, "raise" an error, or "wait". To wait, it writes
its process id to PLACE.reached, and stays until there is a file PLACE.go.
"""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

DIRECTORY = "SPARK_JOBS_FAILPOINTS"


class Planted(Exception):
    """The error that an armed place raises."""


@dataclass(frozen=True, slots=True)
class Failpoints:
    """The armed places of a directory; those of the transactional sink's steps are called NAME-BATCH."""

    directory: str | None

    @classmethod
    def of_environment(cls) -> "Failpoints":
        return cls(os.environ.get(DIRECTORY))

    def __call__(self, name: str, batch_id: int) -> None:
        self.pass_by(f"{name}-{batch_id}")

    def pass_by(self, place: str) -> None:
        if self.directory is None:
            return
        passed = Path(self.directory, f"{place}.passed")
        try:
            os.rename(Path(self.directory, place), passed)
        except OSError:
            return
        what = passed.read_text()
        if what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "raise":
            raise Planted(place)
        unfinished = Path(self.directory, f"{place}.{os.getpid()}")
        unfinished.write_text(str(os.getpid()))
        unfinished.rename(Path(self.directory, f"{place}.reached"))
        while not Path(self.directory, f"{place}.go").exists():
            time.sleep(0.01)
