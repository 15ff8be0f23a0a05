"""connection_creation_rate of ips: a connection beyond it is not served, and closed after its delay (KIP-612)."""

import time

import pytest

from kafkapy.protocol.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from tests.support.wire import ConnectionClosed, WireClient

LIMITED, OTHER = "127.0.0.9", "127.0.0.10"


def is_served(bootstrap: str, host: str) -> bool:
    with WireClient(bootstrap, source_host=host) as client:
        try:
            client.call(ApiVersionsRequest(), 0)
        except ConnectionClosed:
            return False
        return True


@pytest.fixture
def limited(client: WireClient):
    """An address of which one connection a second may come."""
    entity = [EntityData("ip", entity_name=LIMITED)]
    client.call(AlterClientQuotasRequest([EntryData(entity, ops=[OpData("connection_creation_rate", value=1.0)])]), 1)
    yield LIMITED
    client.call(AlterClientQuotasRequest([EntryData(entity, ops=[OpData("connection_creation_rate", remove=True)])]), 1)


def test_connections_beyond_the_rate_of_their_address_are_closed_after_a_delay(bootstrap, limited) -> None:
    served, begun_s = 0, time.monotonic()
    while is_served(bootstrap, limited):
        served += 1
        assert served < 100
    assert served >= 10, "ten seconds of the rate pass at once"
    assert time.monotonic() - begun_s >= 0.95, "the eleventh is a second early, however long those before it took"
    assert all(is_served(bootstrap, OTHER) for _ in range(20))
