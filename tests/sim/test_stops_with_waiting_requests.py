"""A broker that stops acknowledges nothing that its replicas do not have: no record, no commit of an offset."""

import asyncio

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.runtime.coordinators.commit_waits import CommitWait
from tests.simulator.loop import SimLoop
from tests.simulator.replicas import ReplicaWorld


async def test_a_produce_that_waits_for_a_lost_follower_is_not_acknowledged_by_the_stop(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 2)
    world.create_topic(replicas=(1, 2), isr=(1, 2))
    world.isolate(2)
    waiting = asyncio.ensure_future(world.produce(1, b"lost", timeout_ms=60_000))
    await world.pass_ms(100)
    world.nodes[1].manager.shutdown()
    code, _ = await waiting
    assert code == ErrorCode.REQUEST_TIMED_OUT
    await world.stop()


async def test_a_response_of_a_coordinator_that_waits_for_its_commit_fails_at_the_stop(loop: SimLoop) -> None:
    class Host:
        """What CommitWait asks of a coordinator's partition."""

        is_led_here = True
        replayed_offset = 7

        class log:
            @staticmethod
            def is_committed(_offset: int) -> bool:
                return False

    world = ReplicaWorld(loop, 2)
    world.create_topic(replicas=(1, 2), isr=(1, 2))
    answered: asyncio.Future[str] = loop.create_future()
    manager = world.nodes[1].manager
    manager.wait_for_commit(CommitWait(Host(), [(answered, "done")]), world.nodes[1].partition(), timeout_ms=60_000)  # type: ignore[arg-type]
    manager.shutdown()
    assert answered.exception() is not None
    await world.stop()
