"""A server that closes the connection instead of a response: which requests the next one is asked."""

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
