"""/metrics: what Apache Kafka does not have, shares of idle time, clients by software, lag of a KIP-848 group."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, Producer

from harness.servers import free_port
from kafkapy import Broker
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.server.admin.network_gauges import MAX_SOFTWARE
from tests.support.scraped import Samples, samples_of, text_of
from tests.support.wire import WireClient

CLIENTS = MAX_SOFTWARE + 5
SOFTWARE = "kafka_server_socket_server_metrics_connections_software"


@pytest.fixture(scope="module")
def scraped() -> Iterator[Samples]:
    """What a broker tells while many clients are connected, and one of ten records is committed by a KIP-848 group."""
    port = free_port()
    with Broker(properties={"kafkapy.admin.listener": f"127.0.0.1:{port}"}) as broker, ExitStack() as clients:
        servers: dict[str, str | int | float | bool] = {"bootstrap.servers": broker.bootstrap_servers}
        producer = Producer(servers)
        for _ in range(10):
            producer.produce("t", b"value")
        assert producer.flush(60) == 0
        group: dict[str, str | int | float | bool] = {"group.id": "g", "group.protocol": "consumer"}
        consumer = Consumer({**servers, **group, "auto.offset.reset": "earliest", "enable.auto.commit": False})
        consumer.subscribe(["t"])
        while (message := consumer.poll(1)) is None or message.error() is not None:
            pass
        consumer.commit(message, asynchronous=False)
        for number in range(CLIENTS):
            client = clients.enter_context(WireClient(broker.bootstrap_servers))
            client.call(ApiVersionsRequest(f"software-{number}", client_software_version="1"), 4)
        yield samples_of(text_of(port))
        consumer.close()


def values(scraped: Samples, name: str) -> list[float]:
    return [value for (each, _), value in scraped.items() if each == name]


def test_the_process_and_the_event_loop_are_exported(scraped: Samples) -> None:
    for name in ("process_resident_memory_bytes", "process_open_fds", "process_cpu_seconds_total"):
        assert values(scraped, name)[0] > 0
    assert values(scraped, "kafkapy_log_directory_usable_bytes")[0] > 0
    for name in ("kafkapy_event_loop_lag_seconds", "kafkapy_gc_pause_seconds"):
        assert len(values(scraped, name)) == 6, "quantiles"
        assert values(scraped, f"{name}_count")[0] >= 0
    assert values(scraped, "kafkapy_io_pool_threads") != []
    assert values(scraped, "kafkapy_io_pool_unfinished_calls") != []
    for name in ("heavy_work_bytes", "decoded_request_bytes", "unread_answer_bytes", "suspended_requests"):
        assert values(scraped, f"kafkapy_{name}") != [], "dashboards know it by this name"


def test_idle_times_are_shares(scraped: Samples) -> None:
    found = {
        name: value
        for (name, _), value in scraped.items()
        if name.endswith(("idle_percent", "idleratio", "io_ratio", "io_wait_ratio"))
    }
    assert len(found) >= 8
    assert {name: value for name, value in found.items() if not 0 <= value <= 1} == {}


def test_many_clients_by_software_are_counted_together(scraped: Samples) -> None:
    by_name = {
        (labels["clientSoftwareName"], labels["networkProcessor"]): value
        for (name, tags), value in scraped.items()
        if name == SOFTWARE
        for labels in [dict(tags)]
    }
    assert len(by_name) <= MAX_SOFTWARE + len({processor for _, processor in by_name})
    assert sum(value for (name, _), value in by_name.items() if name == "other") >= CLIENTS - MAX_SOFTWARE
    assert sum(by_name.values()) >= CLIENTS


def test_the_lag_of_a_kip_848_group_is_exported(scraped: Samples) -> None:
    of_group = frozenset({("consumergroup", "g"), ("topic", "t")})
    assert scraped["kafka_consumergroup_lag_sum", of_group] == 9
    assert scraped["kafka_consumergroup_members", frozenset({("consumergroup", "g")})] == 1
    assert scraped["kafka_coordinator_group_groupmetadatamanager_numgroups", frozenset()] == 1
