"""Hosts that pages of the documents name, on this machine: directories, whose nodes `ssh HOST systemctl ...` runs.

Two programs stand in for ssh and scp. kafka-N has the address 127.0.0.N, and /etc/kafkapy and /var/lib/kafkapy are
in its directory.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.support.eventually import eventually
from tests.support.pages import Reader

COUNT: Final = 4
START_S: Final = 60
STOP_S: Final = 60
PLACES: Final = {"/etc/kafkapy/": "", "/var/lib/kafkapy": "data"}
"""Directories of a host, and what they are relative to the host's own here."""
NODE: Final = "kafkapy"


def addresses() -> dict[str, str]:
    """Return what stands for the hosts' names where they have a port."""
    in_loops = {"//kafka-$n:": "//127.0.0.$n:", "kafka-$n:9092": "127.0.0.$n:9092"}
    return {**{f"kafka-{number}:": f"127.0.0.{number}:" for number in range(1, COUNT + 1)}, **in_loops}


def equip(reader: Reader, directory: Path) -> "Hosts":
    """Make ssh and scp programs of a reader's blocks, and `kafkapy` one that is told its servers by the page."""
    hosts = Hosts(directory)
    for program in ("ssh", "scp"):
        reader.write_program(program, f'exec {sys.executable} -m tests.support.hosts {directory} {program} "$@"')
    reader.write_program("kafkapy", f'exec {sys.executable} -m kafkapy "$@"')
    return hosts


class Hosts:
    """The hosts below a directory; each process of a node has its id in a file there."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        for number in range(1, COUNT + 1):
            (directory / f"kafka-{number}").mkdir(parents=True, exist_ok=True)

    def ssh(self, host: str, words: Sequence[str]) -> int:
        """Run a command on a host; return its status."""
        directory = self._directory / host
        if words[0] == "systemctl":
            return self._systemctl(directory, words[1:])
        return subprocess.run(list(words), cwd=directory, check=False).returncode

    def scp(self, file: str, target: str) -> int:
        """Copy a file to HOST:PATH."""
        address, _, path = target.partition(":")
        hosts = {each.rstrip(":"): name.rstrip(":") for name, each in addresses().items()}
        shutil.copy(file, self._directory / hosts.get(address, address) / path)
        return 0

    def _systemctl(self, directory: Path, words: Sequence[str]) -> int:
        options = [word for word in words if word.startswith("--")]
        verb, unit = (word for word in words if not word.startswith("--"))
        assert unit == NODE, words
        if verb == "kill":
            assert options == ["--signal=KILL"]
            self._end(directory, signal.SIGKILL)
        if verb in ("stop", "restart"):
            self._end(directory, signal.SIGTERM)
        if verb in ("start", "restart"):
            self._start(directory)
            if "--no-block" not in options:
                wait_until_ready(directory)
        return 0

    @staticmethod
    def _start(directory: Path) -> None:
        if (directory / "pid").exists():
            return
        with (directory / "log").open("w") as log:
            command = [sys.executable, "-m", "kafkapy", "start", "server.properties"]
            process = subprocess.Popen(
                command, cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        (directory / "pid").write_text(str(process.pid))

    @staticmethod
    def _end(directory: Path, with_signal: signal.Signals) -> None:
        pid = int((directory / "pid").read_text())
        os.kill(pid, with_signal)
        eventually(lambda: not runs(pid), STOP_S, what=f"the end of {directory.name}")
        (directory / "pid").unlink()

    def kill_all(self) -> None:
        for path in self._directory.glob("*/pid"):
            with contextlib.suppress(ProcessLookupError):  # it has ended
                self._end(path.parent, signal.SIGKILL)


def wait_until_ready(directory: Path) -> None:
    eventually(lambda: "kafkapy ready on" in (directory / "log").read_text(), START_S, what=f"a ready {directory.name}")


def runs(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        state = re.split(r"\) ", Path(f"/proc/{pid}/stat").read_text())[-1][0]
    except OSError:
        return False
    return state != "Z"


def main(arguments: Sequence[str]) -> int:
    """Run `ssh HOST COMMAND...` or `scp FILE HOST:PATH` for the hosts below a directory, which comes first."""
    directory, program, *words = arguments
    hosts = Hosts(Path(directory))
    return hosts.ssh(words[0], words[1:]) if program == "ssh" else hosts.scp(*words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
