"""Read-ahead from the disk for sequential readers of a file, so that sending does not wait for the disk.

Before bytes are sent, the page cache is always probed: bytes that were read ahead may have been evicted. A stream
starts at the position where a reader had to wait; from then on a worker reads ahead while the reader is sending. It
ends at the end of the file, or after READ_AHEAD_ENOUGH_BYTES that were cached already. The bytes are held only by the
page cache: a peer that does not read costs the broker no memory.

Measured with 1 MiB fetches of a topic that is not in the page cache: see benchmarks/README.md, "Where the time goes".
"""

from collections.abc import Callable
from typing import TypeAlias

from kafkapy.reactor.limits import (
    FIRST_WARM_BYTES,
    READ_AHEAD_BYTES,
    READ_AHEAD_CALLS,
    READ_AHEAD_ENOUGH_BYTES,
    READ_AHEAD_READERS,
    READ_AHEAD_STREAMS,
)
from kafkapy.reactor.regions import is_warm
from kafkapy.seams import File, IoPool

OnWarm: TypeAlias = Callable[[int, BaseException | None], None]
"""Called with (position up to which the file is in the page cache, error or None)."""


class _Stream:
    """A sequential read of a file: [start, warm_end) has been read, [warm_end, requested_end) is being read."""

    __slots__ = ("cached_bytes", "file", "requested_end", "start", "waiting", "warm_end")

    def __init__(self, file: File, start: int) -> None:
        self.file = file
        self.start = self.warm_end = self.requested_end = start
        self.cached_bytes = 0
        """How many of the bytes read most recently, without a gap, were already in the page cache."""
        self.waiting: list[OnWarm] = []

    @property
    def is_busy(self) -> bool:
        return self.requested_end > self.warm_end


class ReadAhead:
    """The streams of all connections: per file those of the last few readers that had to wait, at different places."""

    __slots__ = ("_call_count", "_io_pool", "_stream_count", "_streams")

    def __init__(self, io_pool: IoPool) -> None:
        self._io_pool = io_pool
        self._streams: dict[File, list[_Stream]] = {}
        self._stream_count = 0
        self._call_count = 0

    def warm_end(self, file: File, start: int, end: int) -> int:
        """Return the position up to which [start, end) of a file can be sent without waiting for the disk."""
        for stream in self._streams.get(file, ()):
            if stream.start <= start <= stream.warm_end:
                if self._is_due(stream, end):
                    self._read_on(stream, READ_AHEAD_BYTES)
                end = min(end, stream.warm_end)
                break
        return end if end > start and is_warm(file, start, end) else start

    def _is_due(self, stream: _Stream, end: int) -> bool:
        is_near = stream.warm_end - end < READ_AHEAD_BYTES
        return is_near and not stream.is_busy and self._call_count < READ_AHEAD_CALLS

    def wait(self, file: File, start: int, on_warm: OnWarm) -> None:
        """Read the file from `start` on by a worker, unless one does already; call `on_warm` afterwards.

        The position reported may be `start` itself, if the worker was reading the bytes before it: then call again.
        """
        for stream in self._streams.get(file, ()):
            if stream.warm_end <= start <= stream.requested_end:
                break
        else:
            stream = self._begin(file, start)
        stream.waiting.append(on_warm)
        if not stream.is_busy:
            self._read_on(stream, READ_AHEAD_BYTES if stream.warm_end > stream.start else FIRST_WARM_BYTES)

    def _begin(self, file: File, start: int) -> _Stream:
        """Start a stream. It replaces one that covers `start` (its bytes were evicted), and the oldest at the limit."""
        streams = self._streams.pop(file, [])
        kept = [each for each in streams if not each.start <= start <= each.warm_end][1 - READ_AHEAD_READERS :]
        stream = _Stream(file, start)
        self._streams[file] = [*kept, stream]
        self._stream_count += len(kept) + 1 - len(streams)
        while self._stream_count > READ_AHEAD_STREAMS:
            self._end(next(iter(self._streams.values()))[0])
        return stream

    def _end(self, stream: _Stream) -> None:
        """Remove a stream, if it is still registered."""
        streams = self._streams.get(stream.file, [])
        if stream not in streams:
            return
        streams.remove(stream)
        self._stream_count -= 1
        if not streams:
            del self._streams[stream.file]

    def _read_on(self, stream: _Stream, size_bytes: int) -> None:
        file, start = stream.file, stream.warm_end
        stream.requested_end = start + size_bytes
        self._call_count += 1

        def done(warmed: tuple[int, bool] | None, error: BaseException | None) -> None:
            self._call_count -= 1
            count, was_read = warmed or (0, False)
            stream.cached_bytes = 0 if was_read else stream.cached_bytes + count
            stream.requested_end = stream.warm_end = start + count
            has_ended = count < size_bytes or stream.cached_bytes >= READ_AHEAD_ENOUGH_BYTES
            if has_ended:
                self._end(stream)
            if error is None and not count:
                error = EOFError(f"{file.path} ends before position {start + 1}")
            waiting, stream.waiting = stream.waiting, []
            for on_warm in waiting:
                on_warm(stream.warm_end, error)

        self._io_pool.submit(lambda: file.warm(size_bytes, start), done)
