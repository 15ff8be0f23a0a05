"""`python -m tools.deviations` writes docs/deviations.md: every paragraph of the code that names a deviation.

A deviation from Apache Kafka is named where it lives, in a docstring or a comment, in one form: "Deviation: Apache
Kafka does X. Here Y, because Z." The page quotes the paragraphs, by package and in the order of the files. Both fail
where the word is used in another form; `--check` also where the page is not up to date.
"""

import ast
import inspect
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "deviations.md"
WORD = re.compile(r"\bdeviations?\b", re.IGNORECASE)
FORM = re.compile(r"\bDeviation: Apache Kafka\b")
HERE = re.compile(r"\bHere\b")
HEAD = """# Where kafkapy deviates from Apache Kafka 4.4.0

Made from the code by `make generate`, checked by `make check`: do not edit. Each entry is the paragraph that names the
deviation where it lives. What is not here and differs is a defect.
"""


class Deviation(NamedTuple):
    """A paragraph of a file: `owner` is the dotted name of the definition that it documents, "" for the module."""

    path: Path
    line: int
    owner: str
    text: str


def main(arguments: list[str]) -> int:
    found = sorted(found_in(sorted((ROOT / "kafkapy").rglob("*.py"))))
    malformed = [each for each in found if not is_well_formed(each.text)]
    for each in malformed:
        where = f"{each.path.relative_to(ROOT)}:{each.line}"
        print(f"{where}: not of the form `Deviation: Apache Kafka does X. Here Y, because Z.`", file=sys.stderr)
    if malformed:
        return 1
    page = render(found)
    if arguments == ["--check"]:
        if not PAGE.exists() or PAGE.read_text() != page:
            print(f"{PAGE.relative_to(ROOT)} is not what the code says: run make generate", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(page)
    return 0


def found_in(paths: Iterable[Path]) -> Iterator[Deviation]:
    """Yield the deviations that files name; generated messages have none."""
    for path in paths:
        text = path.read_text()
        if WORD.search(text):
            documented = sorted(docstrings(ast.parse(text)))
            for line, owner, paragraph in (*documented, *comments(text, documented)):
                if WORD.search(paragraph):
                    yield Deviation(path, line, owner, paragraph)


def is_well_formed(paragraph: str) -> bool:
    """Whether each deviation of a paragraph says what Apache Kafka does, what is done here, and why."""
    text = " ".join(paragraph.split())
    count = len(WORD.findall(text))
    return len(FORM.findall(text)) == count <= len(HERE.findall(text)) and text.count("because") >= count


def docstrings(node: ast.AST, owner: str = "") -> Iterator[tuple[int, str, str]]:
    """Yield (line, owner, paragraph) of all docstrings, those after assignments included."""
    previous: ast.stmt | None = None
    for statement in getattr(node, "body", []):
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            value = statement.value.value
            if isinstance(value, str):
                name = _joined(owner, _assigned(previous))
                for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(value)):
                    yield statement.lineno, name, paragraph
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield (statement.lineno, _joined(owner, statement.name), "")
            yield from docstrings(statement, _joined(owner, statement.name))
        previous = statement


def comments(text: str, documented: list[tuple[int, str, str]]) -> Iterator[tuple[int, str, str]]:
    """Yield (line, owner, text) of each block of comment lines; `documented` tells where definitions begin."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = [(token.start[0], token.string.lstrip("# ")) for token in tokens if token.type == tokenize.COMMENT]
    for _, block in groupby(enumerate(lines), key=lambda numbered: numbered[1][0] - numbered[0]):
        rows = [row for _, row in block]
        owners = [owner for line, owner, _ in documented if line <= rows[0][0] and owner]
        yield rows[0][0], owners[-1] if owners else "", "\n".join(words for _, words in rows)


def render(deviations: Iterable[Deviation]) -> str:
    parts = [HEAD]
    for package, of_package in groupby(deviations, key=lambda each: each.path.relative_to(ROOT).parts[1]):
        parts.append(f"## {package.removesuffix('.py')}\n")
        for path, of_file in groupby(of_package, key=lambda each: each.path):
            name = path.relative_to(ROOT).as_posix()
            for each in of_file:
                owner = f" `{each.owner}`" if each.owner else ""
                parts.append(f"[{name}](../{name}){owner}\n\n{_quoted(each.text)}\n")
    return "\n".join(parts)


def _quoted(paragraph: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in paragraph.splitlines())


def _assigned(statement: ast.stmt | None) -> str:
    if isinstance(statement, ast.AnnAssign):
        return ast.unparse(statement.target).removeprefix("self.")
    if isinstance(statement, ast.Assign):
        return ast.unparse(statement.targets[0]).removeprefix("self.")
    return ""


def _joined(owner: str, name: str) -> str:
    return ".".join(filter(None, (owner, name)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
