"""A network to clients that is cut, late or narrow."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from kafkapy.embedded.network import ClusterClientNetwork
from kafkapy.embedded.proxies import NOT_A_NODE
from kafkapy.testing import Broker

TIMEOUT_S: Final = 60
DAY_MS: Final = 86_400_000


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with Broker(network_faults=True) as broker:
        broker.create_topics("orders", partitions=1)
        yield broker


@pytest.fixture
def broker(running: Broker) -> Iterator[Broker]:
    assert produced(running)[0] is None
    yield running
    running.network.heal()


def produced(broker: Broker, size: int = 100, timeout_ms: int = 60_000) -> tuple[str | None, float]:
    """Return the name of the error, or None, and how many seconds it took."""
    found: list[str | None] = []
    began = time.monotonic()
    config = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, "message.timeout.ms": timeout_ms}
    producer = Producer({**config, "client.id": "1"})
    producer.produce("orders", bytes(size), on_delivery=lambda error, _: found.append(error.name() if error else None))
    producer.flush(TIMEOUT_S)
    return found[0], time.monotonic() - began


@pytest.mark.parametrize("fault", ["cut", "hold"])
def test_nothing_arrives_until_it_heals(broker: Broker, fault: str) -> None:
    getattr(broker.network, fault)()
    assert produced(broker, timeout_ms=500)[0] == "_MSG_TIMED_OUT"
    broker.network.heal()
    assert produced(broker)[0] is None


def test_bytes_arrive_later(broker: Broker) -> None:
    broker.network.delay(ms=100)
    error, took_s = produced(broker)
    assert error is None
    assert took_s >= 0.4, "two round trips at least: versions, metadata or the record"


def test_bytes_arrive_slowly(broker: Broker) -> None:
    broker.network.limit(bytes_per_s=200_000)
    error, took_s = produced(broker, size=200_000)
    assert error is None
    assert took_s >= 0.9


def test_the_port_is_kept_over_a_restart(broker: Broker) -> None:
    before = broker.bootstrap_servers
    broker.restart()
    assert broker.bootstrap_servers == before
    assert produced(broker)[0] is None


def test_clients_of_tls_and_logins_pass_the_proxy() -> None:
    with Broker(network_faults=True, tls=True, users={"alice": "secret"}) as broker:
        broker.create_topics("orders", partitions=1)
        found: list[object] = []
        producer = Producer({**broker.client_config("alice"), "log_level": 0})
        producer.produce("orders", b"value", on_delivery=lambda error, _: found.append(error))
        producer.flush(TIMEOUT_S)
        assert found == [None]


def test_a_week_passes_while_no_client_gets_through_and_the_data_is_kept(tmp_path: Path) -> None:
    with Broker(tmp_path, clock="virtual", network_faults=True) as broker:
        broker.create_topics("orders", partitions=1, configs={"retention.ms": DAY_MS, "segment.ms": DAY_MS // 24})
        assert produced(broker)[0] is None
        broker.network.cut()
        broker.clock.advance("2d")
        assert produced(broker, timeout_ms=500)[0] == "_MSG_TIMED_OUT"
        broker.network.heal()
        assert produced(broker)[0] is None
    with Broker(tmp_path) as later:  # clients connect to it directly
        assert [record.offset for record in later.topics["orders"].records()] == [1]
    with Broker(tmp_path, network_faults=True) as proxied:
        assert produced(proxied)[0] is None


def test_what_cannot_be_is_refused_by_name(broker: Broker) -> None:
    with pytest.raises(ValueError, match="ms is a number from 1 on, not 0"):
        broker.network.delay(ms=0)
    with pytest.raises(ValueError, match="bytes_per_s is a number from 1 on, not 0"):
        broker.network.limit(bytes_per_s=0)
    with Broker() as plain, pytest.raises(RuntimeError, match=r"needs Broker\(network_faults=True\)"):
        plain.network.cut()


def test_a_cut_that_is_healed_at_once_has_ended_connections() -> None:
    later: list[tuple[set[int], ...]] = []  # groups, as the proxies' thread reads them

    class Proxies:
        def partition(self, *groups: set[int]) -> None:
            later.append(groups)

        def heal(self) -> None: ...

    network = ClusterClientNetwork(Proxies(), lambda: [1, 2])  # type: ignore[arg-type]
    network.cut(1)
    network.heal()
    assert later == [({NOT_A_NODE}, {1})]
