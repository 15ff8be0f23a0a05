"""The site's sources: links that work in both places, generated pages, a menu of all. `make check` builds it."""

import re
from pathlib import Path

import pytest

from kafkapy import Broker, Cluster, testing
from kafkapy.cli.command_tree import command_tree
from kafkapy.cli.explained_keys import all_keys
from kafkapy.embedded import pytest_plugin
from kafkapy.handlers.table import BROKER_APIS
from kafkapy.protocol.api import APIS
from tools import api_reference, reference, site

ROOT = site.ROOT
ALIASES = {"Broker", "Cluster", "NewKafkaBroker", "Fault"}
"""Names of kafkapy.testing that are types of other names, or shown above."""


def test_the_first_page_has_what_is_linked_on_the_site() -> None:
    first = (ROOT / site.FIRST).read_text(encoding="utf-8")
    assert [words for words in site.GENERATED if words not in first] == []


def test_every_document_is_a_page_of_the_menu() -> None:
    documents = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")}
    assert documents <= {*site.pages()}
    assert len(site.pages()) == len(set(site.pages()))
    assert [page for page in site.pages() if page not in reference.PAGES and not (ROOT / page).exists()] == []


@pytest.mark.parametrize(
    ("page", "text", "expected"),
    [
        ("docs/a.md", "[x](migration.md#step)", "[x](migration.md#step)"),
        ("docs/a.md", "[x](../README.md)", "[x](../index.md)"),
        ("docs/a.md", "[jobs](../spark_jobs/)", "[jobs](../spark_jobs/README.md)"),
        ("docs/a.md", "[the test](../tests/conftest.py)", "`the test`"),
        ("docs/a.md", "[`conftest`](../tests/conftest.py)", "`conftest`"),
        ("docs/a.md", "[x](https://example.org/a.md)", "[x](https://example.org/a.md)"),
        ("README.md", "[x](docs/security.md)", "[x](docs/security.md)"),
        ("README.md", "see the site's Python API", "see [the Python API](docs/reference/python.md)"),
        ("docs/howto/a.md", "[x](../security.md)", "[x](../security.md)"),
    ],
)
def test_links_lead_to_pages_only(page: str, text: str, expected: str) -> None:
    assert site.with_links(text, page) == expected


def test_the_sources_are_all_pages_and_a_menu(tmp_path: Path) -> None:
    site.stage(tmp_path, {page: lambda: "# Generated\n" for page in reference.PAGES})
    staged = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.md")}
    assert staged == {"index.md", *site.pages()}
    first = (tmp_path / "index.md").read_text()
    assert [page for page in site.pages() if f"\n{page}\n" not in first] == []


def test_the_reference_has_every_key_command_and_api() -> None:
    keys, commands, apis = reference.keys_page(), reference.commands_page(), reference.apis_page()
    shown = [each.definition.key for each in all_keys() if not each.definition.is_internal]
    anchored = re.findall(r"\n\[`([^`]+)`\]\{#(?:broker|topic|group|client-metrics)-([a-z0-9-]+)\}\n: ", keys)
    assert sorted(key for key, _ in anchored) == sorted(shown)
    assert [key for key, anchor in anchored if anchor != re.sub(r"[^a-z0-9]+", "-", key)] == []
    paths = [" ".join(("kafkapy", *each.path)) for each in command_tree().walk() if each.path]
    assert [path for path in paths if f"# `{path}" not in commands] == []
    rows = {key: f"| {key} | [`{APIS[key].name}`]{{#api-{APIS[key].name.lower()}}} |" for key in BROKER_APIS}
    assert [key for key, row in rows.items() if row not in apis] == []


def test_metrics_are_read_off_a_scrape() -> None:
    scrape = """\
# HELP a_total kafka.server:type=A,name=B
# TYPE a_total counter
a_total{topic="x{y}, z",partition="0"} 1.0
a_total 2.0
# HELP s not a metric of Apache Kafka
# TYPE s summary
s{quantile="0.5"} 1.0
s_count 3
"""
    assert reference.metric_rows(scrape) == [
        ("a_total", "counter", "partition, topic", "`kafka.server:type=A,name=B`"),
        ("s", "summary", "quantile", "`not a metric of Apache Kafka`"),
    ]


def test_a_page_of_metrics_comes_from_a_broker() -> None:
    pytest.importorskip("confluent_kafka")
    page = reference.metrics_page()
    for name in (
        "kafka_server_brokertopicmetrics_bytesin_total",
        "kafka_consumergroup_lag",
        "process_cpu_seconds_total",
    ):
        assert f"| [`{name}`]{{#strimzi-{name.replace('_', '-')}}} | " in page


def test_plain_text_stays_what_it_is() -> None:
    assert reference.escaped("a_b <c> *") == r"a\_b \<c\> \*"
    assert reference.escaped("as `a_b` *") == r"as `a_b` \*"
    assert reference.escaped("a ` alone") == r"a \` alone"


def test_the_reference_of_python_has_every_public_name() -> None:
    page = api_reference.python_page()
    for of in (Broker, Cluster):
        for name, _ in api_reference.public_members(of):
            assert f"`kafkapy.{of.__name__}.{name}`" in page
    assert [name for name in testing.__all__ if f"`kafkapy.testing.{name}`" not in page and name not in ALIASES] == []
    declared = re.findall(r"^def ((?:\w+_)?kafka_\w+)\(", Path(pytest_plugin.__file__).read_text(), re.M)
    assert [name for name in declared if f"### `{name}`" not in page] == []
    assert "bootstrap_servers" in page
