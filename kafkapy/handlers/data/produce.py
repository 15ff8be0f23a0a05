"""Produce 3-13 (listed from 0, KAFKA-18659; the router refuses 0-2): append one batch for each partition.

acks: 0 no response (an error closes the connection), 1 after the leader's append, -1 after all in-sync replicas have
the records. Each partition has its own error code; the base offset of a refused append is -1.

v5  log start offset, v7 zstd, v8 record errors and messages (KIP-467), v10 the current leader with
NOT_LEADER_OR_FOLLOWER (KIP-951), v12 transactions without AddPartitionsToTxn (KIP-890), v13 topic ids.

A partition that is named again gets the last of its batches, and has one part in the response: the refusal, if one of
them was refused before it reached the log. A topic has one part, too.

Transactional batches are verified with their coordinator first (transactional_produce.py). A request is transactional
if a batch is, whatever its transactional id. Authorization for that id is checked first, and without it the whole
request fails (CVE-2018-17196).
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from struct import Struct
from typing import TYPE_CHECKING, Final, TypeAlias

from kafkapy.errors import ApiError, StorageError
from kafkapy.handlers.cluster_view import is_internal
from kafkapy.handlers.context import CloseConnection, RequestContext, Services, walk
from kafkapy.handlers.data.produced_batch import check_batch, has_transactional_batch
from kafkapy.handlers.data_plane import Leaders, TopicAccess, completion
from kafkapy.metadata.topic_names import MAX_TOPIC_NAME_LENGTH
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkapy.protocol.messages.produce_response import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from kafkapy.record.batch import TRANSACTIONAL_FLAG
from kafkapy.replication.delayed_produce import PartitionAppend
from kafkapy.replication.replica_manager import ALL_ACKS, NO_ACKS
from kafkapy.runtime.turns import Walk
from kafkapy.seams import FileRegion
from kafkapy.security.authorizer import AclOperation, ResourceType
from kafkapy.types import Uuid

if TYPE_CHECKING:
    from kafkapy.metrics.traffic import BrokerTraffic
    from kafkapy.replication.hosted_partitions import HostedPartition
    from kafkapy.storage.log.log import Log
    from kafkapy.storage.producers.producer_counts import ProducerCounts

VALID_ACKS: Final = frozenset((-1, 0, 1))
TOPIC_IDS_SINCE: Final = 13
LEADERS_SINCE: Final = 10
ADMIN_CLIENT_ID: Final = "__admin_client"
"""The client id that may write to internal topics, as in Apache Kafka."""
NOT_LEADER_OR_FOLLOWER: Final = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)

_PRODUCER: Final = Struct(">43xqh")
"""Fields of a batch header: producer id, producer epoch."""

# Shared by all partition responses with default values. They are replaced, never modified.
NO_RECORD_ERRORS: Final[list[BatchIndexAndErrorMessage]] = []
NO_CURRENT_LEADER: Final = LeaderIdAndEpoch()


async def handle(services: Services, context: RequestContext, request: ProduceRequest) -> ProduceResponse | None:
    if has_transactional_batch(request) and not _may_use_transactional_id(services, context, request):
        return _refuse_all(context, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    access = TopicAccess(services, context, AclOperation.WRITE, _topic_names(services, context, request))
    return await serve(services, context, request, access)


async def serve(
    services: Services, context: RequestContext, request: ProduceRequest, access: TopicAccess
) -> ProduceResponse | None:
    """Append the batches that the client may write. Raises CloseConnection."""
    plan = _PlannedAppends(services, context, request, access)
    try:
        if context.is_long:
            await plan.plan_in_turns(walk(services, context))
        else:
            plan.plan()
        if request.acks not in VALID_ACKS:
            plan.refuse_appends(ErrorCode.INVALID_REQUIRED_ACKS)
        elif plan.transactional and not plan.is_transaction_open() and not await _verify(services, context, plan):
            return _refuse_all(context, request, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if plan.appends:
            await append_and_wait(services, context, plan.appends, request)
            traffic = services.replica_manager.traffic
            if traffic is not None:
                _count_conversions(traffic, plan.appends)
        if request.acks == NO_ACKS:
            plan.close_on_error()
            return None
        return plan.finish()
    finally:
        if plan.new_producers:
            plan.uncount_refused()


def _count_conversions(traffic: "BrokerTraffic", appends: list[PartitionAppend]) -> None:
    """Count the memory and time that decompressing and re-encoding the request's batches took."""
    stats = [append.stats for append in appends if append.stats is not None]
    if stats:
        traffic.record_validation(
            temporary_bytes=sum(each.temporary_bytes for each in stats),
            conversion_ns=sum(each.conversion_ns for each in stats),
        )


async def _verify(services: Services, context: RequestContext, plan: "_PlannedAppends") -> bool:
    """Verify transactional batches with their coordinator; return whether they are all of one producer."""
    from kafkapy.handlers.data import transactional_produce  # imported late: many nodes have no transactions

    transactional_id = plan.transactional_id
    assert transactional_id is not None, "without it the request was refused"
    try:
        await transactional_produce.verify(services, context, transactional_id, plan.transactional)
    except transactional_produce.SeveralProducersError:
        return False
    plan.drop_refused()
    return True


async def append_and_wait(
    services: Services, context: RequestContext, appends: list[PartitionAppend], request: ProduceRequest
) -> None:
    """Append; with acks=-1, wait until the in-sync replicas have the records or the time-out."""
    manager = services.replica_manager
    if context.is_long:
        is_done = await _append_in_turns(services, walk(services, context), appends, request)
    else:
        is_done = manager.append_records(appends, required_acks=request.acks)
    if manager.pending_flushes:
        await _flush_all(services, manager.pop_pending_flushes())
    if is_done:
        return
    heavy = [append for append in appends if append.worker_check is not None]
    if heavy:
        await _append_heavy(services, context, heavy, request.acks)
        if request.acks != ALL_ACKS or all(append.is_final() for append in appends):
            return
    _free_frame(context, appends, request)
    future, on_done = completion()
    manager.wait_for_replicas(appends, timeout_ms=request.timeout_ms, on_done=on_done)
    await future


async def _append_in_turns(
    services: Services, way: Walk, appends: list[PartitionAppend], request: ProduceRequest
) -> bool:
    """Append to many partitions; return whether all outcomes are final. The connection's next requests wait."""
    manager = services.replica_manager
    async for append in way.over(appends):
        manager.append_records((append,), required_acks=request.acks)
    if request.acks != ALL_ACKS:
        return all(append.worker_check is None for append in appends)
    return all([append.is_final() async for append in way.over(appends)])


def _free_frame(context: RequestContext, appends: list[PartitionAppend], request: ProduceRequest) -> None:
    """Drop all records, as they are in the log, and what this node does not know: a request that waits for replicas
    takes no request memory.

    Deviation: Apache Kafka lets every request wait. Here one with a name that no topic can have does not, because it
    would keep that name for its response.
    """
    for append in appends:
        append.records = b""
        append.worker_check = append.checked = None
    request.unknown_tagged_fields = None
    for topic in request.topic_data:
        if len(topic.name) > MAX_TOPIC_NAME_LENGTH:
            request.timeout_ms = 0
        topic.unknown_tagged_fields = None
        for data in topic.partition_data:
            data.records = data.unknown_tagged_fields = None
    context.connection.is_frame_free = True


async def _append_heavy(services: Services, context: RequestContext, appends: list[PartitionAppend], acks: int) -> None:
    """Validate expensive batches (compressed, or of very many records) on workers, then append them.

    The connection is held meanwhile, so that its batches are appended in order.
    """
    context.connection.is_held = True
    manager = services.replica_manager
    for append in appends:
        assert append.worker_check is not None
        try:
            append.checked = await services.heavy_work.run(
                append.worker_check.check, append.worker_check.needed_bytes, context.client
            )
        except ApiError as error:
            manager.refuse_append(append, error)
            manager.count_refusal(append, error)
        else:
            manager.append_records([append], required_acks=acks)
            if manager.pending_flushes:
                await _flush_all(services, manager.pop_pending_flushes())


async def _flush_all(services: Services, appends: list[PartitionAppend]) -> None:
    await asyncio.gather(*(_flush(services, append) for append in appends))


async def _flush(services: Services, append: PartitionAppend) -> None:
    """Flush an append before it is answered, for flush.messages.

    If the replica moves to another log directory meanwhile, its new log is flushed, too.
    """
    error: Exception | None = None
    log = None
    while log is not append.partition.log:
        error, log = None, append.partition.log
        assert log is not None, "what was appended has a log"
        try:
            await services.log_flusher.flush(log)
        except (ApiError, StorageError, AssertionError) as failure:
            error = failure
    if error is not None:
        services.replica_manager.refuse_append(append, error)


_Outcome: TypeAlias = PartitionAppend | PartitionProduceResponse
"""The outcome of a partition: an append, or a refusal, which is its part of the response."""


class _PlannedAppends:
    """The outcome of each partition of a request."""

    __slots__ = ("_access", "_context", "_crowded", "_is_any_superseded", "_outcomes", "_request", "_services",
                 "_version", "appends", "new_producers", "transactional")  # fmt: skip

    def __init__(
        self, services: Services, context: RequestContext, request: ProduceRequest, access: TopicAccess
    ) -> None:
        self._services = services
        self._context = context
        self._request = request
        self._version = context.api_version
        self._access = access
        self.appends: list[PartitionAppend] = []
        self.transactional: list[PartitionAppend] = []
        """The appends with a transactional batch."""
        self._outcomes: dict[str | Uuid, tuple[TopicProduceData, dict[int, _Outcome]]] = {}
        """By topic (id; before version 13 name) and partition."""
        self._is_any_superseded = False
        counts = services.replica_manager.partitions.log_manager.producer_counts
        self._crowded = counts if counts.is_crowded else None
        self.new_producers: list[tuple[Log, int]] = []
        """New producers that count for the client, because there are many producers."""

    def plan(self) -> None:
        """Decide the outcome of each partition."""
        for topic in self._request.topic_data:
            self._plan_some(topic, topic.partition_data)
        if self._is_any_superseded:
            self._drop_superseded()

    async def plan_in_turns(self, way: Walk) -> None:
        """Like `plan`, for many partitions."""
        for topic in self._request.topic_data:
            async for data in way.over(topic.partition_data):
                self._plan_some(topic, (data,))
        if self._is_any_superseded:
            self._drop_superseded()

    def _plan_some(self, topic: TopicProduceData, partition_data: Sequence[PartitionProduceData]) -> None:
        has_ids = self._version >= TOPIC_IDS_SINCE
        of_topic = self._outcomes.setdefault(topic.topic_id if has_ids else topic.name, (topic, {}))[1]
        if not partition_data:
            return
        name, refused = self._check_topic(topic)
        partitions = self._services.replica_manager.partitions
        find = partitions.finder_by_id(topic.topic_id) if has_ids else partitions.finder(name)
        is_closed = is_internal(name) and self._context.client_id != ADMIN_CLIENT_ID
        outcome: _Outcome
        for data in partition_data:
            index = data.index
            if refused:
                outcome = _refusal(index, refused, None)
            elif (partition := find(index)) is None:
                outcome = _refusal(index, partitions.missing_code(name, index), None)
            elif is_closed:
                outcome = _refusal(index, ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {name}")
            else:
                outcome = self._plan(partition, data)
            of_topic[index] = outcome if index not in of_topic else self._replace(of_topic[index], outcome)

    def _check_topic(self, topic: TopicProduceData) -> tuple[str, int]:
        """Return the topic's name, and the error code of all its partitions, 0 if the client may write to it."""
        name = topic.name
        if self._version >= TOPIC_IDS_SINCE:
            image = self._services.replica_manager.partitions.newest_image.topics.by_id.get(topic.topic_id)
            if image is None:
                return name, ErrorCode.UNKNOWN_TOPIC_ID
            name = image.name
        return name, 0 if self._access.allows(name) else ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def _replace(self, earlier: _Outcome, outcome: _Outcome) -> _Outcome:
        """Return the outcome of a partition that is named again: a refusal stays, whatever is appended."""
        self._is_any_superseded = True
        return outcome if earlier.__class__ is PartitionAppend else earlier

    def _drop_superseded(self) -> None:
        """Append only the last batch of each partition, as Apache Kafka does."""
        last = {append.partition: append for append in self.appends}
        self.appends = list(last.values())
        self.transactional = [append for append in self.transactional if last[append.partition] is append]

    def _plan(self, partition: "HostedPartition", data: PartitionProduceData) -> _Outcome:
        assert not isinstance(data.records, FileRegion), "a request never carries a region"
        try:
            records, attributes = check_batch(data.records, self._version)
            if self._crowded is not None:
                self._check_client(self._crowded, partition, records)
        except ApiError as error:
            return _refusal(data.index, error.code, error.message)
        append = PartitionAppend(partition, records)
        if attributes & TRANSACTIONAL_FLAG:
            self.transactional.append(append)
        self.appends.append(append)
        return append

    def _check_client(
        self, crowded: "ProducerCounts", partition: "HostedPartition", records: memoryview | bytes
    ) -> None:
        """Raise ApiError if the batch's producer is new here, and its client has brought its share of them."""
        producer_id, _ = _PRODUCER.unpack_from(records)
        log = partition.log
        if producer_id >= 0 and log is not None and producer_id not in log.producer_state.producers:
            crowded.check_client(self._context.client, producer_id)
            self.new_producers.append((log, producer_id))

    def uncount_refused(self) -> None:
        """Count by client only the producers that are in their logs now."""
        assert self._crowded is not None, "new producers are counted while producers are crowded"
        for log, producer_id in self.new_producers:
            if producer_id not in log.producer_state.producers:
                self._crowded.uncount_client(self._context.client, producer_id)

    @property
    def transactional_id(self) -> str | None:
        return self._request.transactional_id

    def is_transaction_open(self) -> bool:
        """Whether the only transactional batch belongs to an open transaction: then there is nothing to verify."""
        if len(self.transactional) != 1:
            return False
        (append,) = self.transactional
        log = append.partition.log
        return log is not None and log.producer_state.has_open_transaction(*_PRODUCER.unpack_from(append.records))

    def drop_refused(self) -> None:
        """Remove the appends that were refused, and their records, which would keep the frame while others wait."""
        self.appends = [append for append in self.appends if not append.error_code]
        for append in self.transactional:
            if append.error_code:
                append.records = b""

    def refuse_appends(self, code: ErrorCode) -> None:
        """Refuse all appends with this code; errors set before stay."""
        for append in self.appends:
            append.refuse(code, f"acks={self._request.acks}, which must be -1, 0 or 1")
        self.appends.clear()

    def close_on_error(self) -> None:
        """Raise CloseConnection if a partition has an error: with acks=0 there is no response to report it."""
        if any(outcome.error_code for _, outcomes in self._outcomes.values() for outcome in outcomes.values()):
            responses = [response for topic in self.finish().responses for response in topic.partition_responses]
            failed = [f"{each.index}: {ErrorCode(each.error_code).name}" for each in responses if each.error_code]
            raise CloseConnection(
                f"errors by partition ({', '.join(failed)}) under acks=0, client id {self._context.client_id}"
            )

    def finish(self) -> ProduceResponse:
        response = ProduceResponse(
            [
                TopicProduceResponse(
                    topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[response_of(outcome) for outcome in outcomes.values()],
                )
                for topic, outcomes in self._outcomes.values()
            ]
        )
        if self._version >= LEADERS_SINCE and _has_moved(response):
            name_leaders(self._services, self._context, response)
        return response


def name_leaders(services: Services, context: RequestContext, response: ProduceResponse) -> None:
    """Add the current leaders of partitions with NOT_LEADER_OR_FOLLOWER (KIP-951)."""
    if context.api_version < LEADERS_SINCE or not _has_moved(response):
        return
    leaders = Leaders(services, context)
    for topic in response.responses:
        image = services.metadata.image.topics.by_id.get(topic.topic_id)
        name = topic.name if image is None else image.name
        for part in topic.partition_responses:
            if part.error_code == NOT_LEADER_OR_FOLLOWER:
                leader_id, epoch = leaders.leader_of(name, part.index)
                part.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=epoch)
    response.node_endpoints = [
        NodeEndpoint(node_id, host=host, port=port, rack=rack) for node_id, host, port, rack in leaders.endpoints()
    ]


def _has_moved(response: ProduceResponse) -> bool:
    for topic in response.responses:
        for part in topic.partition_responses:
            if part.error_code == NOT_LEADER_OR_FOLLOWER:
                return True
    return False


def _refusal(index: int, code: int, message: str | None) -> PartitionProduceResponse:
    """Return the response for a partition whose batch is not even tried to be appended."""
    return PartitionProduceResponse(
        index,
        error_code=code,
        base_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=-1,
        record_errors=NO_RECORD_ERRORS,
        error_message=message,
        current_leader=NO_CURRENT_LEADER,
    )


def response_of(append: PartitionAppend | PartitionProduceResponse) -> PartitionProduceResponse:
    """Return a partition's part of the response, made of the outcome of its append; a refusal as it is."""
    if append.__class__ is PartitionProduceResponse:  # isinstance would be a call
        return append
    assert append.__class__ is PartitionAppend
    if not append.error_code:
        return PartitionProduceResponse(
            append.partition.topic_partition.partition,
            base_offset=append.base_offset,
            log_append_time_ms=append.log_append_time_ms,
            log_start_offset=append.log_start_offset,
            record_errors=NO_RECORD_ERRORS,
            current_leader=NO_CURRENT_LEADER,
        )
    return PartitionProduceResponse(
        append.partition.topic_partition.partition,
        error_code=append.error_code,
        base_offset=append.base_offset,
        log_append_time_ms=append.log_append_time_ms,
        log_start_offset=append.log_start_offset,
        record_errors=_record_errors(append.record_errors) if append.record_errors else NO_RECORD_ERRORS,
        error_message=append.error_message,
        current_leader=NO_CURRENT_LEADER,
    )


def _record_errors(record_errors: Iterable[tuple[int, str]]) -> list[BatchIndexAndErrorMessage]:
    return [BatchIndexAndErrorMessage(index, batch_index_error_message=message) for index, message in record_errors]


def _may_use_transactional_id(services: Services, context: RequestContext, request: ProduceRequest) -> bool:
    return request.transactional_id is not None and services.authorizer.authorize(
        context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id
    )


def _refuse_all(context: RequestContext, request: ProduceRequest, code: ErrorCode) -> ProduceResponse:
    """Return the response that refuses all partitions. Raises CloseConnection with acks=0."""
    if request.acks == NO_ACKS:
        raise CloseConnection(f"{code.name} under acks=0, client id {context.client_id}")
    return ProduceResponse(
        [
            TopicProduceResponse(
                topic.name,
                topic_id=topic.topic_id,
                partition_responses=[_refusal(data.index, code, None) for data in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )


def _topic_names(services: Services, context: RequestContext, request: ProduceRequest) -> Iterator[str]:
    """Yield the topic of each partition of the request, except for unknown topic ids."""
    by_id = services.replica_manager.partitions.newest_image.topics.by_id
    for topic in request.topic_data:
        name: str | None = topic.name
        if context.api_version >= TOPIC_IDS_SINCE:
            image = by_id.get(topic.topic_id)
            name = None if image is None else image.name
        if name is not None:
            yield from repeat(name, len(topic.partition_data))
