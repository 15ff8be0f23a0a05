"""`kafkapy storage`: what it prints and refuses. The bytes are in tests/unit/storage/offline/test_format.py."""

from pathlib import Path

import pytest

from kafkapy.__main__ import main
from kafkapy.types import uuid_from_string

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.fixture
def properties(tmp_path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(
        "process.roles=broker,controller\nnode.id=3\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2\n"
        f"controller.quorum.bootstrap.servers=127.0.0.1:2\nlog.dirs={tmp_path}/a,{tmp_path}/b\n"
    )
    return path


def storage(*arguments: object) -> int:
    return main(["storage", *map(str, arguments)])


def test_random_uuids_are_uuids(capsys) -> None:
    assert storage("random-uuid") == 0
    assert len(uuid_from_string(capsys.readouterr().out.strip())) == 16


def test_format_then_info(properties, tmp_path, capsys) -> None:
    assert storage("format", "-t", CLUSTER_ID, "-c", properties, "--standalone") == 0
    assert capsys.readouterr().out == (
        f"Formatting dynamic metadata voter directory {tmp_path}/a with metadata.version 4.4-IV2.\n"
        f"Formatting data directory {tmp_path}/b with metadata.version 4.4-IV2.\n"
    )
    assert storage("info", "-c", properties) == 0
    output = capsys.readouterr().out
    assert output.startswith(f"Found log directories:\n  {tmp_path}/a\n  {tmp_path}/b\n\nFound metadata: ")
    assert f"cluster.id={CLUSTER_ID}" in output
    assert "node.id=3" in output


def test_info_shows_what_is_wrong(properties, tmp_path, capsys) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").touch()
    assert storage("info", "-c", properties) == 1
    output = capsys.readouterr().out
    assert f"{tmp_path}/a is not formatted." in output
    assert f"{tmp_path}/b is not a directory" in output


def test_info_shows_directories_of_several_clusters(properties, tmp_path, capsys) -> None:
    storage("format", "-t", CLUSTER_ID, "-c", properties, "--standalone")
    meta = tmp_path / "b/meta.properties"
    meta.write_text(meta.read_text().replace(CLUSTER_ID, "other"))
    assert storage("info", "-c", properties) == 1
    assert "but other directories have" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-t", CLUSTER_ID], "--standalone, --initial-controllers, or --no-initial-controllers"),
        (["-t", " ", "-s"], "The cluster id must not be empty"),
        (["-t", CLUSTER_ID, "-I", "nonsense"], "id@hostname:port:directory"),
        (["-t", CLUSTER_ID, "-s", "-f", "group.version"], "string group.version: equals sign not found."),
        (["-t", CLUSTER_ID, "-s", "-f", f"group.version={'1' * 5000}"], "unable to parse 111"),
        (["-t", CLUSTER_ID, "-s", "-r", "9.9"], "Unknown metadata.version '9.9'. Supported"),
        (["-t", CLUSTER_ID, "-s", "-r", "4.0", "-f", "metadata.version=20"], "Use --release-version instead"),
        (
            ["-t", CLUSTER_ID, "-s", "-r", "3.9", "-f", "eligible.leader.replicas.version=1"],
            "it depends on metadata.version level",
        ),
    ],
)
def test_format_refuses_in_one_line(properties, tmp_path, capsys, arguments, message) -> None:
    assert storage("format", "-c", properties, *arguments) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("release", "name", "features"),
    [
        ("3.9-IV0", "3.9-IV0", []),
        ("4.0", "4.0-IV3", [b"group.version", b"transaction.version"]),
        ("4.3", "4.3-IV0", [b"group.version", b"transaction.version", b"share.version", b"streams.version"]),
        ("4.4", "4.4-IV2", [b"group.version", b"transaction.version", b"share.version", b"streams.version"]),
    ],
)
def test_release_decides_which_features_are_on(properties, tmp_path, capsys, release, name, features) -> None:
    assert storage("format", "-t", CLUSTER_ID, "-c", properties, "-s", "-r", release) == 0
    assert f"with metadata.version {name}." in capsys.readouterr().out
    checkpoint = (tmp_path / "a/bootstrap.checkpoint").read_bytes()
    known = (b"group.version", b"transaction.version", b"share.version", b"streams.version")
    assert [name for name in known if name in checkpoint] == features


def test_formatted_directories_may_be_passed_over(properties, capsys) -> None:
    assert storage("format", "-t", CLUSTER_ID, "-c", properties, "-s") == 0
    assert storage("format", "-t", CLUSTER_ID, "-c", properties, "-s") == 1
    assert storage("format", "-t", CLUSTER_ID, "-c", properties, "-s", "-g") == 0
    assert "All of the log directories are already formatted." in capsys.readouterr().out


def test_a_cluster_begins_with_the_users_that_it_is_formatted_with(properties, tmp_path, capsys) -> None:
    user = "SCRAM-SHA-256=[name=alice,password=s3cret]"
    assert storage("format", "-t", CLUSTER_ID, "-c", properties, "-s", "-r", "3.5-IV1", "--add-scram", user) == 1
    assert "SCRAM is only supported in metadata.version 3.5-IV2 or later." in capsys.readouterr().err
    assert storage("format", "-t", CLUSTER_ID, "-c", properties, "-s", "-S", user, "-S", user) == 0
    records = (tmp_path / "a/bootstrap.checkpoint").read_bytes()
    assert records.count(b"alice") == 2
    assert b"s3cret" not in records
