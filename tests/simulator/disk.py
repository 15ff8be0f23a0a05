"""SimDisk: kafkapy.seams.Disk in memory, with a page cache and a platter that differ until something is synced.

`crash(keep)` is the power going off, or the process being killed:

    "all"         the page cache survives (kill -9), and of a write that was under way any number of bytes
    "none"        only what was synced survives: contents by File.sync, names by sync_directory
    "torn"        a prefix of the unsynced writes of each file survives, the last one cut at a multiple of 512 bytes
    "reordered"   any subset of the unsynced writes of each file survives, of some of them any subset of sectors

Names (create, rename, delete) survive as a prefix of what was done in their directory. A write that is not there reads
as zeros where a later one extended the file. Chance comes from `seed`. `fork` gives a disk that goes on as another one:
so a script runs once, and the machine stops at each of its changes (crash_enumeration.py).

Faults: `capacity_bytes` (ENOSPC, with part of the write done), `fail(operation, errno, ...)`, `chill()` (pread_nowait
finds nothing until somebody has waited for a pread), `hook` (called before each operation: stalls, counting),
`crash_after` (SimCrash is raised in place of the n-th change). `effects` counts the faults that an operation met.
"""

import errno
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from kafkapy.seams import ReadableBuffer

Keep = Literal["all", "none", "torn", "reordered"]
SECTOR_BYTES = 512
CHANGES = ("create", "write", "truncate", "rename", "delete", "make_directory", "sync", "sync_directory")


class SimCrash(BaseException):
    """The process dies here; a BaseException, so that no handler of errors goes on."""


class _Inode:
    """A file's contents: `data`, and zeros behind it up to `size` (a preallocated end takes no memory).

    `pending` are changes since the last sync: (position, bytes), or (size, None) to truncate.
    """

    def __init__(self) -> None:
        self.data = bytearray()
        self.size = 0
        self.platter = b""
        self.platter_size = 0
        self.pending: list[tuple[int, bytes | None]] = []
        self.is_cold = False
        self.modified_ms = 0

    def apply(self, change: tuple[int, bytes | None]) -> None:
        position, content = change
        if content is None:
            del self.data[position:]
            self.size = position
        else:
            if position > len(self.data):
                self.data.extend(bytes(position - len(self.data)))
            self.data[position : position + len(content)] = content
            self.size = max(self.size, position + len(content))

    def read(self, length: int, position: int) -> bytes:
        length = max(min(length, self.size - position), 0)
        return bytes(self.data[position : position + length]).ljust(length, b"\0")

    @property
    def used_bytes(self) -> int:
        """What the file takes: zeros at its end take no room, as preallocation does not."""
        data = self.data
        return len(data) if not data or data[-1] else len(data.rstrip(b"\0"))

    @property
    def is_unsynced(self) -> bool:
        return bool(self.pending) and (self.size != self.platter_size or self.data != self.platter)

    def sync(self) -> None:
        if self.pending:
            self.platter = bytes(self.data)
            self.platter_size = self.size
            self.pending.clear()

    def fork(self) -> "_Inode":
        other = _Inode()
        other.data = bytearray(self.data)
        other.size = self.size
        other.platter = self.platter
        other.platter_size = self.platter_size
        other.pending = list(self.pending)
        other.is_cold = self.is_cold
        other.modified_ms = self.modified_ms
        return other

    def crash(self, keep: Keep, chance: random.Random) -> bool:
        """Return whether the contents are others now."""
        if keep == "all" or not self.pending:
            self.sync()
            return False
        before, size_before = self.data, self.size
        surviving = _surviving(self.pending, keep, chance)
        self.data = bytearray(self.platter)
        self.size = self.platter_size
        for change in surviving:
            self.apply(change)
        self.sync()
        return self.size != size_before or self.data != before


def _surviving(
    pending: list[tuple[int, bytes | None]], keep: Keep, chance: random.Random
) -> list[tuple[int, bytes | None]]:
    if keep == "none" or not pending:
        return []
    if keep == "reordered":
        return [part for change in pending for part in _surviving_parts(change, chance)]
    count = chance.randrange(len(pending) + 1)
    kept = pending[:count]
    if kept and kept[-1][1] is not None:
        position, content = kept[-1]
        sectors = (len(content) + SECTOR_BYTES - 1) // SECTOR_BYTES
        kept[-1] = (position, content[: SECTOR_BYTES * chance.randrange(sectors + 1)])
    return kept


def _surviving_parts(change: tuple[int, bytes | None], chance: random.Random) -> list[tuple[int, bytes | None]]:
    """Return a change whole, not at all, or sector by sector."""
    position, content = change
    luck = chance.random()
    if luck < 0.5 or content is None:
        return [change] if luck < 0.5 else []
    if luck < 0.75:
        return []
    sectors = range(0, len(content), SECTOR_BYTES)
    return [(position + at, content[at : at + SECTOR_BYTES]) for at in sectors if chance.random() < 0.5]


class _Directory:
    """Names in the page cache, and as of the last sync; `pending` are the states in between, oldest first."""

    def __init__(self) -> None:
        self.entries: dict[str, _Inode | _Directory] = {}
        self.platter: dict[str, _Inode | _Directory] = {}
        self.pending: list[dict[str, _Inode | _Directory]] = []

    def changed(self) -> None:
        self.pending.append(dict(self.entries))

    def sync(self) -> None:
        self.platter = dict(self.entries)
        self.pending.clear()

    def unsynced(self, path: str = "") -> Iterator[str]:
        for name, node in self.entries.items():
            if isinstance(node, _Directory):
                yield from node.unsynced(f"{path}/{name}")
            elif node.is_unsynced:
                yield f"{path}/{name}"

    def fork(self, forked: "dict[int, _Inode | _Directory]") -> "_Directory":
        """Copy all below; `forked` has by id what was copied already: a file may be in several states of its names."""
        other = forked[id(self)] = _Directory()

        def copy(names: "dict[str, _Inode | _Directory]") -> "dict[str, _Inode | _Directory]":
            return {name: _forked(node, forked) for name, node in names.items()}

        other.entries, other.platter = copy(self.entries), copy(self.platter)
        other.pending = [copy(state) for state in self.pending]
        return other

    def crash(self, keep: Keep, chance: random.Random, path: str = "") -> Iterator[str]:
        """Yield the paths of files whose contents were lost or changed. Iterate to the end: it is done only then."""
        before = self.entries
        if keep != "all":
            states = [self.platter, *(self.pending if keep != "none" else ())]
            self.entries = dict(chance.choice(states))
        self.sync()
        for name, node in before.items():
            if self.entries.get(name) is not node:
                yield from _contents(node, f"{path}/{name}")
        for name, node in self.entries.items():
            if isinstance(node, _Directory):
                yield from node.crash(keep, chance, f"{path}/{name}")
            elif node.crash(keep, chance):
                yield f"{path}/{name}"


def _contents(node: "_Inode | _Directory", path: str) -> Iterator[str]:
    """Yield the paths of files that are not empty."""
    if isinstance(node, _Inode):
        if node.data:
            yield path
        return
    for name, each in node.entries.items():
        yield from _contents(each, f"{path}/{name}")


def _forked(node: "_Inode | _Directory", forked: "dict[int, _Inode | _Directory]") -> "_Inode | _Directory":
    other = forked.get(id(node))
    if other is None:
        other = forked[id(node)] = node.fork(forked) if isinstance(node, _Directory) else node.fork()
    return other


class SimFile:
    """An open file of a SimDisk; unusable after a crash."""

    def __init__(self, disk: "SimDisk", inode: _Inode, path: str) -> None:
        self._disk = disk
        self._inode = inode
        self._boot = disk.boot
        self._is_closed = False
        self.path = path

    def _check(self) -> _Inode:
        if self._is_closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        assert self._boot == self._disk.boot, f"{self.path} was opened before the crash"
        return self._inode

    def pread(self, length: int, position: int) -> bytes:
        inode = self._check()
        self._disk.step("read", self.path)
        inode.is_cold = False
        return inode.read(length, position)

    def pread_nowait(self, length: int, position: int) -> bytes | None:
        inode = self._check()
        is_cold = inode.is_cold and not self._disk.is_undisturbed
        return None if is_cold else inode.read(length, position)

    def warm(self, length: int, position: int) -> tuple[int, bool]:
        was_cold = self._inode.is_cold
        return len(self.pread(length, position)), was_cold

    def pwrite(self, buffers: Sequence[ReadableBuffer], position: int) -> int:
        inode = self._check()
        content = b"".join(bytes(buffer) for buffer in buffers)
        self._disk.under_way = (inode, (position, content))
        self._disk.step("write", self.path)
        self._disk.under_way = None
        room = self._disk.room_for(inode, position, len(content))
        if room < len(content):
            self._change(inode, (position, content[:room]))
            self._disk.effects["full"] += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        self._change(inode, (position, content))
        return len(content)

    def _change(self, inode: _Inode, change: tuple[int, bytes | None]) -> None:
        inode.apply(change)
        inode.pending.append(change)
        inode.modified_ms = self._disk.now_ms

    def size(self) -> int:
        return self._check().size

    def truncate(self, size: int) -> None:
        inode = self._check()
        self._disk.step("truncate", self.path)
        self._change(inode, (size, None))

    def sync(self) -> None:
        inode = self._check()
        self._disk.step("sync", self.path)
        inode.sync()

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        self._is_closed = True


class SimDirectoryLock:
    def __init__(self, disk: "SimDisk", path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locked.discard(self._path)


class SimDisk:
    """See the module. Paths are absolute; "/" is there from the start."""

    def __init__(self, seed: int = 0) -> None:
        self.root = _Directory()
        self.boot = 0
        self.now_ms = 0
        self.locked: set[str] = set()
        self.capacity_bytes: int | None = None
        self.hook: Callable[[str, str], None] | None = None
        self.changes = 0
        self.crash_after: int | None = None
        self.under_way: tuple[_Inode, tuple[int, bytes]] | None = None
        """The write that `hook` is called before: where that kills the process, part of it may be done."""
        self._chance = random.Random(seed)
        self._faults: list[tuple[str, int, str, int]] = []
        self.is_undisturbed = False
        self.effects: Counter[str] = Counter()
        """How often a write found the disk full ("full"), and an operation failed (by the operation's name)."""

    # Faults

    def crash(self, keep: Keep = "none") -> list[str]:
        """Lose what the mode loses; return which files forgot something. Files that were open are gone, locks too."""
        if self.under_way is not None:
            inode, (position, content) = self.under_way
            self.under_way = None
            if keep == "all":
                part = (position, content[: self._chance.randrange(len(content) + 1)])
                inode.apply(part)
                inode.pending.append(part)
            else:
                inode.pending.append((position, content))
        forgotten = list(self.root.crash(keep, self._chance))
        self.boot += 1
        self.locked.clear()
        self.crash_after = None
        return forgotten

    def fork(self, seed: int) -> "SimDisk":
        """Return a disk in the state of this one that goes its own way: no hook, no faults, chance from `seed`."""
        other = SimDisk(seed)
        forked: dict[int, _Inode | _Directory] = {}
        other.root = self.root.fork(forked)
        if self.under_way is not None:
            inode, change = self.under_way
            found = forked.get(id(inode))
            other.under_way = (found, change) if isinstance(found, _Inode) else None
        other.boot, other.now_ms, other.changes = self.boot, self.now_ms, self.changes
        other.locked = set(self.locked)
        return other

    def fail(self, operation: str, code: int = errno.EIO, *, path: str = "", times: int = 1) -> None:
        """Let the next `times` operations (read, write, truncate, sync, ...) on paths that contain `path` fail."""
        self._faults.append((operation, code, path, times))

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Let a checker look at files: nothing fails, is cold, and faults are left for those whom they are for."""
        faults, self._faults, self.is_undisturbed = self._faults, [], True
        try:
            yield
        finally:
            self._faults, self.is_undisturbed = faults, False

    def heal(self) -> None:
        """Let nothing fail any more."""
        self._faults.clear()
        self.capacity_bytes = None

    def chill(self) -> None:
        """Drop the page cache: pread_nowait finds nothing in a file until a pread, or a warm, has waited for it."""
        for inode in self._inodes(self.root):
            inode.is_cold = True

    def sync_all(self) -> None:
        """Make everything durable, as `sync` does."""
        self._sync_all(self.root)

    def _sync_all(self, directory: _Directory) -> None:
        directory.sync()
        for node in directory.entries.values():
            if isinstance(node, _Inode):
                node.sync()
            else:
                self._sync_all(node)

    def step(self, operation: str, path: str) -> None:
        """Run before each operation."""
        if self.hook is not None:
            self.hook(operation, path)
        if operation in CHANGES:
            if self.crash_after is not None and self.changes >= self.crash_after:
                raise SimCrash(f"{operation} {path}")
            self.changes += 1
        for slot, (failing, code, part, times) in enumerate(self._faults):
            if failing == operation and part in path:
                self._faults[slot : slot + 1] = [(failing, code, part, times - 1)] if times > 1 else []
                self.under_way = None
                self.effects[operation] += 1
                raise OSError(code, os.strerror(code), path)

    def unsynced(self) -> Iterator[str]:
        """Yield the paths of files whose contents a loss of power may change."""
        yield from self.root.unsynced()

    def room_for(self, inode: _Inode, position: int, length: int) -> int:
        """Return how much of a write fits."""
        if self.capacity_bytes is None:
            return length
        used = self.used_bytes()
        grows = max(position + length - inode.used_bytes, 0)
        return max(length - max(used + grows - self.capacity_bytes, 0), 0)

    def used_bytes(self) -> int:
        """Return what all files take."""
        return sum(node.used_bytes for node in self._inodes(self.root))

    def _inodes(self, directory: _Directory) -> list[_Inode]:
        found = []
        for node in directory.entries.values():
            found += [node] if isinstance(node, _Inode) else self._inodes(node)
        return found

    # The seam

    def _find(self, path: str) -> "_Inode | _Directory | None":
        node: _Inode | _Directory | None = self.root
        for name in _names(path):
            if not isinstance(node, _Directory):
                return None
            node = node.entries.get(name)
        return node

    def _directory(self, path: str) -> _Directory:
        node = self._find(path)
        if not isinstance(node, _Directory):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    def _parent(self, path: str) -> tuple[_Directory, str]:
        parent, _, name = path.rstrip("/").rpartition("/")
        return self._directory(parent), name

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> SimFile:
        self.step("open", path)
        node = self._find(path)
        if node is None and create:
            self.step("create", path)
            directory, name = self._parent(path)
            node = directory.entries[name] = _Inode()
            node.modified_ms = self.now_ms
            directory.changed()
        if not isinstance(node, _Inode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return SimFile(self, node, path)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def is_directory(self, path: str) -> bool:
        return isinstance(self._find(path), _Directory)

    def list_directory(self, path: str) -> list[str]:
        return sorted(self._directory(path).entries)

    def scan_directory(self, path: str) -> list[tuple[str, bool]]:
        return sorted((name, isinstance(node, _Directory)) for name, node in self._directory(path).entries.items())

    def make_directory(self, path: str) -> bool:
        directory, is_new = self.root, False
        for name in _names(path):
            if name not in directory.entries:
                self.step("make_directory", path)
                directory.entries[name] = _Directory()
                directory.changed()
                is_new = True
            node = directory.entries[name]
            assert isinstance(node, _Directory), f"{path} is a file"
            directory = node
        return is_new

    def rename(self, source: str, target: str) -> None:
        self.step("rename", source)
        source_directory, source_name = self._parent(source)
        target_directory, target_name = self._parent(target)
        if source_name not in source_directory.entries:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        target_directory.entries[target_name] = source_directory.entries.pop(source_name)
        source_directory.changed()
        if target_directory is not source_directory:
            target_directory.changed()

    def delete(self, path: str) -> None:
        node = self._find(path)
        if node is None:
            return
        self.step("delete", path)
        directory, name = self._parent(path)
        del directory.entries[name]
        directory.changed()

    def delete_tree(self, path: str) -> None:
        node = self._find(path)
        if isinstance(node, _Directory):
            for name in list(node.entries):
                self.delete_tree(f"{path}/{name}")
        self.delete(path)

    def sync_directory(self, path: str) -> None:
        self.step("sync_directory", path)
        self._directory(path).sync()

    def read_file(self, path: str) -> bytes:
        file = self.open(path)
        return file.pread(file.size(), 0)

    def write_file_atomically(self, path: str, data: bytes) -> None:
        file = self.open(path + ".tmp", create=True)
        file.truncate(0)
        file.pwrite((data,), 0)
        file.sync()
        self.rename(path + ".tmp", path)
        self.sync_directory(path.rpartition("/")[0])

    def size(self, path: str) -> int:
        return self.open(path, writable=False).size()

    def modified_ms(self, path: str) -> int:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return node.modified_ms if isinstance(node, _Inode) else 0

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        assert isinstance(node, _Inode), f"{path} is no file"
        node.modified_ms = modified_ms

    def lock_directory(self, path: str) -> SimDirectoryLock | None:
        if path in self.locked:
            return None
        self.locked.add(path)
        self.open(f"{path}/.lock", create=True).close()
        return SimDirectoryLock(self, path)

    def free_bytes(self, path: str) -> int:
        return max(self.capacity_bytes - self.used_bytes(), 0) if self.capacity_bytes is not None else 1 << 40

    def total_bytes(self, path: str) -> int:
        return self.capacity_bytes if self.capacity_bytes is not None else 1 << 40


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name]
