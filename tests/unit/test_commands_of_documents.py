"""The commands that documents name: each page is run by a test, and what no test runs names real commands and options.

What runs is in blocks (tests/support/pages.py says how), so that a page without a test has no command that could break
unseen. Commands in the text, and in blocks that no test runs, are held against the parsers.
"""

import itertools
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from kafkapy.cli.command_tree import Command, command_tree
from tests.support.pages import DOCUMENTS, FENCE, ROOT, blocks

HERE: Final = "tests/unit/test_pages.py"
ON_HOSTS: Final = "tests/compat/test_several_hosts.py"
WITH_JAVA: Final = "tests/compat/test_pages.py"
RUN_BY: Final = {
    "README.md": HERE,
    "docs/howto/asyncio.md": HERE,
    "docs/howto/ci.md": HERE,
    "docs/howto/cluster.md": HERE,
    "docs/howto/fifteen_minutes.md": HERE,
    "docs/howto/command_line.md": HERE,
    "docs/howto/console.md": HERE,
    "docs/howto/node.md": HERE,
    "docs/howto/prometheus.md": HERE,
    "docs/howto/promises.md": ON_HOSTS,
    "docs/howto/pytest.md": HERE,
    "docs/howto/faults.md": HERE,
    "docs/howto/record.md": HERE,
    "docs/howto/registry.md": HERE,
    "docs/howto/time.md": HERE,
    "docs/howto/observe.md": HERE,
    "docs/howto/test_a_service.md": HERE,
    "docs/howto/snapshots.md": HERE,
    "docs/howto/replace.md": ON_HOSTS,
    "docs/howto/systemd.md": HERE,
    "docs/howto/three_hosts.md": ON_HOSTS,
    "docs/howto/work_queue.md": HERE,
    "docs/howto/spark_cluster.md": WITH_JAVA,
    "docs/tutorial.md": WITH_JAVA,
    "spark_jobs/README.md": WITH_JAVA,
    "docs/migration.md": "tests/compat/test_migration_page.py",
    "docs/security.md": "tests/compat/test_security_page.py",
}
"""Which test runs the blocks of a page."""
UNRUN: Final = {
    "CONTRIBUTING.md": "the targets of make that CI runs",
    "benchmarks/README.md": "hours of make bench",
    "docs/howto/image.md": "a container engine; tests/unit/docker and tests/compat/test_compose.py run what it runs",
}
"""Pages with nothing but `sh unrun`, and what that would take."""

INDENTED: Final = re.compile(r"^ {4}(?:kafka\S*|make|pip|python3?|docker|job|cat|spark\S*) [^\n]*", re.M)
SPAN: Final = re.compile(r"(?<!`)`([^`]+)`(?!`)")
KAFKAPY: Final = re.compile(r"(?:^|[|;&(]|/)[ ]*kafkapy +(?!ready on)(?P<words>[^|;&>\n)`]*)", re.M)
MAKE: Final = re.compile(r"(?:^|[|;&(])[ ]*make +(?P<words>[^|;&>\n)`#]*)", re.M)
JOB: Final = re.compile(r"^(?:job|python -m spark_jobs) +(?P<words>(?:[^#\n\\]|\\\n)*)", re.M)


def names() -> dict[str, str]:
    return {str(path.relative_to(ROOT)): path.read_text() for path in DOCUMENTS}


def code(text: str) -> Iterator[str]:
    """Yield what is code in a document: the text of shell blocks, and spans within lines."""
    for block in blocks(text):
        if block.language == "sh":
            yield re.sub(r"(?:^|\s)#[^\n]*", "", block.text.replace("\\\n", " "))
    for span in SPAN.findall(FENCE.sub("", text)):
        yield " ".join(span.split())


def test_each_page_with_commands_is_run_by_a_test() -> None:
    with_commands = {name for name, text in names().items() if any(each.language == "sh" for each in blocks(text))}
    assert with_commands == {*RUN_BY, *UNRUN}
    for name, test in RUN_BY.items():
        assert any(each.is_run for each in blocks((ROOT / name).read_text()))
        assert Path(name).stem in (ROOT / test).read_text() or test == "tests/compat/test_security_page.py"
    assert [name for name in UNRUN if any(each.is_run for each in blocks((ROOT / name).read_text()))] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_command_is_outside_of_a_block(document: Path) -> None:
    assert INDENTED.findall(FENCE.sub("", document.read_text())) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_and_options_are_those_of_the_parsers(document: Path) -> None:
    for text in code(document.read_text()):
        for found in KAFKAPY.finditer(text):
            check_command(found["words"])
        for found in MAKE.finditer(text):
            assert {word for word in found["words"].split() if "=" not in word} <= targets(), found[0]


@cache
def targets() -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.M))


def check_command(words: str) -> None:
    """Assert that these words after kafkapy are a command and its options."""
    command: Command = tree()
    given = [word for word in words.replace('"', " ").replace("'", " ").partition(" #")[0].split() if word != "..."]
    while given and (below := next((each for each in command.commands if each.name == given[0]), None)) is not None:
        command = below
        del given[0]
    assert not (command.commands and given and not given[0].startswith("-")), f"no command: kafkapy {words}"
    flags = {flag for option in command.options for flag in option.flags}
    unknown = [word for word in given if re.match(r"--?[a-zA-Z]", word) and word.partition("=")[0] not in flags]
    assert unknown == [], f"kafkapy {words}"


@cache
def tree() -> Command:
    return command_tree()


def test_a_command_that_is_none_is_found() -> None:
    for words in ("topics make orders", "start --no-such-option", "cluster check --set a=b", "nothing"):
        with pytest.raises(AssertionError):
            check_command(words)
    check_command("topics create orders --partitions 3  # and so on")


@pytest.mark.parametrize("page", ["spark_jobs/README.md", "docs/howto/spark_cluster.md"])
def test_keys_set_for_jobs_of_spark_are_keys_that_they_know(page: str, tmp_path: Path) -> None:
    for needed in ("confluent_kafka", "pandas", "pyspark", "yaml"):
        pytest.importorskip(needed)
    from spark_jobs.config import load_config

    text = (ROOT / page).read_text()
    for block in blocks(text):
        if block.file_name is not None:
            (tmp_path / block.file_name).write_text(block.text)
    lines = [found["words"] for block in blocks(text) if block.language == "sh" for found in JOB.finditer(block.text)]
    assert len(lines) >= 3
    for line in lines:
        words = shlex.split(line.replace("\\\n", " "))
        if words[0] == "query":  # it takes SQL, and no keys
            continue
        sets = [word for before, word in itertools.pairwise(words) if before == "--set"]
        file = next((word for before, word in itertools.pairwise(words) if before == "--config"), None)
        load_config(model_of(words), tmp_path / file if file is not None else None, sets)


def model_of(words: list[str]) -> type:
    from importlib import import_module

    from spark_jobs.__main__ import config_model

    if words[0] == "backfill":
        return config_model(getattr(import_module("spark_jobs.backfill"), f"run_{words[1]}"))
    return config_model(import_module(f"spark_jobs.{words[0].replace('-', '_')}").run)
