"""What fails between brokers is tried again all the time and logged once: changes of an ISR, fetches."""

import logging

import pytest

from kafkapy.machine import Decision
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.alter_partition_response import AlterPartitionResponse, PartitionData, TopicData
from tests.simulator.loop import SimLoop, run
from tests.simulator.replicas import CONTROLLER, ReplicaWorld
from tests.support.hosting import topic_id


def test_a_controller_that_does_not_answer_is_logged_once_and_once_it_answers(caplog: pytest.LogCaptureFixture) -> None:
    async def main(loop: SimLoop) -> None:
        world = ReplicaWorld(loop, 2)
        world.create_topic(replicas=(1, 2), isr=(1,))
        world.cut = {(1, CONTROLLER)}
        await world.pass_ms(20_000)
        assert len(world.alterations) > 10
        world.heal()
        await world.until(lambda: world.registration().isr == (1, 2))
        await world.stop()

    with caplog.at_level(logging.INFO, "kafkapy.runtime"):
        run(main)
    logged = [record.getMessage() for record in caplog.records if "AlterPartition" in record.getMessage()]
    assert len(logged) == 2
    assert "No response to AlterPartition" in logged[0]
    assert logged[1] == "AlterPartition is answered again"


def test_a_refusal_that_is_tried_again_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main(loop: SimLoop) -> None:
        world = ReplicaWorld(loop, 2)
        world.create_topic(replicas=(1, 2), isr=(1,))
        part = PartitionData(partition_index=0, error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        refusal = AlterPartitionResponse(topics=[TopicData(topic_id=topic_id("orders"), partitions=[part])])
        take = world.commit
        world.commit = lambda decision: refusal  # type: ignore[method-assign]
        await world.pass_ms(5000)
        assert len(world.alterations) > 50
        world.commit = take  # type: ignore[method-assign]
        world.commit(Decision(None, []))
        await world.until(lambda: world.registration().isr == (1, 2))
        await world.stop()

    with caplog.at_level(logging.INFO, "kafkapy.runtime"):
        run(main)
    assert sum("UNKNOWN_SERVER_ERROR" in record.getMessage() for record in caplog.records) == 1


def test_a_leader_that_does_not_answer_is_logged_once_and_once_it_answers(caplog: pytest.LogCaptureFixture) -> None:
    async def main(loop: SimLoop) -> None:
        world = ReplicaWorld(loop, 2)
        world.create_topic(replicas=(1, 2))
        assert (await world.produce(1, b"a"))[0] == 0
        world.cut = {(1, 2), (2, 1)}
        await world.pass_ms(10_000)
        world.heal()
        assert (await world.produce(1, b"b", timeout_ms=10_000))[0] == 0
        await world.stop()

    with caplog.at_level(logging.INFO, "kafkapy.replication"):
        run(main)
    logged = [
        record.getMessage()
        for record in caplog.records
        if "etch" in record.getMessage() and "from broker 1" in record.getMessage()
    ]
    assert len(logged) == 2
    assert logged[1] == "Fetching from broker 1 works again"
