"""The latest offsets of partitions that this broker leads, and of those that others lead."""

from typing import Any

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.list_offsets_request import ListOffsetsRequest
from kafkapy.protocol.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kafkapy.runtime.coordinators.latest_offsets import LatestOffset, LatestOffsets
from kafkapy.runtime.peer import NoResponseError
from kafkapy.types import TopicPartition
from tests.simulator.loop import SimLoop
from tests.support.hosting import NOW_MS, Hosting, batch

LED, OTHER, GONE = TopicPartition("orders", 0), TopicPartition("far", 0), TopicPartition("gone", 0)


class OtherBroker:
    """Answers ListOffsets as the leader of all partitions: 42, or an error."""

    def __init__(self, error_code: int = 0, *, is_silent: bool = False) -> None:
        self._error_code = error_code
        self._is_silent = is_silent
        self.requests: list[tuple[int, ListOffsetsRequest]] = []

    async def send_request(self, broker_id: int, api_key: int, build: Any, **options: Any) -> Any:
        if self._is_silent:
            raise NoResponseError(f"broker {broker_id}", is_unsupported=False)
        request = ListOffsetsRequest.decode(build(9).encode(9), 9)
        self.requests.append((broker_id, request))
        offset = -1 if self._error_code else 42
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=each.partition_index, error_code=self._error_code, offset=offset
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )


def hosting_of(loop: SimLoop) -> Hosting:
    hosting = Hosting(loop, broker_count=2)
    partition = hosting.create_topic("orders")
    partition.log.append_as_leader(batch(b"a", b"b"), now_ms=NOW_MS, leader_epoch=0)
    partition.maybe_advance_high_watermark(0)
    hosting.create_topic("far", replicas=[2])
    return hosting


def offsets_of(hosting: Hosting, other: OtherBroker | None) -> LatestOffsets:
    channels: Any = None if other is None else lambda: other
    return LatestOffsets(hosting.manager, channels, timeout_ms=1000)


async def test_the_leader_of_each_partition_is_asked(loop: SimLoop) -> None:
    other = OtherBroker()
    found = await offsets_of(hosting_of(loop), other).read([LED, OTHER, GONE])
    assert found == {
        LED: LatestOffset(2),
        OTHER: LatestOffset(42),
        GONE: LatestOffset(error_code=ErrorCode.LEADER_NOT_AVAILABLE),
    }
    ((broker_id, request),) = other.requests
    assert (broker_id, request.replica_id, request.isolation_level) == (2, -1, 0)
    assert request.topics[0].partitions[0].timestamp == -1


async def test_another_broker_refuses_or_is_silent(loop: SimLoop) -> None:
    hosting = hosting_of(loop)
    refused = await offsets_of(hosting, OtherBroker(ErrorCode.NOT_LEADER_OR_FOLLOWER)).read([OTHER])
    assert refused[OTHER].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    silent = await offsets_of(hosting, OtherBroker(is_silent=True)).read([OTHER])
    assert silent[OTHER].error_code == ErrorCode.NETWORK_EXCEPTION
    alone = await offsets_of(hosting, None).read([OTHER])
    assert alone[OTHER].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
