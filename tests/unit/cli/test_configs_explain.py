"""`kafkapy configs explain`, which needs no broker."""

import json

import pytest
from typer.testing import CliRunner

from kafkapy.cli.configs import app
from kafkapy.cli.explained_keys import MAX_WIDTH, explained


def explain(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["explain", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_a_key_is_explained_with_its_facts() -> None:
    lines = explain("segment.bytes").splitlines()
    assert lines[0] == "segment.bytes (topic)"
    assert lines[-1] == "  int; default 1073741824; [1048576,...]; may change at any time"


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("node.id", "int; required; [0,...]; read at the start"),
        ("num.io.threads", "int; default 8; [1,...]; may change at run time, for one broker or all"),
        ("listener.name.outside.ssl.keystore.type", "string; default JKS; may change at run time, for one broker"),
        ("leader.replication.throttled.rate", "[0,...]; set at run time only, for one broker or all"),
    ],
)
def test_it_says_whether_a_key_may_change_at_run_time(key: str, changes: str) -> None:
    assert explain(key).rstrip().endswith(changes)


def test_a_part_of_a_name_finds_all_that_contain_it() -> None:
    found = json.loads(explain("retention.m", "--json"))
    assert {(each["key"], each["of"]) for each in found} >= {("retention.ms", "topic"), ("log.retention.ms", "broker")}
    assert all("retention.m" in each["key"] and each["documentation"] for each in found)


def test_a_key_that_is_not_there_is_reported_with_those_alike() -> None:
    response = CliRunner().invoke(app, ["explain", "retetion.ms"])
    assert response.exit_code == 1
    assert "no key is called retetion.ms" in response.output
    assert "retention.ms" in response.output


def test_lines_are_as_long_as_the_terminal_allows() -> None:
    (key,) = explained("log.cleaner.delete.retention.ms")
    facts = "long; default 86400000; [0,...]; may change at run time, for one broker or all"
    for columns in (40, 80, 200):
        lines = key.text(columns).splitlines()
        assert max(map(len, lines)) <= min(columns, MAX_WIDTH)
        assert " ".join(" ".join(lines).split()).endswith(facts)
    assert key.text().splitlines()[-1] == f"  {facts}", "one line, for grep"
