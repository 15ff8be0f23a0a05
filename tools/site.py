"""`make docs`: the site of the documents, built to site/ by Sphinx: strict (a warning fails it), without a network.

The pages lie on the site where they lie in the repository, so that links between them work in both. README.md is the
first page. A link to a file that is no page becomes plain code: the site stands alone. The reference is generated
(reference.py).
"""

import argparse
import posixpath
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from tools import reference

ROOT: Final = Path(__file__).resolve().parents[1]
SITE: Final = ROOT / "site"
ICON: Final = ROOT / "kafkapy" / "console" / "static" / "icon.svg"
FIRST: Final = "README.md"
"""The page that becomes index.html."""
PICTURE: Final = re.compile(r"!\[[^\]]*\]\(([^):]+)\)")
GENERATED: Final = {"the site's Python API": "[the Python API](docs/reference/python.md)"}
"""What the first page says of generated pages, which the repository does not hold: on the site they are linked."""
LINK: Final = re.compile(r"(?<!!)\[(?P<text>[^\]\[]+)\]\((?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")

SECTIONS: Final = {
    "Start": ["docs/tutorial.md", "docs/howto/fifteen_minutes.md", "docs/what_works.md"],
    "How to": [
        "docs/howto/node.md",
        "docs/howto/cluster.md",
        "docs/howto/three_hosts.md",
        "docs/howto/replace.md",
        "docs/howto/promises.md",
        "docs/howto/pytest.md",
        "docs/howto/ci.md",
        "docs/howto/faults.md",
        "docs/howto/time.md",
        "docs/howto/observe.md",
        "docs/howto/test_a_service.md",
        "docs/howto/snapshots.md",
        "docs/howto/embed.md",
        "docs/howto/asyncio.md",
        "docs/howto/work_queue.md",
        "docs/howto/systemd.md",
        "docs/howto/image.md",
        "docs/howto/prometheus.md",
        "docs/howto/command_line.md",
        "docs/howto/console.md",
        "docs/howto/registry.md",
        "docs/howto/record.md",
        "docs/howto/older.md",
        "docs/security.md",
        "docs/migration.md",
        "docs/howto/spark_cluster.md",
        "spark_jobs/README.md",
    ],
    "Reference": [*reference.PAGES, "docs/deviations.md", "SECURITY.md", "CHANGELOG.md"],
    "Inside": [
        "ARCHITECTURE.md",
        "docs/README.md",
        "docs/append.md",
        "docs/rebalance.md",
        "docs/transaction.md",
        "docs/election.md",
        "docs/compaction.md",
        "docs/recovery.md",
        "docs/chains.md",
        "docs/questions.md",
        "docs/compiled.md",
        "docs/glossary.md",
        "benchmarks/README.md",
        "CONTRIBUTING.md",
        "STYLE.md",
    ],
}
"""The site's pages in the order of its menu."""

SETTINGS: Final[dict[str, Any]] = {
    "project": "kafkapy",
    "root_doc": "index",
    "extensions": ["myst_parser"],
    "myst_enable_extensions": ["attrs_inline", "deflist"],
    "myst_disable_syntax": ["html_block", "html_inline"],  # <broker id> is text
    "myst_heading_anchors": 4,
    "highlight_language": "text",
    "nitpicky": True,
    "smartquotes": False,
    "html_theme": "furo",
    "html_title": "kafkapy",
    "html_favicon": ICON.name,
    "html_show_sourcelink": False,
    "html_copy_source": False,
    "html_show_sphinx": False,
}


def pages() -> list[str]:
    """Return the paths of all pages but the first one."""
    return [page for of_section in SECTIONS.values() for page in of_section]


def stage(target: Path, generated: Mapping[str, Callable[[], str]] = reference.PAGES) -> None:
    """Write the sources of the site. `generated`: what makes the pages that the repository does not hold."""
    target.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ICON, target / ICON.name)
    for page in (FIRST, *pages()):
        text = generated[page]() if page in generated else (ROOT / page).read_text(encoding="utf-8")
        path = target / place(page)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(with_links(text, page) + (menu() if page == FIRST else ""), encoding="utf-8")
        for picture in PICTURE.findall(text):
            at = posixpath.normpath(posixpath.join(posixpath.dirname(page), picture))
            (target / at).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / at, target / at)


def place(page: str) -> str:
    return "index.md" if page == FIRST else page


def with_links(text: str, page: str) -> str:
    """Return the text of a page with its links to other pages, and without those to files that are none."""
    known = {FIRST, *pages()}
    here = posixpath.dirname(page)
    if page == FIRST:
        for words, linked in GENERATED.items():
            text = text.replace(words, linked)

    def link(found: re.Match[str]) -> str:
        target, anchor = found["target"], found["anchor"] or ""
        if "://" in target:
            return found[0]
        at = posixpath.normpath(posixpath.join(here, target))
        at = posixpath.join(at, "README.md") if f"{at}/README.md" in known else at
        if at not in known:
            return found["text"] if "`" in found["text"] else f"`{found['text']}`"
        return f"[{found['text']}]({posixpath.relpath(place(at), here or '.')}{anchor})"

    return LINK.sub(link, text)


def menu() -> str:
    """Return the tables of contents: a menu for each section."""
    return "".join(
        f"\n```{{toctree}}\n:caption: {section}\n:hidden:\n\n{chr(10).join(of_section)}\n```\n"
        for section, of_section in SECTIONS.items()
    )


def build(source: Path, site: Path) -> int:
    """Build the site; return 0, or 1 after warnings, which are printed to stderr."""
    from sphinx.application import Sphinx

    with tempfile.TemporaryDirectory() as doctrees:
        sphinx = Sphinx(
            source, None, site, doctrees, "html", confoverrides=SETTINGS, status=None, warningiserror=True, parallel=2
        )
        sphinx.build()
    return sphinx.statuscode


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.site", description=__doc__)
    parser.add_argument("site", nargs="?", type=Path, default=SITE, help="where the site goes (default: site/)")
    site: Path = parser.parse_args().site
    with tempfile.TemporaryDirectory() as source:
        stage(Path(source))
        shutil.rmtree(site, ignore_errors=True)
        status = build(Path(source), site)
    if status == 0:
        print(f"{site / 'index.html'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
