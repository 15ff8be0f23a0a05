import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.handlers.node_refusals import LOGGED_AGAIN_MS, MAX_LINES, NodeRefusals
from kafkapy.handlers.table import CONTROLLER_APIS
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.headers import RequestHeader
from kafkapy.protocol.messages.vote_request import PartitionData, TopicData, VoteRequest
from kafkapy.protocol.serving import ConnectionInfo
from kafkapy.raft.messages import Request, Response, VoteResponse
from kafkapy.runtime.turns import Turns
from kafkapy.serving.router import Router
from tests.simulator.loop import SimClock, SimLoop
from tests.support.bearer_tokens import ImmediatePool
from tests.support.wire import request_frame

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
        refusals.log(header(), connection(port=port), ErrorCode.DUPLICATE_BROKER_REGISTRATION)
        refusals.log(header(), connection(port=port), ErrorCode.NOT_CONTROLLER)
    line = "Refused BrokerRegistration of 10.0.0.1:9093-10.0.0.3:4000-0: DUPLICATE_BROKER_REGISTRATION"
    assert caplog.messages == [line]
    refusals.log(header(VOTE), connection(), ErrorCode.INCONSISTENT_CLUSTER_ID)
    refusals.log(header(), connection("10.0.0.4"), ErrorCode.DUPLICATE_BROKER_REGISTRATION)
    assert len(caplog.messages) == 3, "another request, and another peer"
    loop.block(LOGGED_AGAIN_MS)
    refusals.log(header(), connection(), ErrorCode.DUPLICATE_BROKER_REGISTRATION)
    assert caplog.messages[3:] == [line]
    loop.close()


async def test_a_vote_for_another_disk_is_logged_with_its_candidate(
    loop: SimLoop, caplog: pytest.LogCaptureFixture
) -> None:
    def receive(_request: Request, respond: Callable[[Response], None]) -> None:
        respond(VoteResponse(error=codes.pop(), leader_epoch=3, leader_id=-1))

    services: Any = SimpleNamespace(
        apis=CONTROLLER_APIS,
        authorizer=SimpleNamespace(authorize=lambda *_: True),
        client_quotas=None,
        clock=SimClock(loop),
        cluster_id="c",
        io_pool=ImmediatePool(),
        quorum=SimpleNamespace(receive=receive),
        turns=Turns(),
    )
    codes = [ErrorCode.INVALID_VOTER_KEY, ErrorCode.FENCED_LEADER_EPOCH, 0]
    topics = [TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]
    vote = memoryview(request_frame(VoteRequest(cluster_id="c", topics=topics), 2))
    router = Router(services)
    while codes:
        assert await router.route(connection(), vote) is not None
    assert caplog.messages == ["Refused Vote of 10.0.0.1:9093-10.0.0.3:4000-0: INVALID_VOTER_KEY"]


def test_many_strangers_get_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    loop = SimLoop()
    refusals = NodeRefusals(SimClock(loop))
    for number in range(10 * MAX_LINES):
        host = f"10.0.{number // 250}.{number % 250}"
        refusals.log(header(VOTE), connection(host), ErrorCode.INCONSISTENT_CLUSTER_ID)
    assert len(caplog.messages) == MAX_LINES
    loop.close()
