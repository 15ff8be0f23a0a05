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
