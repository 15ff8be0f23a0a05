"""Quotas of users who log in: by the user, whatever connection and client-id; the most specific entity decides.

KIP-55: (user, client-id), then the user, then the default user. Clients over PLAINTEXT are ANONYMOUS.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack

import pytest

from kafkapy.protocol.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from tests.support.client_requests import batch_of, create_topic, fetch_request, produce_request, until
from tests.support.logins import log_in, sasl_broker, sasl_client
from tests.support.wire import WireClient

LISTENER = "SASL_PLAINTEXT"
USERS = {name: f"{name}-secret" for name in ("alice", "bob", "carol", "probe")}
RATE = 10_000.0
"""Bytes a second, of which a burst of 100,000 is allowed; ten seconds after 200,000 a client is throttled still."""
BEYOND = b"x" * 200_000
PRODUCE_VERSION, FETCH_VERSION = 12, 12
Connect = Callable[[str], WireClient]


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    with sasl_broker(tmp_path_factory.mktemp("quotas"), (LISTENER,), USERS, {}) as ports:
        yield ports


@pytest.fixture
def connect(ports: dict[str, int]) -> Iterator[Connect]:
    """Connect as a user; as "" over PLAINTEXT."""
    with ExitStack() as stack:

        def connected(user: str) -> WireClient:
            port = ports[LISTENER if user else "PLAINTEXT"]
            client = stack.enter_context(WireClient(f"127.0.0.1:{port}"))
            if user:
                assert log_in(client, sasl_client("PLAIN", user, USERS[user])).error_code == 0
            return client

        yield connected


@pytest.fixture
def topic(connect: Connect, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("_", "-")[:60]
    create_topic(connect(""), name)
    return name


def set_quotas(
    connect: Connect, topic: str, quotas: Sequence[tuple[Mapping[str, str | None], Mapping[str, float]]]
) -> None:
    """Set the quotas of entities, and wait until those of a probe, set with them, are applied."""
    entries = [
        EntryData(
            [EntityData(kind, entity_name=name) for kind, name in entity.items()],
            ops=[OpData(key, value=value) for key, value in values.items()],
        )
        for entity, values in [*quotas, ({"user": "probe", "client-id": topic}, {"producer_byte_rate": 1.0})]
    ]
    responses = connect("").call(AlterClientQuotasRequest(entries), 1).entries
    assert [each.error_code for each in responses] == [0] * len(entries)
    until(lambda: throttle_of_produce(connect("probe"), topic, b"", client_id=topic) > 0)


def throttle_of_produce(client: WireClient, topic: str, value: bytes, *, client_id: str = "some") -> int:
    response = client.call(produce_request(topic, batch_of(value=value)), PRODUCE_VERSION, client_id=client_id)
    assert response.responses[0].partition_responses[0].error_code == 0
    return int(response.throttle_time_ms)


def test_a_users_quota_is_the_same_for_all_connections_and_client_ids(connect: Connect, topic: str) -> None:
    set_quotas(connect, topic, [({"user": "alice"}, {"producer_byte_rate": RATE})])
    first, second = connect("alice"), connect("alice")
    assert throttle_of_produce(second, topic, b"", client_id="another") == 0
    assert throttle_of_produce(first, topic, BEYOND) > 0
    assert throttle_of_produce(second, topic, b"", client_id="another") > 0
    assert throttle_of_produce(connect("bob"), topic, BEYOND) == 0
    assert throttle_of_produce(connect(""), topic, BEYOND) == 0


def test_the_most_specific_entity_decides(connect: Connect, topic: str) -> None:
    set_quotas(
        connect,
        topic,
        [
            ({"user": None}, {"producer_byte_rate": RATE}),
            ({"user": "bob"}, {"producer_byte_rate": 1e9}),
            ({"user": "carol", "client-id": "fast"}, {"producer_byte_rate": 1e9}),
        ],
    )
    assert throttle_of_produce(connect("bob"), topic, BEYOND) == 0
    assert throttle_of_produce(connect("carol"), topic, BEYOND, client_id="fast") == 0
    assert throttle_of_produce(connect("carol"), topic, BEYOND, client_id="slow") > 0
    assert throttle_of_produce(connect(""), topic, BEYOND) > 0, "ANONYMOUS is a user, too"


def test_a_user_reads_as_fast_as_the_quota_allows(connect: Connect, topic: str) -> None:
    quotas = [({"user": "carol"}, {"consumer_byte_rate": RATE}), ({"user": None}, {"producer_byte_rate": 1e9})]
    set_quotas(connect, topic, quotas)
    for _ in range(15):
        throttle_of_produce(connect(""), topic, b"x" * 7_000)
    request = fetch_request(topic, partition_max_bytes=14 * len(batch_of(value=b"x" * 7_000)))

    def throttle_of_fetch(user: str) -> int:
        return int(connect(user).call(request, FETCH_VERSION, client_id="some").throttle_time_ms)

    assert throttle_of_fetch("carol") == 0
    assert throttle_of_fetch("carol") > 0
    assert throttle_of_fetch("bob") == 0
