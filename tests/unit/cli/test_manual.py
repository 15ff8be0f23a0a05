"""The manual pages, which are made from the parsers."""

import subprocess
import sys
from pathlib import Path

PACKAGES = {"_crc32c", "crc32c", "cryptography", "lz4", "re2", "snappy", "uvloop", "xxhash", "zstandard"}


def test_pages_are_made_where_a_distribution_is_built(tmp_path: Path) -> None:
    """`pip install .` makes them with typer alone: of what kafkapy requires nothing is installed there."""
    program = (
        f"import sys\nfrom kafkapy.cli.manual import main\nassert main(['--to', {str(tmp_path)!r}]) == 0\n"
        f"heavy = {PACKAGES}\n"
        "loaded = [name for name in sys.modules if name.partition('.')[0] in heavy or name == 'kafkapy.record.crc']\n"
        "sys.exit(', '.join(loaded) or 0)"
    )
    run = subprocess.run([sys.executable, "-c", program], check=False, stderr=subprocess.PIPE, text=True)
    assert (run.returncode, run.stderr) == (0, "")
    assert len(list(tmp_path.iterdir())) > 20
