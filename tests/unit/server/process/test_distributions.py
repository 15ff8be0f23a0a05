"""Which packages the log says are missing."""

import sys
from pathlib import Path

from kafkapy.server.process.distributions import missing_packages


def test_each_missing_package_is_told_with_what_does_not_work(tmp_path: Path) -> None:
    without = missing_packages([str(tmp_path)])
    assert [warning.split()[0] for warning in without] == ["lz4", "google-re2"]
    assert "UNSUPPORTED_COMPRESSION_TYPE" in without[0]
    (tmp_path / "lz4").mkdir()
    (tmp_path / "lz4" / "__init__.py").touch()
    assert missing_packages([str(tmp_path)]) == without[1:]
    assert missing_packages() == [] or sys.version_info >= (3, 15)
