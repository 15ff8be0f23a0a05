"""kfake (franz-go's broker in Go) as a server of the benchmark, built where there is Go, at a pinned version.

Its data is in a directory, in the page cache until the kernel writes it, as the other servers' is (no SyncWrites).
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from harness.servers import Server

SOURCE: Final = Path(__file__).with_name("kfake")
PROGRAM: Final = SOURCE.parents[1] / ".tools" / "kfake"


class Kfake(Server):
    """One broker of kfake."""

    def __init__(self, directory: Path) -> None:
        super().__init__("kfake", directory)

    def command(self) -> list[str]:
        return [str(PROGRAM), "-port", str(self.port), "-data-dir", str(self.directory)]


def build() -> str:
    """Build the program, optimized; return why it is not there, "" if it is. Fetches its modules once."""
    if shutil.which("go") is None:
        return "go is missing"
    settings = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false -mod=readonly"}
    command = ["go", "build", "-ldflags=-s -w", "-o", str(PROGRAM), "."]
    built = subprocess.run(command, cwd=SOURCE, env={**os.environ, **settings}, capture_output=True, text=True)
    return "" if built.returncode == 0 else f"kfake was not built: {built.stderr.strip()[-300:]}"
