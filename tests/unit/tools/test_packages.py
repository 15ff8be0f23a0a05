"""What `make packages` checks, with faults planted. That it builds the same twice is asked by `make check`."""

import gzip
import io
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

from tools.packages import PackageError, check_contents, check_pages, repack


def wheel_of(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path / "x.whl", "w") as archive:
        for name in (*names, "kafkapy_broker-1.dist-info/METADATA"):
            archive.writestr(name, "")
    return path / "x.whl"


def test_a_wheel_of_what_is_tracked_is_fine(tmp_path: Path) -> None:
    check_contents(wheel_of(tmp_path, "kafkapy/a.py", "kafkapy/py.typed"), {"kafkapy/a.py", "kafkapy/py.typed"})


@pytest.mark.parametrize("names", [("kafkapy/a.py",), ("kafkapy/a.py", "kafkapy/py.typed", "kafkapy/deleted.py")])
def test_a_file_too_many_or_too_few_is_reported(tmp_path: Path, names: tuple[str, ...]) -> None:
    with pytest.raises(PackageError, match=r"py\.typed|deleted\.py"):
        check_contents(wheel_of(tmp_path, *names), {"kafkapy/a.py", "kafkapy/py.typed"})


def test_manual_pages_are_those_of_the_parsers(tmp_path: Path) -> None:
    names = [f"kafkapy_broker-1.data/data/share/man/man1/{name}.1" for name in ("kafkapy", "kafkapy-start")]
    wheel = wheel_of(tmp_path, *names)
    check_pages(wheel, {"kafkapy.1": "", "kafkapy-start.1": ""})
    for other in ({"kafkapy.1": ""}, {"kafkapy.1": "", "kafkapy-start.1": "changed"}):
        with pytest.raises(PackageError, match=r"kafkapy-start\.1"):
            check_pages(wheel, other)


def sdist_of(path: Path, *, mtime: int, user: str, names: tuple[str, ...]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.uname = len(name), mtime, user
            archive.addfile(member, io.BytesIO(name.encode()))
    path.write_bytes(gzip.compress(content.getvalue(), mtime=mtime))
    repack(path, 1_700_000_000)
    return path.read_bytes()


def test_an_sdist_does_not_hold_when_and_by_whom_it_was_built(tmp_path: Path) -> None:
    first = sdist_of(tmp_path / "1.tar.gz", mtime=int(time.time()), user="alice", names=("x/a", "x/b"))
    second = sdist_of(tmp_path / "2.tar.gz", mtime=5, user="bob", names=("x/b", "x/a"))
    assert first == second
    with tarfile.open(fileobj=io.BytesIO(first)) as archive:
        files = [(member.name, archive.extractfile(member)) for member in archive]
        assert [(name, file.read()) for name, file in files if file is not None] == [("x/a", b"x/a"), ("x/b", b"x/b")]
