import logging

import pytest

from kafkapy.handlers.node_refusals import LOGGED_AGAIN_MS, MOST_LINES, NodeRefusals
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.headers import RequestHeader
from kafkapy.protocol.serving import ConnectionInfo
from tests.simulator.loop import SimClock, SimLoop

VOTE, REGISTRATION = 52, 62


@pytest.fixture(autouse=True)
def level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafkapy.handlers.node_refusals")


def header(api_key: int = REGISTRATION) -> RequestHeader:
    return RequestHeader(api_key, 0, 1, "broker\n3")


def connection(host: str = "10.0.0.3", port: int = 4000) -> ConnectionInfo:
    return ConnectionInfo(f"10.0.0.1:9093-{host}:{port}-0", "CONTROLLER", "PLAINTEXT", host, port)


def test_a_refusal_is_logged_with_the_peer_and_again_after_a_while(caplog: pytest.LogCaptureFixture) -> None:
    loop = SimLoop()
    refusals = NodeRefusals(SimClock(loop))
    for port in range(4000, 4100):
        refusals.note(header(), connection(port=port), ErrorCode.DUPLICATE_BROKER_REGISTRATION)
        refusals.note(header(), connection(port=port), ErrorCode.NOT_CONTROLLER)
    line = "Refused BrokerRegistration of 10.0.0.1:9093-10.0.0.3:4000-0: DUPLICATE_BROKER_REGISTRATION"
    assert caplog.messages == [line]
    refusals.note(header(VOTE), connection(), ErrorCode.INCONSISTENT_CLUSTER_ID)
    refusals.note(header(), connection("10.0.0.4"), ErrorCode.DUPLICATE_BROKER_REGISTRATION)
    assert len(caplog.messages) == 3, "another request, and another peer"
    loop.block(LOGGED_AGAIN_MS)
    refusals.note(header(), connection(), ErrorCode.DUPLICATE_BROKER_REGISTRATION)
    assert caplog.messages[3:] == [line]
    loop.close()


def test_many_strangers_get_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    loop = SimLoop()
    refusals = NodeRefusals(SimClock(loop))
    for number in range(10 * MOST_LINES):
        host = f"10.0.{number // 250}.{number % 250}"
        refusals.note(header(VOTE), connection(host), ErrorCode.INCONSISTENT_CLUSTER_ID)
    assert len(caplog.messages) == MOST_LINES
    loop.close()
