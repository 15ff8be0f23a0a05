"""Disks that fill up: a follower goes on once there is room again, a leader refuses until then."""

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.replication.partition import Role
from tests.simulator.loop import SimLoop
from tests.simulator.replicas import ReplicaWorld


async def test_a_follower_whose_disk_is_full_leaves_the_isr_and_comes_back_once_there_is_room(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 2, replica_lag_time_max_ms="2000", replica_fetch_backoff_ms="100")
    world.create_topic(replicas=(1, 2))
    assert (await world.produce(1, b"before"))[0] == 0
    follower = world.nodes[2]
    follower.disk.capacity_bytes = follower.disk.used_bytes() + 200
    assert (await world.produce(1, bytes(5000), timeout_ms=10_000))[0] == 0
    assert world.registration().isr == (1,)
    assert follower.partition().role is Role.FOLLOWER, "the directory is online"
    request_count = len(world.requests)
    await world.pass_ms(2000)
    assert len(world.requests) == request_count, "nothing is fetched that could not be appended"
    follower.disk.heal()
    follower.log().log_dir.check_room()  # runtime/logs/full_directories.py looks for room twice a second
    await world.until(lambda: world.registration().isr == (1, 2), 10_000)
    assert follower.log().log_end_offset == 2
    await world.stop()


async def test_a_leader_whose_disk_is_full_refuses_and_replicates_what_it_has(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 2)
    world.create_topic(replicas=(1, 2))
    assert (await world.produce(1, b"before"))[0] == 0
    leader = world.nodes[1]
    leader.disk.capacity_bytes = leader.disk.used_bytes() + 200
    assert (await world.produce(1, bytes(5000)))[0] == ErrorCode.KAFKA_STORAGE_ERROR
    leader.disk.heal()
    assert (await world.produce(1, b"after"))[0] == 0
    assert world.nodes[2].log().log_end_offset == 2
    await world.stop()
