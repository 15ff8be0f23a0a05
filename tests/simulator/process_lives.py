"""Processes on one SimLoop: each can be killed, paused and resumed, apart from all others.

A context variable says whose a callback is: tasks, callbacks and timers inherit it. After a kill nothing
of the process runs any more, not even a `finally`: its tasks are kept until the end of the run, so that the garbage
collector does not run one either. While a process is paused its callbacks wait; then those of sockets run before its
timers, as after a SIGCONT.
"""

import asyncio
import contextvars
import gc
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from tests.simulator.loop import SimLoop

T = TypeVar("T")
Waiting = tuple[float, asyncio.Handle, contextvars.Context, Callable[..., object], tuple[Any, ...]]

LIFE: "contextvars.ContextVar[ProcessLife | None]" = contextvars.ContextVar("process_life", default=None)


class ProcessLife:
    """One run of a process."""

    def __init__(self, loop: "ProcessLoop", name: str) -> None:
        self.name = name
        self.is_over = False
        self.is_paused = False
        self.tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self._loop = loop
        self._waiting: list[Waiting] = []
        self._context = contextvars.copy_context()
        self._context.run(LIFE.set, self)

    def create_task(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run something in the process."""
        return self._loop.create_task(work, context=self._context.copy())

    def kill(self) -> None:
        self.is_over = True
        self._waiting.clear()
        self._loop.bury(self)

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        waiting, self._waiting = self._waiting, []
        for _, handle, context, callback, arguments in sorted(waiting, key=lambda each: each[0]):
            if not handle.cancelled():
                self._loop.call_soon(self._run_late, handle, callback, arguments, context=context)

    def run(self, handles: list[asyncio.Handle], due: float, callback: Callable[..., object], *arguments: Any) -> None:
        """Call back, unless the process is dead or paused. due: of a timer, -1 for others."""
        if self.is_over:
            return
        if self.is_paused:
            self._waiting.append((due, handles[0], contextvars.copy_context(), callback, arguments))
            return
        callback(*arguments)

    def _run_late(self, handle: asyncio.Handle, callback: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        if not handle.cancelled():
            callback(*arguments)


class ProcessLoop(SimLoop):
    """A SimLoop that knows whose each callback is. `errors` are those that nobody caught."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.errors: list[str] = []
        self._buried: list[asyncio.Task[Any]] = []
        self.set_exception_handler(ProcessLoop._note_error)

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        life = context.get(LIFE) if context is not None else LIFE.get()
        if life is None:
            return super().call_soon(callback, *args, context=context)
        handles: list[asyncio.Handle] = []
        handles.append(super().call_soon(life.run, handles, -1.0, callback, *args, context=context))
        return handles[0]

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        life = context.get(LIFE) if context is not None else LIFE.get()
        if life is None:
            return super().call_at(when, callback, *args, context=context)
        handles: list[asyncio.Handle] = []
        timer = super().call_at(when, life.run, handles, when, callback, *args, context=context)
        handles.append(timer)
        return timer

    def create_task(self, coro: Any, *, name: str | None = None, context: contextvars.Context | None = None) -> Any:
        life = context.get(LIFE) if context is not None else LIFE.get()
        task = super().create_task(coro, name=name, context=context)
        if life is not None:
            life.tasks.add(task)
        return task

    def bury(self, life: ProcessLife) -> None:
        """Keep the tasks of a life that is over."""
        for task in life.tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            self._buried.append(task)

    def end(self) -> None:
        """Close what is left of all tasks, in silence; the loop runs no more."""
        self.set_exception_handler(lambda _loop, _context: None)
        tasks = {*self._buried, *asyncio.all_tasks(self)}
        self._buried.clear()
        for task in tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with suppress(BaseException):
                task.get_coro().close()  # type: ignore[union-attr]
        self._ready.clear()  # type: ignore[attr-defined]
        self._scheduled.clear()  # type: ignore[attr-defined]

    def _note_error(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.errors.append(f"{context.get('message')}: {error!r}")
        if isinstance(error, BaseException):
            self.last_error = error


def run_processes(main: Callable[[ProcessLoop], Coroutine[Any, Any, T]], *, seed: int, limit_seconds: float) -> T:
    """Run `main(loop)` on a new ProcessLoop to its end, as loop.run does."""
    loop = ProcessLoop(seed)
    asyncio.set_event_loop(loop)
    was_enabled = gc.isenabled()
    gc.disable()  # what is buried must not be collected in the middle of a run
    try:
        task = loop.create_task(main(loop))
        limit = loop.call_later(limit_seconds, task.cancel)
        result = loop.run_until_complete(task)
        limit.cancel()
        return result
    except asyncio.CancelledError:
        raise AssertionError(f"still running after {limit_seconds} s of virtual time") from None
    finally:
        loop.end()
        asyncio.set_event_loop(None)
        loop.close()
        if was_enabled:
            gc.enable()
