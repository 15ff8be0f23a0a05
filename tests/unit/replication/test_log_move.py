"""The copy of a replica in another log directory, while its log changes."""

from kafkapy.protocol.messages.partition_change_record import PartitionChangeRecord
from kafkapy.replication.log_move import LogMove
from tests.simulator.loop import SimLoop
from tests.simulator.replicas import content
from tests.support.hosting import NOW_MS, Hosting, batch, topic_id


async def test_what_was_truncated_and_written_again_is_copied_again(loop: SimLoop) -> None:
    hosting = Hosting(loop, log_dirs="/data,/more")
    partition = hosting.create_topic()
    current, manager = partition.log, hosting.log_manager
    assert current is not None
    (target,) = [each for each in manager.directories if each.state is not current.log_dir]
    for value in (b"a", b"b", b"c"):
        current.append_as_leader(batch(value), leader_epoch=0, now_ms=NOW_MS)
    future = manager.create_future_log(partition.topic_partition, target, None, NOW_MS)
    move = LogMove(partition, manager)
    while move.copy(NOW_MS):
        pass
    assert content(future) == content(current)

    manager.truncate_to({partition.topic_partition: 1})
    hosting.commit(PartitionChangeRecord(partition_id=0, topic_id=topic_id("orders"), leader=1))
    for value in (b"B", b"C", b"D"):
        current.append_as_leader(batch(value), leader_epoch=partition.leader_epoch, now_ms=NOW_MS)
    while move.copy(NOW_MS):
        pass

    assert content(future) == content(current)
