"""SystemDisk on real files. What the tests of storage assume of a disk holds for it and for SimDisk alike."""

import errno
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkapy.seams import Disk, set_failpoint_hook
from kafkapy.storage.segment.open_files import FileHandle, OpenFiles, PinnedRegion
from kafkapy.storage.system_disk import SystemDisk
from tests.simulator.disk import SimDisk
from tests.support.interpreter import needs_interpreter


@pytest.fixture(params=["system", "without fsync", "sim"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Disk, str]:
    if request.param != "sim":
        return SystemDisk(syncs=request.param == "system"), str(tmp_path)
    disk = SimDisk()
    disk.make_directory("/here")
    return disk, "/here"


def test_files_are_written_and_read_at_positions(place: tuple[Disk, str]) -> None:
    disk, path = place
    file = disk.open(f"{path}/f", create=True)
    assert file.pwrite((b"abc", bytearray(b"def"), memoryview(b"g")), 2) == 7
    assert file.pwrite((b"X",), 0) == 1
    assert file.pread(100, 0) == b"X\0abcdefg"
    assert file.pread(2, 3) == b"bc"
    assert file.pread(5, 9) == b""
    assert (file.pread_nowait(3, 2), file.pread_nowait(9, 6)) == (b"abc", b"efg")
    assert [file.warm(*part)[0] for part in ((3, 2), (9, 6), (1, 9))] == [3, 3, 0]
    file.truncate(4)
    assert file.pread(100, 0) == b"X\0ab"
    file.truncate(6)
    assert (file.pread(100, 0), file.size()) == (b"X\0ab\0\0", 6)
    file.sync()
    file.close()
    with pytest.raises(OSError) as caught:
        file.pread(1, 0)
    assert caught.value.errno == errno.EBADF


def test_many_buffers_are_written_in_order(place: tuple[Disk, str]) -> None:
    disk, path = place
    file = disk.open(f"{path}/f", create=True)
    buffers = [bytes([i % 251]) * 3 for i in range(3000)]
    assert file.pwrite(buffers, 10) == 9000
    assert file.pread(9000, 10) == b"".join(buffers)
    file.close()


def test_directories(place: tuple[Disk, str]) -> None:
    disk, path = place
    assert disk.make_directory(f"{path}/a/b"), "with the directories above it"
    assert not disk.make_directory(f"{path}/a/b")
    disk.write_file_atomically(f"{path}/a/b/f", b"1")
    disk.write_file_atomically(f"{path}/a/b/f", b"2")
    assert disk.read_file(f"{path}/a/b/f") == b"2"
    assert disk.list_directory(f"{path}/a/b") == ["f"]
    assert (disk.is_directory(f"{path}/a/b"), disk.is_directory(f"{path}/a/b/f")) == (True, False)
    disk.write_file_atomically(f"{path}/a/c", b"1")
    assert disk.make_directory(f"{path}/a/a")
    with pytest.raises((FileExistsError, AssertionError)):
        disk.make_directory(f"{path}/a/c")
    assert disk.scan_directory(f"{path}/a") == [("a", True), ("b", True), ("c", False)]
    disk.rename(f"{path}/a", f"{path}/c")
    assert (disk.exists(f"{path}/a"), disk.exists(f"{path}/c/b/f")) == (False, True)
    disk.sync_directory(path)
    disk.delete(f"{path}/c/b/f")
    disk.delete(f"{path}/c/b/f")
    disk.delete_tree(f"{path}/c")
    disk.delete_tree(f"{path}/c")
    with pytest.raises(OSError):
        disk.scan_directory(f"{path}/c")
    assert disk.list_directory(path) == []
    assert 0 < disk.free_bytes(path) <= disk.total_bytes(path)


def test_a_file_that_is_replaced_while_its_directory_is_renamed_goes_with_it(tmp_path: Path) -> None:
    """A topic is deleted and created again while a worker writes a file of the old log."""

    def rename(name: str) -> None:
        if name == "disk.replace.before_rename":
            (tmp_path / "t-0").rename(tmp_path / "deleted")
            (tmp_path / "t-0").mkdir()
            (tmp_path / "t-0" / "f.tmp").write_bytes(b"another's")

    (tmp_path / "t-0").mkdir()
    set_failpoint_hook(rename)
    try:
        SystemDisk().write_file_atomically(f"{tmp_path}/t-0/f", b"1")
    finally:
        set_failpoint_hook(None)
    found = {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.glob("*/*")}
    assert found == {"deleted/f": b"1", "t-0/f.tmp": b"another's"}


@pytest.mark.parametrize("call", ["open", "list_directory", "read_file", "sync_directory"])
def test_a_missing_path_is_file_not_found(place: tuple[Disk, str], call: str) -> None:
    disk, path = place
    with pytest.raises(FileNotFoundError):
        getattr(disk, call)(f"{path}/nothing")


def test_a_directory_is_locked_once(place: tuple[Disk, str]) -> None:
    disk, path = place
    lock = disk.lock_directory(path)
    assert lock is not None
    assert disk.lock_directory(path) is None
    lock.release()
    lock.release()
    again = disk.lock_directory(path)
    assert again is not None
    again.release()


def test_the_lock_keeps_other_processes_out(tmp_path: Path) -> None:
    import subprocess
    import sys

    lock = SystemDisk().lock_directory(str(tmp_path))
    assert lock is not None
    program = (
        "import sys; from kafkapy.storage.system_disk import SystemDisk; "
        "print(SystemDisk().lock_directory(sys.argv[1]) is None)"
    )
    result = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert result.stdout == "True\n"
    lock.release()


def test_modification_times_are_milliseconds(tmp_path: Path) -> None:
    disk = SystemDisk()
    disk.write_file_atomically(f"{tmp_path}/f", b"")
    assert 1_600_000_000_000 < disk.modified_ms(f"{tmp_path}/f") < 10_000_000_000_000


@pytest.fixture
def make_handles(place: tuple[Disk, str]) -> Iterator[Callable[..., tuple[OpenFiles, list[FileHandle]]]]:
    """Makes handles whose files hold their numbers, and closes them with the test."""
    disk, path = place
    made: list[FileHandle] = []

    def make(*, capacity: int, count: int) -> tuple[OpenFiles, list[FileHandle]]:
        files = OpenFiles(disk, capacity)
        made.extend(FileHandle(files, f"{path}/{i}") for i in range(count))
        for i, handle in enumerate(made):
            handle.create().pwrite((b"%d" % i,), 0)
        return files, made

    yield make
    for handle in made:
        handle.close()


def test_the_least_used_files_are_closed(make_handles: Callable[..., tuple[OpenFiles, list[FileHandle]]]) -> None:
    files, found = make_handles(capacity=3, count=10)
    assert len(files) == 3
    assert [handle.file.pread(1, 0) for handle in found] == [b"%d" % i for i in range(10)]
    assert len(files) == 3


def test_pinned_files_stay_open(make_handles: Callable[..., tuple[OpenFiles, list[FileHandle]]]) -> None:
    files, found = make_handles(capacity=2, count=6)
    regions = [PinnedRegion(handle, 0, 1) for handle in found]
    assert [region.read() for region in regions] == [b"%d" % i for i in range(6)]
    for region in regions:
        region.release()
        region.release()
    assert all(not handle.pins for handle in found)
    _ = found[0].file
    assert len(files) <= 6


class CountedRing(OrderedDict[FileHandle, None]):
    """Counts the steps of the walks over it."""

    steps = 0

    def move_to_end(self, key: FileHandle, last: bool = True) -> None:
        self.steps += 1
        super().move_to_end(key, last)


def test_opening_many_files_that_are_pinned_does_not_walk_over_all_of_them_each_time(
    make_handles: Callable[..., tuple[OpenFiles, list[FileHandle]]],
) -> None:
    """A fetch of 5,000 partitions spent 2 s in these walks, at 4,096 open files."""
    count, capacity = 600, 40
    files, found = make_handles(capacity=capacity, count=count)
    files._ring = ring = CountedRing(files._ring)
    regions = [PinnedRegion(handle, 0, 1) for handle in found]
    assert len(files) == count
    assert 0 < ring.steps < 200 * count, "it would be 600 steps for each"
    for region in regions:
        region.release()
    for handle in found[: capacity // 8 + 1]:
        handle.close()
        _ = handle.file
        FileHandle(files, f"{handle.path}-more").create()
    assert len(files) <= capacity + capacity // 8, "once they are released their files are closed"


def test_a_deleted_file_is_readable_until_it_is_released(
    place: tuple[Disk, str], make_handles: Callable[..., tuple[OpenFiles, list[FileHandle]]]
) -> None:
    disk, path = place
    files, [handle] = make_handles(capacity=2, count=1)
    region = PinnedRegion(handle, 0, 1)
    handle.delete()
    assert not disk.exists(f"{path}/0")
    assert region.read() == b"0"
    region.release()
    assert (handle.is_open, len(files)) == (False, 0)


def test_no_space_is_raised_as_it_is() -> None:
    file = SystemDisk().open("/dev/full", writable=True)
    with pytest.raises(OSError) as caught:
        file.pwrite((b"x",), 0)
    assert caught.value.errno == errno.ENOSPC
    file.close()


def test_a_short_write_is_completed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import os

    from kafkapy.storage import system_disk

    whole = os.pwritev
    monkeypatch.setattr(system_disk.os, "pwritev", lambda fd, buffers, at: whole(fd, [bytes(buffers[0])[:2]], at))
    file = SystemDisk().open(f"{tmp_path}/f", create=True)
    buffers: list[Any] = [b"abc", b"def"]
    assert file.pwrite(buffers, 1) == 6
    assert file.pread(9, 1) == b"abcdef"
    file.close()


def test_a_link_is_what_it_leads_to(tmp_path: Path) -> None:
    disk, path = SystemDisk(), str(tmp_path)
    disk.make_directory(f"{path}/directory")
    disk.write_file_atomically(f"{path}/file", b"1")
    for name, target in (("to-directory", "directory"), ("to-file", "file"), ("to-nothing", "gone"), ("turn", "turn")):
        (tmp_path / name).symlink_to(target)
    found = dict(disk.scan_directory(path))
    assert found == {name: disk.is_directory(f"{path}/{name}") for name in disk.list_directory(path)}
    assert [name for name, is_directory in found.items() if is_directory] == ["directory", "to-directory"]


@needs_interpreter("it replaces os.read, as a disk with a bad sector would")
def test_a_short_read_is_not_the_end_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux returns what lies before a bad sector, and the error at the next read."""
    (tmp_path / "f").write_bytes(b"abcdef")
    read = os.read
    monkeypatch.setattr(os, "read", lambda descriptor, count: read(descriptor, min(count, 4)))
    assert SystemDisk().read_file(str(tmp_path / "f")) == b"abcdef"
