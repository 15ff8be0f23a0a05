"""The command by which a process of kafkapy starts another one that runs a module of it."""

import os
import sys
from collections.abc import Mapping


def child_command(module: str, *arguments: str) -> list[str]:
    """Return the command for `python -m module`, without the working directory on the child's sys.path.

    With it, a file such as json.py in the directory in which a node is started would be run.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def child_environment() -> Mapping[str, str]:
    """Return the child's environment: PYTHONPATH has the package's directory if only `python -m` there found it."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if sys.flags.safe_path or not sys.path or os.path.abspath(sys.path[0]) != root:
        return os.environ
    paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
