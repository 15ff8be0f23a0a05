"""The helper process in virtual time: calls run here, one after another, and take milliseconds of the loop's clock.

What a call writes, it writes to the machine's disk; the power that goes takes it with it.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from kafkapy.storage.cleaner.steps import CleaningSteps
from tests.simulator.disk import SimDisk
from tests.simulator.loop import SimLoop

CALL_MS = 3.0


class SimHelper:
    """seams.HelperProcess for the calls of the log cleaner. `before_call(name)` may raise: then the process dies."""

    def __init__(self, loop: SimLoop, disk: SimDisk, before_call: Callable[[str], None] = lambda name: None) -> None:
        self._loop = loop
        self._disk = disk
        self._before_call = before_call
        self._steps = CleaningSteps(disk)
        self._waiting: deque[tuple[str, dict[str, Any], Callable[[Any, str | None], None]]] = deque()
        self._is_closed = False
        self.calls: list[str] = []

    def submit(self, function_path: str, arguments: dict[str, Any], on_done: Callable[[Any, str | None], None]) -> None:
        self._waiting.append((function_path.rpartition(":")[2], arguments, on_done))
        if len(self._waiting) == 1:
            self._loop.call_later(CALL_MS / 1000, self._run)

    def _run(self) -> None:
        if self._is_closed:
            return
        name, arguments, on_done = self._waiting.popleft()
        self.calls.append(name)
        if self._waiting:
            self._loop.call_later(CALL_MS / 1000, self._run)
        try:
            self._before_call(name)
        except RuntimeError as error:
            self._steps = CleaningSteps(self._disk)
            on_done(None, str(error))
        else:
            on_done(getattr(self._steps, name)(**arguments), None)

    def close(self) -> None:
        self._is_closed = True
        while self._waiting:
            self._loop.call_soon(self._waiting.popleft()[2], None, "the helper process is closed")
