"""Processes of Kafka Streams applications, which tests stop, kill and start again."""

import subprocess
from pathlib import Path

from harness.servers import QUICK_JVM, java, temporary_in
from tools.kafka import STREAMS_LIBS


class Instance:
    """A process of a program, given as its source file, with a directory of its own for its state and its log."""

    def __init__(self, program: Path, directory: Path, *arguments: str, heap: str = "512m") -> None:
        directory.mkdir(exist_ok=True)
        options = [*QUICK_JVM, temporary_in(directory)]
        self._command = java(str(program), *arguments, options=options, heap=heap, libs=[STREAMS_LIBS])
        self._log = directory / "log"
        self.start()

    def start(self) -> None:
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def stop(self) -> None:
        """End it as an operator does."""
        self._process.terminate()
        self._process.wait()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    close = kill

    def printed(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]
