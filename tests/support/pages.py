"""Runs a page of the documents as a reader would: its blocks in their order, in an empty directory.

The words after ``` say what a block is:

    sh               a shell script, which must end with status 0 (`sh status=1`: with that one)
    sh background    started, and left running until the end of the page; the next block runs once it has printed
                     "ready on " (`background=words`: those words)
    sh unrun         not run: it needs root, a container engine or a network
    python           a program; with a first line `# NAME.py` a file of that name instead
    others           a file if their first line is `# NAME.EXTENSION`, else an example to be looked at

Ports of the pages are free ones here.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from harness.servers import free_port

ROOT: Final = Path(__file__).parents[2]
DOCUMENTS: Final = sorted(
    path
    for folder in (".", "docs", "docs/howto", "benchmarks", "spark_jobs", "docker")
    for path in (ROOT / folder).glob("*.md")
)
"""All that is written for people."""

FENCE: Final = re.compile(r"^```(?P<language>\w+)(?: (?P<words>[^\n]*))?\n(?P<text>.*?)^```$", re.M | re.S)
FILE: Final = re.compile(r"# (?P<name>[\w-]+\.\w+)\n")
PORTS: Final = ("9092", "9093", "9404", "7077", "8081")
WITH_SERVER: Final = ("topics", "groups", "produce", "consume", "transactions")
TIMEOUT_S: Final = 300
STOP_S: Final = 120


class Block(NamedTuple):
    language: str
    words: str
    text: str

    @property
    def file_name(self) -> str | None:
        """The name of the file that the block is, None if it is none."""
        found = FILE.match(self.text)
        return found["name"] if found is not None and self.language != "sh" else None

    @property
    def is_run(self) -> bool:
        return self.language in ("sh", "python") and self.words != "unrun"

    @property
    def awaited(self) -> str | None:
        """What a background block prints when it is ready, None for others."""
        if not self.words.startswith("background"):
            return None
        return self.words.partition("=")[2] or "ready on "

    @property
    def status(self) -> int:
        """The status with which it must end."""
        return int(self.words.partition("=")[2]) if self.words.startswith("status=") else 0


def blocks(text: str) -> list[Block]:
    return [Block(each["language"], each["words"] or "", each["text"]) for each in FENCE.finditer(text)]


class Reader:
    """A directory in which blocks are run; a context manager that ends what runs in the background."""

    def __init__(
        self, directory: Path, programs: Path, replaced: Mapping[str, str] | None = None, timeout_s: float = TIMEOUT_S
    ) -> None:
        """`directory`: empty. `programs`: where kafkapy and python are put. `replaced`: other texts for some.

        `timeout_s`: how long a block may take.
        """
        self._directory = directory
        self._programs = programs
        self._timeout_s = timeout_s
        self.ports = {port: str(free_port()) for port in PORTS}
        self._replaced = dict(replaced or {})
        self._background: list[subprocess.Popen[str]] = []
        self._readers: list[threading.Thread] = []
        self._write_programs()

    def run(self, block: Block) -> str:
        """Run a block, or write it to its file; return what it printed."""
        text = self._of_this_machine(block.text)
        if block.file_name is not None:
            (self._directory / block.file_name).write_text(text)
            return ""
        if not block.is_run:
            return ""
        if block.awaited is not None:
            self._start(text, block.awaited)
            return ""
        command = ["bash", "-euo", "pipefail", "-c", text] if block.language == "sh" else [sys.executable, "-c", text]
        with self._launch(command, errors_to=subprocess.PIPE) as process:
            try:
                printed, errors = process.communicate(timeout=self._timeout_s)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)  # with all that it has started
                raise
        assert process.returncode == block.status, f"{text}\n{printed}\n{errors}"
        return printed

    def replace(self, said: str, meant: str) -> None:
        """Have the blocks that follow say something else."""
        self._replaced[said] = meant

    def write_program(self, name: str, text: str) -> None:
        """Make a shell script a program that blocks find by its name."""
        path = self._programs / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o700)

    @property
    def background(self) -> "subprocess.Popen[str]":
        """What the last background block started."""
        return self._background[-1]

    def _launch(self, command: Sequence[str], errors_to: int) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            command,
            cwd=self._directory,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors_to,
            text=True,
            start_new_session=True,
        )

    def _of_this_machine(self, text: str) -> str:
        for said, meant in self._replaced.items():
            text = text.replace(said, meant)
        return re.sub(r"(?<=[ :])(?:" + "|".join(PORTS) + r")\b", lambda found: self.ports[found[0]], text)

    def _environment(self) -> dict[str, str]:
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
            "PATH": os.pathsep.join((str(self._programs), str(Path(sys.executable).parent), os.environ["PATH"])),
            "PYTHONPATH": str(ROOT),
            "XDG_CONFIG_HOME": str(self._directory / ".config"),
            "XDG_STATE_HOME": str(self._directory / ".state"),
        }

    def _write_programs(self) -> None:
        """Make `kafkapy` this checkout's, with the port that stands for 9092 where none is named."""
        python, port = shlex.quote(sys.executable), self.ports["9092"]
        self.write_program("python", f'exec {python} "$@"')
        self.write_program("pip", "exit 0  # what is needed is there")
        clients = "|".join(f"{command}\\ *" for command in WITH_SERVER)
        self.write_program(
            "kafkapy",
            f'run="exec {python} -m kafkapy"\n'
            f'case " $* " in *" --profile "*) $run "$@";; esac\n'
            f'case "$1 $2" in\n'
            f'  {clients}) $run "$@" -b 127.0.0.1:{port};;\n'
            f'  start\\ --*) $run "$@" --port {port};;\n'
            f'  *) $run "$@";;\n'
            f"esac",
        )

    def _start(self, text: str, awaited: str) -> None:
        process = self._launch(["bash", "-c", f"exec {text}"], errors_to=subprocess.STDOUT)
        self._background.append(process)
        assert process.stdout is not None
        printed = []
        for line in process.stdout:
            printed.append(line)
            if awaited in line:
                break
        else:
            raise AssertionError(f"{text}\nended before it said {awaited}:\n{''.join(printed)}")
        reader = threading.Thread(target=process.stdout.read)  # else its pipe would be full one day
        reader.start()
        self._readers.append(reader)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self._background):
            _end(process)
        for reader in self._readers:
            reader.join()
        for process in self._background:
            assert process.stdout is not None
            process.stdout.close()


def _end(process: "subprocess.Popen[str]") -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def new_reader(tmp_path: Path, replaced: Mapping[str, str] | None = None, timeout_s: float = TIMEOUT_S) -> Reader:
    """Return a reader in an empty directory, `tmp_path / "directory"`."""
    directory, programs = tmp_path / "directory", tmp_path / "programs"
    directory.mkdir()
    programs.mkdir()
    return Reader(directory, programs, replaced, timeout_s)


def read(
    page: Path, tmp_path: Path, replaced: Mapping[str, str] | None = None, timeout_s: float = TIMEOUT_S
) -> Sequence[str]:
    """Run all blocks of a page in an empty directory; return what each printed."""
    with new_reader(tmp_path, replaced, timeout_s) as reader:
        return [reader.run(block) for block in blocks(page.read_text())]
