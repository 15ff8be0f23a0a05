"""The fixture that an install of kafkapy brings; pytest finds it by its entry point."""

import socket

from kafkapy import Broker


def test_the_fixture_is_a_running_broker(kafka_broker: Broker) -> None:
    host, port = kafka_broker.bootstrap_servers.split(":")
    socket.create_connection((host, int(port)), 5).close()
