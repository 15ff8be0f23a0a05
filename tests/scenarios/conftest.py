"""A running broker, reached through a socket and the codec: what real clients stumble over, a test for each.

KAFKAPY_COMPAT_SERVER=apache runs the same tests against Apache Kafka 4.4.0: that is how they are proved right. What is
said of kafkapy alone is marked `ours`.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from harness.servers import ApacheKafka
from kafkapy import Broker
from tests.support.client_requests import create_topic
from tests.support.offsets import find_coordinator
from tests.support.wire import WireClient

IS_APACHE = os.environ.get("KAFKAPY_COMPAT_SERVER") == "apache"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if IS_APACHE and item.get_closest_marker("ours") is not None:
            item.add_marker(pytest.mark.skip(reason="says something of kafkapy alone"))


@pytest.fixture(scope="package")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker for all tests here that do not stop it. Its many files are closed after the last of them."""
    with serving(tmp_path_factory) as bootstrap_servers:
        yield bootstrap_servers


@contextmanager
def serving(tmp_path_factory: pytest.TempPathFactory, properties: Mapping[str, str] | None = None) -> Iterator[str]:
    """Run a broker, or Apache Kafka, with keys that are not the defaults; its bootstrap servers."""
    if IS_APACHE:
        with ApacheKafka(tmp_path_factory.mktemp("kafka") / "data", dict(properties or {})) as kafka:
            yield kafka.bootstrap
    else:
        with Broker(properties=properties) as broker:
            yield broker.bootstrap_servers


@pytest.fixture
def connect(bootstrap: str) -> Iterator[Callable[[], WireClient]]:
    """Open as many connections as wanted; they are closed with the test."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(WireClient(bootstrap))


@pytest.fixture
def client(connect: Callable[[], WireClient]) -> WireClient:
    return connect()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name of the test's own; nothing is created."""
    name: str = request.node.name
    return "".join(letter if letter.isalnum() else "-" for letter in name).strip("-")


@pytest.fixture
def group(client: WireClient, topic: str) -> str:
    """The test's own group, with a topic of the same name; its coordinator is there."""
    create_topic(client, topic, 2)
    find_coordinator(client, topic)
    return topic


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "data"
