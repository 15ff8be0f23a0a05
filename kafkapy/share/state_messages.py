"""Requests and responses of the share coordinator's APIs, as what a Persister takes and returns, and back.

An Exchange is one API: `request_of` and `results_of` are of the broker that asks, `item` and `response_of` of the one
that answers. A response has the topics and partitions of its request, in their order. With an error, the other
fields of a result are the message's defaults.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic

from kafkapy.dataclass import dataclass
from kafkapy.protocol.messages import (
    delete_share_group_state_request as delete_request,
)
from kafkapy.protocol.messages import (
    delete_share_group_state_response as delete_response,
)
from kafkapy.protocol.messages import (
    initialize_share_group_state_request as initialize_request,
)
from kafkapy.protocol.messages import (
    initialize_share_group_state_response as initialize_response,
)
from kafkapy.protocol.messages import (
    read_share_group_state_request as read_request,
)
from kafkapy.protocol.messages import (
    read_share_group_state_response as read_response,
)
from kafkapy.protocol.messages import (
    read_share_group_state_summary_request as summary_request,
)
from kafkapy.protocol.messages import (
    read_share_group_state_summary_response as summary_response,
)
from kafkapy.protocol.messages import (
    write_share_group_state_request as write_request,
)
from kafkapy.protocol.messages import (
    write_share_group_state_response as write_response,
)
from kafkapy.protocol.primitives import Message
from kafkapy.share.persister import (
    InitialState,
    ItemT,
    PartitionResult,
    ResultT,
    StateBatch,
    StateRead,
    StateReadResult,
    StateSummary,
    StateWrite,
    TopicIdPartition,
)
from kafkapy.types import Uuid


@dataclass(frozen=True, slots=True)
class Exchange(Generic[ItemT, ResultT]):
    """One API. The callables make a message's structs of items and results, and back; see the functions below."""

    api_key: int
    versions: tuple[int, int]
    request_type: Callable[..., Any]
    requested_topic: Callable[..., Any]
    requested: Callable[[ItemT], Any]
    item: Callable[[Uuid, Any], ItemT]
    response_type: Callable[..., Any]
    answered_topic: Callable[..., Any]
    answered: Callable[[ResultT], Any]
    result: Callable[[Uuid, Any], ResultT]

    def request_of(self, group_id: str, items: Sequence[ItemT]) -> Message:
        """Return the request for these share partitions of a group."""
        topics = _by_topic(items, self.requested)
        request: Message = self.request_type(
            group_id, topics=[self.requested_topic(topic_id, partitions=each) for topic_id, each in topics]
        )
        return request

    def response_of(self, results: Sequence[ResultT]) -> Any:
        """Return the response with these results."""
        topics = _by_topic(results, self.answered)
        return self.response_type([self.answered_topic(topic_id, partitions=each) for topic_id, each in topics])

    def results_of(self, response: Any) -> list[ResultT]:
        """Return the results of a response."""
        return [self.result(topic.topic_id, each) for topic in response.results for each in topic.partitions]


def _by_topic(items: Iterable[Any], partition_of: Callable[[Any], Any]) -> list[tuple[Uuid, list[Any]]]:
    """Return the topics of the items in the order of their first one, each with its partitions."""
    topics: dict[Uuid, list[Any]] = {}
    for item in items:
        topics.setdefault(item.topic_id, []).append(partition_of(item))
    return list(topics.items())


# -- batches ----------------------------------------------------------------------------------------------------------


def _batches(structs: Iterable[Any]) -> list[StateBatch]:
    return [
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in structs
    ]


def _structs(struct: Callable[..., Any], batches: Iterable[StateBatch]) -> list[Any]:
    return [
        struct(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for first, last, state, count in batches
    ]


# -- items ------------------------------------------------------------------------------------------------------------


def _initialized(item: InitialState) -> initialize_request.PartitionData:
    return initialize_request.PartitionData(
        partition=item.partition, state_epoch=item.state_epoch, start_offset=item.start_offset
    )


def _written(item: StateWrite) -> write_request.PartitionData:
    return write_request.PartitionData(
        item.partition,
        state_epoch=item.state_epoch,
        leader_epoch=item.leader_epoch,
        start_offset=item.start_offset,
        delivery_complete_count=item.delivery_complete_count,
        state_batches=_structs(write_request.StateBatch, item.state_batches),
    )


def _write(topic_id: Uuid, struct: write_request.PartitionData) -> StateWrite:
    return StateWrite(
        topic_id,
        struct.partition,
        state_epoch=struct.state_epoch,
        leader_epoch=struct.leader_epoch,
        start_offset=struct.start_offset,
        delivery_complete_count=struct.delivery_complete_count,
        state_batches=_batches(struct.state_batches),
    )


# -- results ----------------------------------------------------------------------------------------------------------


def _outcome(struct: Callable[..., Any]) -> Callable[[PartitionResult], Any]:
    """Return the function that makes the struct of a result with only an error code."""

    def answered(result: PartitionResult) -> Any:
        return struct(result.partition, error_code=result.error_code, error_message=result.error_message)

    return answered


def _result(topic_id: Uuid, struct: Any) -> PartitionResult:
    return PartitionResult(topic_id, struct.partition, struct.error_code, struct.error_message)


def _read_response(result: StateReadResult) -> read_response.PartitionResult:
    if result.error_code:
        return read_response.PartitionResult(
            result.partition, error_code=result.error_code, error_message=result.error_message
        )
    return read_response.PartitionResult(
        result.partition,
        state_epoch=result.state_epoch,
        start_offset=result.start_offset,
        state_batches=_structs(read_response.StateBatch, result.state_batches),
    )


def _read_result(topic_id: Uuid, struct: read_response.PartitionResult) -> StateReadResult:
    return StateReadResult(
        topic_id,
        struct.partition,
        struct.error_code,
        struct.error_message,
        state_epoch=struct.state_epoch,
        start_offset=struct.start_offset,
        state_batches=_batches(struct.state_batches),
    )


def _summary_response(result: StateSummary) -> summary_response.PartitionResult:
    if result.error_code:
        return summary_response.PartitionResult(
            result.partition, error_code=result.error_code, error_message=result.error_message
        )
    return summary_response.PartitionResult(
        result.partition,
        state_epoch=result.state_epoch,
        leader_epoch=result.leader_epoch,
        start_offset=result.start_offset,
        delivery_complete_count=result.delivery_complete_count,
    )


def _summary(topic_id: Uuid, struct: summary_response.PartitionResult) -> StateSummary:
    return StateSummary(
        topic_id,
        struct.partition,
        struct.error_code,
        struct.error_message,
        state_epoch=struct.state_epoch,
        leader_epoch=struct.leader_epoch,
        start_offset=struct.start_offset,
        delivery_complete_count=struct.delivery_complete_count,
    )


# -- the APIs ---------------------------------------------------------------------------------------------------------

INITIALIZE: Final[Exchange[InitialState, PartitionResult]] = Exchange(
    api_key=83,
    versions=(0, 0),
    request_type=initialize_request.InitializeShareGroupStateRequest,
    requested_topic=initialize_request.InitializeStateData,
    requested=_initialized,
    item=lambda topic_id, each: InitialState(topic_id, each.partition, each.state_epoch, each.start_offset),
    response_type=initialize_response.InitializeShareGroupStateResponse,
    answered_topic=initialize_response.InitializeStateResult,
    answered=_outcome(initialize_response.PartitionResult),
    result=_result,
)
READ: Final[Exchange[StateRead, StateReadResult]] = Exchange(
    api_key=84,
    versions=(0, 0),
    request_type=read_request.ReadShareGroupStateRequest,
    requested_topic=read_request.ReadStateData,
    requested=lambda item: read_request.PartitionData(partition=item.partition, leader_epoch=item.leader_epoch),
    item=lambda topic_id, each: StateRead(topic_id, each.partition, each.leader_epoch),
    response_type=read_response.ReadShareGroupStateResponse,
    answered_topic=read_response.ReadStateResult,
    answered=_read_response,
    result=_read_result,
)
WRITE: Final[Exchange[StateWrite, PartitionResult]] = Exchange(
    api_key=85,
    versions=(0, 1),
    request_type=write_request.WriteShareGroupStateRequest,
    requested_topic=write_request.WriteStateData,
    requested=_written,
    item=_write,
    response_type=write_response.WriteShareGroupStateResponse,
    answered_topic=write_response.WriteStateResult,
    answered=_outcome(write_response.PartitionResult),
    result=_result,
)
DELETE: Final[Exchange[TopicIdPartition, PartitionResult]] = Exchange(
    api_key=86,
    versions=(0, 0),
    request_type=delete_request.DeleteShareGroupStateRequest,
    requested_topic=delete_request.DeleteStateData,
    requested=lambda item: delete_request.PartitionData(partition=item.partition),
    item=lambda topic_id, each: TopicIdPartition(topic_id, each.partition),
    response_type=delete_response.DeleteShareGroupStateResponse,
    answered_topic=delete_response.DeleteStateResult,
    answered=_outcome(delete_response.PartitionResult),
    result=_result,
)
READ_SUMMARY: Final[Exchange[TopicIdPartition, StateSummary]] = Exchange(
    api_key=87,
    versions=(0, 1),
    request_type=summary_request.ReadShareGroupStateSummaryRequest,
    requested_topic=summary_request.ReadStateSummaryData,
    requested=lambda item: summary_request.PartitionData(partition=item.partition, leader_epoch=-1),
    item=lambda topic_id, each: TopicIdPartition(topic_id, each.partition),
    response_type=summary_response.ReadShareGroupStateSummaryResponse,
    answered_topic=summary_response.ReadStateSummaryResult,
    answered=_summary_response,
    result=_summary,
)
