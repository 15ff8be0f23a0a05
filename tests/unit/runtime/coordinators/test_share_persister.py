"""Responses of another broker's share coordinator that do not have what was asked for."""

from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages import read_share_group_state_response as read_response
from kafkapy.protocol.messages import write_share_group_state_response as write_response
from kafkapy.runtime.coordinators.share_persister import RoutedPersister
from kafkapy.runtime.peer import NoResponseError
from kafkapy.share.persister import StateBatch, StateRead, StateWrite
from tests.simulator.loop import SimClock, SimLoop

TOPIC, OTHER_TOPIC = bytes(15) + b"1", bytes(15) + b"2"
READ = StateRead(TOPIC, 0, 0)
WRITE = StateWrite(TOPIC, 0, 0, 0, 0, 0, [StateBatch(0, 9, 2, 1)])


class Channels:
    """The connections to other brokers: each request gets this response."""

    def __init__(self, response: Any) -> None:
        self.response = response
        self.request_count = 0

    async def send_request(self, broker_id: int, *_: Any, **__: Any) -> Any:
        self.request_count += 1
        if isinstance(self.response, Exception):
            raise self.response
        return self.response

    def close(self) -> None:
        pass


def persister_of(loop: SimLoop, channels: Any) -> RoutedPersister:
    coordinator: Any = SimpleNamespace(
        is_hosted=lambda key: False,
        broker_of=lambda key: 2,
        has_topic=lambda: True,
        read_states=None,
        write_states=None,
    )
    return RoutedPersister(
        coordinator, channels, node_id=1, create_topic=_nothing, clock=SimClock(loop), timeout_ms=1000
    )


async def _nothing() -> None:
    pass


def read_of(topic_id: bytes, *partitions: int) -> Any:
    return read_response.ReadStateResult(
        topic_id, partitions=[read_response.PartitionResult(each) for each in partitions]
    )


def written_of(topic_id: bytes, *partitions: int) -> Any:
    return write_response.WriteStateResult(
        topic_id, partitions=[write_response.PartitionResult(each) for each in partitions]
    )


ANSWERS = [
    ([], ErrorCode.UNKNOWN_SERVER_ERROR),
    ([(TOPIC, ())], ErrorCode.UNKNOWN_SERVER_ERROR),
    ([(OTHER_TOPIC, (0,))], ErrorCode.UNKNOWN_SERVER_ERROR),
    ([(TOPIC, (1,))], ErrorCode.UNKNOWN_SERVER_ERROR),
    ([(TOPIC, ()), (OTHER_TOPIC, ())], ErrorCode.UNKNOWN_SERVER_ERROR),
    ([(TOPIC, (0,))], ErrorCode.NONE),
]


@pytest.mark.parametrize(("topics", "expected"), ANSWERS)
async def test_a_state_that_a_response_leaves_out_is_an_error(
    loop: SimLoop, topics: list[tuple[bytes, tuple[int, ...]]], expected: ErrorCode
) -> None:
    results = [read_of(topic_id, *partitions) for topic_id, partitions in topics]
    channels = Channels(read_response.ReadShareGroupStateResponse(results=results))
    (result,) = await persister_of(loop, channels).read("g", [READ])
    assert (result.error_code, result.topic_id, result.partition) == (expected, TOPIC, 0)
    assert channels.request_count == 1, "it is not tried again"


@pytest.mark.parametrize(("topics", "expected"), ANSWERS)
async def test_a_write_that_a_response_leaves_out_is_an_error(
    loop: SimLoop, topics: list[tuple[bytes, tuple[int, ...]]], expected: ErrorCode
) -> None:
    results = [written_of(topic_id, *partitions) for topic_id, partitions in topics]
    channels = Channels(write_response.WriteShareGroupStateResponse(results=results))
    (result,) = await persister_of(loop, channels).write("g", [WRITE])
    assert (result.error_code, result.topic_id, result.partition) == (expected, TOPIC, 0)


async def test_a_broker_without_share_groups_is_not_asked_again(loop: SimLoop) -> None:
    channels = Channels(NoResponseError("broker 2", is_unsupported=True))
    (result,) = await persister_of(loop, channels).write("g", [WRITE])
    assert result.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert channels.request_count == 1
