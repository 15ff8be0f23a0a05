"""A fetcher's partitions take turns: one with much to copy does not keep others, whose producers wait, out."""

from tests.simulator.loop import SimLoop
from tests.simulator.replicas import ReplicaWorld
from tests.support.hosting import NOW_MS, batch

BACKLOG = 300


async def test_a_partition_with_a_backlog_does_not_keep_another_out_of_the_responses(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 2, replica_fetch_max_bytes="1000", replica_fetch_response_max_bytes="1000")
    world.create_topic(3, replicas=(1, 2))
    for number in (0, 2):
        log = world.nodes[1].log(number=number)
        for _ in range(BACKLOG):
            log.append_as_leader(batch(bytes(1000)), leader_epoch=0, now_ms=NOW_MS)
        world.nodes[1].manager.notify_appended(world.nodes[1].partition(number))
    await world.pass_ms(20)
    assert (await world.produce(1, b"small", number=1, timeout_ms=50))[0] == 0
    assert world.nodes[2].log(number=0).log_end_offset < BACKLOG
    await world.until(lambda: world.nodes[2].log(number=0).log_end_offset == BACKLOG)
    await world.stop()
