""".ci/run with a `make` that only says what it was given: the exit status, and what an interrupt leaves running."""

import os
import select
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

CI_RUN = Path(__file__).parents[3] / ".ci" / "run"
TIMEOUT_S = 60
BESIDE = "-k check ci-compiled ci-pythons JOBS=2"
FIRST = "-j3 setup tools spark-jars"


def launch(directory: Path, make: str) -> tuple[subprocess.Popen[str], int]:
    """Start .ci/run in a session of its own; return also a pipe that ends with the last of its processes."""
    (directory / ".ci").mkdir()
    shutil.copy(CI_RUN, directory / ".ci" / "run")
    program = directory / "make"
    program.write_text(f"#!/bin/sh\necho make $*\n{make}\n")
    program.chmod(0o700)
    temporary = directory / "tmp"
    temporary.mkdir()
    environment = {**os.environ, "PATH": f"{directory}:{os.environ['PATH']}", "TMPDIR": str(temporary)}
    ended, held = os.pipe()
    process = subprocess.Popen(
        [directory / ".ci" / "run"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=[held],
        start_new_session=True,
    )
    os.close(held)
    return process, ended


@pytest.mark.parametrize(
    ("failing", "is_failed"),
    [
        ([], False),
        ([FIRST], True),
        (["test-all"], False),  # what failed passes alone
        (["test-all", "test-again"], True),
        ([BESIDE], True),
        (["test-all", BESIDE], True),
    ],
)
def test_each_part_that_fails_fails_the_run(tmp_path: Path, failing: list[str], is_failed: bool) -> None:
    process, ended = launch(tmp_path, "\n".join(f'[ "$*" != "{each}" ] || exit 1' for each in failing))
    output, _ = process.communicate(timeout=TIMEOUT_S)
    os.close(ended)
    assert (process.returncode != 0) == is_failed, output
    assert (f"make {BESIDE}" in output) == (FIRST not in failing), "what the job printed is shown, failed or not"
    assert ("make test-again\n" in output) == ("test-all" in failing)
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing_running(tmp_path: Path, number: signal.Signals) -> None:
    os.mkfifo(tmp_path / "begun")
    meeting = (
        f'case "$*" in *ci-compiled*) : >{tmp_path}/begun;; test-all) : <{tmp_path}/begun; echo waits;; *) exit;; esac'
    )
    process, ended = launch(tmp_path, f"{meeting}\nexec sleep 600")
    assert process.stdout is not None
    while process.stdout.readline() != "waits\n":
        assert process.poll() is None
    os.killpg(process.pid, number)
    ends = select.poll()  # select() takes no descriptor above 1023, and a worker of the tests may hold more
    ends.register(ended)
    assert ends.poll(TIMEOUT_S * 1000), "a process still runs"
    assert process.wait(TIMEOUT_S) != 0
    assert list((tmp_path / "tmp").iterdir()) == []
    process.stdout.close()
    os.close(ended)
