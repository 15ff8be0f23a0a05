"""A leader that stops answers what waits; it acknowledges nothing that its followers do not have."""

from kafkapy.protocol.error_code import ErrorCode
from tests.simulator.loop import SimLoop
from tests.simulator.replicas import ReplicaWorld


async def test_a_shutdown_does_not_acknowledge_an_append_that_waits_for_replicas(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 3)
    world.create_topic(replicas=(1, 2, 3), configs={"min.insync.replicas": "2"})
    await world.produce(1, b"kept")
    world.isolate(1)
    late = world.nodes[1].run(world.produce(1, b"lost", timeout_ms=60_000))
    await world.pass_ms(10)
    world.nodes[1].manager.shutdown()
    code, _ = await late
    assert code == ErrorCode.REQUEST_TIMED_OUT
    await world.stop()
