"""The frames of a share group's member, for hot_paths.py: each fetch accepts what the one before has acquired.

Its frames are made before the first is sent, so the member knows what each fetch will acquire: the session begins with
another partition each time, and one that gave records moves to the end of it.
"""

import asyncio
from collections.abc import Callable

from kafkapy.protocol.messages import read_share_group_state_summary_request as summaries
from kafkapy.protocol.messages import share_fetch_request as fetching
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.initialize_share_group_state_request import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
    PartitionData,
)
from kafkapy.types import uuid_to_string
from tests.simulator.broker_world import KafkaClient, Topic
from tests.support.wire import request_frame

SHARE_FETCH_VERSION = 2
SHARE_COORDINATOR = 2
ACCEPT = 1
MAX_RECORDS = 500
"""As clients have it by default (max.poll.records)."""


class ShareMember:
    """A member with one session over all partitions of a topic, in whose partitions nothing is in flight yet."""

    def __init__(self, topic: Topic, partition_count: int, *, records_per_fetch: int) -> None:
        """records_per_fetch: what a fetch acquires of a partition, which is a batch of the log."""
        self._topic = topic
        self._count = records_per_fetch
        self._epoch = 0
        self._order = list(range(partition_count))
        self._next_offsets = [0] * partition_count
        self._acquired: list[int] = []
        """The partitions of which the last fetch has acquired a batch."""

    def next_of_all(self) -> bytes:
        """The fetch that acquires a batch of each partition."""
        return self._next(lambda: self._order)

    def next_of_one(self) -> bytes:
        """The fetch that acquires a batch of the session's next partition, and has its records by that."""
        return self._next(lambda: [self._order[self._epoch % len(self._order)]])

    def _next(self, choose: Callable[[], list[int]]) -> bytes:
        frame = request_frame(self._request(), SHARE_FETCH_VERSION)
        self._acquired = list(choose())
        for partition in self._acquired:
            self._next_offsets[partition] += self._count
            if self._epoch > 0:  # the response that begins a session leaves the order as it is
                self._order.remove(partition)
                self._order.append(partition)
        self._epoch += 1
        return frame

    def _request(self) -> fetching.ShareFetchRequest:
        named = self._order if self._epoch == 0 else self._acquired
        partitions = [fetching.FetchPartition(each, acknowledgement_batches=self._accepted(each)) for each in named]
        return fetching.ShareFetchRequest(
            group_id=self._topic.name,
            member_id="member",
            share_session_epoch=self._epoch,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=50 << 20,
            max_records=MAX_RECORDS,
            batch_size=MAX_RECORDS,
            topics=[fetching.FetchTopic(self._topic.topic_id, partitions=partitions)],
        )

    def _accepted(self, partition: int) -> list[fetching.AcknowledgementBatch]:
        if self._epoch == 0:
            return []
        end_offset = self._next_offsets[partition]
        batch = fetching.AcknowledgementBatch(
            end_offset - self._count, last_offset=end_offset - 1, acknowledge_types=[ACCEPT]
        )
        return [batch]

    @property
    def accepted_count(self) -> int:
        """Records that the fetches have accepted: all but what the last one has acquired."""
        return sum(self._next_offsets) - self._count * len(self._acquired)


async def initialize_share_states(client: KafkaClient, topic: Topic, partition_count: int) -> None:
    """Begin the states of the share partitions that the group with the topic's name reads, at offset 0."""
    key = f"{topic.name}:{uuid_to_string(topic.topic_id)}:0"
    find = FindCoordinatorRequest(key_type=SHARE_COORDINATOR, coordinator_keys=[key])
    while (await client.call(find, 6)).coordinators[0].error_code:
        await asyncio.sleep(0.1)
    data = [PartitionData(partition=each, state_epoch=0, start_offset=0) for each in range(partition_count)]
    request = InitializeShareGroupStateRequest(
        topic.name, topics=[InitializeStateData(topic.topic_id, partitions=data)]
    )
    response = await client.call(request, 0)
    assert not any(part.error_code for result in response.results for part in result.partitions), response


async def done_count(client: KafkaClient, topic: Topic, partition_count: int) -> int:
    """Return how many records of a topic are done by the persisted states, in a group that does them in order."""
    data = [summaries.PartitionData(partition=each, leader_epoch=0) for each in range(partition_count)]
    request = summaries.ReadShareGroupStateSummaryRequest(
        topic.name, topics=[summaries.ReadStateSummaryData(topic.topic_id, partitions=data)]
    )
    response = await client.call(request, 1)
    parts = [part for result in response.results for part in result.partitions]
    assert not any(part.error_code for part in parts), response
    return sum(part.start_offset + max(part.delivery_complete_count, 0) for part in parts)
