"""A file system of a node's own, on a loop device over memory, that can be full, fail for real, and be repaired.

Sealed memory takes no more writes: the kernel says EIO. What an fsync did not write before is lost, as in a power cut.
The file system has no journal, so more is lost than on most disks. A new directory's name may be durable without its
inode: e2fsck then removes the name, or leaves it to a regular file if the inode had been a deleted file's (40 of 40
directories made directly after the deletion).
Memory that was cut short lacks what was there.
Needs root and loop devices; `MountedDisk` raises OSError or CalledProcessError without them.
"""

import contextlib
import fcntl
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

DISK_BYTES: Final = 256 << 20
"""Unless a size is given."""
LOOP_SET_FD, LOOP_CTL_GET_FREE = 0x4C00, 0x4C82  # linux/loop.h
LOOP_SET_STATUS64, LO_FLAGS_AUTOCLEAR = 0x4C04, 4
LOOP_INFO64_BYTES, FLAGS_POSITION = 232, 52
F_ADD_SEALS, F_SEAL_WRITE = 1033, 8  # linux/fcntl.h


class MountedDisk:
    """Mounted at `path` until `close`."""

    def __init__(self, path: Path, size_bytes: int = DISK_BYTES) -> None:
        self.path = path
        self._size_bytes = size_bytes
        self._ballast = path / "ballast"
        path.mkdir(exist_ok=True)
        self._memory = _new_memory(size_bytes)
        self.has_failed = False
        try:
            self._mount("mkfs.ext4", "-q", "-O", "^has_journal")
        except BaseException:
            os.close(self._memory)
            raise

    def fill(self) -> None:
        """Leave no byte free, now."""
        with contextlib.suppress(OSError), self._ballast.open("ab", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    @contextlib.contextmanager
    def kept_full(self) -> Iterator[None]:
        """Leave no byte free, and take at once what is freed, until the block ends; then free it all."""
        is_over = threading.Event()

        def take() -> None:
            while not is_over.wait(0.01):
                self.fill()

        self.fill()
        taker = threading.Thread(target=take)
        taker.start()
        try:
            yield
        finally:
            is_over.set()
            taker.join()
            self.repair()

    def fail_writes(self) -> None:
        fcntl.fcntl(self._memory, F_ADD_SEALS, F_SEAL_WRITE)
        self.has_failed = True

    def fail_reads(self) -> None:
        """All but what the page cache has; file systems keep what they need to find files at the front."""
        os.truncate(self._memory, self._size_bytes // 8)

    def forget(self, file: Path) -> None:
        """Drop a file's pages, which must be on the disk by now."""
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def repair(self) -> None:
        """Free what `fill` took; replace a disk that fails by one with its contents. Nobody may use that meanwhile."""
        if self.has_failed:
            self._replace()
        self._ballast.unlink(missing_ok=True)

    def close(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.path)], check=True)
        os.close(self._memory)

    def _replace(self) -> None:
        failed = self._memory
        subprocess.run(["umount", "--lazy", str(self.path)], check=True)
        self._memory = _new_memory(self._size_bytes)
        self.has_failed = False
        position = 0
        while position < self._size_bytes:
            position += os.copy_file_range(failed, self._memory, self._size_bytes - position, position, position)
        os.close(failed)
        self._mount("e2fsck", "-fy", may_correct=True)

    def _mount(self, *prepare: str, may_correct: bool = False) -> None:
        """Run a command on a loop device over the memory, then mount it; the device is gone when it is unmounted."""
        with contextlib.ExitStack() as undo:
            device = _loop_device(undo, self._memory)
            prepared = subprocess.run([*prepare, device], capture_output=True)
            if prepared.returncode and not (may_correct and prepared.returncode == 1):
                prepared.check_returncode()
            subprocess.run(["mount", device, str(self.path)], check=True, capture_output=True)


def _new_memory(size_bytes: int) -> int:
    memory = os.memfd_create("disk", os.MFD_ALLOW_SEALING)
    os.truncate(memory, size_bytes)
    return memory


def _loop_device(undo: contextlib.ExitStack, memory: int) -> str:
    """Return a loop device that is open until `undo`."""
    control = os.open("/dev/loop-control", os.O_RDWR)
    undo.callback(os.close, control)
    device = f"/dev/loop{fcntl.ioctl(control, LOOP_CTL_GET_FREE)}"
    opened = os.open(device, os.O_RDWR)
    undo.callback(os.close, opened)
    fcntl.ioctl(opened, LOOP_SET_FD, memory)
    info = bytearray(LOOP_INFO64_BYTES)
    info[FLAGS_POSITION] = LO_FLAGS_AUTOCLEAR
    fcntl.ioctl(opened, LOOP_SET_STATUS64, info)
    return device
