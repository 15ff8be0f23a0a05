"""Java programs that the recorders run over Apache Kafka's jars: a text, or a class in a package of Kafka's."""

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tools.kafka import JAVA_LIBS, fetch_logging_libs

NO_LOG: Final = '<Configuration><Loggers><Root level="OFF"/></Loggers></Configuration>'
"""Log4j's configuration for programs whose standard output is the recording."""


@contextmanager
def java_command(program: str | Path, *, libs: Path = JAVA_LIBS, log4j: str | None = None) -> Iterator[list[str]]:
    """Yield the command that runs a program, for as long as its files are there.

    program: the text of a source without a package, or the file of a class that needs Kafka's package-private names.
    log4j: its configuration; without one Kafka's classes find no logger.
    """
    with tempfile.TemporaryDirectory(prefix="kafkapy-java-") as name:
        directory = Path(name)
        options, path = [], [str(directory), f"{libs}/*"]
        if log4j is not None:
            (directory / "log4j2.xml").write_text(log4j, encoding="utf-8")
            options.append(f"-Dlog4j2.configurationFile={directory / 'log4j2.xml'}")
            path.append(f"{fetch_logging_libs()}/*")
        class_path = os.pathsep.join(path)
        if isinstance(program, str):
            source = directory / "Program.java"
            source.write_text(program, encoding="utf-8")
            main = str(source)
        else:
            compiling = ["javac", "-nowarn", "-cp", class_path, "-d", str(directory), str(program)]
            subprocess.run(compiling, check=True)
            main = class_of(program)
        yield ["java", *options, "-cp", class_path, main]


def run_java(
    program: str | Path,
    lines: Iterable[str],
    *arguments: str,
    libs: Path = JAVA_LIBS,
    log4j: str | None = None,
) -> list[str]:
    """Run a program to its end with lines of standard input; return those that it prints. Raises RuntimeError."""
    with java_command(program, libs=libs, log4j=log4j) as command:
        given = "\n".join(lines)
        run = subprocess.run([*command, *arguments], input=given, capture_output=True, encoding="utf-8", check=False)
    if run.returncode:
        raise RuntimeError(f"java failed: {run.stderr}")
    return run.stdout.splitlines()


def class_of(source: Path) -> str:
    """Return the full name of the class that a source file declares."""
    package = re.search(r"^package ([\w.]+);", source.read_text(encoding="utf-8"), re.MULTILINE)
    assert package is not None, f"{source} has no package: give its text"
    return f"{package[1]}.{source.stem}"
