"""The metadata log of a broker that never votes is not synced while it runs: what the next start finds of it."""

import pytest

from kafkapy.metadata.configs import ConfigOperation, ConfigOperationType
from kafkapy.metadata.image import RESOURCE_BROKER, ConfigResource
from kafkapy.raft.voters import VoterSet
from kafkapy.storage.metadata.metadata_log import MetadataLog
from tests.simulator.cluster_world import LOG_DIR, ClusterWorld, Computer
from tests.simulator.disk import Keep
from tests.simulator.process_lives import ProcessLoop, run_processes

CHANGES = 120
DEFAULTS = ConfigResource(RESOURCE_BROKER, "")


async def change_configs(controller: Computer, value: str) -> None:
    assert controller.server is not None
    operations = [ConfigOperation("log.retention.ms", ConfigOperationType.SET, value)]
    await controller.server.node.controller.write(
        lambda decider, _: decider.configs.decide_incremental_alter({DEFAULTS: operations})
    )


def end_offset(computer: Computer) -> int:
    assert computer.server is not None
    return computer.server.node.quorum_node.quorum.log_end_offset


def recovered(broker: Computer) -> MetadataLog:
    """Return the log as the next start finds it."""
    assert broker.server is not None
    quorum = broker.server.config.quorum
    directory = f"{LOG_DIR}/__cluster_metadata-0"
    return MetadataLog(broker.disk, directory, quorum, now_ms=broker.clock.wall_ms(), static_voters=VoterSet([]))


@pytest.mark.parametrize("keep", [None, "torn", "reordered", "none"])
def test_a_killed_broker_fetches_nothing_again_and_one_without_power_what_follows_its_snapshot(
    keep: Keep | None,
) -> None:
    async def main(loop: ProcessLoop) -> None:
        world = ClusterWorld(loop, 0, {1: "controller", 2: "broker"})
        world.start()
        await world.until(world.is_whole, 20, "both nodes serve")
        controller, broker = world.computers.values()
        for number in range(CHANGES):
            await controller.life.create_task(change_configs(controller, str(number)))  # type: ignore[union-attr]
        await world.until(lambda: end_offset(broker) == end_offset(controller), 20, "the broker has all")
        before = end_offset(broker)
        broker.is_held = True
        if keep is None:
            broker.kill()
        else:
            broker.cut_power(keep)
        log = recovered(broker)
        latest = log.view.latest_snapshot
        assert latest is not None
        assert latest.offset > CHANGES // 2, "it takes snapshots, which are synced"
        assert latest.offset <= log.view.end_offset <= before
        assert keep is not None or log.view.end_offset == before, "kill -9 loses nothing"
        log.close()
        broker.is_held = False
        await world.until(world.is_whole, 20, "it serves again")
        assert not world.failures

    run_processes(main, seed=0, limit_seconds=120)
