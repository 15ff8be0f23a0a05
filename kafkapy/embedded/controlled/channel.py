"""Calls between a test's process and a node's, over a pair of sockets that nobody else has.

A frame is its length (4 bytes, big-endian) and a pickle of plain values. Both ends are this package's, started by one
another, so what arrives is trusted. Each end belongs to one event loop.
"""

import asyncio
import pickle
import socket
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

from kafkapy.embedded.faults.events import NotHere
from kafkapy.embedded.faults.rules import FaultError, FaultSpec
from kafkapy.errors import ApiError
from kafkapy.named_tuple import NamedTuple

SIZE_BYTES: Final = 4
READ_BYTES: Final = 256 << 10
ERRORS: Final = (NotHere, FaultError, ApiError)
"""What a call may raise: the class, with its arguments. Any other exception becomes a RuntimeError with its text."""


class ChannelClosed(ConnectionError):
    """The process at the other end has ended."""


class Begin(NamedTuple):
    """The test's first message: the nodes' ids, faults, whether requests are recorded and disks may fail."""

    node_ids: tuple[int, ...]
    faults: tuple[FaultSpec, ...]
    records: bool
    has_disk_faults: bool


class Channel:
    """One end. `serve`: answers calls, by a value or by a coroutine. `on_end`: called when the other end has gone."""

    def __init__(self, end: socket.socket, serve: Callable[..., Any], on_end: Callable[[], None]) -> None:
        self._socket = end
        self._serve = serve
        self._on_end = on_end
        self._loop: asyncio.AbstractEventLoop | None = None
        self._received = bytearray()
        self._unsent: deque[bytes] = deque()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._number = 0

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Serve from now on, on this loop, of whose thread all other methods are called."""
        self._socket.setblocking(False)
        self._loop = loop
        loop.add_reader(self._socket.fileno(), self._on_readable)

    def call(self, name: str, *arguments: Any) -> "asyncio.Future[Any]":
        """Ask the other end; return its result. The future raises what that raises, or ChannelClosed."""
        assert self._loop is not None, "a channel that is open"
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._socket.fileno() < 0:
            future.set_exception(ChannelClosed("the process has ended"))
            return future
        self._number += 1
        self._waiting[self._number] = future
        self._send(("call", self._number, name, arguments))
        return future

    def notify(self, name: str, *arguments: Any) -> None:
        """Send a message that the other end does not respond to."""
        self._send(("notify", 0, name, arguments))

    def close(self) -> None:
        if self._loop is not None and self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        for task in self._tasks:
            task.cancel()
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(ChannelClosed("the process has ended"))

    def _send(self, message: tuple[str, int, str, Any]) -> None:
        is_idle = not self._unsent
        self._unsent.append(_frame(message))
        if is_idle and self._socket.fileno() >= 0:
            self._on_writable()

    def _on_writable(self) -> None:
        assert self._loop is not None
        try:
            while self._unsent:
                sent = self._socket.send(self._unsent[0])
                if sent == len(self._unsent[0]):
                    self._unsent.popleft()
                else:
                    self._unsent[0] = self._unsent[0][sent:]
        except BlockingIOError:
            self._loop.add_writer(self._socket.fileno(), self._on_writable)
            return
        except OSError:  # the reader learns of the end
            self._unsent.clear()
        self._loop.remove_writer(self._socket.fileno())

    def _on_readable(self) -> None:
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            self._on_end()
            return
        self._received += data
        while len(self._received) >= SIZE_BYTES:
            end = SIZE_BYTES + int.from_bytes(self._received[:SIZE_BYTES], "big")
            if len(self._received) < end:
                return
            message = pickle.loads(self._received[SIZE_BYTES:end])
            del self._received[:end]
            self._on_message(*message)

    def _on_message(self, kind: str, number: int, name: str, content: Any) -> None:
        if kind in ("result", "error"):
            future = self._waiting.pop(number, None)
            if future is not None and not future.done():
                if kind == "result":
                    future.set_result(content)
                else:
                    future.set_exception(_raised(*content))
            return
        try:
            result = self._serve(name, *content)
        except Exception as error:
            self._send(("error", number, "", _described(error)))
            return
        if isinstance(result, Coroutine):
            assert self._loop is not None
            task = self._loop.create_task(self._finish(number, result))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif kind == "call":
            self._send(("result", number, "", result))

    async def _finish(self, number: int, serving: Coroutine[Any, Any, Any]) -> None:
        try:
            self._send(("result", number, "", await serving))
        except Exception as error:
            self._send(("error", number, "", _described(error)))


def send_first(end: socket.socket, message: Begin) -> None:
    """Send the value for `receive_first`, before either end has a loop. It is small: a socket's buffer has room."""
    end.sendall(_frame(message))


def receive_first(end: socket.socket) -> Begin:
    """Return the value that `send_first` has sent. Raises ChannelClosed."""
    size = int.from_bytes(_receive(end, SIZE_BYTES), "big")
    found: Begin = pickle.loads(_receive(end, size))
    return found


def _frame(message: Any) -> bytes:
    data = pickle.dumps(message)
    return len(data).to_bytes(SIZE_BYTES, "big") + data


def _receive(end: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        data = end.recv(size - len(found))
        if not data:
            raise ChannelClosed("the process has ended")
        found += data
    return bytes(found)


def _described(error: Exception) -> tuple[str, tuple[Any, ...]]:
    for kind in ERRORS:
        if isinstance(error, kind):
            return kind.__name__, error.args
    return "", (f"{type(error).__name__}: {error}",)


def _raised(name: str, arguments: tuple[Any, ...]) -> Exception:
    kind: type[Exception] = next((each for each in ERRORS if each.__name__ == name), RuntimeError)
    return kind(*arguments)
