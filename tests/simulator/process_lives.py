"""Processes on one SimLoop: each can be killed, paused and resumed, apart from all others.

A context variable says whose a callback is: tasks, callbacks and timers inherit it. After a kill nothing
of the process runs any more, not even a `finally`: its tasks are kept until the end of the run, so that the garbage
collector does not run one either. While a process is paused its callbacks wait; then those of sockets run before its
timers, as after a SIGCONT.
"""

import asyncio
import contextvars
import gc
import heapq
import itertools
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from tests.simulator.loop import HungError, SimLoop

T = TypeVar("T")

LIFE: "contextvars.ContextVar[ProcessLife | None]" = contextvars.ContextVar("process_life", default=None)
NO_TIMER = -1.0
CANCELLED_TIMERS = 200
"""So many cancelled timers are kept until their time has come."""


class Call:
    """What a ProcessLoop returns for an asyncio.Handle or TimerHandle: a callback, and the process it belongs to."""

    __slots__ = ("arguments", "callback", "context", "due", "is_cancelled", "life", "loop")

    def __init__(
        self,
        loop: "ProcessLoop",
        due: float,
        callback: Callable[..., object],
        arguments: tuple[Any, ...],
        context: contextvars.Context,
    ) -> None:
        """due: of a timer, NO_TIMER for others."""
        self.loop = loop
        self.due = due
        self.callback: Callable[..., object] | None = callback
        self.arguments = arguments
        self.context = context
        self.life = context.get(LIFE)
        self.is_cancelled = False

    def when(self) -> float:
        return self.due

    def cancel(self) -> None:
        if not self.is_cancelled:
            self.is_cancelled = True
            self.callback, self.arguments = None, ()
            if self.due >= 0:
                self.loop.note_cancelled_timer()

    def cancelled(self) -> bool:
        return self.is_cancelled


class ProcessLife:
    """One run of a process."""

    def __init__(self, loop: "ProcessLoop", name: str) -> None:
        self.name = name
        self.is_over = False
        self.is_paused = False
        self.tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self._loop = loop
        self._waiting: list[Call] = []
        self.busy_s = 0.0
        """How long the process has computed: see spend."""
        self.busy_until = 0.0
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
        self._loop.call_again(sorted(waiting, key=lambda call: call.due))

    def spend(self, duration_ms: float) -> None:
        """Compute for so long: the other callbacks of the process wait, in their order. For a BusyLoop."""
        self.busy_s += duration_ms / 1000
        self.busy_until = max(self.busy_until, self._loop.now) + duration_ms / 1000
        if not self.is_paused:
            self.is_paused = True
            self._loop.call_at(self.busy_until, self._go_on, context=contextvars.Context())

    def _go_on(self) -> None:
        if self._loop.now < self.busy_until:
            self._loop.call_at(self.busy_until, self._go_on, context=contextvars.Context())
            return
        self.is_paused = False
        waiting, self._waiting = self._waiting, []
        self._loop.call_again(waiting)

    def hold(self, call: Call) -> None:
        """Keep a callback until the process goes on, if it ever does."""
        if not self.is_over:
            self._waiting.append(call)


class ProcessLoop(SimLoop):
    """A SimLoop that knows to which process each callback belongs. `errors`: exceptions that nothing caught.

    Its queues are its own: asyncio compares timers in Python, which took a fifth of a run.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.errors: list[str] = []
        self._buried: list[asyncio.Task[Any]] = []
        self._timers: list[tuple[float, int, Call]] = []
        self._order = itertools.count()
        self._cancelled_count = 0
        self.set_exception_handler(ProcessLoop._note_error)

    # -- callbacks --------------------------------------------------------------------------------------------------

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Call:
        call = Call(self, NO_TIMER, callback, args, context if context is not None else contextvars.copy_context())
        self._ready.append(call)  # type: ignore[attr-defined]
        return call

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Call:
        call = Call(self, when, callback, args, context if context is not None else contextvars.copy_context())
        heapq.heappush(self._timers, (when, next(self._order), call))
        return call

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Call:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_again(self, calls: list[Call]) -> None:
        self._ready.extend(calls)  # type: ignore[attr-defined]

    def note_cancelled_timer(self) -> None:
        self._cancelled_count += 1
        if self._cancelled_count > max(CANCELLED_TIMERS, len(self._timers) // 2):
            self._timers = [timer for timer in self._timers if not timer[2].is_cancelled]
            heapq.heapify(self._timers)
            self._cancelled_count = 0

    def _run_once(self) -> None:
        """Call back what is due, as BaseEventLoop does: not what is added meanwhile."""
        ready = self._ready  # type: ignore[attr-defined]
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            self._jump()
        now, timers, next_call = self.now, self._timers, ready.popleft
        while timers and timers[0][0] <= now:
            ready.append(heapq.heappop(timers)[2])
        for _ in range(len(ready)):
            call = next_call()
            if call.is_cancelled:
                continue
            life = call.life
            if life is not None and (life.is_over or life.is_paused):
                life.hold(call)
                continue
            try:
                call.context.run(call.callback, *call.arguments)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                if life is not None and life.is_over:
                    continue  # it was killed while it called: at a change of its disk
                self.call_exception_handler({"message": f"Exception in {call.callback}", "exception": error})

    def _jump(self) -> None:
        """Let it be the time of the next timer."""
        while self._timers and self._timers[0][2].is_cancelled:
            heapq.heappop(self._timers)
        if not self._timers:
            raise HungError("nothing is ready and no timer is set")
        self.now = max(self.now, self._timers[0][0])

    # -- tasks ------------------------------------------------------------------------------------------------------

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
        self._timers.clear()

    def _note_error(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.errors.append(f"{context.get('message')}: {error!r}")
        if isinstance(error, BaseException):
            self.last_error = error


class BusyLoop(ProcessLoop):
    """A ProcessLoop on which computing takes time: see ProcessLife.spend."""

    def time(self) -> float:
        life = LIFE.get()
        return self.now if life is None else max(self.now, life.busy_until)

    def now_ms(self) -> int:
        return round(self.time() * 1000)


def run_processes(
    main: Callable[[ProcessLoop], Coroutine[Any, Any, T]],
    *,
    seed: int,
    limit_seconds: float,
    new_loop: Callable[[int], ProcessLoop] = ProcessLoop,
) -> T:
    """Run `main(loop)` on a new loop to its end, as loop.run does."""
    loop = new_loop(seed)
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
