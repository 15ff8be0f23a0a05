"""What a simulator replaces: the clock, chance, the disk, channels to peers, the IO pool, the helper process.

Production implements these in reactor/, storage/system_disk.py and server/system_clock.py; tests/simulator/ implements
them with virtual time, a disk that forgets what was not synced, and links that lose and delay. Nothing else in kafkapy
may touch the world.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias, TypeVar

T = TypeVar("T")
ReadableBuffer: TypeAlias = bytes | bytearray | memoryview


class Clock(Protocol):
    """Both clocks in milliseconds, the second also in nanoseconds."""

    def wall_ms(self) -> int:
        """Return milliseconds since the Unix epoch: what goes into records, files and log lines; may jump."""
        ...

    def monotonic_ms(self) -> int:
        """Return milliseconds of a clock that never goes back: what timers and time-outs count by."""
        ...

    def monotonic_ns(self) -> int:
        """Return the same in nanoseconds: what work is timed by."""
        ...


class Random(Protocol):
    """Chance, seeded in tests."""

    def uuid(self) -> bytes:
        """Return 16 random bytes that form a version 4 UUID whose text does not start with a dash."""
        ...

    def randrange(self, start: int, stop: int) -> int:
        """Return an int in [start, stop)."""
        ...


class File(Protocol):
    """An open file. Positions are absolute: a File has no cursor. OSError comes out as it is (errno is meaningful)."""

    @property
    def path(self) -> str: ...

    def pread(self, length: int, position: int) -> bytes:
        """Return up to `length` bytes at `position`; fewer at the end of the file. May block on a cold page."""
        ...

    def pread_nowait(self, length: int, position: int) -> bytes | None:
        """As pread, but None where it would have to wait for the disk (preadv with RWF_NOWAIT)."""
        ...

    def warm(self, length: int, position: int) -> tuple[int, bool]:
        """Bring bytes into the page cache and wait until they are there.

        Return how many are, fewer at the end of the file, and whether anything was read from the disk.
        """
        ...

    def pwrite(self, buffers: Sequence[ReadableBuffer], position: int) -> int:
        """Write all buffers at `position` in one call where the system can (pwritev); return the bytes written.

        A short write is completed; an error (ENOSPC, EIO) is raised as OSError with part of it possibly written.
        """
        ...

    def size(self) -> int: ...

    def truncate(self, size: int) -> None:
        """Cut or extend (sparsely) the file to `size` bytes."""
        ...

    def sync(self) -> None:
        """fsync: return once contents and size are durable."""
        ...

    def fileno(self) -> int:
        """Return the descriptor for sendfile and mmap, or -1 where there is none (a simulated disk)."""
        ...

    def close(self) -> None: ...


class DirectoryLock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    """Directories and durable files. Names that were created, renamed or deleted are durable after sync_directory."""

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> File: ...

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool: ...

    def list_directory(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        ...

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents; an existing one is fine."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Replace `target` atomically by `source` (file or directory)."""
        ...

    def delete(self, path: str) -> None:
        """Delete a file; a missing one is fine."""
        ...

    def delete_tree(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None: ...

    def read_file(self, path: str) -> bytes: ...

    def write_file_atomically(self, path: str, data: bytes) -> None:
        """Write path.tmp, sync it, rename it over `path`, sync the directory: after a crash, old or new, never half."""
        ...

    def modified_ms(self, path: str) -> int: ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Give a file the age of another one that it stands for."""
        ...

    def lock_directory(self, path: str) -> DirectoryLock | None:
        """Take `path`/.lock; None where another process has it."""
        ...

    def free_bytes(self, path: str) -> int: ...

    def total_bytes(self, path: str) -> int: ...


class IoPool(Protocol):
    """Workers for calls that block and release the GIL: cold reads, fsync, CRC and (de)compression of large buffers."""

    def submit(self, call: Callable[[], T], on_done: Callable[[T | None, BaseException | None], None]) -> None:
        """Run `call` on a worker; then `on_done(result, error)` on the loop's thread. Order is kept only per worker."""
        ...

    def resize(self, worker_count: int) -> None:
        """Have at most so many workers from now on (num.io.threads may change while the broker runs)."""
        ...

    def close(self) -> None:
        """Wait for what was submitted; the workers end."""
        ...


HELPER_NOT_STARTED: Final = "the helper process could not be started"
"""So an error text begins where a call has not even begun: it is not to blame."""


class HelperProcess(Protocol):
    """A lazily started process for Python loops longer than a millisecond (cleaner, recovery, index rebuild)."""

    def submit(self, function_path: str, arguments: dict[str, Any], on_done: Callable[[Any, str | None], None]) -> None:
        """Run `package.module:function(**arguments)` there; then `on_done(result, error text)` on the loop's thread."""
        ...

    def close(self) -> None:
        """End the process; calls that were not done get an error."""
        ...


class FileRegion:
    """Bytes of a file that a response carries without reading them: what Fetch hands to the reactor.

    The holder of a region keeps its segment alive: `release` is called exactly once, when the bytes have left or the
    connection is gone.
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
        """Return the region's bytes (may block); shorter than length only where the file was cut meanwhile."""
        return self.file.pread(self.length, self.position)

    def release(self) -> None:
        """Let go of the segment; a second call does nothing."""
        on_release, self.on_release = self.on_release, None
        if on_release is not None:
            on_release()


class Channel(Protocol):
    """A byte stream to a peer, non-blocking: what a processor drives. In production a socket, plain or TLS."""

    @property
    def peer(self) -> tuple[str, int]: ...

    @property
    def local(self) -> tuple[str, int]: ...

    def receive(self, max_bytes: int) -> bytes | None:
        """Return what has arrived: None when nothing has yet, b"" when the peer has ended. Raises OSError."""
        ...

    def receive_into(self, buffer: memoryview) -> int | None:
        """As receive, but straight into `buffer`; return the count, None when nothing has come, 0 at the end."""
        ...

    def send(self, buffers: Sequence[ReadableBuffer], more: bool) -> int:
        """Hand over what the kernel takes now, return the count (0 when it takes nothing). `more`: a region follows."""
        ...

    def send_region(self, region: FileRegion, start: int, count: int) -> int:
        """Send `count` bytes of the region from `start`; return those taken, 0 when none could be.

        Raises EOFError where the file ends before the region does: it was cut, so the frame cannot be finished.
        """
        ...

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        """Call back while there is something to receive; None stops that."""
        ...

    def on_writable(self, callback: Callable[[], None] | None) -> None: ...

    def close(self) -> None: ...


class Listener(Protocol):
    """Where channels come from: a listening socket, or a simulated network's end of one."""

    @property
    def address(self) -> tuple[str, int]: ...

    def accept(self) -> Channel | None:
        """Return the next channel that waits, None when none does. Raises OSError (EMFILE, ECONNABORTED, ...)."""
        ...

    def on_acceptable(self, callback: Callable[[], None] | None) -> None:
        """Call back while channels wait to be accepted; None stops that: they then wait in the backlog."""
        ...

    def close(self) -> None: ...


class Connector(Protocol):
    """Where outbound channels come from: the sockets of this machine, or a simulated network."""

    def connect(
        self, host: str, port: int, on_done: Callable[[Channel | None, OSError | None], None]
    ) -> Callable[[], None]:
        """Begin to connect; `on_done` is called once, later, on the loop's thread, with a channel or an error.

        Names are resolved off the loop. Return what calls the attempt off: then `on_done` is not called any more.
        """
        ...


_failpoint_hook: Callable[[str], None] | None = None


def failpoint(name: str) -> None:
    """Mark a step at which tests may kill, delay or fail the process; does nothing unless a hook is set.

    Names read subsystem.operation.step, such as "log.append.after_write".
    """
    if _failpoint_hook is not None:
        _failpoint_hook(name)


def set_failpoint_hook(hook: Callable[[str], None] | None) -> None:
    """Install what failpoint() calls; None switches it off."""
    global _failpoint_hook
    _failpoint_hook = hook
