"""What the documents promise: links lead somewhere, no sentence is long. test_pages.py runs their snippets."""

import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache

import pytest

from kafkapy.server.process.distributions import DISTRIBUTION, OWN_ENTRY_POINT
from tests.support.pages import DOCUMENTS, ROOT

LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")
ADVICE = re.compile(r"pip3? install\s+(?:-\S+\s+)*['\"]?kafkapy(?!-broker)\b")

PLACES = (".", "kafkapy")
"""What a path in a drawing may be relative to."""
NOT_DRAWN = ("README.md", "deviations.md", "migration.md", "security.md", "tutorial.md", "what_works.md", "compiled.md")
DRAWN = [ROOT / "ARCHITECTURE.md", *sorted(each for each in (ROOT / "docs").glob("*.md") if each.name not in NOT_DRAWN)]
OUTSIDE = {"PySpark", "KAFKAPY_COMPAT_SERVER", "pytest_plugin", "spark_jobs"}
"""Names in the drawings that no module of kafkapy has as a word."""
PATH_IN_CODE = re.compile(r"\b[a-z_]+(?:/[a-z_]+)+(?:\.py|/)")
NAME_IN_CODE = re.compile(r"(?<![-.\w])[A-Za-z]\w*(?:_\w+|\(\))|\b_\w+|\b[A-Z]\w*[a-z]\w*[A-Z]\w*")
"""snake_case, CamelCase, calls(): what is no word of a sentence."""


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_distribution_has_a_name_of_its_own() -> None:
    assert project()["name"] == DISTRIBUTION == "kafkapy-broker"
    assert project()["scripts"] == {"kafkapy": OWN_ENTRY_POINT}


def test_nothing_advises_to_install_the_other_project() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    if not tracked:
        pytest.skip("not a git checkout")
    texts = [ROOT / name for name in tracked if name.endswith((".py", ".md", ".toml", ".yaml", ".yml", "Makefile"))]
    advising = [path for path in texts if path.is_file() and ADVICE.search(path.read_text())]
    assert advising == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document) -> None:
    targets = [target for target, _ in LINK.findall(document.read_text()) if "://" not in target]
    assert [target for target in targets if not (document.parent / target).exists()] == []


@pytest.mark.parametrize("document", DRAWN, ids=lambda path: path.name)
def test_drawings_name_what_is_in_the_code(document) -> None:
    text = document.read_text()
    missing = [path for path in PATH_IN_CODE.findall(text) if not any((ROOT / at / path).exists() for at in PLACES)]
    assert missing == []
    names = NAME_IN_CODE.findall(PATH_IN_CODE.sub("", text))
    assert [name for name in names if name.removesuffix("()") not in words_of_the_code() | OUTSIDE] == []


def layers_of_the_architecture(text: str) -> list[str]:
    """Return the rows of the block under "Layers", without what is said beside them."""
    block = text.partition("\n## Layers\n")[2].partition("```\n")[2].partition("```")[0]
    return [re.split(r" {2,}", row)[0] for row in block.splitlines()]


def test_the_layers_are_those_of_the_import_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    of_kafkapy = next(each["layers"] for each in contracts if each.get("containers") == ["kafkapy"])
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert layers_of_the_architecture(text) == of_kafkapy
    assert layers_of_the_architecture(text.replace("\nrecord\n", "\n", 1)) != of_kafkapy


@pytest.mark.parametrize(
    "package", sorted(each.name for each in (ROOT / "kafkapy").iterdir() if (each / "__init__.py").exists())
)
def test_each_package_is_on_the_map(package: str) -> None:
    map_ = (ROOT / "ARCHITECTURE.md").read_text().partition("\n## The map\n")[2]
    assert re.search(rf"^  {package}/ ", map_, re.M)


@cache
def words_of_the_code() -> set[str]:
    return set(re.findall(r"\w+", "\n".join(path.read_text() for path in (ROOT / "kafkapy").rglob("*.py"))))


MAX_WORDS = 40
"""Of a sentence: a longer one is read twice."""


def passages(text: str) -> Iterator[str]:
    """Yield the paragraphs, list items, headings and cells of tables of a page, without blocks and addresses."""
    text = re.sub(r"^ *```.*?^ *```", "", text, flags=re.S | re.M)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    for block in re.split(r"\n *\n|\n(?= *(?:[-*#|>]|\d+\.) )", text):
        yield from block.strip().strip("|").split(" | ")


def long_sentences(text: str) -> list[str]:
    sentences = (each for passage in passages(text) for each in re.split(r"(?<=[.!?:;])\W*\s+", passage))
    return [each for each in sentences if sum(bool(re.search(r"\w", word)) for word in each.split()) > MAX_WORDS]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_sentence_has_more_than_forty_words(document) -> None:
    assert long_sentences(document.read_text()) == []


def test_a_long_sentence_is_found() -> None:
    sentence = "word " * MAX_WORDS
    assert long_sentences(f"Short one. {sentence}end.\n\n- {sentence}") == [f"{sentence}end."]
