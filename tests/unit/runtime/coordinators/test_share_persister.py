"""What becomes of a call whose coordinator, on another broker, is silent, refuses, or leaves something out.

The cases of Apache Kafka's PersisterStateManagerTest and DefaultStatePersisterTest, for each of the five calls.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages import read_share_group_state_response as read_response
from kafkapy.protocol.messages import write_share_group_state_response as write_response
from kafkapy.runtime.coordinators.share_persister import GIVE_UP_AFTER_MS, RoutedPersister
from kafkapy.runtime.peer import NoResponseError
from kafkapy.share.persister import (
    InitialState,
    PartitionResult,
    StateBatch,
    StateRead,
    StateReadResult,
    StateSummary,
    StateWrite,
    TopicIdPartition,
)
from kafkapy.share.state_messages import DELETE, INITIALIZE, READ, READ_SUMMARY, WRITE, Exchange
from kafkapy.types import Uuid
from tests.simulator.loop import SimClock, SimLoop

TOPIC, OTHER_TOPIC = bytes(15) + b"1", bytes(15) + b"2"
BATCHES = [StateBatch(0, 9, 2, 1)]
NO_RESPONSE = NoResponseError("broker 2", is_unsupported=False)


class Channels:
    """The connections to other brokers: the requests get these responses, the last one from then on."""

    def __init__(self, *responses: Any) -> None:
        self.responses = responses
        self.request_count = 0

    async def send_request(self, broker_id: int, *_: Any, **__: Any) -> Any:
        response = self.responses[min(self.request_count, len(self.responses) - 1)]
        self.request_count += 1
        if isinstance(response, Exception):
            raise response
        return response

    def close(self) -> None:
        pass


def persister_of(loop: SimLoop, channels: Any) -> RoutedPersister:
    coordinator: Any = SimpleNamespace(
        is_hosted=lambda key: False,
        broker_of=lambda key: 2,
        has_topic=lambda: True,
        initialize_states=None,
        read_states=None,
        write_states=None,
        delete_states=None,
        read_summaries=None,
    )
    return RoutedPersister(
        coordinator, channels, node_id=1, create_topic=_nothing, clock=SimClock(loop), timeout_ms=1000
    )


async def _nothing() -> None:
    pass


class Kept:
    """The coordinator on this broker: it has lost its shard after the first write, of which one item was refused."""

    def __init__(self) -> None:
        self.written: list[Uuid] = []

    def is_hosted(self, _key: str) -> bool:
        return not self.written

    def broker_of(self, _key: str) -> int:
        return 2

    async def write_states(self, _group_id: str, writes: Sequence[StateWrite]) -> list[PartitionResult]:
        self.written += [each.topic_id for each in writes]
        return [
            PartitionResult(TOPIC, 0, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR.message),
            PartitionResult(OTHER_TOPIC, 0),
        ]


async def test_what_was_kept_here_is_asked_of_the_broker_to_which_it_has_moved(loop: SimLoop) -> None:
    kept: Any = Kept()
    channels: Any = Channels(response_to("write", ErrorCode.NONE))
    persister = RoutedPersister(kept, channels, node_id=1, create_topic=_nothing, clock=SimClock(loop), timeout_ms=1000)
    writes = [StateWrite(topic_id, 0, 0, 0, 0, 0, BATCHES) for topic_id in (TOPIC, OTHER_TOPIC)]
    results = await persister.write("g", writes)
    assert [(each.topic_id, each.error_code) for each in results] == [
        (TOPIC, ErrorCode.NONE),
        (OTHER_TOPIC, ErrorCode.NONE),
    ]
    assert (kept.written, channels.request_count) == ([TOPIC, OTHER_TOPIC], 1)


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
    (result,) = await persister_of(loop, channels).read("g", [StateRead(TOPIC, 0, 0)])
    assert (result.error_code, result.topic_id, result.partition) == (expected, TOPIC, 0)
    assert channels.request_count == 1, "it is not tried again"


@pytest.mark.parametrize(("topics", "expected"), ANSWERS)
async def test_a_write_that_a_response_leaves_out_is_an_error(
    loop: SimLoop, topics: list[tuple[bytes, tuple[int, ...]]], expected: ErrorCode
) -> None:
    results = [written_of(topic_id, *partitions) for topic_id, partitions in topics]
    channels = Channels(write_response.WriteShareGroupStateResponse(results=results))
    (result,) = await persister_of(loop, channels).write("g", [StateWrite(TOPIC, 0, 0, 0, 0, 0, BATCHES)])
    assert (result.error_code, result.topic_id, result.partition) == (expected, TOPIC, 0)


CALLS: dict[str, tuple[Exchange[Any, Any], Callable[..., Any], Callable[..., Any]]] = {
    "initialize": (INITIALIZE, lambda topic_id: InitialState(topic_id, 0, 1), PartitionResult),
    "read": (READ, lambda topic_id: StateRead(topic_id, 0, 0), StateReadResult),
    "write": (WRITE, lambda topic_id: StateWrite(topic_id, 0, 0, 0, 0, 10, BATCHES), PartitionResult),
    "delete": (DELETE, lambda topic_id: TopicIdPartition(topic_id, 0), PartitionResult),
    "read_summary": (READ_SUMMARY, lambda topic_id: TopicIdPartition(topic_id, 0), StateSummary),
}
"""For each method of a persister: its API, what it is asked of a topic, and what the result of that is."""
RETRIABLE = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


def calls(loop: SimLoop, name: str, channels: Channels, *topics: bytes) -> Awaitable[Sequence[Any]]:
    _, item_of, _ = CALLS[name]
    answered: Awaitable[Sequence[Any]] = getattr(persister_of(loop, channels), name)(
        "g", [item_of(each) for each in topics]
    )
    return answered


def response_to(name: str, *codes: ErrorCode) -> Any:
    """Return a response that has the first topic's result with the first code, and so on."""
    exchange, _, result_of = CALLS[name]
    topics = zip((TOPIC, OTHER_TOPIC), codes, strict=False)
    return exchange.response_of([result_of(topic_id, 0, code, code.message) for topic_id, code in topics])


def each_retriable() -> Iterator[tuple[str, Any]]:
    for name in CALLS:
        for code in RETRIABLE:
            yield name, response_to(name, code)
        yield name, NO_RESPONSE


@pytest.mark.parametrize(("name", "first"), list(each_retriable()))
async def test_what_may_pass_is_asked_again(loop: SimLoop, name: str, first: Any) -> None:
    channels = Channels(first, response_to(name, ErrorCode.NONE))
    (result,) = await calls(loop, name, channels, TOPIC)
    assert (result.error_code, result.topic_id, result.partition) == (ErrorCode.NONE, TOPIC, 0)
    assert channels.request_count == 2


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("code", [*RETRIABLE, ErrorCode.NETWORK_EXCEPTION])
async def test_what_does_not_pass_is_the_result_in_the_end(loop: SimLoop, name: str, code: ErrorCode) -> None:
    channels = Channels(NO_RESPONSE if code == ErrorCode.NETWORK_EXCEPTION else response_to(name, code))
    began = loop.time()
    (result,) = await calls(loop, name, channels, TOPIC)
    assert (result.error_code, result.error_message) == (code, code.message)
    assert channels.request_count > 2
    assert GIVE_UP_AFTER_MS <= (loop.time() - began) * 1000 < GIVE_UP_AFTER_MS + 100


@pytest.mark.parametrize("name", CALLS)
async def test_each_share_partition_has_its_own_result(loop: SimLoop, name: str) -> None:
    channels = Channels(response_to(name, ErrorCode.NONE, ErrorCode.FENCED_STATE_EPOCH))
    results = await calls(loop, name, channels, TOPIC, OTHER_TOPIC)
    assert [(each.topic_id, each.error_code) for each in results] == [
        (TOPIC, ErrorCode.NONE),
        (OTHER_TOPIC, ErrorCode.FENCED_STATE_EPOCH),
    ]
    assert results[1].error_message == ErrorCode.FENCED_STATE_EPOCH.message
    assert channels.request_count == 1, "neither is tried again"


@pytest.mark.parametrize("name", CALLS)
async def test_only_what_may_pass_is_asked_again(loop: SimLoop, name: str) -> None:
    """The second request has one topic: its response has no result for the other, which keeps its first."""
    channels = Channels(
        response_to(name, ErrorCode.NOT_COORDINATOR, ErrorCode.NONE), response_to(name, ErrorCode.FENCED_LEADER_EPOCH)
    )
    results = await calls(loop, name, channels, TOPIC, OTHER_TOPIC)
    assert [each.error_code for each in results] == [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NONE]
    assert channels.request_count == 2


async def test_a_state_is_read_as_its_coordinator_has_it(loop: SimLoop) -> None:
    state = StateReadResult(TOPIC, 0, state_epoch=3, start_offset=7, state_batches=[StateBatch(7, 9, 0, 2)])
    assert await calls(loop, "read", Channels(READ.response_of([state])), TOPIC) == [state]
    summary = StateSummary(TOPIC, 0, state_epoch=3, leader_epoch=2, start_offset=7, delivery_complete_count=5)
    assert await calls(loop, "read_summary", Channels(READ_SUMMARY.response_of([summary])), TOPIC) == [summary]


async def test_a_broker_without_share_groups_is_not_asked_again(loop: SimLoop) -> None:
    channels = Channels(NoResponseError("broker 2", is_unsupported=True))
    (result,) = await persister_of(loop, channels).write("g", [StateWrite(TOPIC, 0, 0, 0, 0, 0, BATCHES)])
    assert result.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert channels.request_count == 1
