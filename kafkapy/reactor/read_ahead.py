"""Reading ahead from the disk for those who read a file from front to back, so that sending never waits for it.

Whether bytes may be sent is always asked of the page cache: what was read ahead may be gone again. A stream begins
where a reader waited; from then on a worker reads what comes next while the reader is busy with what it has. It ends
with the file, and where all has been in the page cache for a while. Only the page cache holds what was read: a peer
that does not drain costs no memory of ours.

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
"""Is told up to where the file is in the page cache, or what went wrong."""


class _Stream:
    """A file that is being read from front to back: [start, warm_end) was read, [warm_end, asked_end) is under way."""

    __slots__ = ("asked_end", "cached_bytes", "file", "start", "waiting", "warm_end")

    def __init__(self, file: File, start: int) -> None:
        self.file = file
        self.start = self.warm_end = self.asked_end = start
        self.cached_bytes = 0
        """How much of what was read last was in the page cache before."""
        self.waiting: list[OnWarm] = []

    @property
    def is_busy(self) -> bool:
        return self.asked_end > self.warm_end


class ReadAhead:
    """The streams of all connections: in each file those of the last few readers who had to wait, each elsewhere."""

    __slots__ = ("_call_count", "_io_pool", "_stream_count", "_streams")

    def __init__(self, io_pool: IoPool) -> None:
        self._io_pool = io_pool
        self._streams: dict[File, list[_Stream]] = {}
        self._stream_count = 0
        self._call_count = 0

    def warm_end(self, file: File, start: int, end: int) -> int:
        """Return up to where, from `start` and at most to `end`, a file can be sent without waiting for the disk."""
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
        """Have a worker read the file from `start` on, where none does, and say when it has.

        What is said may lie at `start`, where the worker was at what comes before: ask again.
        """
        for stream in self._streams.get(file, ()):
            if stream.warm_end <= start <= stream.asked_end:
                break
        else:
            stream = self._begin(file, start)
        stream.waiting.append(on_warm)
        if not stream.is_busy:
            self._read_on(stream, READ_AHEAD_BYTES if stream.warm_end > stream.start else FIRST_WARM_BYTES)

    def _begin(self, file: File, start: int) -> _Stream:
        """Begin a stream, in place of the one whose bytes are gone again, and of the oldest where there are many."""
        streams = self._streams.pop(file, [])
        kept = [each for each in streams if not each.start <= start <= each.warm_end][1 - READ_AHEAD_READERS :]
        stream = _Stream(file, start)
        self._streams[file] = [*kept, stream]
        self._stream_count += len(kept) + 1 - len(streams)
        while self._stream_count > READ_AHEAD_STREAMS:
            self._end(next(iter(self._streams.values()))[0])
        return stream

    def _end(self, stream: _Stream) -> None:
        """Forget a stream, where that has not happened yet."""
        streams = self._streams.get(stream.file, [])
        if stream not in streams:
            return
        streams.remove(stream)
        self._stream_count -= 1
        if not streams:
            del self._streams[stream.file]

    def _read_on(self, stream: _Stream, size_bytes: int) -> None:
        file, start = stream.file, stream.warm_end
        stream.asked_end = start + size_bytes
        self._call_count += 1

        def done(warmed: tuple[int, bool] | None, error: BaseException | None) -> None:
            self._call_count -= 1
            count, was_read = warmed or (0, False)
            stream.cached_bytes = 0 if was_read else stream.cached_bytes + count
            stream.asked_end = stream.warm_end = start + count
            has_ended = count < size_bytes or stream.cached_bytes >= READ_AHEAD_ENOUGH_BYTES
            if has_ended:
                self._end(stream)
            if error is None and not count:
                error = EOFError(f"{file.path} ends before position {start + 1}")
            waiting, stream.waiting = stream.waiting, []
            for on_warm in waiting:
                on_warm(stream.warm_end, error)

        self._io_pool.submit(lambda: file.warm(size_bytes, start), done)
