"""The gauges that tell whether controller.quorum.voters is set although the voters are in the log (KIP-853)."""

from harness.servers import free_port
from kafkapy import Broker
from kafkapy.config.embedded import EMBEDDED_NODE_ID
from tests.support.scraped import samples_of, text_of

STATIC_VOTERS = {"controller.quorum.voters": f"{EMBEDDED_NODE_ID}@127.0.0.1:0"}
NAMES = (
    "kafka_controller_kafkacontroller_ignoredstaticvoters",
    "kafka_server_brokermetadatametrics_ignored_static_voters",
)


def flags(directory, properties) -> set[float]:
    """Start a broker on the directory; return the values of both gauges."""
    port = free_port()
    with Broker(str(directory), properties={**properties, "kafkapy.admin.listener": f"127.0.0.1:{port}"}):
        samples = samples_of(text_of(port))
    return {samples[name, frozenset()] for name in NAMES}


def test_static_voters_are_ignored_once_the_log_has_voters(tmp_path) -> None:
    assert flags(tmp_path / "data", {}) == {0}
    assert flags(tmp_path / "data", STATIC_VOTERS) == {1}


def test_static_voters_of_a_quorum_without_others_are_not_ignored(tmp_path) -> None:
    assert flags(tmp_path / "data", STATIC_VOTERS) == {0}
