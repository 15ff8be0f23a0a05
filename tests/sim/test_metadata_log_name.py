"""A whole broker whose metadata has a topic of the metadata log's name, as a version that allowed it left behind."""

from typing import Any

from kafkapy.machine import Decision
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.partition_record import PartitionRecord
from kafkapy.protocol.messages.topic_record import TopicRecord
from kafkapy.types import METADATA_PARTITION
from tests.simulator.broker_world import DATA_DIR, Machine, Topic
from tests.simulator.loop import SimLoop

TOPIC = Topic(METADATA_PARTITION.topic, b"i" * 16)
DIRECTORY = f"{DATA_DIR}/{METADATA_PARTITION}"


async def create_past_the_ban(machine: Machine) -> None:
    partition = PartitionRecord(
        partition_id=0,
        topic_id=TOPIC.topic_id,
        replicas=[1],
        isr=[1],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=[bytes(16)],
    )
    records: list[Any] = [TopicRecord(name=TOPIC.name, topic_id=TOPIC.topic_id), partition]
    await machine.server._controller.write(lambda controller, _: Decision(None, records))


async def test_its_directory_stays_the_quorums_and_the_topic_can_be_deleted(loop: SimLoop) -> None:
    machine = Machine(loop)
    await machine.boot()
    await create_past_the_ban(machine)
    assert METADATA_PARTITION not in machine.logs()
    await machine.stop()

    before = set(machine.disk.list_directory(DIRECTORY))
    await machine.boot()
    assert METADATA_PARTITION not in machine.logs()
    assert set(machine.disk.list_directory(DIRECTORY)) == before
    client = machine.connect()
    assert (await client.produce(TOPIC, b"x")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await client.delete_topic(TOPIC)
    await client.create_topic("orders")
    await machine.stop()

    await machine.boot()
    assert topic_names(machine) == {"orders"}
    await machine.stop()


def topic_names(machine: Machine) -> set[str]:
    return set(machine.server._controller.image.topics.by_name)
