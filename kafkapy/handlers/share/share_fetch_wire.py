"""The response of a ShareFetch, from the acquired records and the outcomes of the acknowledgements."""

from typing import Final

from kafkapy.dataclass import dataclass
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.handlers.share.acknowledgements import NONE, Outcomes, leaders_of
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.share_fetch_response import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)
from kafkapy.replication.partition_read import NO_RECORDS, PartitionRead
from kafkapy.runtime.turns import Walk
from kafkapy.seams import FileRegion
from kafkapy.share import fetched as machine
from kafkapy.share.pending_write import Refusal
from kafkapy.share.persister import TopicIdPartition
from kafkapy.share.session import SessionContext

WIDE: Final = 500
"""Partitions of a response that is encoded in a turn of its own: some milliseconds."""


@dataclass(slots=True)
class FetchedShare:
    """The result of one share partition: acquired records, with the region that holds them, or an error."""

    refusal: Refusal = NONE
    acquired: "list[machine.AcquiredRecords] | None" = None
    region: FileRegion | None = None

    def release(self) -> None:
        region, self.region = self.region, None
        if region is not None:
            region.release()


Fetched = dict[TopicIdPartition, FetchedShare]


async def respond(
    services: Services,
    context: RequestContext,
    session: SessionContext,
    fetched: Fetched,
    outcomes: Outcomes,
    way: Walk,
) -> ShareFetchResponse:
    """Return the response, built in turns: the partitions that the session does not omit, and all acknowledged ones."""
    if session.is_overtaken:
        for each in fetched.values():  # nothing of it is sent, and a region keeps its file open
            each.release()
        return ShareFetchResponse(error_code=ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    shown = _changed_in_session(session, fetched)
    throttle_time_ms = _throttle(context, shown)
    _count_bytes(services, shown)
    named, leaders = leaders_of(
        services, context, {each: part.refusal.error_code for each, part in shown.items() if part.refusal is not NONE}
    )
    topics: dict[bytes, ShareFetchableTopicResponse] = {}
    partitions = [*shown, *(each for each in outcomes if each not in shown)]
    async for partition in way.over(partitions):
        topic = topics.setdefault(partition.topic_id, ShareFetchableTopicResponse(partition.topic_id))
        data = _partition_data(partition, shown.get(partition), outcomes.get(partition, NONE))
        if partition in named:
            leader_id, leader_epoch = named[partition]
            data.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
        topic.partitions.append(data)
    if len(partitions) >= WIDE:
        await way.give_way()
    endpoints = [] if leaders is None else leaders.endpoints()
    return ShareFetchResponse(
        throttle_time_ms=throttle_time_ms,
        responses=[*topics.values()],
        node_endpoints=[NodeEndpoint(id_, host=host, port=port, rack=rack) for id_, host, port, rack in endpoints],
    )


def _changed_in_session(session: SessionContext, fetched: Fetched) -> Fetched:
    if session.session is None:
        return fetched
    of_session = session.session
    return {
        partition: each
        for partition, each in fetched.items()
        if of_session.has_changes(partition, has_records=each.region is not None, error_code=each.refusal.error_code)
    }


def _count_bytes(services: Services, shown: Fetched) -> None:
    traffic = services.replica_manager.traffic
    if traffic is None:
        return
    by_id = services.metadata.image.topics.by_id
    for partition, each in shown.items():
        topic = by_id.get(partition.topic_id)
        if topic is not None and each.region is not None:
            traffic.of_any(topic.name).bytes_out += each.region.length


def _throttle(context: RequestContext, shown: Fetched) -> int:
    if context.meter is None:
        return 0
    reads = [
        (None, PartitionRead(each.refusal.error_code, -1, -1, -1, NO_RECORDS if each.region is None else each.region))
        for each in shown.values()
    ]
    return context.meter.throttle_fetch(reads, is_sent_throttled=True)


def _partition_data(partition: TopicIdPartition, fetched: FetchedShare | None, outcome: Refusal) -> PartitionData:
    acquired = fetched.acquired if fetched is not None else None
    return PartitionData(
        partition.partition,
        error_code=fetched.refusal.error_code if fetched is not None else ErrorCode.NONE,
        acknowledge_error_code=outcome.error_code,
        acknowledge_error_message=outcome.message,
        records=NO_RECORDS if fetched is None or fetched.region is None else fetched.region,
        acquired_records=[
            AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
            for first, last, count in acquired or ()
        ],
    )
