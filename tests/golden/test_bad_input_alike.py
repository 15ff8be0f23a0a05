"""Compiled modules make of bad input what their source says: the same answers, error texts and log lines.

Run by `make test-compiled`: the compiled package against a copy of the source that lies beside it.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kafkapy import compiled

CHECKOUT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not compiled.manifest(), reason="nothing is compiled here")


def test_compiled_broker_answers_and_logs_bad_input_as_the_interpreted_one(tmp_path) -> None:
    interpreted = tmp_path / "interpreted"
    ignored = shutil.ignore_patterns("*.so", "*.pyd", compiled.MANIFEST, "__pycache__")
    shutil.copytree(compiled.PACKAGE, interpreted / "kafkapy", ignore=ignored)
    output = [lines_of(path) for path in (Path(compiled.PACKAGE).parent, interpreted)]
    assert len(output[0]) > 6000
    assert [pair for pair in zip(*output, strict=True) if pair[0] != pair[1]] == []


def lines_of(path: Path) -> list[str]:
    """Return what a run with the package in `path` prints; the first line says which one that is."""
    code = "import kafkapy.compiled as c, tests.simulator.bad_input as b; print(c.PACKAGE, *b.outcomes(), sep='\\n')"
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join((str(path), str(CHECKOUT)))}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-2000:]
    package, *lines = ran.stdout.splitlines()
    assert package == str(path / "kafkapy")
    return lines
