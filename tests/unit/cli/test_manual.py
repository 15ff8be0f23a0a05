"""The manual pages, which are made from the parsers."""

import subprocess
import sys
from pathlib import Path


def test_pages_are_made_where_a_distribution_is_built(tmp_path: Path) -> None:
    """`pip install .` makes them with typer alone: of what kafkapy requires nothing is installed there."""
    missing = ("crc32c", "cramjam", "cryptography", "lz4", "re2", "snappy", "uvloop", "xxhash", "zstandard")
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({missing}))\n"
        f"from kafkapy.cli.manual import main\nsys.exit(main(['--to', {str(tmp_path)!r}]))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
    assert len(list(tmp_path.iterdir())) > 20
