"""Get the Pythons that this machine's Debian does not have yet, of Debian's sid, into .tools/pythons: 3.14 and 3.15.

`python -m tools.next_pythons` does so once: some seconds, 150 MB. Nothing is installed: apt reads sid's lists into a
folder of its own and downloads what the Pythons need, libc with them, as if nothing were here; the interpreters are
told to use that libc. They make virtual environments like any other Python, and tools/pythons.py finds them. Where no
Debian archive can be reached the reason is printed, and the tests on these Pythons are skipped.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tools.pythons import NEXT_PYTHONS

VERSIONS: Final = ("3.14", "3.15")
SUITE: Final = "sid"
KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
PACKAGES: Final = (
    *(f"python{version}{part}" for version in VERSIONS for part in ("", "-venv")),
    "libstdc++6",  # for extension modules in C++
    "patchelf",
)
HEADERS: Final = tuple(f"libpython{version}-dev" for version in VERSIONS)
"""For `make compiled`; downloaded alone: they depend on libc's headers, which a C compiler brings."""
ARCHIVES: Final = ("apt-get", "indextargets", "--format", "$(ORIGIN) $(COMPONENT) $(REPO_URI)", "Created-By: Packages")
SETTINGS: Final = """
Dir::State "{directory}";
Dir::State::lists "{directory}/lists";
Dir::State::status "{directory}/status";
Dir::Cache "{directory}/cache";
Dir::Etc::sourcelist "{directory}/next.sources";
Dir::Etc::sourceparts "-";
APT::Sandbox::User "root";
#clear APT::Update;
"""
"""Of apt: its other settings, such as a proxy, stay. The sandbox's user could not read a checkout below /root."""
SOURCES: Final = """Types: deb
URIs: {archive}
Suites: {suite}
Components: main
Targets: Packages
Signed-By: {keyring}
"""
CHECK: Final = "import ctypes, hashlib, lzma, sqlite3, ssl, venv, zlib"

NOT_COMPILED: Final = "/(test|idlelib|tkinter|turtledemo)/"


class NotHereError(Exception):
    """The Pythons cannot be had on this machine; the text says why."""


def fetch(target: Path = NEXT_PYTHONS) -> None:
    """Make `target` with the Pythons, unless it is there. Raises NotHereError, OSError."""
    if target.exists():
        return
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise NotHereError("this is no Debian")
    print(f"fetching Python {' and '.join(VERSIONS)} from Debian's {SUITE}", flush=True)
    target = target.parent.resolve() / target.name  # the interpreters keep the path, and .tools may be a link
    work = target.with_name(f"{target.name}.partial")
    shutil.rmtree(work, ignore_errors=True)
    try:
        packages = download(work / "apt", debian_archive())
        for package in packages:
            _run(["dpkg", "-x", str(package), str(work / "root")])
        (work / "root").rename(target)
        for version in VERSIONS:
            relocate(target, version)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def debian_archive() -> str:
    """Return the address of the Debian archive that this machine's apt is configured for. Raises NotHereError."""
    for line in _run(list(ARCHIVES)).splitlines():
        origin, component, address = line.split(" ", 2)
        if (origin, component) == ("Debian", "main"):
            return address
    raise NotHereError("apt knows no Debian archive: run `apt-get update` if it is configured")


def download(directory: Path, archive: str) -> list[Path]:
    """Download the packages and all that they need, below `directory`; return the files. Raises NotHereError."""
    archives = directory / "cache" / "archives"
    for each in (archives / "partial", directory / "lists" / "partial"):
        each.mkdir(parents=True)
    (directory / "status").touch()  # as if nothing were installed
    (directory / "next.sources").write_text(SOURCES.format(archive=archive, suite=SUITE, keyring=KEYRING))
    (directory / "settings").write_text(SETTINGS.format(directory=directory))
    environment = {**os.environ, "APT_CONFIG": str(directory / "settings")}
    _run(["apt-get", "update", "-qq", "--error-on=any"], environment)
    needed = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "--download-only", *PACKAGES]
    _run(needed, environment)
    _run(["apt-get", "download", "-qq", *HEADERS], environment, archives)
    packages = sorted(archives.glob("*.deb"))
    if not packages:
        raise NotHereError("no package was downloaded")
    return packages


def relocate(root: Path, version: str) -> None:
    """Let the Python below `root` use the libraries and pip's wheel that lie there. Raises NotHereError."""
    (loader,) = root.glob("usr/lib/*/ld-linux*.so.*")
    libraries, python = loader.parent, root / "usr" / "bin" / f"python{version}"
    patchelf = [str(loader), "--library-path", str(libraries), str(root / "usr" / "bin" / "patchelf")]
    # RPATH, which counts for extension modules, too. In this order: patchelf 0.18 ruins the file in the other one.
    _run([*patchelf, "--force-rpath", "--set-rpath", str(libraries), str(python)])
    _run([*patchelf, "--set-interpreter", str(loader), str(python)])
    for settings in root.glob(f"usr/lib/python{version}/_sysconfigdata*.py"):  # ensurepip asks it for pip's wheel
        moved = settings.read_text().replace("'WHEEL_PKG_DIR': '/usr/", f"'WHEEL_PKG_DIR': '{root}/usr/")
        settings.write_text(moved)
    headers = root / "usr" / "include" / f"python{version}"
    if headers.is_dir():  # pyconfig.h includes one of this folder by its path below /usr/include
        (headers / libraries.name).symlink_to(Path("..") / libraries.name)
    _run([str(python), "-c", CHECK])
    library = str(root / "usr" / "lib" / f"python{version}")
    _run([str(python), "-m", "compileall", "-q", "-x", NOT_COMPILED, library])  # Debian does so when it installs


def _run(command: list[str], environment: Mapping[str, str] | None = None, directory: Path | None = None) -> str:
    """Return what a command printed. Raises NotHereError if it fails."""
    done = subprocess.run(
        command, env=environment, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode != 0:
        why = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        raise NotHereError(f"{Path(command[0]).name} {' '.join(command[1:3])} failed: {why[0]}")
    return done.stdout


def main(target: Path = NEXT_PYTHONS) -> int:
    try:
        fetch(target)
    except (NotHereError, OSError) as why:
        print(f"Python {' and '.join(VERSIONS)} of Debian's {SUITE} are not here: skipped: {why}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
