"""A node of three whose only directory was lost and formatted anew: it serves, does not vote, and both sides say so."""

import asyncio

import pytest

from kafkapy.storage.offline.format import FormatRequest, format_directories
from tests.simulator.cluster_world import CLUSTER_ID, ClusterWorld, combined, config_of
from tests.simulator.disk import SimDisk
from tests.simulator.process_lives import ProcessLoop, run_processes
from tests.support.chance import SeededRandom

CHECKED_S = 61.0
"""The leader looks each minute."""


def test_a_node_without_its_former_directory_and_the_leader_say_that_it_is_no_voter(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(loop: ProcessLoop) -> None:
        world = ClusterWorld(loop, 0, combined(3))
        world.start()
        await world.until(world.is_whole, 60, "the cluster starts")
        lost = world.computers[3]
        lost.is_held = True
        lost.kill()
        lost.disk = SimDisk(7)
        request = FormatRequest(config_of(lost.properties()), CLUSTER_ID, has_no_initial_controllers=True)
        format_directories(request, lost.disk, SeededRandom(7), lost.clock, say=lambda line: None)
        lost.is_held = False
        await world.until(world.is_whole, 60, "it serves again")
        await asyncio.sleep(CHECKED_S)

    run_processes(main, seed=0, limit_seconds=600)
    assert "Node 3 is a controller and no voter of the metadata quorum" in caplog.text
    assert caplog.text.count("Node 3 is a voter with another directory than it has") == 1
