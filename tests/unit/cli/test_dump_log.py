"""dump-log on what is damaged, missing or not a log; its options and exit status."""

from pathlib import Path

import pytest

from kafkapy.cli.dump_log import main
from kafkapy.record.batch import Record
from kafkapy.record.control import ControlType
from tests.support.batches import build_batch_of

BATCH = build_batch_of([Record(5, 1000, b"k", b"v"), Record(6, 1001, None, b"w\xff\xed\xa0\x80")])
LOG = "00000000000000000005.log"


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_torn_tail_is_counted(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (directory / LOG).write_bytes(BATCH + BATCH[:-1])
    assert main([LOG]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"Found {len(BATCH) - 1} invalid bytes at the end of {LOG}"


def test_a_directory_stands_for_its_segments(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (directory / "x-0").mkdir()
    assert main(["x-0"]) == 1
    assert capsys.readouterr().err.startswith("kafkapy: x-0: no .log file is in this directory")
    for name in (LOG, "00000000000000000000.log"):
        (directory / "x-0" / name).write_bytes(BATCH)
    (directory / "x-0" / "leader-epoch-checkpoint").write_text("0\n0\n")
    assert main(["x-0"]) == 0
    out, err = capsys.readouterr()
    dumped = [line for line in out.splitlines() if line.startswith("Dumping")]
    assert (dumped, err) == (["Dumping x-0/00000000000000000000.log", f"Dumping x-0/{LOG}"], "")


def test_garbage_is_reported_and_fails(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (directory / LOG).write_bytes(BATCH + bytes(100))
    assert main(["--files", f"{LOG},{LOG}"]) == 1
    out, err = capsys.readouterr()
    assert out.count("Found 100 invalid bytes") == 2
    assert f"{LOG}: error 2: a batch with length 0 at position {len(BATCH)}" in err


def test_wrong_checksum_is_shown(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (directory / LOG).write_bytes(BATCH[:-1] + b"x")
    assert main([LOG]) == 0
    assert "isvalid: false" in capsys.readouterr().out


def test_payloads_that_are_not_text_are_replaced_as_java_does(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (directory / LOG).write_bytes(BATCH)
    assert main(["--print-data-log", LOG]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2].endswith("headerKeys: [] key: k payload: v")
    assert lines[-1].endswith("headerKeys: [] payload: w\ufffd\ufffd")


def test_control_record_to_come_is_named_by_its_number(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = Record(5, 1000, b"\0\0\0\x63", b"")
    assert ControlType.UNKNOWN == -1
    (directory / LOG).write_bytes(build_batch_of([record], is_control=True))
    assert main(["--deep-iteration", LOG]) == 0
    assert capsys.readouterr().out.rstrip().endswith("controlType: UNKNOWN(99)")


def test_index_entries_that_do_not_fit_are_reported(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (directory / LOG).write_bytes(BATCH)
    (directory / "00000000000000000005.index").write_bytes(
        bytes.fromhex("00000002 00000000 00000003 00000fff 00000004 ffffffff")
    )
    (directory / "00000000000000000005.timeindex").write_bytes(
        bytes.fromhex("00000000000003e8 00000001 00000000000003e8 00000009")
    )
    assert main(["00000000000000000005.index", "00000000000000000005.timeindex"]) == 0
    err = capsys.readouterr().err
    assert "Index offset: 7, log offset: 6" in err
    assert "Index offset: 8, log offset: none" in err
    assert "Index offset: 9, log offset: none" in err
    assert "Index timestamp: 1000, log timestamp: 1001" in err
    assert "Indexed offset: 14, found log offset: -1" in err


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("00000000000000000005.index", b"\xff" * 8),
        ("00000000000000000005.index", b"\0" * 9),
        ("00000000000000000005.timeindex", b"\0" * 7 + b"\1" + b"\0" * 16),
        ("00000000000000000005.txnindex", b"\0\1" + b"\0" * 32),
        ("00000000000000000005.snapshot", b"\0\1" + b"\0" * 8),
        ("latest.log", b""),
        ("latest.checkpoint", b""),
    ],
)
def test_damaged_files_fail_with_a_line(
    name: str, data: bytes, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (directory / LOG).write_bytes(BATCH)
    (directory / name).write_bytes(data)
    assert main(["--index-sanity-check", name]) == 1
    assert capsys.readouterr().err.startswith(f"{name}: ")


def test_missing_file_fails_and_the_others_are_printed(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (directory / LOG).write_bytes(BATCH)
    assert main(["00000000000000000009.log", LOG]) == 1
    out, err = capsys.readouterr()
    assert "00000000000000000009.log: No such file or directory" in err
    assert "baseOffset: 5 lastOffset: 6 count: 2" in out


def test_other_files_are_ignored(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (directory / "partition.metadata").touch()
    assert main(["partition.metadata"]) == 0
    assert capsys.readouterr().err == "Ignoring unknown file partition.metadata\n"


def test_a_missing_file_of_an_unknown_kind_fails(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["missing"]) == 1
    assert capsys.readouterr() == ("", "kafkapy: missing: No such file or directory\n")


def test_no_file_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([])
    assert caught.value.code == 2
    assert "no file was given" in capsys.readouterr().err
