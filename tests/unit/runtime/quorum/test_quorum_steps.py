"""What listeners of the quorum do in steps: in order, in turns, and given up for another snapshot."""

from collections.abc import Iterator

from kafkapy.raft.effects import LeaderChanged
from kafkapy.runtime.quorum.listeners import Delivery
from kafkapy.runtime.quorum.quorum import CHUNKS_PER_TURN, CommittedBatch, Quorum, SnapshotSource
from tests.simulator.disk import SimDisk
from tests.simulator.loop import SimLoop
from tests.support.quorums import ValueList, format_standalone, new_quorum


class SteppingList(ValueList):
    """Takes a step for each value."""

    def __init__(self) -> None:
        super().__init__()
        self.step_count = 0

    def on_commit(self, batches: list[CommittedBatch]) -> Iterator[None]:
        for batch in batches:
            for value in batch.records:
                self.values.append(value)
                self.step_count += 1
                yield
            self.next_offset, self.last_epoch = batch.last_offset + 1, batch.leader_epoch

    def on_load_snapshot(self, reader: SnapshotSource) -> Iterator[None]:
        self.values = []
        for batch in reader.batches():
            for value in batch:
                self.values.append(value)
                yield
        self.loaded.append(reader.snapshot_id)


async def started(loop: SimLoop, listener: SteppingList) -> Quorum:
    disk = SimDisk()
    format_standalone(disk)
    quorum = new_quorum(loop, disk, listener=listener)
    await quorum.start()
    return quorum


async def test_a_large_batch_is_taken_in_turns_and_in_order(loop: SimLoop) -> None:
    listener = SteppingList()
    quorum = await started(loop, listener)
    values = [b"%d" % number for number in range(10 * CHUNKS_PER_TURN)]
    quorum.append(values, quorum.leader_epoch)
    quorum.append([b"last"], quorum.leader_epoch)
    seen = set()
    while len(listener.values) <= len(values):
        seen.add(listener.step_count)
        await quorum.wait_until(lambda: listener.step_count not in seen)
    assert listener.values == [*values, b"last"]
    assert len(seen) >= len(values) / CHUNKS_PER_TURN
    await quorum.close()


async def test_another_leader_is_notified_between_steps_and_our_own_term_after_all_of_them(loop: SimLoop) -> None:
    listener = SteppingList()
    quorum = await started(loop, listener)
    quorum.append([b"%d" % number for number in range(10 * CHUNKS_PER_TURN)], quorum.leader_epoch)
    await quorum.wait_until(lambda: listener.step_count > 0)
    delivery: Delivery = quorum._delivery
    reported = len(listener.leaders)
    delivery.on_leader_changed(LeaderChanged(leader_id=2, leader_epoch=7, start_offset=0))
    assert delivery.notify_next(quorum._log, quorum.high_watermark)
    assert listener.leaders[reported:] == [(2, 7)]
    assert listener.step_count < 10 * CHUNKS_PER_TURN
    delivery.on_leader_changed(LeaderChanged(leader_id=1, leader_epoch=8, start_offset=0))
    while not listener.leaders[reported + 1 :]:
        assert delivery.notify_next(quorum._log, quorum.high_watermark)
    assert listener.step_count == 10 * CHUNKS_PER_TURN
    await quorum.close()


async def test_another_snapshot_takes_the_place_of_steps_that_are_left(loop: SimLoop) -> None:
    listener = SteppingList()
    quorum = await started(loop, listener)
    quorum.append([b"%d" % number for number in range(10 * CHUNKS_PER_TURN)], quorum.leader_epoch)
    await quorum.wait_until(lambda: listener.step_count > 0)
    taken = listener.step_count
    delivery: Delivery = quorum._delivery
    snapshot_id = quorum.latest_snapshot_id
    delivery.begin_with(snapshot_id)
    assert delivery.notify_next(quorum._log, 0)
    assert listener.step_count == taken
    assert listener.loaded[-1:] == [snapshot_id]
    await quorum.close()
