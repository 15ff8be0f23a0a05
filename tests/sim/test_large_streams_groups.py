"""A broker with a streams group of many tasks: the first target is computed in turns, after the group's delay."""

import asyncio
from typing import Any

from kafkapy.group.long_work import LongWork
from kafkapy.group.streams.target import LARGE, TargetInput
from kafkapy.group.streams.topic_configuration import MAX_TASKS
from kafkapy.group.streams.topology import MAX_SUBTOPOLOGIES
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from kafkapy.protocol.messages.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TaskOffset,
    Topology,
)
from kafkapy.runtime.coordinators import long_decisions
from tests.simulator.broker_world import KafkaClient, Machine
from tests.simulator.loop import SimLoop
from tests.support.interpreter import needs_interpreter

READS = Topology(0, subtopologies=[Subtopology(str(each), source_topics=["in"]) for each in range(LARGE)])


@needs_interpreter("it replaces a function, which compiled code calls directly")
async def test_a_first_target_of_many_tasks_is_computed_once_and_needs_no_heartbeat(
    loop: SimLoop, monkeypatch: Any
) -> None:
    computed: list[LongWork] = []

    def observed(work: LongWork) -> Any:
        computed.append(work)
        return work.steps()

    monkeypatch.setattr(long_decisions, "steps_of", observed)
    machine = Machine(loop, offsets_topic_num_partitions="1")
    await machine.boot()
    client = machine.connect()
    await client.create_topic("in")
    while (await client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 6)).coordinators[0].error_code:
        await asyncio.sleep(0.1)
    joined = [await beat(client, member_id, 0) for member_id in "ab"]
    epochs = {each.member_id: (await beat(client, each.member_id, each.member_epoch)).member_epoch for each in joined}
    assert not [work for work in computed if isinstance(work, TargetInput)]
    await asyncio.sleep(3.5)
    (group,) = (await client.call(StreamsGroupDescribeRequest(["g"]), 1)).groups
    targets = [len(member.target_assignment.active_tasks) for member in group.members]
    assert targets == [LARGE // 2, LARGE // 2]
    responses = [await beat(client, each, epoch) for each, epoch in epochs.items()]
    assert [len(response.active_tasks) for response in responses] == targets
    assert len([work for work in computed if isinstance(work, TargetInput)]) == 1
    await machine.stop()


async def test_a_member_may_have_all_tasks_of_the_largest_topology_and_report_their_offsets(loop: SimLoop) -> None:
    machine = Machine(loop, offsets_topic_num_partitions="1")
    await machine.boot()
    client = machine.connect()
    partitions = MAX_TASKS // MAX_SUBTOPOLOGIES
    await client.create_topic("in", partitions)
    while (await client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 6)).coordinators[0].error_code:
        await asyncio.sleep(0.1)
    names = [str(each) for each in range(MAX_SUBTOPOLOGIES)]
    topology = Topology(0, subtopologies=[Subtopology(each, source_topics=["in"]) for each in names])
    joined = await beat(client, "a", 0, topology=topology)
    offsets = [TaskOffset(each, partition=number, offset=1) for each in names for number in range(partitions)]
    has_all = {
        "active_tasks": [TaskIds(each, partitions=list(range(partitions))) for each in names],
        "task_offsets": offsets,
        "task_end_offsets": offsets,
    }
    await beat(client, "a", joined.member_epoch, **has_all)
    await machine.stop()


async def beat(client: KafkaClient, member_id: str, epoch: int, **fields: Any) -> Any:
    joins = {"rebalance_timeout_ms": 60_000, "topology": READS, "process_id": member_id} if epoch == 0 else {}
    tasks: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    request = StreamsGroupHeartbeatRequest("g", member_id=member_id, member_epoch=epoch, **{**joins, **tasks, **fields})
    response = await client.call(request, 1)
    assert response.error_code == 0, response
    return response
