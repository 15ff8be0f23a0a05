"""The topics that a broker is auto-creating for clients, so that each is requested from the controller once at a time.

Also the reasons of the last failures: one is logged once, although clients retry, and the topics of a streams group
are not tried again while their error is cached.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

MAX_FAILURES: Final = 1000
"""Topics whose last failure is kept; with one more, all are removed."""


class TopicsInCreation:
    """The names of topics in creation, and the tasks that wait for the controller."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: dict[str, str] = {}
        self._cached_errors: dict[str, tuple[int, str]] = {}
        """By topic: when its error expires (monotonic), and why the topic could not be created."""

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

    def cache_error(self, name: str, reason: str, *, now_ms: int, cached_ms: int) -> None:
        """Keep for `cached_ms` why a topic could not be created; of too many, the oldest are removed."""
        self._cached_errors[name] = now_ms + cached_ms, reason
        if len(self._cached_errors) > 2 * MAX_FAILURES:  # not at each one, as they are sorted
            in_order = sorted(self._cached_errors.items(), key=lambda item: item[1][0])
            self._cached_errors = dict(item for item in in_order[-MAX_FAILURES:] if item[1][0] > now_ms)

    def cached_errors(self, names: Iterable[str], now_ms: int) -> dict[str, str]:
        """Return, by name, why topics could not be created lately; topics without a cached error are left out."""
        cached = ((name, self._cached_errors.get(name)) for name in names)
        return {name: error[1] for name, error in cached if error is not None and error[0] > now_ms}

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
