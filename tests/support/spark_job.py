"""A Spark job as a process of its own, which is killed with its JVM at places of spark_jobs/failpoints.py.

Each process costs a JVM: the test then runs the job to its end in the session that all tests share. Of two drivers one
waits at a place (standing_at), while the test is the other.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest
import yaml

from harness.servers import QUICK_JVM
from spark_jobs.failpoints import DIRECTORY
from tests.support.eventually import eventually

ROOT = Path(__file__).parents[2]
needs_spark4 = pytest.mark.skipif(pyspark.__version__.startswith("3."), reason="tables, and state with timers: Spark 4")
QUICK_OPTIONS = {"spark": {"spark.driver.extraJavaOptions": " ".join(QUICK_JVM)}, "master": "local[2]"}


def kill_at(places: tuple[str, ...], job: str, config: Mapping[str, Any], path: Path) -> None:
    """Start a job once for each of the places, and kill it there with -9."""
    failpoints, file = path / "failpoints", path / f"{job}.yaml"
    failpoints.mkdir(exist_ok=True)
    file.write_text(yaml.safe_dump({**config, **QUICK_OPTIONS}))
    for place in places:
        (failpoints / place).write_text("wait")
        process = _start(job, file, failpoints)
        _wait(process, failpoints / f"{place}.reached")
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, _log(file)


class Standing:
    """A job's process that waits at a place, while others act."""

    def __init__(self, process: subprocess.Popen[bytes], config: Path, go: Path) -> None:
        self._process, self._config, self._go = process, config, go

    def go_on(self) -> tuple[int, str]:
        """Let it go on to its end; return its exit status, and its last line."""
        self._go.touch()
        return self._process.wait(400), self._config.with_suffix(".log").read_text().splitlines()[-1]


@contextmanager
def standing_at(place: str, job: str, config: Mapping[str, Any], path: Path) -> Iterator[Standing]:
    """Start a job, and yield it once it waits at the place."""
    failpoints, file = path / "failpoints", path / f"{job}.yaml"
    failpoints.mkdir(exist_ok=True)
    file.write_text(yaml.safe_dump({**config, **QUICK_OPTIONS}))
    (failpoints / place).write_text("wait")
    process = _start(job, file, failpoints)
    try:
        _wait(process, failpoints / f"{place}.reached")
        assert process.poll() is None, _log(file)
        yield Standing(process, file, failpoints / f"{place}.go")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait(process: subprocess.Popen[bytes], reached: Path) -> None:
    eventually(lambda: reached.exists() or process.poll() is not None, 400)


def _start(job: str, config: Path, failpoints: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "spark_jobs", job, "--config", str(config)]
    environment = {**os.environ, DIRECTORY: str(failpoints)}
    with open(config.with_suffix(".log"), "ab") as log:
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True)


def _log(config: Path) -> str:
    return config.with_suffix(".log").read_text()[-2_000:]
