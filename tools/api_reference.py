"""The reference of the Python API, from signatures and docstrings: Broker, Cluster, kafkapy.testing, the fixtures."""

import inspect
import re
from collections.abc import Iterator
from typing import Any, Final

import kafkapy
from kafkapy import testing
from kafkapy.embedded import pytest_plugin

CODE: Final = re.compile(r"(?<=[(\[ |])(?:kafkapy|pathlib|collections\.abc|typing)\.(?:\w+\.)*")
FIXTURES: Final = (
    "kafka_broker",
    "kafka_topic",
    "own_kafka_broker",
    "new_kafka_broker",
    "secure_kafka_broker",
    "kafka_cluster",
    "own_kafka_cluster",
    "kafka_broker_properties",
    "fill_kafka_broker",
    "kafka_snapshot",
    "filled_kafka_broker",
)


def python_page() -> str:
    """Return the page of all that a program or a test imports, and the fixtures of pytest."""
    lines = ["# Python API", "", "What a program imports, with its docstrings. [In a program](../howto/embed.md) and"]
    lines += ["[in pytest](../howto/pytest.md) show it at work.", ""]
    for name in ("Broker", "Cluster"):
        lines += _class(f"kafkapy.{name}", getattr(kafkapy, name), 2)
    lines += ["## kafkapy.testing", "", *_text(testing)]
    for name in testing.__all__:
        found = getattr(testing, name)
        if inspect.isclass(found) and name not in ("Broker", "Cluster"):
            lines += _class(f"kafkapy.testing.{name}", found, 3)
        elif inspect.isfunction(found):
            lines += _function(f"kafkapy.testing.{name}", found, 3)
    lines += ["## Fixtures of pytest", "", "They are there once kafkapy is installed.", ""]
    for name in FIXTURES:
        fixture = getattr(pytest_plugin, name)
        lines += [f"### `{name}`", "", *_text(getattr(fixture, "__wrapped__", fixture))]
    return "\n".join(lines)


def public_members(of: type) -> list[tuple[str, Any]]:
    """Return the methods and properties that a class and its bases of kafkapy define, in the order of the source."""
    found: dict[str, Any] = {}
    for base in reversed(of.__mro__):
        if base.__module__.startswith("kafkapy."):
            found.update({name: each for name, each in vars(base).items() if not name.startswith("_")})
    shown = (property, staticmethod, classmethod)
    return [(name, each) for name, each in found.items() if callable(each) or isinstance(each, shown)]


def _class(name: str, of: type, level: int) -> Iterator[str]:
    yield from _function(name, of, level)
    if "__init__" in vars(of) and vars(of)["__init__"].__doc__:
        yield from _text(vars(of)["__init__"])
    for member_name, member in public_members(of):
        if isinstance(member, property):
            yield f"{'#' * (level + 1)} `{name}.{member_name}`"
            yield ""
            yield from _text(member.fget)
        else:
            yield from _function(f"{name}.{member_name}", inspect.unwrap(getattr(of, member_name)), level + 1)


def _function(name: str, of: Any, level: int) -> Iterator[str]:
    """Yield a heading, the signature and the docstring of a function or a class."""
    yield f"{'#' * level} `{name}`"
    yield ""
    yield f"```python\n{name.rpartition('.')[2]}{_signature(of)}\n```"
    yield ""
    yield from _text(of)


def _signature(of: Any) -> str:
    """Return a signature as the source has it, without self and without the modules of its types."""
    try:
        text = str(inspect.signature(of))
    except (TypeError, ValueError):
        return "(...)"
    return CODE.sub("", text.replace("'", "")).replace("(self, ", "(").replace("(self)", "()")


def _text(of: Any) -> Iterator[str]:
    """Yield a docstring; what is indented in it is code."""
    text = inspect.getdoc(of) or ""
    code: list[str] = []
    for line in text.splitlines():
        if line.startswith("    "):
            code.append(line[4:])
            continue
        if line.strip():
            yield from _block(code)
            code = []
        yield line.replace("<", r"\<").replace("*", r"\*") if "`" not in line else line
    yield from _block(code)
    yield ""


def _block(code: list[str]) -> list[str]:
    return ["```text", *code, "```"] if code else []
