"""What `make release` refuses, with faults planted; what it builds is built and tried by itself."""

import subprocess
from pathlib import Path

import pytest

from kafkapy.version import __version__
from tools import release
from tools.release import SUMS, ReleaseError, Use, check_bill, check_names, dependencies, requirement_name, run, table
from tools.release import write_sums as write

STEM = f"kafkapy_broker-{__version__}"
COMPLETE = [f"{STEM}.tar.gz", f"{STEM}-py3-none-any.whl", f"{STEM}-cp311-cp311-manylinux_2_17_x86_64.whl", SUMS]


def bill(**versions: str) -> dict[str, object]:
    required = {requirement_name(each): "1" for each in dependencies()} | {"kafkapy-broker": __version__}
    return {"components": [{"name": name, "version": version} for name, version in {**required, **versions}.items()]}


def test_a_bill_with_all_requirements_is_fine() -> None:
    assert len(dependencies()) > 5
    check_bill(bill())


def test_a_bill_of_another_version_or_without_a_requirement_is_refused() -> None:
    with pytest.raises(ReleaseError, match=rf"has kafkapy-broker 9\.9, not {__version__}"):
        check_bill(bill(**{"kafkapy-broker": "9.9"}))
    lacking = bill()
    lacking["components"] = [each for each in lacking["components"] if each["name"] != "uvloop"]  # type: ignore[attr-defined]
    with pytest.raises(ReleaseError, match="lacks uvloop"):
        check_bill(lacking)


@pytest.mark.parametrize(
    ("requirement", "name"),
    [("uvloop>=0.19", "uvloop"), ("Python_Snappy", "python-snappy"), ("lz4>=4.3; python_version < '3.15'", "lz4")],
)
def test_a_requirement_has_a_name(requirement: str, name: str) -> None:
    assert requirement_name(requirement) == name


def test_files_of_one_version_may_be_published() -> None:
    check_names(COMPLETE)


@pytest.mark.parametrize(
    ("names", "reason"),
    [(COMPLETE[1:], "tar.gz"), (COMPLETE[:1], "none-any"), ([*COMPLETE, "kafkapy_broker-0.0.9.tar.gz"], "0.0.9")],
)
def test_a_missing_file_and_one_of_another_version_are_refused(names: list[str], reason: str) -> None:
    with pytest.raises(ReleaseError, match=reason):
        check_names(names)


def test_a_wheel_that_was_built_of_the_same_sources_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "WHEELS", tmp_path)
    wheel = tmp_path / release.sources_digest() / f"{STEM}-cp314-cp314-manylinux_2_17_x86_64.whl"
    wheel.parent.mkdir()
    wheel.write_bytes(b"")

    assert release.kept_wheel("3.14", "there is no Python to build one with", tmp_path / "unused") == wheel


def test_hashes_are_those_that_sha256sum_checks(tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_bytes(b"a")
    (tmp_path / "b.tar.gz").write_bytes(b"b")
    write(tmp_path)
    write(tmp_path)
    check = ["sha256sum", "--check", "--strict", SUMS]
    done = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "a.whl: OK\nb.tar.gz: OK\n"
    (tmp_path / "b.tar.gz").write_bytes(b"changed")
    assert subprocess.run(check, cwd=tmp_path, capture_output=True, check=False).returncode != 0


def test_a_command_that_fails_is_reported_with_its_output() -> None:
    with pytest.raises(ReleaseError, match=r"failed with 3:\nthe reason"):
        run(["sh", "-c", "echo the reason >&2; exit 3"])


def test_the_table_has_a_row_for_each_use() -> None:
    rows = table([Use("3.11", False, 151.6, 50.04), Use("3.11", True, 120.0, 56.0)]).splitlines()
    assert [row.split() for row in rows[1:]] == [["3.11", "pure", "152", "50.0"], ["3.11", "compiled", "120", "56.0"]]
