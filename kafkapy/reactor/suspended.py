"""A handler that waits: continued by its future's callback, without a Task.

The first step of a handler is driven where its request was read; only one that suspends gets an object here. What it
awaits must be futures (or bare yields): `asyncio.timeout` and others that need a current task do not work in it, and a
handler that needs them awaits a task it has made and owns.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Protocol

logger = logging.getLogger(__name__)


class Owner(Protocol):
    """The connection that the answer is for."""

    def complete(self, suspended: "Suspended", response: Any) -> None: ...

    def fail(self, suspended: "Suspended", error: BaseException) -> None: ...

    def maybe_hold(self, suspended: "Suspended") -> None: ...


class Suspended:
    """One waiting request: its coroutine, its place in the order of answers, its frame's size and api key."""

    __slots__ = ("_coroutine", "_is_cancelled", "_loop", "_owner", "api_key", "frame_bytes", "holds", "sequence")

    def __init__(
        self,
        owner: Owner,
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[Any, Any, Any],
        *,
        sequence: int,
        frame_bytes: int,
        api_key: int,
    ) -> None:
        self._owner = owner
        self._loop = loop
        self._coroutine = coroutine
        self._is_cancelled = False
        self.sequence = sequence
        self.frame_bytes = frame_bytes
        self.api_key = api_key
        self.holds = False

    def wait_for(self, awaited: Any) -> None:
        """Continue once what the coroutine yielded is done; other things than futures and None are its mistake."""
        self._owner.maybe_hold(self)
        if awaited is None:
            self._loop.call_soon(self._step)
        elif getattr(awaited, "_asyncio_future_blocking", None):
            awaited._asyncio_future_blocking = False
            awaited.add_done_callback(self._step)
        else:
            self._throw(RuntimeError(f"a handler awaited {awaited!r}, which is no future"))

    def _step(self, _future: Any = None) -> None:
        if self._is_cancelled:
            return
        # The future's own __await__ takes its result, or raises its error, inside the coroutine.
        try:
            awaited = self._coroutine.send(None)
        except StopIteration as stop:
            self._owner.complete(self, stop.value)
        except (Exception, asyncio.CancelledError) as error:
            self._owner.fail(self, error)
        else:
            self.wait_for(awaited)

    def _throw(self, error: Exception) -> None:
        try:
            self._coroutine.throw(error)
        except StopIteration as stop:
            self._owner.complete(self, stop.value)
        except (Exception, asyncio.CancelledError) as raised:
            self._owner.fail(self, raised)
        else:
            self._owner.fail(self, error)

    def cancel(self) -> None:
        """End the handler where it waits (at shutdown); its answer is nobody's any more."""
        self._is_cancelled = True
        try:
            self._coroutine.throw(asyncio.CancelledError())
        except (StopIteration, asyncio.CancelledError):
            return
        except Exception:
            logger.exception("A handler of api %d failed as it was cancelled", self.api_key)
            return
        self._coroutine.close()
