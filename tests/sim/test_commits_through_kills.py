"""Members commit offsets in the same pass of the loop, so that a write has many of them, and the broker is killed.

Whatever was answered is there after the start, at every change of the disk, and nothing that was never sent.
"""

import asyncio

from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkapy.protocol.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from kafkapy.record.batches import batches
from kafkapy.types import TopicPartition
from tests.simulator.broker_world import KafkaClient, Machine
from tests.simulator.crash_enumeration import Crash, Moment, Recorder, crashes
from tests.simulator.disk import SimDisk
from tests.simulator.loop import SimLoop, run

MEMBERS = 12
ROUNDS = 3
GROUP, TOPIC = "readers", "orders"
PROPERTIES = {"offsets_topic_num_partitions": "1"}
OFFSETS = TopicPartition("__consumer_offsets", 0)

Answered = dict[int, int]
"""By partition: the offset whose commit was answered last."""


async def commit(client: KafkaClient, partition: int, offset: int) -> None:
    position = OffsetCommitRequestTopic(
        TOPIC, partitions=[OffsetCommitRequestPartition(partition, committed_offset=offset)]
    )
    response = await client.call(OffsetCommitRequest(group_id=GROUP, topics=[position]), 9)
    assert response.topics[0].partitions[0].error_code == 0


async def booted(machine: Machine) -> KafkaClient:
    await machine.boot()
    client = machine.connect()
    await client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]), 5)
    return client


def recorded(disk: SimDisk) -> tuple[list[Moment], list[int]]:
    """Return the moments of some rounds of commits, and how many records each batch of commits has."""
    answered: Answered = {}
    moments: list[Moment] = []
    record_counts: list[int] = []

    async def main(loop: SimLoop) -> None:
        machine = Machine(loop, disk=disk, **PROPERTIES)
        client = await booted(machine)
        await client.create_topic(TOPIC, MEMBERS)
        members = [machine.connect() for _ in range(MEMBERS)]
        await commit(members[0], 0, 0)
        answered[0] = 0
        recorder = Recorder(disk, lambda: dict(answered))
        recorder.doing = "committing"

        async def live(partition: int) -> None:
            for number in range(ROUNDS):
                await commit(members[partition], partition, number)
                answered[partition] = number

        await asyncio.gather(*(live(partition) for partition in range(MEMBERS)))
        moments.extend(recorder.finish())
        log = machine.logs()[OFFSETS]
        region = log.read(0, 1 << 20, wait=True).region
        assert region is not None
        record_counts.extend(batch.record_count for batch in batches(region.read()))
        region.release()
        await machine.stop()

    run(main)
    return moments, record_counts


def found_after(crash: Crash) -> Answered:
    found: Answered = {}

    async def main(loop: SimLoop) -> None:
        machine = Machine(loop, disk=crash.disk, **PROPERTIES)
        client = await booted(machine)
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(GROUP, topics=None)])
        while True:
            (group,) = (await client.call(request, 8)).groups
            if group.error_code == 0:
                break
            await asyncio.sleep(0.01)
        for topic in group.topics:
            found.update({each.partition_index: each.committed_offset for each in topic.partitions})
        await machine.stop()

    run(main)
    return found


def test_a_kill_at_any_change_takes_no_commit_that_was_answered() -> None:
    moments, record_counts = recorded(SimDisk(1))
    assert sum(record_counts) == 1 + MEMBERS * ROUNDS
    assert max(record_counts) > 1, "some share a write"
    assert len(record_counts) < MEMBERS * ROUNDS / 2, record_counts
    for crash in crashes(moments, keeps=("all",)):
        found = found_after(crash)
        for partition, offset in crash.promise.items():
            assert offset <= found[partition] < ROUNDS, (str(crash), found)
        assert set(found) <= set(range(MEMBERS)), str(crash)
