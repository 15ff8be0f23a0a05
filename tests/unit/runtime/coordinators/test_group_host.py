"""Groups whose records cannot be written for long: what their deadlines come to, and what is logged of it."""

import pytest

from kafkapy.group.decision import Client
from kafkapy.group.settings import OFFSETS_TOPIC
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.partition_change_record import PartitionChangeRecord
from tests.simulator.loop import SimLoop
from tests.support.group_hosting import GROUP, GroupHosting
from tests.support.hosting import topic_id
from tests.unit.runtime.broker.test_isr_updates import pass_ms


async def test_what_cannot_be_written_for_long_is_logged_ever_less_often(
    loop: SimLoop, caplog: pytest.LogCaptureFixture
) -> None:
    hosting = GroupHosting(loop, broker_count=2)
    hosting.create_offsets_topic(replicas=[1, 2], configs={"min.insync.replicas": "2"})
    joining = ConsumerGroupHeartbeatRequest(
        GROUP,
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
    joined = hosting.start(
        hosting.groups.call(
            GROUP,
            lambda shard, token, now_ms: shard.consumer.heartbeat(joining, 1, Client("c", "/1.2.3.4"), now_ms),
        )
    )
    await pass_ms(loop, 1)
    partition = hosting.manager.partitions.find(OFFSETS_TOPIC, 0)
    assert partition is not None
    hosting.manager.record_follower_fetch(
        partition, 2, fetch_offset=partition.log.log_end_offset, log_start_offset=0,
        leader_end_offset=partition.log.log_end_offset, broker_epoch=-1,
    )  # fmt: skip
    assert (await joined).error_code == 0
    shrunk = PartitionChangeRecord(topic_id=topic_id(OFFSETS_TOPIC), partition_id=0, isr=[1])
    hosting.commit(shrunk)
    await pass_ms(loop, 45_000 + 60_000)
    log_end_offset = partition.log.log_end_offset
    hosting.commit(PartitionChangeRecord(topic_id=topic_id(OFFSETS_TOPIC), partition_id=0, isr=[1, 2]))
    await pass_ms(loop, 1000)
    assert partition.log.log_end_offset > log_end_offset, "the member is fenced as soon as that can be written"
    attempts = [text for text in caplog.messages if "Could not write what a timer" in text]
    assert 5 <= len(attempts) <= 8, attempts  # of some 120
    refusals = [text for text in caplog.messages if text.startswith("Could not append")]
    assert refusals == ["Could not append to __consumer_offsets-0: NOT_ENOUGH_REPLICAS"]


class Broken:
    """A group with a mistake: it cannot decide what is due."""

    def deadline_ms(self) -> int:
        return 0

    @property
    def group_type(self) -> str:
        raise AssertionError("a mistake")


async def test_a_group_that_cannot_decide_what_is_due_leaves_the_others_their_time(loop: SimLoop) -> None:
    hosting = GroupHosting(loop)
    hosting.create_offsets_topic()
    joining = ConsumerGroupHeartbeatRequest(
        GROUP,
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
    await hosting.groups.call(
        GROUP, lambda shard, token, now_ms: shard.consumer.heartbeat(joining, 1, Client("c", "/1.2.3.4"), now_ms)
    )
    host = hosting.groups.host_of(GROUP)
    host.shard.groups["broken"] = Broken()
    host.shard.add_deadline("broken")
    failures: list[object] = []
    loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
    await pass_ms(loop, 46_000)
    assert host.shard.groups[GROUP].is_empty, "the member was not heard of for 45 s"
    assert len(failures) == 1
