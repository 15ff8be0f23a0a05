"""No Python representation in a message: no %r, no !r, and no argument of a log call that has no text of its own."""

import ast
import enum
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkapy import Broker
from kafkapy.errors import ApiError, described, quoted
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.types import TopicPartition
from tests.support import log_records
from tests.support.pages import ROOT
from tests.support.wire import WireClient

LEVELS = {"debug", "info", "warning", "error", "critical", "exception", "log"}
REPRESENTATION = re.compile(r"%[-#0-9.+ ]*[ra]")
NO_MESSAGES = (
    "kafkapy/protocol/codegen/", "kafkapy/dataclass.py", "kafkapy/server/admin/metrics.py", "kafkapy/errors.py",
    "kafkapy/embedded/",
)  # fmt: skip
"""What a developer runs; Python's own words; numbers in Prometheus' format; `quoted`; arguments of a caller in Python,
shown to who wrote them."""
GENERATED = ROOT / "kafkapy" / "protocol" / "messages"
JUDGED = re.compile(r"\blog(ger)?\.|![ra]\}|quoted\(")
"""What a source has that is worth parsing: parsing all of them takes seconds."""
SOURCES = sorted(path for path in (ROOT / "kafkapy").rglob("*.py") if GENERATED not in path.parents)


def log_calls(tree: ast.AST) -> Iterator[ast.Call]:
    for each in ast.walk(tree):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr in LEVELS:
            receiver = each.func.value
            name = receiver.id if isinstance(receiver, ast.Name) else getattr(receiver, "attr", "")
            if name in ("log", "logger"):
                yield each


def faults_of_calls(tree: ast.AST) -> list[str]:
    """Return the log calls whose format is no literal, or asks for a representation."""
    faults = []
    for call in log_calls(tree):
        assert isinstance(call.func, ast.Attribute)
        text = call.args[1 if call.func.attr == "log" else 0]
        is_text = isinstance(text, ast.Constant) and isinstance(text.value, str)
        if not is_text or REPRESENTATION.search(text.value.replace("%%", "")) or "repr(" in ast.unparse(call):
            faults.append(ast.unparse(call))
    return faults


def representations(tree: ast.AST) -> list[str]:
    """Return the f-strings with !r or !a, but those of __repr__ methods and of assertions."""
    skipped: set[ast.AST] = set()
    for each in ast.walk(tree):
        if isinstance(each, ast.Assert) or (isinstance(each, ast.FunctionDef) and each.name in ("__repr__", "_repr")):
            skipped.update(ast.walk(each))
    values = (each for each in ast.walk(tree) if isinstance(each, ast.FormattedValue) and each not in skipped)
    return [
        f"line {each.lineno}: {ast.unparse(each.value)}" for each in values if each.conversion in (ord("r"), ord("a"))
    ]


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in SOURCES}
    return {path: ast.parse(text) for path, text in texts.items() if JUDGED.search(text)}


def test_log_calls_have_a_literal_format_without_representations(trees) -> None:
    faults = {path: found for path, tree in trees.items() if (found := faults_of_calls(tree))}
    assert faults == {}
    assert sum(len(list(log_calls(tree))) for tree in trees.values()) > 200


def test_messages_quote_texts_by_a_function_that_takes_texts_only(trees) -> None:
    judged = {path: tree for path, tree in trees.items() if not path.startswith(NO_MESSAGES)}
    assert {path: found for path, tree in judged.items() if (found := representations(tree))} == {}
    assert any("quoted(" in ast.unparse(tree) for tree in judged.values())


@pytest.mark.parametrize(
    "call",
    [
        "logger.info('found %r', name)",
        "log.warning('%s of %-10a', name, other)",
        "logger.log(10, '%r', name)",
        "logger.error(f'{name} failed')",
        "self.logger.exception('failed: %s', repr(error))",
    ],
)
def test_a_log_call_with_a_representation_is_found(call) -> None:
    assert len(faults_of_calls(ast.parse(call))) == 1


def test_an_f_string_with_a_representation_is_found() -> None:
    tree = ast.parse("def f(x):\n    assert x, f'{x!r}'\n    raise ValueError(f'{x!r}')\n")
    assert representations(tree) == ["line 3: x"]


class Colour(enum.Enum):
    RED = 1


@pytest.mark.parametrize(
    "value", [b"x", bytearray(b"x"), memoryview(b"x"), [1], (1, 2), {"a": 1}, {1}, object(), Colour.RED, None,
              ValueError(), ValueError(b"x"), KeyError("version"), Exception("two", "texts")],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_an_argument_without_a_text_is_found(value: object) -> None:
    record = logging.LogRecord("kafkapy", logging.INFO, __file__, 1, "%s", (value,), None)
    assert len(log_records.faults_of(record)) == 1


@pytest.mark.parametrize(
    "value", ["x", 1, 1.5, TopicPartition("t", 0), ApiError(3), ValueError("bad"), OSError(28, "full"), Path("/x")],
    ids=repr,
)  # fmt: skip
def test_an_argument_with_a_text_is_none(value: object) -> None:
    record = logging.LogRecord("kafkapy", logging.INFO, __file__, 1, "%s", (value,), None)
    assert log_records.faults_of(record) == []


def test_what_a_broker_logs_from_start_to_recovery_has_texts(tmp_path: Path) -> None:
    """At DEBUG; with a crash, so that logs are recovered, and a group's coordinator is looked for."""
    with log_records.recorded(logging.DEBUG) as records, Broker(tmp_path) as broker:
        broker.create_topics("t")
        with WireClient(broker.bootstrap_servers) as client:
            client.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
            client.send_frame(b"no request")
        broker.kill()
        broker.restart()
    assert sorted({fault for record in records for fault in log_records.faults_of(record)}) == []
    formats = {record.msg for record in records}
    assert {"Created log for partition %s in %s", "Shut down completed"} <= formats
    assert any(each.startswith("Recovered the metadata log") for each in formats)
    assert any(each.startswith("Completed load of %s") for each in formats)


def test_texts_are_quoted_and_unexpected_errors_described() -> None:
    assert quoted("a\nb") == r"'a\nb'"
    assert [described(KeyError("x")), described(TimeoutError())] == ["KeyError: 'x'", "TimeoutError"]
