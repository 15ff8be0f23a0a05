"""A server that closes the connection instead of a response, that hangs, or is slow: when the next one is asked."""

import pytest

from kafkapy import Broker
from kafkapy.cli.connection import Connection
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkapy.protocol.messages.metadata_request import MetadataRequest
from tests.support.one_response import answering


def test_the_next_server_is_asked_what_each_broker_knows() -> None:
    """A broker whose disk is full closes the connection, because its metadata stands still."""
    with (
        Broker() as broker,
        answering(b"") as full,
        Connection.to_any(f"{full},{broker.bootstrap_servers}") as connection,
    ):
        for _ in range(2):
            assert len(connection.call(MetadataRequest([]), 5).brokers) == 1


def test_a_change_is_not_sent_twice() -> None:
    with Broker() as broker:
        with answering(b"") as gone, Connection.to_any(f"{gone},{broker.bootstrap_servers}") as connection:
            request = CreateTopicsRequest([CreatableTopic("orders", num_partitions=1, replication_factor=1)])
            with pytest.raises(ConnectionError):
                connection.call(request, 7)
        with Connection.to_any(broker.bootstrap_servers) as connection:
            assert connection.call(MetadataRequest(None), 5).topics == []


def test_the_last_server_has_no_next_one() -> None:
    with (
        answering(b"") as first,
        answering(b"") as second,
        Connection.to_any(f"{first},{second}") as connection,
        pytest.raises(ConnectionError),
    ):
        connection.call(MetadataRequest([]), 5)


def test_a_server_that_hangs_is_passed_over() -> None:
    with Broker(network_faults=True) as hangs, Broker() as broker:
        hangs.network.hold()
        servers = f"{hangs.bootstrap_servers},{broker.bootstrap_servers}"
        with Connection.to_any(servers, answer_s=0.2) as connection:
            assert connection.server == broker.bootstrap_servers


def test_servers_that_are_all_slow_are_waited_for() -> None:
    with Broker(network_faults=True) as slow:
        slow.network.delay(ms=300)
        with Connection.to_any(f"{slow.bootstrap_servers},{slow.bootstrap_servers}", answer_s=0.1) as connection:
            assert len(connection.call(MetadataRequest([]), 5).brokers) == 1


def test_whoever_waits_is_told_once_that_a_response_is_late() -> None:
    told = []

    def hangs() -> None:
        raise TimeoutError("it hangs")

    with Broker(network_faults=True) as slow, Connection.to_any(slow.bootstrap_servers) as connection:
        connection.watch(0.05, lambda: told.append(True))
        connection.call(MetadataRequest([]), 5)
        in_time = len(told)  # 0 unless this machine is slow
        slow.network.delay(ms=300)
        connection.call(MetadataRequest([]), 5)
        assert len(told) == in_time + 1
        connection.watch(0.05, hangs)
        with pytest.raises(TimeoutError, match="it hangs"):
            connection.call(MetadataRequest([]), 5)
