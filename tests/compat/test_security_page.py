"""docs/security.md: each snippet of each client runs against a node that `kafkapy security init` has made.

Spark's runs in test_spark_security.py, which has a Spark session.
"""

import ssl
import sys
from collections.abc import Iterator
from typing import Final

import pytest

from tests.compat.test_cluster import eventually
from tests.support.certificates import Authority
from tests.support.security_page import SNIPPETS, SecureNode

pytestmark = [pytest.mark.long, pytest.mark.ours]
CLIENTS: Final = {
    title: title.split(",")[0] for title in SNIPPETS if title not in ("Spark", "A certificate is renewed")
}


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    made = SecureNode(tmp_path_factory.mktemp("page"))
    with made.running():
        yield made


def test_the_page_has_each_client() -> None:
    assert [*SNIPPETS] == [
        "Java's clients and console tools, all `kafkapy` commands",
        "confluent-kafka",
        "aiokafka",
        "kafka-python",
        "kcat",
        "Spark",
        "Further users and rights",
        "A certificate is renewed",
    ]


@pytest.mark.parametrize("title", CLIENTS, ids=CLIENTS.values())
def test_a_snippet_runs(secure: SecureNode, title: str) -> None:
    language, snippet = SNIPPETS[title]
    text = secure.of_this_node(snippet)
    if language == "python":
        secure.run([sys.executable, "-c", text])
        return
    for program in ("kafka-topics.sh", "kcat"):
        if program in text and not (secure.programs / program).exists():
            pytest.skip(f"{program} is missing: run `make tools`")
    text = text.replace("topics create orders ", "topics create new-orders ")
    secure.run(["bash", "-euo", "pipefail", "-c", text])


def test_a_certificate_is_renewed_as_the_page_says(secure: SecureNode) -> None:
    _, snippet = SNIPPETS["A certificate is renewed"]
    command = ["bash", "-euo", "pipefail", "-c", secure.of_this_node(snippet)]
    authority = Authority()
    renewed = authority.issue("localhost", ["localhost", "127.0.0.1", "::1"])
    trusted, served = secure.directory / "secure" / "ca.pem", secure.directory / "secure" / "broker.pem"
    trusted.write_text(trusted.read_text() + authority.certificate_pem)
    secure.run(command)
    served.write_text(renewed.key_pem() + renewed.certificate_pem)
    secure.run(command)
    eventually(lambda: ssl.get_server_certificate(("localhost", secure.port)) == renewed.certificate_pem)
