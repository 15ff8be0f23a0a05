"""`make packages`: the wheel and the sdist, to dist/, each built twice and equal byte for byte.

Built from copies of what git tracks, so that nothing rides along that was deleted, or made, in the checkout. Times are
those of the last commit.
"""

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from tools.compiled import ROOT, copy_files, new_environment, tracked_files

PACKAGES: Final = ROOT / "dist"
BUILD: Final = "import sys; out = sys.argv[1]; from setuptools.build_meta import *; build_wheel(out); build_sdist(out)"
"""setuptools changes sys.argv."""
COUNT: Final = 2
"""A wheel and an sdist."""


class PackageError(Exception):
    """What was built is not what it should be."""


def build(packages: Path = PACKAGES) -> list[Path]:
    """Build both into `packages` and return them. Raises PackageError, CalledProcessError."""
    tracked = tracked_files()
    last_commit = ["git", "log", "-1", "--format=%ct"]
    epoch = int(subprocess.run(last_commit, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        python = new_environment(directory / "venv")
        first, second = (_built(python, directory / each, tracked, epoch) for each in ("first", "second"))
        differing = [path.name for path in first if _digest(path) != _digest(directory / "second" / "out" / path.name)]
        assert len(first) == len(second) == COUNT, f"built: {first}"
        if differing:
            raise PackageError(f"built twice, these differ: {', '.join(differing)}")
        wheel = next(path for path in first if path.suffix == ".whl")
        check_contents(wheel, {each for each in tracked if each.startswith("kafkapy/")})
        packages.mkdir(exist_ok=True)
        return [Path(shutil.copy2(path, packages)) for path in first]


def check_contents(wheel: Path, tracked: set[str]) -> None:
    """Raise PackageError unless the package's files in the wheel are those that git tracks."""
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("kafkapy/")}
    if packed != tracked:
        missing, extra = sorted(tracked - packed), sorted(packed - tracked)
        raise PackageError(f"the wheel lacks {missing} and has {extra} that are not tracked")


def repack(sdist: Path, epoch: int) -> None:
    """Write an sdist anew with nothing in it that differs from build to build: times, owners, order."""
    with tarfile.open(sdist) as archive:
        members = sorted(archive.getmembers(), key=lambda member: member.name)
        contents = {member.name: archive.extractfile(member) for member in members if member.isfile()}
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as anew:
            for member in members:
                member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
                member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
                member.pax_headers = {}
                anew.addfile(member, contents.get(member.name))
    with open(sdist, "wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=epoch) as compressed:
        compressed.write(packed.getvalue())


def _built(python: Path, directory: Path, tracked: list[str], epoch: int) -> list[Path]:
    source, out = directory / "source", directory / "out"
    out.mkdir(parents=True)
    copy_files(source, tracked)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
    subprocess.run(
        [python, "-c", BUILD, out], cwd=source, env=environment, check=True, stdout=subprocess.DEVNULL, text=True
    )
    for sdist in out.glob("*.tar.gz"):
        repack(sdist, epoch)
    return sorted(out.iterdir())


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> int:
    try:
        packages = build()
    except PackageError as error:
        print(error, file=sys.stderr)
        return 1
    for path in packages:
        print(f"{path.relative_to(ROOT)}  {path.stat().st_size} bytes  sha256 {_digest(path)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
