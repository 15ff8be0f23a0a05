"""Fetch kafkajs (npm), as tests/compat/kafkajs/package-lock.json names it."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCE: Final = ROOT / "tests" / "compat" / "kafkajs"
NODE_MODULES: Final = ROOT / ".tools" / "kafkajs" / "node_modules"


def fetch_kafkajs() -> str:
    """Fetch it where it is not there; return why it is not, "" where it is."""
    if NODE_MODULES.is_dir():
        return ""
    if shutil.which("npm") is None or shutil.which("node") is None:
        return "node or npm is missing"
    NODE_MODULES.parent.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(SOURCE / name, NODE_MODULES.parent)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    fetched = subprocess.run(command, cwd=NODE_MODULES.parent, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return "" if fetched.returncode == 0 else f"kafkajs was not fetched: {fetched.stderr.strip()[-300:]}"
