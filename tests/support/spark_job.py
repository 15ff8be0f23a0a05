"""A Spark job as a process of its own, which is killed with its JVM at places of spark_jobs/failpoints.py."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from harness.servers import QUICK_JVM
from spark_jobs.failpoints import DIRECTORY
from tests.support.eventually import eventually

ROOT = Path(__file__).parents[2]


class SparkJob:
    """`python -m spark_jobs NAME` over what is there, again and again."""

    def __init__(self, name: str, config: Mapping[str, Any], directory: Path) -> None:
        self.name = name
        self.config, self.failpoints = directory / f"{name}.yaml", directory / "failpoints"
        self.failpoints.mkdir()
        self.config.write_text(yaml.safe_dump(dict(config)))

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        command = [sys.executable, "-m", "spark_jobs", self.name, "--config", str(self.config)]
        environment = {**os.environ, DIRECTORY: str(self.failpoints), "PYTHONPATH": str(ROOT)}
        with (
            open(self.config.with_suffix(".log"), "ab") as log,
            subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True) as job,
        ):
            try:
                yield job
            finally:
                if job.poll() is None:
                    os.killpg(job.pid, signal.SIGKILL)

    def arm(self, place: str) -> None:
        (self.failpoints / place).write_text("wait")

    def release(self, place: str) -> None:
        (self.failpoints / f"{place}.go").touch()

    def wait_for(self, place: str, process: subprocess.Popen[bytes]) -> int:
        """Return the process that stands at the place."""
        assert self.is_reached(place, process), self.log()
        return int((self.failpoints / f"{place}.reached").read_text())

    def is_reached(self, place: str, process: subprocess.Popen[bytes]) -> bool:
        """Wait until a process stands at the place, or the job has ended."""
        reached = self.failpoints / f"{place}.reached"
        eventually(lambda: reached.exists() or process.poll() is not None, 400)
        return reached.exists()

    def kill_at(self, place: str) -> None:
        """Run it up to the place; kill the driver and its JVM there with -9."""
        self.arm(place)
        with self.running() as process:
            self.wait_for(place, process)
            os.killpg(process.pid, signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL
        self.release(place)  # a worker has a process group of its own: what stands there goes on as a zombie

    def log(self) -> str:
        return self.config.with_suffix(".log").read_text()[-2_000:]


def run_with_kills(name: str, config: Mapping[str, Any], directory: Path, places: tuple[str, ...]) -> None:
    """Run a job, killed with -9 at each place in turn, and then to its end."""
    options = {"spark": {"spark.driver.extraJavaOptions": " ".join(QUICK_JVM)}, "master": "local[2]"}
    job = SparkJob(name, {**config, **options}, directory)
    for place in places:
        job.kill_at(place)
    with job.running() as process:
        assert process.wait(400) == 0, job.log()
