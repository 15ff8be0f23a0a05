"""kcat on the librdkafka of confluent-kafka's wheel: Debian's (2.0.2) has no oidc, and sends SCRAM's nonce twice."""

import os
import subprocess
from pathlib import Path

import confluent_kafka

from tools.kafka import kcat


class Kcat:
    """kcat, and the environment in which it finds another librdkafka."""

    def __init__(self, program: str, libraries: Path, library: Path, directory: Path) -> None:
        (directory / "librdkafka.so.1").symlink_to(library)
        self.program = program
        self.environment = {**os.environ, "LD_LIBRARY_PATH": f"{directory}:{libraries}"}

    def start(self, *arguments: str, settings: dict[str, str]) -> "subprocess.Popen[str]":
        options = [part for key, value in settings.items() for part in ("-X", f"{key}={value}")]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([self.program, *arguments, *options], text=True, env=self.environment, **pipes)  # type: ignore[call-overload,no-any-return]

    def run(self, *arguments: str, settings: dict[str, str], stdin: str = "") -> tuple[int, str, str]:
        with self.start(*arguments, settings=settings) as process:
            stdout, stderr = process.communicate(stdin, timeout=120)
        return process.returncode, stdout, stderr


def new_kcat(directory: Path) -> Kcat | None:
    """Return a kcat that has oidc, None if it, or the wheel's library, is missing."""
    program, libraries = kcat(), Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs")
    library = next(libraries.glob("librdkafka-*.so*"), None)
    if program is None or library is None:
        return None
    found = Kcat(program, libraries, library, directory)
    return found if "oidc" in found.run("-V", settings={})[1] else None
