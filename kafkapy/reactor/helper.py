"""The parent's side of the helper process, which runs Python code that would block the event loop for over 1 ms.

The process starts with the first call and ends after IDLE_SECONDS without work. It gets one call at a time and the
others wait here, so that a crash fails only one call. It ends when its parent ends.
"""

import asyncio
import json
import logging
import os
import subprocess
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

from kafkapy.child_command import child_command, child_environment
from kafkapy.dataclass import dataclass
from kafkapy.seams import HELPER_NOT_STARTED

OnDone: TypeAlias = Callable[[Any, str | None], None]

logger = logging.getLogger(__name__)

MAX_WAITING = 1024
"""Maximum queued calls; further ones are refused. The cleaner and recovery submit one at a time."""

IDLE_SECONDS = 60.0
"""How long an idle helper is kept: starting one takes about 50 ms of CPU, keeping one about 10 MB of memory."""

BACKGROUND = "--background"

_READ_BYTES = 65_536


@dataclass(slots=True, frozen=True)
class _Call:
    function_path: str
    arguments: dict[str, Any]
    on_done: OnDone


class SubprocessHelper:
    """seams.HelperProcess. `on_done(result, error)` runs on the loop; the error is the helper's traceback as text."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, is_background: bool = False) -> None:
        """is_background: run with the lowest scheduling priority, so that the event loop goes first."""
        self._loop = loop
        self._options = [BACKGROUND] if is_background else []
        self._waiting: deque[_Call] = deque()
        self._current: _Call | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._unsent = b""
        self._received = bytearray()
        self._idle_timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def submit(self, function_path: str, arguments: dict[str, Any], on_done: OnDone) -> None:
        """Run `package.module:function(**arguments)` in the helper; arguments and result are JSON values."""
        if self._is_closed or len(self._waiting) >= MAX_WAITING:
            self._loop.call_soon(on_done, None, "the helper process is closed or has too much to do")
            return
        self._waiting.append(_Call(function_path, arguments, on_done))
        self._loop.call_soon(self._next)

    def close(self) -> None:
        """End the process; unfinished calls complete with an error."""
        self._is_closed = True
        self._stop("the helper process is closed")
        while self._waiting:
            self._loop.call_soon(self._waiting.popleft().on_done, None, "the helper process is closed")

    def _next(self) -> None:
        if self._current is not None or not self._waiting:
            return
        self._cancel_idle_timer()
        call = self._current = self._waiting.popleft()
        try:
            line = json.dumps({"id": 1, "call": call.function_path, "arguments": call.arguments}).encode() + b"\n"
        except (TypeError, ValueError) as error:
            self._finish(None, f"the call could not be made: {error}")
            return
        try:
            if self._process is None:
                self._start()
        except OSError as error:
            self._stop(f"{HELPER_NOT_STARTED}: {error}")
            return
        self._unsent = line
        self._send()

    def _start(self) -> None:
        process = self._process = subprocess.Popen(
            child_command("kafkapy.reactor.helper_main", *self._options),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=child_environment(),
        )
        assert process.stdin is not None
        assert process.stdout is not None
        os.set_blocking(process.stdin.fileno(), False)
        os.set_blocking(process.stdout.fileno(), False)
        self._received.clear()
        self._loop.add_reader(process.stdout.fileno(), self._on_readable)

    def _send(self) -> None:
        """Write what the pipe accepts; the rest when it is writable again."""
        assert self._process is not None
        assert self._process.stdin is not None
        descriptor = self._process.stdin.fileno()
        self._loop.remove_writer(descriptor)
        try:
            self._unsent = self._unsent[os.write(descriptor, self._unsent) :]
        except BlockingIOError:
            pass
        except OSError as error:
            self._stop(f"the helper process does not listen: {error}")
            return
        if self._unsent:
            self._loop.add_writer(descriptor, self._send)

    def _on_readable(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            data = os.read(self._process.stdout.fileno(), _READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._stop("the helper process has ended unexpectedly")
            return
        self._received += data
        if data.endswith(b"\n"):
            line = bytes(self._received)
            self._received.clear()
            response = json.loads(line)
            self._finish(response.get("result"), response.get("error"))

    def _finish(self, result: Any, error: str | None) -> None:
        call, self._current = self._current, None
        if call is not None:
            try:
                call.on_done(result, error)
            except Exception:
                logger.exception(
                    "Handling the result of %s, which ran in the helper process, failed", call.function_path
                )
        if self._waiting:
            self._loop.call_soon(self._next)
        elif self._process is not None and self._current is None:
            self._cancel_idle_timer()
            self._idle_timer = self._loop.call_later(IDLE_SECONDS, self._stop, None)

    def _cancel_idle_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def _stop(self, reason: str | None) -> None:
        """End the process if it runs, and fail the current call with `reason`."""
        self._cancel_idle_timer()
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            assert process.stdout is not None
            self._loop.remove_reader(process.stdout.fileno())
            self._loop.remove_writer(process.stdin.fileno())
            process.stdin.close()
            process.stdout.close()
            process.kill()
            process.wait()
        if self._current is not None:
            self._finish(None, reason)
