"""`make vendor`: the console's scripts of others, compared with their checksums and with npm's packages.

They are unmodified: what kafkapy/console/static/vendor/vendored.tsv says of version and checksum is what npm serves.
"""

import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

VENDOR: Final = Path(__file__).resolve().parent.parent / "kafkapy" / "console" / "static" / "vendor"
TABLE: Final = "vendored.tsv"


class Vendored(NamedTuple):
    """A file, and where it is in an npm package."""

    file: str
    package: str
    version: str
    path: str
    sha256: str


def vendored() -> list[Vendored]:
    lines = (VENDOR / TABLE).read_text(encoding="utf-8").splitlines()
    return [Vendored(*line.split("\t")) for line in lines if not line.startswith("#")]


def differences() -> Iterator[str]:
    """Yield what is missing, unknown or modified in the checkout."""
    known = vendored()
    for each in known:
        path = VENDOR / each.file
        if not path.is_file():
            yield f"{each.file} is missing"
        elif hashlib.sha256(path.read_bytes()).hexdigest() != each.sha256:
            yield f"{each.file} is modified"
    for extra in sorted({path.name for path in VENDOR.iterdir()} - {each.file for each in known} - {TABLE}):
        yield f"{extra} is not in {TABLE}"


def differences_from_npm() -> Iterator[str]:
    """Yield which files are not those of npm's packages. Raises CalledProcessError without npm or its registry."""
    with tempfile.TemporaryDirectory() as directory:
        for package, version in sorted({(each.package, each.version) for each in vendored()}):
            command = ["npm", "pack", "--silent", "--json", f"{package}@{version}"]
            done = subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True)
            packed = (Path(directory) / json.loads(done.stdout)[0]["filename"]).read_bytes()
            with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
                for each in (row for row in vendored() if row.package == package):
                    member = archive.extractfile(f"package/{each.path}")
                    if member is None or member.read() != (VENDOR / each.file).read_bytes():
                        yield f"{each.file} differs from {package}@{version}'s {each.path}"


def main() -> int:
    found = [*differences(), *differences_from_npm()]
    for line in found:
        print(line, file=sys.stderr)
    if not found:
        print(f"{len(vendored())} files are as npm serves them")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
