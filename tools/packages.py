"""`make packages`: the wheel and the sdist, to dist/, each built twice and equal byte for byte; installed and used.

Built from copies of what git tracks, so that nothing rides along that was deleted, or made, in the checkout; the manual
pages are made while they are built. Times are those of the last commit. Used from an empty directory by the Python that
runs this, with the packages that it has; `--pythons` lets pip install the wheel with all that it needs for each
supported Python of this machine, too.
"""

import argparse
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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from kafkapy.cli.manual import pages
from tools.compiled import ROOT, copy_files, layered_environment, tracked_files
from tools.pythons import SUPPORTED, interpreter

PACKAGES: Final = ROOT / "dist"
BUILD: Final = "import sys; out = sys.argv[1]; from setuptools.build_meta import *; build_wheel(out); build_sdist(out)"
"""setuptools changes sys.argv."""
MANUAL: Final = "share/man/man1"
PAGE: Final = ("topics", "create")
"""The command whose manual page is compared with the one installed."""
COUNT: Final = 2
"""A wheel and an sdist."""
PIP_INSTALL: Final = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
USE: Final = """
import kafkapy, sys
with kafkapy.Broker() as broker:
    broker.create_topics("orders", partitions=3)
    broker.restart()
print(f"Python {sys.version.split()[0]} runs {kafkapy.__file__}")
"""


class PackageError(Exception):
    """What was built is not what it should be."""


def build(packages: Path = PACKAGES) -> list[Path]:
    """Build both into `packages` and return them. Raises PackageError, CalledProcessError."""
    tracked = tracked_files()
    last_commit = ["git", "log", "-1", "--format=%ct"]
    epoch = int(subprocess.run(last_commit, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        python = layered_environment(directory / "venv")
        first, second = (_built(python, directory / each, tracked, epoch) for each in ("first", "second"))
        differing = [path.name for path in first if _digest(path) != _digest(directory / "second" / "out" / path.name)]
        assert len(first) == len(second) == COUNT, f"built: {first}"
        if differing:
            raise PackageError(f"built twice, these differ: {', '.join(differing)}")
        wheel = next(path for path in first if path.suffix == ".whl")
        check_contents(wheel, {each for each in tracked if each.startswith("kafkapy/")})
        check_pages(wheel, pages())
        packages.mkdir(exist_ok=True)
        return [Path(shutil.copy2(path, packages)) for path in first]


def check_contents(wheel: Path, tracked: set[str]) -> None:
    """Raise PackageError unless the package's files in the wheel are those that git tracks."""
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("kafkapy/")}
    if packed != tracked:
        missing, extra = sorted(tracked - packed), sorted(packed - tracked)
        raise PackageError(f"the wheel lacks {missing} and has {extra} that are not tracked")


def check_pages(wheel: Path, expected: Mapping[str, str]) -> None:
    """Raise PackageError unless the wheel installs these manual pages."""
    with zipfile.ZipFile(wheel) as archive:
        packed = {
            name.rpartition("/")[2]: archive.read(name).decode()
            for name in archive.namelist()
            if name.rpartition("/")[0].endswith(f".data/data/{MANUAL}")
        }
    if packed != expected:
        differing = sorted(name for name in {*packed, *expected} if packed.get(name) != expected.get(name))
        raise PackageError(f"the wheel's manual pages are not those of the parsers: {differing}")


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


def check_use(package: Path, directory: Path) -> str:
    """Install a wheel or an sdist without its dependencies, use it, and return what that printed.

    Raises CalledProcessError.
    """
    python = layered_environment(directory / "venv")
    pip = [str(python), *PIP_INSTALL]
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", str(package)], check=True)
    return _used(python, directory / "empty")


def check_use_by(interpreter: str, wheel: Path, directory: Path) -> str:
    """Install a wheel with all that it needs for an interpreter; as check_use."""
    subprocess.run([interpreter, "-m", "venv", directory / "venv"], check=True)
    python = directory / "venv" / "bin" / "python"
    pip = [str(python), *PIP_INSTALL]
    subprocess.run([*pip, f"{wheel}[cli]"], check=True)
    return _used(python, directory / "empty")


def _used(python: Path, empty: Path) -> str:
    """Use the command and the package from an empty directory; return what was printed."""
    empty.mkdir()
    kafkapy = str(python.with_name("kafkapy"))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    commands = ([kafkapy, "--version"], [kafkapy, "man", *PAGE], [str(python), "-c", USE])
    printed = [
        subprocess.run(command, cwd=empty, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
        for command in commands
    ]
    page = python.parents[1] / MANUAL / f"{'-'.join(('kafkapy', *PAGE))}.1"
    if page.read_text() != printed[1]:
        raise PackageError(f"{page} is another page than the command prints")
    if str(python.parents[1]) not in printed[-1]:
        raise PackageError(f"another kafkapy was used: {printed[-1]}")
    return printed[-1]


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
    parser = argparse.ArgumentParser(prog="make packages", description=__doc__)
    parser.add_argument("--pythons", action="store_true", help="also install it for each supported Python")
    given = parser.parse_args()
    try:
        packages = build()
        for path in packages:
            print(f"{path.relative_to(ROOT)}  {path.stat().st_size} bytes  sha256 {_digest(path)}")
        with tempfile.TemporaryDirectory() as directory:
            use(packages, Path(directory), pythons=SUPPORTED if given.pythons else ())
    except PackageError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def use(packages: list[Path], directory: Path, *, pythons: Sequence[str]) -> None:
    """Install and use the packages; the wheel also for these versions of Python, those that are here."""
    for number, package in enumerate(packages):
        (directory / str(number)).mkdir()
        print(f"{package.name}: {check_use(package, directory / str(number))}", end="")
    wheel = next(path for path in packages if path.suffix == ".whl")
    for version in pythons:
        found = interpreter(version)
        if found is None:
            print(f"{wheel.name}: Python {version} is not here: skipped")
            continue
        (directory / version).mkdir()
        print(f"{wheel.name}: {check_use_by(found, wheel, directory / version)}", end="")


if __name__ == "__main__":
    sys.exit(main())
