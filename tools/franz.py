"""Build the transactional copier of franz-go (tests/compat/franz): Go is not needed otherwise."""

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "tests" / "compat" / "franz"
COPIER = ROOT / ".tools" / "franz-copier"


def build_copier(*, offline: bool = False) -> str:
    """Build it where its source has changed; return why it is not there, "" where it is.

    Not optimized, which takes half the time. `offline` fetches no modules; neither fetches another Go.
    """
    if shutil.which("go") is None:
        return "go is missing"
    settings = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false -mod=readonly"}
    settings |= {"GOPROXY": "off"} if offline else {}
    command = ["go", "build", "-gcflags=all=-N -l", "-ldflags=-s -w", "-o", str(COPIER), "."]
    built = subprocess.run(command, cwd=SOURCE, env={**os.environ, **settings}, capture_output=True, text=True)
    return "" if built.returncode == 0 else f"franz-go's copier was not built: {built.stderr.strip()[-300:]}"
