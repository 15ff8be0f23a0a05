"""KAFKAPY_FAILPOINTS: points where a broker process kills itself, for tests of the state left on disk.

    KAFKAPY_FAILPOINTS="log.roll.after_files=kill@3;quorum.state.after_write=kill"

Each entry is the name of a `seams.failpoint`, and at which call of it the process gets SIGKILL (default: the first).
"""

import os
import signal
from typing import Final

from kafkapy.errors import ConfigError
from kafkapy.seams import set_failpoint_hook

VARIABLE: Final = "KAFKAPY_FAILPOINTS"


def install_from_environment() -> None:
    """Install the failpoints of the variable, if it is set. Raises ConfigError."""
    text = os.environ.get(VARIABLE)
    if text:
        set_failpoint_hook(Failpoints(text).on_reached)


class Failpoints:
    """The requested failpoints with their countdowns."""

    def __init__(self, text: str) -> None:
        self._left: dict[str, int] = {}
        for entry in filter(None, text.split(";")):
            name, _, action = entry.partition("=")
            verb, _, passing = action.partition("@")
            if verb != "kill" or (passing and not passing.isdecimal()):
                raise ConfigError(VARIABLE, entry, "an entry reads name=kill or name=kill@<passing>")
            self._left[name] = int(passing or 1)

    def on_reached(self, name: str) -> None:
        """Kill the process if this call of the failpoint was requested."""
        if name in self._left:
            self._left[name] -= 1
            if self._left[name] <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
