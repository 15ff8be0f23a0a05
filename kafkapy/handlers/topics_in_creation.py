"""The topics that a broker is currently auto-creating for clients, so that each is requested once at a time.

And why the last ones could not be created, so that a reason is logged once, although clients ask again and again.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

MAX_FAILURES: Final = 1000
"""Topics whose last failure is known. With one more, all are forgotten."""


class TopicsInCreation:
    """The names of topics in creation, and the tasks that wait for the controller."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: dict[str, str] = {}
        self._held_errors: dict[str, tuple[int, str]] = {}
        """By topic: until when (monotonic) it is not tried again, and why it could not be created."""

    def begin(self, names: Iterable[str]) -> list[str]:
        """Return those of the names that are not in creation yet, and mark them as in creation until `end`."""
        begun = [name for name in dict.fromkeys(names) if name not in self._names]
        self._names.update(begun)
        return begun

    def end(self, names: Iterable[str]) -> None:
        self._names.difference_update(names)

    def record_failure(self, name: str, reason: str) -> bool:
        """Keep why a topic could not be created; return whether that is another reason than before."""
        if self._failures.get(name) == reason:
            return False
        if len(self._failures) >= MAX_FAILURES:
            self._failures.clear()
        self._failures[name] = reason
        return True

    def on_created(self, name: str) -> None:
        self._failures.pop(name, None)

    def hold_error(self, name: str, reason: str, *, now_ms: int, held_ms: int) -> None:
        """Keep for a while why a topic could not be created; with too many, forget those that end soonest."""
        self._held_errors[name] = now_ms + held_ms, reason
        if len(self._held_errors) > 2 * MAX_FAILURES:  # not at each one, as they are sorted
            in_order = sorted(self._held_errors.items(), key=lambda item: item[1][0])
            self._held_errors = dict(item for item in in_order[-MAX_FAILURES:] if item[1][0] > now_ms)

    def errors_of(self, names: Iterable[str], now_ms: int) -> dict[str, str]:
        """Return why topics could not be created, of those for which that is held."""
        held = ((name, self._held_errors.get(name)) for name in names)
        return {name: error[1] for name, error in held if error is not None and error[0] > now_ms}

    def run(self, asking: Coroutine[Any, Any, Any], on_done: Callable[[Any], None]) -> None:
        """Await a request in a task of its own; `on_done` gets the response or the error."""

        async def work() -> None:
            try:
                result = await asking
            except Exception as error:
                result = error
            on_done(result)

        task = asyncio.get_running_loop().create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
