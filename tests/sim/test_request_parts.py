"""Large requests: how they are cut into parts, their responses are joined, and what they do to their connection."""

import asyncio
import logging
from typing import Any

import pytest

from kafkapy.handlers.parts import PART_ELEMENTS, cut, join
from kafkapy.handlers.table import OF_OFFSETS, Levels
from kafkapy.handlers.topics import metadata
from kafkapy.protocol.messages.describe_groups_request import DescribeGroupsRequest
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkapy.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from kafkapy.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkapy.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kafkapy.protocol.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kafkapy.runtime.turns import PAUSE_MS, TURN_MS, Turns
from kafkapy.serving.large_requests import LARGE_FRAME_BYTES, MAX_BYTES
from tests.simulator.broker_world import KafkaClient, Machine
from tests.simulator.loop import SimLoop

GROUPS: Levels = OF_OFFSETS.either[0]
PARTITIONS = 600


def requested(*sizes: tuple[int, ...]) -> OffsetFetchRequest:
    """A request for groups, each of topics with so many partitions; (-1,) is a group of which all is asked."""
    groups = []
    for number, of_group in enumerate(sizes):
        topics = [OffsetFetchRequestTopics(f"t{each}", partition_indexes=list(range(each))) for each in of_group]
        groups.append(OffsetFetchRequestGroup(f"g{number}", topics=None if of_group == (-1,) else topics))
    return OffsetFetchRequest(groups=groups)


def answered(groups: list[OffsetFetchRequestGroup]) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        groups=[
            OffsetFetchResponseGroup(
                group.group_id,
                topics=[
                    OffsetFetchResponseTopics(
                        topic.name,
                        partitions=[
                            OffsetFetchResponsePartitions(
                                each, committed_offset=7, committed_leader_epoch=0, metadata=""
                            )
                            for each in topic.partition_indexes
                        ],
                    )
                    for topic in group.topics or ()
                ],
            )
            for group in groups
        ]
    )


@pytest.mark.parametrize(
    "sizes",
    [
        ((1,),),
        ((-1,), (3, 4), (-1,)),
        ((PART_ELEMENTS + 1,),),
        ((10 * PART_ELEMENTS,),),
        ((3,), (5, 3 * PART_ELEMENTS, 2), (4,)),
        ((2,) * PART_ELEMENTS,),
        ((2,),) * PART_ELEMENTS,
        ((), (0,), (7, 0, PART_ELEMENTS, 1)),
    ],
)
def test_answers_of_the_parts_make_the_response_of_the_whole(sizes: Any) -> None:
    request = requested(*sizes)
    parts = list(cut(request.groups, GROUPS))
    whole = OffsetFetchResponse(groups=[])
    for groups, continued in parts:
        element_count = sum(1 + sum(1 + len(topic.partition_indexes) for topic in each.topics or ()) for each in groups)
        assert element_count <= PART_ELEMENTS + 2, "a part, and the topic and group that it is in"
        join(whole, answered(groups), GROUPS, continued)
    assert whole == answered(request.groups)


def test_an_error_of_a_later_part_is_kept() -> None:
    whole, further = answered(requested((2,)).groups), answered(requested((3,)).groups)
    further.groups[0].error_code = 16
    join(whole, further, GROUPS, 1)
    assert [group.error_code for group in whole.groups] == [16]


async def booted(loop: SimLoop) -> tuple[Machine, KafkaClient]:
    machine = Machine(loop, offsets_topic_num_partitions="1")
    await machine.boot()
    client = machine.connect()
    await client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["group"]), 5)
    return machine, client


def commit(partitions: range, offset: int) -> OffsetCommitRequest:
    of_topic = [OffsetCommitRequestPartition(each, committed_offset=offset + each) for each in partitions]
    return OffsetCommitRequest(
        "group",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic("t", partitions=of_topic)],
    )


async def test_large_commit_is_kept_whole_and_requests_keep_their_order(loop: SimLoop) -> None:
    machine, client = await booted(loop)
    await client.create_topic("t", PARTITIONS)
    everything = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup("group", topics=None)],
    )
    await client.send(commit(range(PARTITIONS + 1), 100), 9)
    await client.send(commit(range(1), 5), 9)
    await client.send(everything, 9)
    (topic,) = (await client.receive()).topics
    assert [each.partition_index for each in topic.partitions] == list(range(PARTITIONS + 1))
    assert [each.error_code for each in topic.partitions] == [0] * PARTITIONS + [3]
    assert (await client.receive()).topics[0].partitions[0].error_code == 0
    (found,) = (await client.receive()).groups[0].topics
    offsets = {each.partition_index: each.committed_offset for each in found.partitions}
    assert offsets == {0: 5, **{each: 100 + each for each in range(1, PARTITIONS)}}
    await machine.stop()


async def test_large_requests_are_answered_as_small_ones_are(loop: SimLoop) -> None:
    machine, client = await booted(loop)
    await client.create_topic("t", 8)
    await client.call(commit(range(8), 100), 9)
    wanted = OffsetFetchRequestTopics("t", partition_indexes=list(range(8)))
    small = await client.call(OffsetFetchRequest(groups=[OffsetFetchRequestGroup("group", topics=[wanted])]), 9)
    wanted.partition_indexes += range(8, LARGE_FRAME_BYTES)
    large = await client.call(OffsetFetchRequest(groups=[OffsetFetchRequestGroup("group", topics=[wanted])]), 9)
    (topic,) = large.groups[0].topics
    assert [each.partition_index for each in topic.partitions] == wanted.partition_indexes
    assert topic.partitions[:8] == small.groups[0].topics[0].partitions

    partitions = [
        ListOffsetsPartition(partition_index=each % 9, current_leader_epoch=-1, timestamp=-1) for each in range(3_000)
    ]
    listed = await client.call(
        ListOffsetsRequest(-1, isolation_level=0, topics=[ListOffsetsTopic("t", partitions=partitions)]), 10
    )
    assert len(listed.topics[0].partitions) == 3_000
    groups = [f"group-{number % 2_000}" for number in range(4_000)]
    described = await client.call(DescribeGroupsRequest(groups), 6)
    assert [each.group_id for each in described.groups] == groups[:2_000], "each once"
    await machine.stop()


def metadata_of(count: int) -> MetadataRequest:
    return MetadataRequest([MetadataRequestTopic(name=f"created-{number}") for number in range(count)])


async def test_metadata_creates_no_more_topics_than_one_operation_may(
    loop: SimLoop, caplog: pytest.LogCaptureFixture
) -> None:
    machine, client = await booted(loop)
    with caplog.at_level(logging.WARNING):
        response = await client.call(metadata_of(metadata.MAX_CREATED + 1), 12)
    assert [each.error_code for each in response.topics] == [3] * (metadata.MAX_CREATED + 1)
    assert "its request names 5001 that do not exist" in caplog.text
    assert {each.name for each in (await client.call(MetadataRequest(None), 12)).topics} == {"__consumer_offsets"}
    await client.call(metadata_of(600), 12)
    await asyncio.sleep(10)
    assert len((await client.call(MetadataRequest(None), 12)).topics) == 601
    await machine.stop()


async def test_request_of_too_many_bytes_closes_its_connection(loop: SimLoop, caplog: pytest.LogCaptureFixture) -> None:
    machine, client = await booted(loop)
    names = [f"{number:030000}" for number in range(MAX_BYTES // 30_000 + 1)]
    with caplog.at_level(logging.WARNING), pytest.raises(EOFError):
        await client.call(DescribeGroupsRequest(names), 6)
    assert f"more than {MAX_BYTES}" in caplog.text
    await machine.stop()


async def test_those_that_gave_way_go_on_one_at_a_time(loop: SimLoop) -> None:
    turns = Turns()
    woken: list[tuple[int, int]] = []

    async def walk(number: int) -> None:
        await turns.next()
        woken.append((number, loop.now_ms()))

    start_ms = loop.now_ms()
    tasks = [loop.create_task(walk(number)) for number in range(4)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    turn = TURN_MS + PAUSE_MS
    assert woken == [
        (0, start_ms + PAUSE_MS),
        (2, start_ms + PAUSE_MS + turn),
        (3, start_ms + PAUSE_MS + 2 * turn),
    ]
