"""How hosted partitions follow the metadata, on a simulated disk."""

import errno

from kafkapy.config.log import LogConfig
from kafkapy.metadata.image import MetadataImage
from kafkapy.metrics.traffic import TopicTraffic
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.partition_change_record import PartitionChangeRecord
from kafkapy.protocol.messages.partition_record import PartitionRecord
from kafkapy.replication.delayed_produce import PartitionAppend
from kafkapy.replication.partition import Role
from kafkapy.types import TopicPartition
from tests.simulator.loop import SimLoop
from tests.support.hosting import Hosting, batch, topic_id
from tests.support.interpreter import needs_interpreter


def append(hosting: Hosting, count: int = 1) -> PartitionAppend:
    partition = hosting.manager.partitions.find("orders", 0)
    assert partition is not None
    for _ in range(count):
        last = PartitionAppend(partition, batch(b"x"))
        hosting.manager.append_records([last], required_acks=1)
    return last


async def test_a_new_topic_is_led_at_once(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic(partition_count=3)
    assert len(hosting.manager.partitions) == 3
    assert (partition.role, partition.leader_epoch) == (Role.LEADER, 0)
    assert partition.log is not None
    assert partition.log.latest_epoch == 0
    assert hosting.disk.exists("/data/orders-2/partition.metadata")
    assert hosting.manager.partitions.find_by_id(topic_id("orders"), 0) is partition


async def test_an_own_append_goes_the_way_that_reports_why_while_replicas_are_missing(loop: SimLoop) -> None:
    hosting = Hosting(loop, broker_count=2)
    partition = hosting.create_topic(replicas=(1, 2), isr=(1,), configs={"min.insync.replicas": "2"})
    written = []
    append_ = PartitionAppend(partition, b"")
    assert not hosting.manager.append_own(append_, lambda log, epoch: written.append(log) is None)
    assert written == []


async def test_a_duplicate_is_counted_in_traffic_again_and_not_appended_again(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic()
    partition.traffic = traffic = TopicTraffic()
    sent = batch(b"x", b"y", producer_id=7, producer_epoch=0, base_sequence=0)
    for _ in range(2):
        hosting.manager.append_records([PartitionAppend(partition, bytearray(sent))], required_acks=1)
    assert partition.log is not None
    assert partition.log.log_end_offset == 2
    assert (traffic.produces, traffic.messages_in, traffic.bytes_in) == (2, 4, 2 * len(sent))


async def test_partitions_of_other_brokers_are_not_hosted(loop: SimLoop) -> None:
    hosting = Hosting(loop, broker_count=2)
    hosting.create_topic(replicas=(2,))
    assert len(hosting.manager.partitions) == 0
    assert not hosting.disk.exists("/data/orders-0")


async def test_more_partitions_are_made_and_the_old_ones_stay(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic()
    append(hosting)
    hosting.commit(
        PartitionRecord(
            partition_id=1,
            topic_id=topic_id("orders"),
            replicas=[1],
            isr=[1],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=[bytes(16)],
        )
    )
    assert hosting.manager.partitions.find("orders", 0) is partition
    assert hosting.manager.partitions.find("orders", 1) is not None


async def test_a_deleted_topic_is_forgotten_and_its_directory_goes(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic()
    hosting.delete_topic()
    assert partition.role is Role.GONE
    assert len(hosting.manager.partitions) == 0
    assert hosting.log_manager.get_log(TopicPartition("orders", 0)) is None
    names = hosting.disk.list_directory("/data")
    assert [name.endswith("-delete") for name in names if name.startswith("orders")] == [True]


async def test_a_recreated_topic_starts_over(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    hosting.create_topic()
    append(hosting, 3)
    hosting.delete_topic()
    partition = hosting.create_topic(generation=2)
    assert partition.log is not None
    assert (partition.topic_id, partition.log.log_end_offset) == (topic_id("orders", 2), 0)
    assert hosting.manager.partitions.find_by_id(topic_id("orders", 1), 0) is None


async def test_a_topic_deleted_and_recreated_in_one_delta_starts_over(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    old = hosting.create_topic()
    append(hosting, 3)
    before = hosting.cluster.image
    publish, hosting._publish = hosting._publish, lambda image: None  # type: ignore[method-assign]
    hosting.delete_topic()
    hosting.create_topic(generation=2)
    publish(before)
    partition = hosting.manager.partitions.find("orders", 0)
    assert partition is not None
    assert partition is not old
    assert partition.log is not None
    assert partition.log.log_end_offset == 0


async def test_a_restart_finds_offsets_epochs_and_high_watermark(loop: SimLoop) -> None:
    hosting = Hosting(loop, broker_count=2)
    partition = hosting.create_topic(replicas=(1, 2))
    append(hosting, 5)
    partition.record_follower_fetch(2, fetch_offset=3, log_start_offset=0, now_ms=0)
    hosting.restart()
    found = hosting.manager.partitions.find("orders", 0)
    assert found is not None
    assert found.log is not None
    assert (found.role, found.leader_epoch) == (Role.LEADER, 0)
    assert (found.log.high_watermark, found.log.log_end_offset) == (3, 5)


async def test_a_single_replica_knows_its_high_watermark_after_a_restart_without_checkpoint(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    hosting.create_topic()
    append(hosting, 5)
    hosting.log_manager.close()
    hosting.disk.delete("/data/replication-offset-checkpoint")
    hosting._load()
    hosting._publish(type(hosting.cluster.image)())
    assert hosting.log().high_watermark == 5


async def test_leadership_moves_and_comes_back(loop: SimLoop) -> None:
    hosting = Hosting(loop, broker_count=2)
    partition = hosting.create_topic(replicas=(1, 2))
    append(hosting, 2)
    hosting.commit(PartitionChangeRecord(partition_id=0, topic_id=topic_id("orders"), leader=2))
    assert (partition.role, partition.leader_epoch) == (Role.FOLLOWER, 1)
    hosting.commit(PartitionChangeRecord(partition_id=0, topic_id=topic_id("orders"), leader=1))
    assert (partition.role, partition.leader_epoch, partition.leader_epoch_start_offset) == (Role.LEADER, 2, 2)


async def test_a_shrunken_isr_moves_the_high_watermark(loop: SimLoop) -> None:
    hosting = Hosting(loop, broker_count=2)
    partition = hosting.create_topic(replicas=(1, 2))
    append(hosting, 2)
    assert partition.log is not None
    assert partition.log.high_watermark == 0
    hosting.commit(PartitionChangeRecord(partition_id=0, topic_id=topic_id("orders"), isr=[1]))
    assert (partition.leader_epoch, partition.log.high_watermark) == (0, 2)


async def test_topic_configs_are_taken_over_at_once(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic(configs={"retention.ms": "1000"})
    assert partition.log is not None
    assert partition.log.config.retention_ms == 1_000
    hosting.alter_configs("orders", {"retention.ms": "2000"})
    assert partition.log.config.retention_ms == 2_000
    hosting.alter_configs("orders", {"retention.ms": None})
    assert partition.log.config.retention_ms == hosting.config.log_config.retention_ms


async def test_partitions_of_a_topic_share_a_config_until_it_changes(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    hosting.create_topic(partition_count=2, configs={"retention.bytes": "7"})

    def config_of(number: int) -> LogConfig:
        partition = hosting.manager.partitions.find("orders", number)
        assert partition is not None
        assert partition.log is not None
        return partition.log.config

    assert config_of(0) is config_of(1)
    assert config_of(1).retention_bytes == 7
    hosting.alter_configs("orders", {"retention.bytes": "8"})
    assert config_of(0) is config_of(1)
    assert config_of(1).retention_bytes == 8
    assert hosting.create_topic("others").log.config.retention_bytes == -1  # type: ignore[union-attr]


async def test_a_failed_directory_takes_its_partitions_offline(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic()
    hosting.log_manager.directories[0].state.go_offline("test")
    assert partition.role is Role.OFFLINE
    assert append(hosting).error_code == 56  # KAFKA_STORAGE_ERROR
    hosting.create_topic("more")
    more = hosting.manager.partitions.find("more", 0)
    assert more is not None
    assert more.role is Role.OFFLINE


@needs_interpreter("it replaces a method of a log")
async def test_a_broken_invariant_takes_one_partition_offline(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic(partition_count=2)
    assert partition.log is not None

    def broken(*arguments: object, **options: object) -> None:
        raise AssertionError("broken")

    partition.log.append_as_leader = broken  # type: ignore[method-assign, assignment]
    assert append(hosting).error_code == -1  # UNKNOWN_SERVER_ERROR
    assert partition.role is Role.OFFLINE
    other = hosting.manager.partitions.find("orders", 1)
    assert other is not None
    assert other.role is Role.LEADER


async def test_a_leader_that_has_followed_since_does_not_acknowledge_what_it_appended_before(loop: SimLoop) -> None:
    """Its log may have been truncated meanwhile, and others' records be where the append was."""
    hosting = Hosting(loop, broker_count=2)
    partition = hosting.create_topic(replicas=(1, 2))
    append = PartitionAppend(partition, batch(b"lost"))
    assert not hosting.manager.append_records([append], required_acks=-1)
    for leader in (2, 1):  # while the request waits for something else: a flush, a worker
        hosting.commit(PartitionChangeRecord(topic_id=topic_id("orders"), partition_id=0, leader=leader))
        if leader == 2:
            hosting.log_manager.truncate_to({partition.topic_partition: 0})
    hosting.manager.append_records([PartitionAppend(partition, batch(b"other"))], required_acks=1)
    hosting.manager.record_follower_fetch(
        partition, 2, fetch_offset=1, log_start_offset=0, leader_end_offset=1, broker_epoch=-1
    )
    assert partition.log is not None
    assert partition.log.high_watermark == 1
    assert append.is_final()
    assert append.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def damaged(hosting: Hosting) -> None:
    """Stop the node; a file has the place of its log when it starts again. Its metadata is published later."""
    hosting.expirer.stop()
    hosting.manager.shutdown()
    hosting.log_manager.close()
    hosting.disk.delete_tree("/data/orders-0")
    hosting.disk.write_file_atomically("/data/orders-0", b"a file")
    hosting._load()


def led_by(hosting: Hosting, leader: int, isr: list[int], elr: list[int] | None = None) -> Role | None:
    """Have the controller elect a leader; return the role of the node's partition."""
    change = PartitionChangeRecord(partition_id=0, topic_id=topic_id("orders"), leader=leader, isr=isr)
    change.eligible_leader_replicas = elr or []
    hosting.commit(change)
    partition = hosting.manager.partitions.find("orders", 0)
    return partition.role if partition is not None else None


async def test_a_follower_whose_log_is_damaged_starts_over(loop: SimLoop) -> None:
    hosting = Hosting(loop, broker_count=2)
    hosting.create_topic(replicas=(2, 1), isr=(2,))
    damaged(hosting)
    hosting._publish(MetadataImage())
    assert hosting.log().log_end_offset == 0
    assert hosting.manager.partitions.find("orders", 0).role is Role.FOLLOWER  # type: ignore[union-attr]


async def test_a_leader_whose_log_is_damaged_serves_no_empty_one(loop: SimLoop) -> None:
    """Until another broker leads and does not count on it."""
    hosting = Hosting(loop, broker_count=2)
    hosting.create_topic(replicas=(1, 2))
    append(hosting, 5)
    damaged(hosting)
    hosting._publish(MetadataImage())
    assert led_by(hosting, 1, [1]) is Role.OFFLINE
    assert led_by(hosting, -1, [1]) is Role.OFFLINE
    assert led_by(hosting, 2, [2, 1]) is Role.OFFLINE
    assert led_by(hosting, 2, [2], elr=[1]) is Role.OFFLINE
    assert led_by(hosting, -1, []) is Role.OFFLINE
    assert not hosting.disk.is_directory("/data/orders-0")
    assert led_by(hosting, 2, [2]) is Role.FOLLOWER
    assert hosting.log().log_end_offset == 0
    assert led_by(hosting, 1, [1, 2]) is Role.LEADER


async def test_the_topic_of_a_damaged_log_can_be_deleted_and_created_again(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    hosting.create_topic()
    append(hosting, 5)
    damaged(hosting)
    hosting._publish(MetadataImage())
    hosting.delete_topic()
    partition = hosting.create_topic(generation=2)
    assert partition.role is Role.LEADER
    assert hosting.log().log_end_offset == 0


async def test_a_topic_created_again_while_its_old_log_cannot_be_renamed_waits_for_room(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    hosting.create_topic()
    append(hosting, 5)
    hosting.disk.fail("rename", errno.ENOSPC, path="/data/orders-0", times=1000)
    hosting.delete_topic()
    assert hosting.create_topic(generation=2).role is Role.OFFLINE
    hosting.disk.heal()
    delta = hosting.manager.partitions.lacking_room()
    assert delta is not None
    hosting.manager.announce(hosting.cluster.image)
    for _ in hosting.manager.apply_delta(delta, hosting.cluster.image, hosting.clock.wall_ms()):
        pass
    assert hosting.log().log_end_offset == 0
    assert hosting.manager.partitions.lacking_room() is None
