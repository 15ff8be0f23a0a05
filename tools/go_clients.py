"""Build the test programs written in Go (tests/compat/franz, tests/compat/sarama): Go is not needed otherwise."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
COPIER: Final = ROOT / ".tools" / "franz-copier"
SARAMA: Final = ROOT / ".tools" / "sarama-steps"
SHARE_WORKER: Final = ROOT / ".tools" / "franz-share-worker"
SOURCES: Final = {
    COPIER: ROOT / "tests" / "compat" / "franz",
    SARAMA: ROOT / "tests" / "compat" / "sarama",
    SHARE_WORKER: ROOT / "tests" / "compat" / "franz" / "share",
}


def build(program: Path, *, offline: bool = False) -> str:
    """Build one of SOURCES where its source has changed; return why it is not there, "" where it is.

    Not optimized, which takes half the time. `offline` fetches no modules; neither fetches another Go.
    """
    if shutil.which("go") is None:
        return "go is missing"
    settings = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false -mod=readonly"}
    settings |= {"GOPROXY": "off"} if offline else {}
    command = ["go", "build", "-gcflags=all=-N -l", "-ldflags=-s -w", "-o", str(program), "."]
    built = subprocess.run(
        command, cwd=SOURCES[program], env={**os.environ, **settings}, capture_output=True, text=True
    )
    return "" if built.returncode == 0 else f"{program.name} was not built: {built.stderr.strip()[-300:]}"
