"""Who leads after a failure, and what is in the logs then: ELR, unclean elections, shutdowns. KIP-966, 841, 704."""

from kafkapy.metadata.registrations import RECOVERED, RECOVERING
from kafkapy.protocol.error_code import ErrorCode
from tests.simulator.loop import SimLoop
from tests.simulator.replicas import ReplicaWorld, content, stored

FAST = {"replica_lag_time_max_ms": "1000", "replica_fetch_wait_max_ms": "200", "replica_socket_timeout_ms": "300"}


def values(world: ReplicaWorld, node_id: int) -> list[bytes]:
    return [value for _, _, value in stored(world.nodes[node_id].log())]


async def lead_alone(world: ReplicaWorld) -> None:
    """Cut node 2 off, and have node 1 acknowledge a record once the ISR is without it."""
    world.isolate(2)
    assert await world.produce(1, b"of 1 alone", timeout_ms=5000) == (0, 1)
    assert world.registration().isr == (1,)


async def test_an_unclean_leader_takes_over_and_what_it_lacks_is_cut_everywhere(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 2, **FAST)
    world.create_topic(replicas=(1, 2), configs={"unclean.leader.election.enable": "true"})
    await world.produce(1, b"of both")
    await world.pass_ms(1000)
    await lead_alone(world)
    await world.nodes[1].crash("all")
    world.fence(1)
    assert (world.registration().leader, world.registration().leader_recovery_state) == (2, RECOVERING)
    world.heal()
    assert (await world.produce(2, b"of 2"))[0] == 0
    await world.restart(1)
    await world.until(lambda: set(world.registration().isr) == {1, 2})
    assert world.registration().leader_recovery_state == RECOVERED
    await world.until(lambda: content(world.nodes[1].log()) == content(world.nodes[2].log()))
    assert values(world, 1) == [b"of both", b"of 2"]
    await world.stop()


async def test_a_replica_that_left_a_too_small_isr_with_all_that_is_committed_may_lead(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 3, **FAST)
    world.create_topic(replicas=(1, 3, 2), configs={"min.insync.replicas": "2"})
    await world.produce(1, b"of all")
    world.cut |= {(1, 3), (3, 1)}
    assert (await world.produce(1, b"of 1 and 2", timeout_ms=5000))[0] == 0
    assert world.registration().isr == (1, 2)
    world.cut |= {(1, 2), (2, 1)}
    code, _ = await world.produce(1, b"of 1 alone", timeout_ms=5000)
    assert code == ErrorCode.REQUEST_TIMED_OUT
    assert (world.registration().isr, world.registration().elr) == ((1,), (2,))
    code, _ = await world.produce(1, b"refused")
    assert code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.nodes[1].log().high_watermark == 2
    await world.nodes[1].crash("none")
    world.fence(1)
    assert world.registration().leader == 2
    world.heal()
    await world.restart(1)
    await world.until(lambda: set(world.registration().isr) == {1, 2, 3})
    for node_id in (1, 2, 3):
        assert values(world, node_id) == [b"of all", b"of 1 and 2"]
    await world.stop()


async def test_nobody_leads_rather_than_a_replica_that_lacks_committed_records(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 2, **FAST)
    world.create_topic(replicas=(1, 2))
    await world.produce(1, b"of both")
    await lead_alone(world)
    world.fence(1)
    assert world.registration().leader == -1
    world.heal()
    await world.pass_ms(3000)
    assert world.registration().leader == -1
    world.unfence(1)
    await world.until(lambda: set(world.registration().isr) == {1, 2})
    assert world.registration().leader == 1
    await world.until(lambda: values(world, 2) == [b"of both", b"of 1 alone"])
    await world.stop()


async def test_a_broker_that_shuts_down_hands_over_and_stays_out_of_the_isr_though_it_still_fetches(
    loop: SimLoop,
) -> None:
    world = ReplicaWorld(loop, 3, **FAST)
    world.create_topic(replicas=(1, 2, 3), configs={"min.insync.replicas": "2"})
    await world.produce(1, b"before")
    world.begin_controlled_shutdown(1)
    assert (world.registration().leader, world.registration().isr) == (2, (2, 3))
    await world.pass_ms(100)
    for number in range(30):
        assert (await world.produce(2, b"%d" % number))[0] == 0
        await world.pass_ms(100)
    assert world.nodes[1].log().log_end_offset == 31, "it follows"
    assert world.registration().isr == (2, 3)
    await world.stop()


async def test_producers_of_the_former_leader_get_an_error_and_its_unreplicated_records_go(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 3, **FAST)
    world.create_topic(replicas=(1, 2, 3), configs={"min.insync.replicas": "2"})
    await world.produce(1, b"kept")
    world.isolate(1)
    late = world.nodes[1].run(world.produce(1, b"lost", timeout_ms=60_000))
    await world.pass_ms(10)
    world.fence(1)
    await world.until(lambda: world.nodes[2].partition().is_leader)
    assert (await world.produce(2, b"of 2"))[0] == 0
    world.heal()
    code, _ = await late
    assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.unfence(1)
    await world.until(lambda: set(world.registration().isr) == {1, 2, 3})
    await world.until(lambda: values(world, 1) == [b"kept", b"of 2"])
    await world.stop()
