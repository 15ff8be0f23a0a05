"""Writes log lines on a separate thread, so that callers never wait for a disk, a terminal or a full pipe.

At most MAX_QUEUED_CHARS are queued. Lines beyond that, and lines that cannot be written, are counted; the next line
that can be written is preceded by one that says how many were lost.
"""

import contextlib
import logging
import os
import select
import stat
import threading
from typing import Final, Protocol, TextIO

MAX_QUEUED_CHARS: Final = 8 << 20
FLUSH_TIMEOUT_S: Final = 2.0
"""How long the end of the process waits for queued lines to be written."""

logger = logging.getLogger("kafkapy.server")


class Sink(Protocol):
    def write(self, line: bytes) -> None:
        """Write a whole line. May block. Raises OSError."""


class LogWriter(logging.Handler):
    """A handler with a queue; lines are formatted by the caller and written by the thread."""

    def __init__(self, sink: Sink, *, max_queued_chars: int = MAX_QUEUED_CHARS) -> None:
        super().__init__()
        self._sink = sink
        self._max_queued_chars = max_queued_chars
        self._changed = threading.Condition()
        self._lines: list[str] = []
        self._queued_chars = 0
        """Characters that are queued or being written."""
        self._is_closed = False
        self.lost_count = 0
        """Lines that were dropped."""
        self._reported_count = 0
        """How many of the lost lines have been reported."""
        self._thread = threading.Thread(target=self._run, name="kafkapy-log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = f"{self.format(record)}\n"
        except Exception:
            self.handleError(record)
            return
        with self._changed:
            if self._is_closed or self._queued_chars + len(line) > self._max_queued_chars:
                self.lost_count += 1
                return
            self._lines.append(line)
            self._queued_chars += len(line)
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait until all lines are written, at most FLUSH_TIMEOUT_S."""
        with self._changed:
            self._changed.wait_for(lambda: not self._queued_chars, FLUSH_TIMEOUT_S)

    def close(self) -> None:
        """Write the queued lines; drop later ones."""
        self.flush()
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        super().close()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines or self._is_closed)
                lines, self._lines = self._lines, []
            if not lines:
                return
            for line in lines:
                self._write(line)
            with self._changed:
                self._queued_chars -= sum(map(len, lines))
                self._changed.notify_all()

    def _write(self, line: str) -> None:
        try:
            if self.lost_count > self._reported_count:
                self._report_lost()
            self._sink.write(line.encode(errors="backslashreplace"))
        except (OSError, ValueError):  # ValueError: the stream is closed
            with self._changed:
                self.lost_count += 1

    def _report_lost(self) -> None:
        count = self.lost_count
        text = "%d log lines were lost: they could not be written, or not as fast as they came"
        lost = (count - self._reported_count,)
        record = logger.makeRecord(logger.name, logging.WARNING, __file__, 0, text, lost, None)
        self._sink.write(f"{self.format(record)}\n".encode())
        self._reported_count = count


class DirectHandler(logging.Handler):
    """Writes each line before the call returns. Drops a line that cannot be written."""

    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self._sink = sink

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._sink.write(f"{self.format(record)}\n".encode(errors="backslashreplace"))
        except (OSError, ValueError):
            pass
        except Exception:
            self.handleError(record)


class StreamSink:
    """Standard error, without Python's buffer: a thread blocked in that buffer would keep the process from ending."""

    def __init__(self, stream: TextIO | None) -> None:
        """None: the process has no standard error, and lines are dropped."""
        self._stream = stream
        self._descriptor: int | None = None
        if stream is not None:
            with contextlib.suppress(OSError):  # io.UnsupportedOperation: a replaced stream, as in a test
                self._descriptor = stream.fileno()

    def write(self, line: bytes) -> None:
        if self._descriptor is not None:
            _write_all(self._descriptor, line)
        elif self._stream is not None:
            self._stream.write(line.decode())


class FileSink:
    """An append-only file, opened again if another program has renamed or deleted it, as logrotate does.

    When it would exceed max_bytes (None: never), it is renamed to `path.1`, that to `path.2`, up to `path.<count>`.
    """

    def __init__(self, path: str, max_bytes: int | None, count: int) -> None:
        """Raises OSError if the file cannot be opened."""
        self._path = path
        self._max_bytes = max_bytes
        self._count = count
        self._descriptor = -1
        self._open()

    def write(self, line: bytes) -> None:
        found = self._reopen_if_replaced()
        is_full = self._max_bytes is not None and found.st_size and found.st_size + len(line) > self._max_bytes
        if is_full and stat.S_ISREG(found.st_mode):
            self._rotate()
        _write_all(self._descriptor, line)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _reopen_if_replaced(self) -> os.stat_result:
        """Open the file again if the path has another one; return its status."""
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            there = None
        if self._descriptor < 0 or there is None or not os.path.samestat(there, os.fstat(self._descriptor)):
            self._open()
        return os.fstat(self._descriptor)

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o640)
        self.close()
        self._descriptor = descriptor

    def _rotate(self) -> None:
        for number in range(self._count - 1, 0, -1):
            if os.path.exists(f"{self._path}.{number}"):
                os.replace(f"{self._path}.{number}", f"{self._path}.{number + 1}")
        if self._count:
            os.replace(self._path, f"{self._path}.1")
        else:
            os.unlink(self._path)
        self._open()


def _write_all(descriptor: int, data: bytes) -> None:
    """Write all the data, waiting while the descriptor is not writable. Raises OSError."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            select.select((), (descriptor,), ())
