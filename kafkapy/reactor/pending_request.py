"""A parked request: its handler is continued by a callback of the future it awaits, without an asyncio Task.

The first step of a handler runs where its request was read; only if the handler awaits, a PendingRequest is made. A
handler may await only futures (or bare yields): `asyncio.timeout` and others that need a current task do not work. If
it needs them, it creates, owns and awaits a task.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Protocol

logger = logging.getLogger(__name__)


class Owner(Protocol):
    """The connection that receives the response."""

    def complete(self, pending: "PendingRequest", response: Any) -> None: ...

    def fail(self, pending: "PendingRequest", error: BaseException) -> None: ...

    def on_parked(self, pending: "PendingRequest") -> None: ...

    def resume_soon(self, pending: "PendingRequest") -> None: ...


class PendingRequest:
    """A parked request: coroutine, sequence number, frame size and API key.

    frame_bytes: what its frame takes of the request memory, 0 once the frame is free.
    """

    __slots__ = ("_coroutine", "_is_cancelled", "_owner", "api_key", "frame_bytes", "holds", "sequence")

    def __init__(
        self,
        owner: Owner,
        coroutine: Coroutine[Any, Any, Any],
        *,
        sequence: int,
        frame_bytes: int,
        api_key: int,
    ) -> None:
        self._owner = owner
        self._coroutine = coroutine
        self._is_cancelled = False
        self.sequence = sequence
        self.frame_bytes = frame_bytes
        self.api_key = api_key
        self.holds = False

    def wait_for(self, awaited: Any) -> None:
        """Continue the coroutine once the yielded future is done (None: in the next pass). Others raise in it."""
        self._owner.on_parked(self)
        if awaited is None:
            self._owner.resume_soon(self)
        elif getattr(awaited, "_asyncio_future_blocking", None):
            awaited._asyncio_future_blocking = False
            awaited.add_done_callback(self.step)
        else:
            self._throw(RuntimeError(f"a handler awaited an object of {type(awaited).__name__}, which is no future"))

    def step(self, future: "asyncio.Future[Any] | None" = None) -> None:
        """Continue the coroutine until it returns or waits again."""
        if self._is_cancelled:
            if future is not None and not future.cancelled():
                future.exception()  # retrieved, as nobody else will: asyncio would log it as an error
            return
        # The future's __await__ fetches the result, or raises the error, inside the coroutine.
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
        """Cancel the handler (at shutdown) and drop its response."""
        self._is_cancelled = True
        try:
            self._coroutine.throw(asyncio.CancelledError())
        except (StopIteration, asyncio.CancelledError):
            return
        except Exception:
            logger.exception("The handler of a request (API key %d) failed while being cancelled", self.api_key)
            return
        self._coroutine.close()
