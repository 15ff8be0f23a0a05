"""The pytest plugin of every install of kafkapy: brokers, topics and clusters as fixtures.

| fixture | what a test gets |
|---|---|
| `kafka_broker` | a running `Broker` for all tests of the session (of the worker, under pytest-xdist) |
| `kafka_topic` | the name of a topic of the test's own in `kafka_broker` |
| `own_kafka_broker` | a `Broker` of the test's own, which it may restart or kill |
| `new_kafka_broker` | a function that starts a `Broker` with the arguments given; it ends with the test |
| `filled_kafka_broker` | a `Broker` of the test's own, with what the fixture `fill_kafka_broker` has put into one |
| `secure_kafka_broker` | as `kafka_broker`, with TLS and the user alice |
| `schema_registry` | the URL of a schema registry over `kafka_broker`, for all tests of the session |
| `kafka_cluster` | a `Cluster` of three nodes for all tests of the session, which leave its nodes alone |
| `own_kafka_cluster` | a `Cluster` of three nodes of the test's own, which it may kill, pause and cut off |

`@pytest.mark.kafka_faults("fail", "Produce", "NOT_LEADER_OR_FOLLOWER", times=2)` sets a fault of the test's broker. A
test fails if a fault was set and hit nothing; a failing test shows what was hit; faults end with their test.

`kafka_broker.requests.on()` records requests; a failing test shows the last ones, and each test sees its own alone.

`fill_kafka_broker` returns a function that fills a broker: a conftest.py overrides it. It is called once a session.

`kafka_broker_properties` returns the keys of `kafka_broker`: a conftest.py overrides it.
"""

import gc
import re
import sys
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Unpack

    from kafkapy.embedded.broker import Broker, NewKafkaBroker
    from kafkapy.embedded.cluster import Cluster
    from kafkapy.embedded.faults.rules import Faults
    from kafkapy.embedded.observed.requests import Requests
    from kafkapy.embedded.options import BrokerOptions
    from kafkapy.embedded.snapshots import Snapshot

MARKER: Final = "kafka_topic(partitions=1, configs={}): how the topic of the fixture kafka_topic is created"
FAULTS_MARKER: Final = (
    "kafka_faults(kind, api, ..., **selectors): a fault of the test's broker, as broker.faults.fail(...) sets it"
)
MARKED: Final = (
    "own_kafka_cluster",
    "own_kafka_broker",
    "filled_kafka_broker",
    "kafka_cluster",
    "secure_kafka_broker",
    "kafka_broker",
)
"""The fixtures that a marker is about: the first one that a test has."""
FAULTS: Final = "kafkapy.embedded.faults.rules"
REQUESTS: Final = "kafkapy.embedded.observed.requests"
"""The modules that know all faults, and all that record requests; they are not imported unless there are some."""
SHOWN_REQUESTS: Final = 30
TOPIC_OPTIONS: Final = frozenset({"partitions", "configs", "timeout_s"})
MAX_NAME: Final = 200
"""The maximum length of the test's name within a topic's name, of which Kafka allows 249 characters."""


class PlainImports:
    """A meta path finder that has the broker's modules imported as they are, from their bytecode.

    pytest rewrites the asserts of all modules of a distribution that has a plugin. The broker would take two seconds to
    import where pytest has no bytecode of it yet, a fifth of a second later on, and run slower.
    """

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, path, target) if name.startswith("kafkapy.") else None


def pytest_addoption() -> None:
    """Come before pytest's finder, which is there by now."""
    if PlainImports not in sys.meta_path:
        sys.meta_path.insert(0, PlainImports)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    config.addinivalue_line("markers", FAULTS_MARKER)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Set the faults of the test's markers; after the test, fail it if a fault has hit nothing."""
    for marker in reversed(list(item.iter_markers("kafka_faults"))):
        if refused := _refused(item, marker):
            pytest.fail(refused, pytrace=False)
    result = yield
    if missed := _missed():
        pytest.fail(missed, pytrace=False)
    return result


def _refused(item: pytest.Item, marker: pytest.Mark) -> str | None:
    """Set the fault of a marker; return why it cannot be, None if it is set."""
    found = _marked(item)
    if found is None:
        return f"kafka_faults needs one of the fixtures {', '.join(MARKED)}"
    try:
        found.faults.add(*marker.args, **marker.kwargs)
    except (TypeError, ValueError) as error:  # FaultError is a ValueError
        return f"@pytest.mark.kafka_faults: {type(error).__name__}: {error}\n{FAULTS_MARKER}"
    return None


def _missed() -> str | None:
    """Return the message of a fault that has hit nothing, None if there is none."""
    try:
        for faults in _all_faults():
            faults.check_hit()
    except AssertionError as error:  # FaultNeverHit, whose module is imported with the first fault
        return f"{type(error).__name__}: {error}"
    return None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> "Generator[None, pytest.TestReport, pytest.TestReport]":
    """Show in the report of a failing test which faults there were, what they hit, and the requests if recorded."""
    report = yield
    if report.failed:
        shown = {
            "Kafka faults": [faults.report() for faults in _all_faults()],
            "Kafka requests": [requests.report(SHOWN_REQUESTS) for requests in _all_requests()],
        }
        for title, texts in shown.items():
            if text := "\n".join(filter(None, texts)):
                report.sections.append((title, text))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """End the faults of a test with it, and forget its requests: before its fixtures end, as it has said all by now."""
    for faults in _all_faults():
        faults.clear()
        faults.log.clear()
    for requests in _all_requests():
        requests.clear()
    return (yield)


def _marked(item: pytest.Item) -> "Broker | Cluster | None":
    """Return the broker or cluster that a marker of a test is about, None without one."""
    given: dict[str, Any] = getattr(item, "funcargs", {})
    for name in MARKED:
        if name in given:
            found: Broker | Cluster = given[name]
            return found
    return None


def _all_faults() -> "list[Faults]":
    module = sys.modules.get(FAULTS)
    return [] if module is None else list(module.LIVE)


def _all_requests() -> "list[Requests]":
    module = sys.modules.get(REQUESTS)
    return [] if module is None else list(module.LIVE)


@pytest.fixture(scope="session")
def kafka_broker_properties() -> dict[str, object]:
    """Kafka's keys for `kafka_broker`: override this fixture to set some."""
    return {}


@pytest.fixture(scope="session")
def kafka_broker(kafka_broker_properties: dict[str, object]) -> "Iterator[Broker]":
    """A running broker on a free port, data in a temporary directory, for the whole test session.

    Clients connect to `kafka_broker.bootstrap_servers`; tests that must not see each other use topics of their own
    (`kafka_topic`).
    """
    with _running_broker(properties=kafka_broker_properties) as broker:
        yield broker


@pytest.fixture
def kafka_topic(kafka_broker: "Broker", request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a new topic in `kafka_broker`, deleted after the test.

    `@pytest.mark.kafka_topic(partitions=3, configs={"cleanup.policy": "compact"})` says how it is created.
    """
    marker = request.node.get_closest_marker("kafka_topic")
    words = re.sub(r"[^\w.-]+", "-", request.node.name, flags=re.ASCII)[:MAX_NAME]
    name = f"{words.strip('-.') or 'topic'}-{uuid.uuid4().hex[:8]}"
    options = marker.kwargs if marker is not None else {}
    if (marker is not None and marker.args) or not TOPIC_OPTIONS.issuperset(options):
        pytest.fail(
            f"@pytest.mark.kafka_topic has the keyword arguments partitions and configs\n{MARKER}", pytrace=False
        )
    kafka_broker.create_topics(name, **options)
    yield name
    kafka_broker.delete_topics(name)


@pytest.fixture
def new_kafka_broker() -> "Iterator[NewKafkaBroker]":
    """A function that starts a broker: `new_kafka_broker(properties={"num.partitions": 3})`. It ends with the test."""
    with ExitStack() as stack:

        def start(data_dir: "str | Path | None" = None, **options: "Unpack[BrokerOptions]") -> "Broker":
            return stack.enter_context(_running_broker(data_dir, **options))

        yield start


@pytest.fixture
def own_kafka_broker(new_kafka_broker: "NewKafkaBroker") -> "Broker":
    """A running broker of the test's own, which may restart or kill it."""
    return new_kafka_broker()


@pytest.fixture(scope="session")
def fill_kafka_broker() -> "Callable[[Broker], object]":
    """What puts topics and records into `filled_kafka_broker`, once a session: override this fixture."""
    raise pytest.UsageError("filled_kafka_broker needs a fixture of yours, fill_kafka_broker, that fills a broker")


@pytest.fixture(scope="session")
def kafka_snapshot(
    fill_kafka_broker: "Callable[[Broker], object]", kafka_broker_properties: dict[str, object]
) -> "Snapshot":
    """The snapshot of a broker that `fill_kafka_broker` has filled."""
    with _running_broker(properties=kafka_broker_properties) as broker:
        fill_kafka_broker(broker)
        return broker.snapshot()


@pytest.fixture
def filled_kafka_broker(
    kafka_snapshot: "Snapshot", new_kafka_broker: "NewKafkaBroker", kafka_broker_properties: dict[str, object]
) -> "Broker":
    """A running broker of the test's own, with the topics and records of `fill_kafka_broker`."""
    return new_kafka_broker(snapshot=kafka_snapshot, properties=kafka_broker_properties)


@pytest.fixture(scope="session")
def secure_kafka_broker() -> "Iterator[Broker]":
    """Like `kafka_broker`, over TLS and with a login: `secure_kafka_broker.client_config("alice")`."""
    with _running_broker(tls=True, users={"alice": "alice-secret"}) as broker:
        yield broker


@pytest.fixture(scope="session")
def schema_registry(kafka_broker: "Broker") -> Iterator[str]:
    """The URL of a schema registry over `kafka_broker`: `SchemaRegistryClient({"url": schema_registry})`.

    It needs the extra `registry`. Tests that must not see each other use subjects of their own (`kafka_topic`).
    """
    from kafkapy.registry.embedded import EmbeddedRegistry

    with EmbeddedRegistry(kafka_broker.client_config()) as registry:
        yield registry.url


@pytest.fixture(scope="session")
def kafka_cluster() -> "Iterator[Cluster]":
    """Three running nodes on free ports, data in a temporary directory, for the whole test session.

    Tests that kill or cut off nodes take `own_kafka_cluster`.
    """
    yield from _running_cluster()


@pytest.fixture
def own_kafka_cluster() -> "Iterator[Cluster]":
    """Three running nodes on free ports, data in a temporary directory, for one test, which may kill them."""
    yield from _running_cluster()


def _running_cluster() -> "Iterator[Cluster]":
    from kafkapy.embedded.cluster import Cluster

    with Cluster(3) as cluster:
        yield cluster


@contextmanager
def _running_broker(data_dir: "str | Path | None" = None, **options: "Unpack[BrokerOptions]") -> "Iterator[Broker]":
    """Import and start a `Broker`; stop it at the end."""
    with ExitStack() as stack:
        with _no_collections():
            from kafkapy.embedded.broker import Broker

            broker = stack.enter_context(Broker(data_dir, **options))
        yield broker


@contextmanager
def _no_collections() -> Iterator[None]:
    """Collect no garbage for the moment: imports and a start make much and discard little."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
