"""A session that is renewed while requests are under way: what was asked before is answered before. KIP-368."""

from collections.abc import Iterator

import pytest

from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.protocol.messages.fetch_request import FetchRequest
from kafkapy.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from kafkapy.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from tests.support.client_requests import (
    batch_of,
    create_topic,
    fetch_partition,
    fetch_topic,
    produce,
    produce_request,
)
from tests.support.logins import log_in, sasl_broker, sasl_client
from tests.support.wire import WireClient

LISTENER, USERS = "SASL_PLAINTEXT", {"alice": "wonder"}
TOKEN = b"\0alice\0wonder"
MAX_WAIT_MS = 700


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    properties = {"connections.max.reauth.ms": "600000"}
    with sasl_broker(tmp_path_factory.mktemp("renewals"), (LISTENER,), USERS, properties) as ports:
        yield ports


@pytest.fixture
def client(ports: dict[str, int]) -> Iterator[WireClient]:
    with WireClient(f"127.0.0.1:{ports[LISTENER]}") as client:
        assert log_in(client, sasl_client("PLAIN", "alice", "wonder")).session_lifetime_ms == 600_000
        yield client


def renew(client: WireClient, token: bytes = TOKEN) -> None:
    client.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    client.send(SaslAuthenticateRequest(auth_bytes=token), 2)


def test_a_fetch_that_waits_is_answered_before_the_renewal_behind_it(client: WireClient) -> None:
    create_topic(client, "waiting")
    topics = [fetch_topic("waiting", fetch_partition(0))]
    client.send(FetchRequest(max_wait_ms=MAX_WAIT_MS, min_bytes=1, topics=topics), 12)
    renew(client)
    client.send(ApiVersionsRequest(), 0)
    responses = [type(client.receive()).__name__ for _ in range(4)]
    assert responses == ["FetchResponse", "SaslHandshakeResponse", "SaslAuthenticateResponse", "ApiVersionsResponse"]


def test_what_is_produced_around_a_renewal_is_written_in_its_order(client: WireClient) -> None:
    create_topic(client, "produced")
    client.send(produce_request("produced", batch_of(value=b"before")), 12)
    renew(client)
    client.send(produce_request("produced", batch_of(value=b"behind")), 12)
    written = [client.receive() for _ in range(4)]
    offsets = [each.responses[0].partition_responses[0].base_offset for each in (written[0], written[3])]
    assert [each.error_code for each in written[1:3]] == [0, 0]
    assert offsets == [0, 1]


def test_what_comes_behind_a_failed_renewal_is_not_done(client: WireClient, ports: dict[str, int]) -> None:
    create_topic(client, "refused")
    renew(client, b"\0alice\0wrong")
    client.send(produce_request("refused", batch_of(value=b"behind")), 12)
    codes = [client.receive().error_code for _ in range(2)]
    assert codes == [0, 58]
    assert client.is_closed()
    with WireClient(f"127.0.0.1:{ports['PLAINTEXT']}") as other:
        assert produce(other, "refused", batch_of(value=b"first")).base_offset == 0
