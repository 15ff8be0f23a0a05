"""A thread of the console that repeats one step while it is started."""

import threading
from collections.abc import Callable
from contextvars import copy_context


class Background:
    """Runs `step` every `interval_s` seconds in a thread of its own, for the first time at once or after that time.

    It is started once.
    """

    def __init__(self, name: str, step: Callable[[], None], interval_s: float, *, begins_at_once: bool) -> None:
        self._name = name
        self._step = step
        self._interval_s = interval_s
        self._begins_at_once = begins_at_once
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._thread is None:
            context = copy_context()  # the settings of its cluster: command_config.used
            self._thread = threading.Thread(target=context.run, args=(self._run,), name=self._name, daemon=True)
            self._thread.start()

    @property
    def is_stopping(self) -> bool:
        """Whether a long step should end early."""
        return self._stop.is_set()

    def stop(self, wait_s: float) -> None:
        """Stop after the current step; do not wait for one that takes longer than wait_s."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(wait_s)

    def _run(self) -> None:
        if self._begins_at_once:
            self._step()
        while not self._stop.wait(self._interval_s):
            self._step()
