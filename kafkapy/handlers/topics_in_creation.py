"""The topics that a broker is currently auto-creating for clients, so that each is requested once at a time."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any


class TopicsInCreation:
    """The names of topics in creation, and the tasks that wait for the controller."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, names: Iterable[str]) -> list[str]:
        """Return those of the names that are not in creation yet, and mark them as in creation until `end`."""
        begun = [name for name in dict.fromkeys(names) if name not in self._names]
        self._names.update(begun)
        return begun

    def end(self, names: Iterable[str]) -> None:
        self._names.difference_update(names)

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
