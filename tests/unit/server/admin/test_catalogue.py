"""The metrics that are served as 0, each with its reason, are those of a running broker."""

from harness.servers import free_port
from kafkapy import Broker
from kafkapy.server.admin.catalogue import ALWAYS_ZERO
from tests.support.client_requests import batch_of, create_topic, produce
from tests.support.scraped import samples_of, text_of
from tests.support.wire import WireClient


def test_metrics_that_are_always_0_are_served_and_are_0() -> None:
    port = free_port()
    with (
        Broker(properties={"kafkapy.admin.listener": f"127.0.0.1:{port}"}) as broker,
        WireClient(broker.bootstrap_servers) as client,
    ):
        create_topic(client, "t")
        assert produce(client, "t", batch_of()).error_code == 0
        samples = samples_of(text_of(port))
    found = {name: {value for (other, _), value in samples.items() if other == name} for name in ALWAYS_ZERO}
    assert found == {name: {0} for name in ALWAYS_ZERO}
