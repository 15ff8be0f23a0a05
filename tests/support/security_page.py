"""docs/security.md's snippets, and a node that its first command makes."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from harness.servers import free_port, java
from tests.support.new_kcat import new_kcat
from tools.kafka import JAVA_LIBS

PAGE: Final = Path(__file__).parents[2] / "docs" / "security.md"
BLOCK: Final = re.compile(r"^## (?P<title>.+?)\n(?:(?!^## ).)*?^```(?P<language>\w+)\n(?P<text>.+?)^```", re.M | re.S)
SNIPPETS: Final = {each["title"]: (each["language"], each["text"]) for each in BLOCK.finditer(PAGE.read_text())}


class SecureNode:
    """A node made by the page's first command, and a directory of programs that its snippets call."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self.programs = directory / "bin"
        self.programs.mkdir()
        self._write("kafkapy", [sys.executable, "-m", "kafkapy"])
        if JAVA_LIBS.is_dir() and shutil.which("java") is not None:
            self._write("kafka-topics.sh", java("org.apache.kafka.tools.TopicCommand"))
        kcat = new_kcat(self.programs)
        if kcat is not None:
            self._write("kcat", ["env", f"LD_LIBRARY_PATH={kcat.environment['LD_LIBRARY_PATH']}", kcat.program])
        init = ["security", "init", "secure", "--user", "alice", "--port", str(self.port)]
        printed = self.run([str(self.programs / "kafkapy"), *init])
        self.password = printed.split("properties, too): ")[1].split()[0]

    def _write(self, name: str, command: list[str]) -> None:
        path = self.programs / name
        path.write_text(f'#!/bin/sh\nexec {" ".join(f"{part!r}" for part in command)} "$@"\n')
        path.chmod(0o700)

    def run(self, command: list[str]) -> str:
        environment = {**os.environ, "PATH": f"{self.programs}:{os.environ['PATH']}"}
        done = subprocess.run(
            command, cwd=self.directory, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def of_this_node(self, snippet: str) -> str:
        return snippet.replace("localhost:9092", f"localhost:{self.port}").replace("PASSWORD", self.password)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start the node, and create the topic `orders`."""
        command = [str(self.programs / "kafkapy"), "start", str(self.directory / "secure" / "server.properties")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
            try:
                assert broker.stdout is not None
                assert broker.stdout.readline().startswith("kafkapy ready on ")
                create = ["topics", "create", "orders", "--if-not-exists", "-b", f"localhost:{self.port}"]
                self.run([str(self.programs / "kafkapy"), *create, "--command-config", "secure/client.properties"])
                yield
            finally:
                broker.terminate()
