"""The interfaces that a simulator replaces: clock, randomness, disk, network channels, IO pool, helper process.

Production implementations are in reactor/, storage/system_disk.py and server/process/system_clock.py. tests/simulator/
implements them with virtual time, a disk that loses unsynced writes, and links that drop and delay data. All other code
in kafkapy reaches the operating system only through these interfaces.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from kafkapy.named_tuple import NamedTuple
from kafkapy.native import mypyc_attr

T = TypeVar("T")
ReadableBuffer: TypeAlias = bytes | bytearray | memoryview


class Clock(Protocol):
    """The wall clock in milliseconds, and the monotonic clock in milliseconds and nanoseconds."""

    def wall_ms(self) -> int:
        """Return milliseconds since the Unix epoch, for records, files and log lines. May jump."""
        ...

    def monotonic_ms(self) -> int:
        """Return milliseconds of a clock that never goes back, for timers and time-outs."""
        ...

    def monotonic_ns(self) -> int:
        """Return the monotonic clock in nanoseconds, to measure durations."""
        ...


class Random(Protocol):
    """Source of randomness; seeded in tests."""

    def uuid(self) -> bytes:
        """Return 16 random bytes that form a version 4 UUID whose text does not start with a dash."""
        ...

    def randrange(self, start: int, stop: int) -> int:
        """Return an int in [start, stop)."""
        ...


class File(Protocol):
    """An open file. Positions are absolute: a File has no cursor. Methods raise OSError with a meaningful errno."""

    @property
    def path(self) -> str: ...

    def pread(self, length: int, position: int) -> bytes:
        """Return up to `length` bytes at `position`; fewer at the end of the file. May block on a cold page."""
        ...

    def pread_nowait(self, length: int, position: int) -> bytes | None:
        """Like pread, but return None if the read would block on the disk (preadv with RWF_NOWAIT)."""
        ...

    def warm(self, length: int, position: int) -> tuple[int, bool]:
        """Load bytes into the page cache. Blocks until they are there.

        Return the number of bytes loaded (fewer at the end of the file), and whether the disk was read.
        """
        ...

    def pwrite(self, buffers: Sequence[ReadableBuffer], position: int) -> int:
        """Write all buffers at `position`, in one system call if possible (pwritev); return the bytes written.

        Short writes are continued. Raises OSError (ENOSPC, EIO); part of the data may have been written then.
        """
        ...

    def size(self) -> int: ...

    def truncate(self, size: int) -> None:
        """Truncate or extend (sparsely) the file to `size` bytes."""
        ...

    def sync(self) -> None:
        """fsync: return once contents and size are durable."""
        ...

    def fileno(self) -> int:
        """Return the file descriptor for sendfile and mmap, or -1 if there is none (a simulated disk)."""
        ...

    def close(self) -> None: ...


class DirectoryLock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    """Directories and files. Creations, renames and deletions become durable with sync_directory."""

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> File: ...

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool: ...

    def list_directory(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        ...

    def scan_directory(self, path: str) -> list[tuple[str, bool]]:
        """Return the names in a directory, sorted, each with whether it is a directory or a link to one."""
        ...

    def make_directory(self, path: str) -> bool:
        """Create a directory and its parents; return whether it is new. An existing one is fine."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename `source` (file or directory) to `target`, replacing it atomically."""
        ...

    def delete(self, path: str) -> None:
        """Delete a file; a missing one is fine."""
        ...

    def delete_tree(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None: ...

    def read_file(self, path: str) -> bytes: ...

    def write_file_atomically(self, path: str, data: bytes) -> None:
        """Write path.tmp, sync, rename to `path`, sync the directory: a crash leaves the old or the new content."""
        ...

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""
        ...

    def modified_ms(self, path: str) -> int: ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the modification time, for a file that replaces an older one."""
        ...

    def lock_directory(self, path: str) -> DirectoryLock | None:
        """Take the lock file `path`/.lock; return None if another process holds it."""
        ...

    def free_bytes(self, path: str) -> int: ...

    def total_bytes(self, path: str) -> int: ...


class IoPool(Protocol):
    """Workers for calls that block and release the GIL: cold reads, fsync, CRC and (de)compression of large buffers."""

    def submit(self, call: Callable[[], T], on_done: Callable[[T | None, BaseException | None], None]) -> None:
        """Run `call` on a worker, then `on_done(result, error)` on the loop's thread. Calls may finish in any order."""
        ...

    def resize(self, worker_count: int) -> None:
        """Change the maximum number of workers (num.io.threads may change while the broker runs)."""
        ...

    def close(self) -> None:
        """Wait for all submitted calls, then end the workers."""
        ...


class System(NamedTuple):
    """The services of the computer that a node uses, except the network."""

    disk: Disk
    clock: Clock
    random: Random
    io_pool: IoPool


HELPER_NOT_STARTED: Final = "the helper process could not be started"
"""Prefix of the error text when the process failed to start, so the call itself did not cause the failure."""


class HelperProcess(Protocol):
    """A lazily started process for Python code that runs over a millisecond (cleaner, recovery, index rebuild)."""

    def submit(self, function_path: str, arguments: dict[str, Any], on_done: Callable[[Any, str | None], None]) -> None:
        """Run `package.module:function(**arguments)` in it, then `on_done(result, error text)` on the loop's thread."""
        ...

    def close(self) -> None:
        """End the process; unfinished calls complete with an error."""
        ...


@mypyc_attr(allow_interpreted_subclasses=True)
class FileRegion:
    """A range of a file that a response (Fetch) carries without reading it; the reactor sends it with sendfile.

    The region keeps its segment alive until `release`, which its holder calls exactly once: when the bytes have been
    sent or the connection is closed.
    """

    __slots__ = ("file", "length", "on_release", "position")

    def __init__(self, file: File, position: int, length: int, on_release: Callable[[], None] | None = None) -> None:
        self.file = file
        self.position = position
        self.length = length
        self.on_release = on_release

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes:
        """Return the region's bytes (may block); shorter than length only if the file was truncated meanwhile."""
        return self.file.pread(self.length, self.position)

    def narrow(self, start: int, length: int) -> None:
        """Leave `length` bytes from `start` on: a reader that wants a part of what was read."""
        assert 0 <= start <= start + length <= self.length, f"{length} bytes at {start} of {self.length}"
        self.position += start
        self.length = length

    def release(self) -> None:
        """Stop keeping the segment alive; a second call does nothing."""
        on_release, self.on_release = self.on_release, None
        if on_release is not None:
            on_release()


class Channel(Protocol):
    """A non-blocking byte stream to a peer, driven by a processor. In production a socket, plain or TLS."""

    @property
    def peer(self) -> tuple[str, int]: ...

    @property
    def local(self) -> tuple[str, int]: ...

    def receive(self, max_bytes: int) -> bytes | None:
        """Return received bytes, None if there are none yet, b"" at the end of the stream. Raises OSError."""
        ...

    def receive_into(self, buffer: memoryview) -> int | None:
        """Like receive, but into `buffer`; return the byte count, None if there are none yet, 0 at the end."""
        ...

    def send(self, buffers: Sequence[ReadableBuffer], more: bool) -> int:
        """Send what the kernel accepts now; return the byte count, possibly 0. `more`: a region follows."""
        ...

    def send_region(self, region: FileRegion, start: int, count: int) -> int:
        """Send up to `count` bytes of the region from `start`; return the byte count, possibly 0.

        Raises EOFError if the file was truncated before the region's end: the frame cannot be completed.
        """
        ...

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        """Call `callback` whenever there are bytes to receive; None stops that."""
        ...

    def await_bytes(self, count: int) -> None:
        """From now on the callback of on_readable may wait for so many bytes, or the end. A hint, and at most so many.

        The peer must owe them whatever it waits for. 1: as soon as there are any.
        """
        ...

    def on_writable(self, callback: Callable[[], None] | None) -> None: ...

    def close(self) -> None: ...


class Listener(Protocol):
    """A source of inbound channels: a listening socket, or its simulated counterpart."""

    @property
    def address(self) -> tuple[str, int]: ...

    def accept(self) -> Channel | None:
        """Return the next pending channel, or None. Raises OSError (EMFILE, ECONNABORTED, ...)."""
        ...

    def on_acceptable(self, callback: Callable[[], None] | None) -> None:
        """Call `callback` whenever channels are pending; with None they stay in the listen queue."""
        ...

    def close(self) -> None: ...


class Connector(Protocol):
    """A source of outbound channels: sockets, or a simulated network."""

    def connect(
        self, host: str, port: int, on_done: Callable[[Channel | None, OSError | None], None]
    ) -> Callable[[], None]:
        """Start to connect; `on_done` is called once, later, on the loop's thread, with a channel or an error.

        Names are resolved off the loop. Return a function that cancels the attempt: `on_done` is then not called.
        """
        ...


_failpoint_hook: Callable[[str], None] | None = None


def failpoint(name: str) -> None:
    """Mark a step at which tests may kill, delay or fail the process; a no-op unless a hook is set.

    Names have the form subsystem.operation.step, such as "log.append.after_write".
    """
    if _failpoint_hook is not None:
        _failpoint_hook(name)


def set_failpoint_hook(hook: Callable[[str], None] | None) -> None:
    """Set the function that failpoint() calls; None removes it."""
    global _failpoint_hook
    _failpoint_hook = hook
