"""kafkapy dump-log prints what Apache Kafka 4.3.1's DumpLogSegments printed of the same files, line by line.

dump_log_expected.jsonl.gz: {"files", "options", "stdout", "stderr"} by that tool, over the golden data directories
(clean/, unclean/, standalone/) and the sets of record_batches.jsonl as a log each (rows/). Its stderr comes from hash
maps, so its order is not compared.
"""

import gzip
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from kafkapy.cli.dump_log import main

GOLDEN = Path(__file__).parent


def _rows(name: str) -> list[dict[str, Any]]:
    with gzip.open(GOLDEN / name, "rt", encoding="utf-8", newline="\n") as lines:
        return [json.loads(line) for line in lines]


EXPECTED = _rows("dump_log_expected.jsonl.gz")


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("golden")
    wanted = {path for row in EXPECTED for path in row["files"]}
    folders = {str(Path(path).parent) for path in wanted}
    for name in ("clean", "unclean", "standalone"):
        with tarfile.open(GOLDEN / f"kafka_data_dir_{name}.tar.gz") as archive:
            for member in archive.getmembers():
                if str(Path(name, member.name).parent) in folders:
                    archive.extract(member, root / name, filter="data")
    for row in _rows("record_batches.jsonl.gz"):
        folder = root / "rows" / row["label"]
        folder.mkdir(parents=True)
        (folder / "00000000000000000000.log").write_bytes(bytes.fromhex(row["hex"]))
    return root


@pytest.mark.parametrize("row", EXPECTED, ids=lambda row: " ".join([row["files"][0], *row["options"]]))
def test_output_is_that_of_kafka(
    row: dict[str, Any], directories: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(directories)
    assert main([*row["options"], *row["files"]]) == 0
    out, err = capsys.readouterr()
    assert out.split("\n")[:-1] == row["stdout"]
    assert sorted(err.replace(f"{directories}/", "").splitlines()) == sorted(row["stderr"])
