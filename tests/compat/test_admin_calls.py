"""Every call of Java's Admin, on one kafkapy node and on one node of Apache Kafka: the same comes of it.

What differs is named in DIFFERENT, with the reason.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.servers import ApacheKafka, Kafkapy, Server

pytestmark = [pytest.mark.long, pytest.mark.ours]  # it starts both

PROGRAM = Path(__file__).with_name("AdminCalls.java")
LOG4J = "this Apache Kafka runs without a log4j2.yaml, and so without loggers"
DIFFERENT = {
    "incrementalAlterConfigs of a logger": LOG4J,
    "describeConfigs of a logger": LOG4J,
    "describeConfigs of none": "the message names the topic",
}
"""Reasons by the names of calls."""


@pytest.fixture(scope="module")
def results(java_tool: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """What came of each call, by the server's kind and the call's name."""
    found = {}
    for kind in (Kafkapy, ApacheKafka):
        found[kind.__name__] = results_of(kind(tmp_path_factory.mktemp("node") / "data"), java_tool)
    return found


def results_of(server: Server, java_tool: Callable[..., str]) -> dict[str, str]:
    if isinstance(server, ApacheKafka):
        server.heap = "256m"
    with server:
        printed = java_tool(str(PROGRAM), server.bootstrap)
    return dict(line.split("\t", 1) for line in printed.splitlines())  # type: ignore[misc]


def test_the_same_comes_of_every_call(results: dict[str, dict[str, str]]) -> None:
    ours, theirs = results["Kafkapy"], results["ApacheKafka"]
    assert list(ours) == list(theirs)
    different = [name for name in ours if ours[name] != theirs[name] and name not in DIFFERENT]
    assert [f"{name}: {ours[name]} INSTEAD OF {theirs[name]}" for name in different] == []


def test_what_is_named_as_different_is(results: dict[str, dict[str, str]]) -> None:
    assert [name for name in DIFFERENT if results["Kafkapy"][name] == results["ApacheKafka"][name]] == []


def test_no_call_is_left_out(results: dict[str, dict[str, str]]) -> None:
    assert results["Kafkapy"]["not called"] == "[]"
