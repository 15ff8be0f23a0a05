"""`make compiled`: a wheel with modules compiled by mypyc, installed into .venv-compiled beside .venv.

Everything is built in a temporary copy, so that the checkout stays interpreted. What tests and benchmarks import
besides kafkapy lies in .venv. `python -m tools.compiled --checkout DIRECTORY` also copies what tests need of the
checkout, without the package: run there, tests import the compiled one.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
LAST_FILE: Final = "base.pth"
"""What is written last into a layered environment."""
COMPILER_ERROR: Final = re.compile(r":\d+: (fatal )?error: |:\d+:\d+: (fatal )?error: ")
VENV: Final = ROOT / ".venv-compiled"
WHEELS: Final = ROOT / "dist" / "compiled"
SOURCES: Final = ("kafkapy", "packaging", "setup.py", "pyproject.toml", "README.md", "LICENSE")
SETUPTOOLS: Final = "setuptools>=77.0.3"
"""pyproject.toml's build requirement."""


def listed_modules() -> list[str]:
    """Return the modules to compile, relative to the package."""
    lines = (ROOT / "packaging" / "compiled_modules.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def why_not() -> str:
    """Return why nothing can be compiled here, "" if it can: a C compiler and Python's headers are needed."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"no C compiler: {compiler} is not there"
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.exists():
        return f"no headers of Python: {header} is not there"
    return ""


def build(wheels: Path = WHEELS, venv: Path = VENV) -> Path:
    """Make `venv` with the compiled wheel installed; return its Python. Raises CalledProcessError."""
    from tools.identity_comparisons import identity_comparisons  # imports mypy, which only a build needs

    compared = identity_comparisons([Path("kafkapy", module) for module in listed_modules()])
    if compared:
        raise SystemExit("\n".join(compared) + "\nLeave the class's module out of packaging/compiled_modules.txt")
    python = layered_environment(venv)
    with tempfile.TemporaryDirectory(prefix="kafkapy-compiled-") as directory:
        copy_checkout(Path(directory), SOURCES)
        shutil.rmtree(wheels, ignore_errors=True)
        pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check"]
        build = [*pip, "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", str(wheels), directory]
        environment = {**os.environ, "KAFKAPY_COMPILE": "1"}
        environment.pop("PYTHONPATH", None)  # mypyc would find the source twice
        result = subprocess.run(build, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if result.returncode:
            raise SystemExit(f"{refusals(result.stdout)}\nmypyc or the C compiler refused, see above")
    (built,) = wheels.glob("*.whl")
    wheel = with_manylinux_tag(built)
    subprocess.run([*pip, "install", "--no-deps", "--force-reinstall", str(wheel)], check=True)
    return python


def with_manylinux_tag(wheel: Path) -> Path:
    """Give a wheel the manylinux tag that it is fit for, if auditwheel is on the PATH; return where it is then."""
    if shutil.which("auditwheel") is None:
        return wheel
    with tempfile.TemporaryDirectory(prefix="kafkapy-compiled-") as directory:
        repair = ["auditwheel", "repair", "--wheel-dir", directory, str(wheel)]
        result = subprocess.run(repair, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if result.returncode:
            print(f"auditwheel refused, the wheel keeps its tag:\n{result.stdout}", file=sys.stderr)
            return wheel
        (repaired,) = Path(directory).glob("*.whl")
        wheel.unlink()
        return Path(shutil.move(repaired, wheel.parent))


def refusals(output: str) -> str:
    """Return the lines of a build that say what could not be compiled; the last ones if none does.

    These name a line of a file; pip's own "error: subprocess-exited-with-error" does not.
    """
    lines = output.splitlines()
    return "\n".join([line for line in lines if COMPILER_ERROR.search(line)] or lines[-40:])


def new_environment(venv: Path) -> Path:
    """Make a virtual environment that can build kafkapy; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    python = venv / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, SETUPTOOLS], check=True)
    return python


def layered_environment(venv: Path) -> Path:
    """Make a virtual environment over the one that runs this, unless it is there as a whole; return its Python."""
    python = venv / "bin" / "python"
    if not list(venv.glob(f"lib/*/site-packages/{LAST_FILE}")):
        new_environment(venv)
        packages = subprocess.run(
            [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        # all that this one has: it may lie over another one itself, whose .pth files are not read through it
        over = dict.fromkeys((sysconfig.get_path("purelib"), *(at for at in sys.path if at.endswith("site-packages"))))
        (Path(packages) / LAST_FILE).write_text("".join(f"{at}\n" for at in over))
    return python


def copy_checkout(target: Path, names: Iterable[str]) -> None:
    """Copy files and directories of the checkout, without caches."""
    target.mkdir(parents=True, exist_ok=True)
    for name in names:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.so")
            shutil.copytree(source, target / name, ignore=ignored, dirs_exist_ok=True)
        else:
            shutil.copy2(source, target / name)


def tracked_files() -> list[str]:
    """Return the files of the checkout that git tracks, without those that were deleted."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def copy_files(target: Path, names: Iterable[str]) -> None:
    """Copy files of the checkout."""
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target / name)


def copy_tests(target: Path) -> None:
    """Copy what tests need to `target`: everything that git knows but the package, and a link to .tools."""
    shutil.rmtree(target, ignore_errors=True)
    copy_files(target, (name for name in tracked_files() if not name.startswith("kafkapy/")))
    if (ROOT / ".tools").exists():
        (target / ".tools").symlink_to((ROOT / ".tools").resolve())


def main() -> int:
    parser = argparse.ArgumentParser(prog="make compiled", description=__doc__)
    parser.add_argument("--checkout", type=Path, help="where to copy what tests need")
    given = parser.parse_args()
    reason = why_not()
    if reason:
        print(f"Nothing is compiled: {reason}", file=sys.stderr)
        return 1
    python = build()
    if given.checkout is not None:
        copy_tests(given.checkout)
    requested = [str(python), "-I", "-m", "kafkapy", "--version"]
    printed = subprocess.run(requested, check=True, capture_output=True, text=True).stdout.strip()
    assert "compiled" in printed, printed
    print(f"{printed}; all others are interpreted: {VENV.name}/bin/kafkapy, {WHEELS.relative_to(ROOT)}/")
    return 0


if __name__ == "__main__":
    sys.exit(main())
