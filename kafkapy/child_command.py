"""The command by which a process of kafkapy starts another one, and what the process of a node does first."""

import gc
import os
import signal
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


def prepare_start() -> None:
    """Prepare the process of a node, before its imports: they take most of a start."""
    _end_quietly_on_signals()
    _collect_no_garbage()


def _end_quietly_on_signals() -> None:
    """Exit with status 0 at a signal that comes before the start; after it the server stops in order.

    SIGHUP is left alone where it is ignored, as under nohup: JVMs, and so Apache Kafka, do the same.
    """
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if each != signal.SIGHUP or signal.getsignal(each) != signal.SIG_IGN:
            signal.signal(each, lambda *_: sys.exit(0))


def _collect_no_garbage() -> None:
    """Imports make much and discard little: a sixth of a start went into collections. run_node turns them on."""
    gc.disable()
