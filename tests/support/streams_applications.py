"""Processes of Kafka Streams applications, which tests stop, kill and start again."""

import atexit
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from harness.servers import QUICK_JVM, java, temporary_in
from tools.kafka import JAVA_LIBS, STREAMS_LIBS


class Instance:
    """A process of a program, given as its source file, with a directory of its own for its state and its log."""

    def __init__(self, program: Path, directory: Path, *arguments: str, heap: str = "512m") -> None:
        directory.mkdir(exist_ok=True)
        options = [*QUICK_JVM, temporary_in(directory)]
        self._command = application_command(program, *arguments, options=options, heap=heap)
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


def application_command(program: Path, *arguments: str, options: list[str], heap: str = "512m") -> list[str]:
    """Return the command that runs a program of Kafka Streams.

    Kafka's own jars come first, as in the archive of classes that tests have JVMs map (harness/class_archive.py). With
    that and a program that is compiled, an application is RUNNING after 3.2 s of CPU instead of 4.9.
    """
    command = java(program.stem, *arguments, options=options, heap=heap, libs=[JAVA_LIBS, STREAMS_LIBS])
    where = command.index("-cp") + 1
    command[where] += f"{os.pathsep}{classes_of(program)}"
    return command


@cache
def classes_of(program: Path) -> Path:
    """Compile a program once; return the directory of its classes, which is removed when the tests are over."""
    directory = Path(tempfile.mkdtemp(prefix="kafkapy-streams-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    compiler = ["java", "--module", "jdk.compiler/com.sun.tools.javac.Main"]  # a JRE has no `javac`,
    class_path = os.pathsep.join(map(str, STREAMS_LIBS.glob("*.jar")))  # which expands no *
    subprocess.run([*compiler, "-cp", class_path, "-d", directory, program], check=True)
    return directory
