"""DirectoryAssignments against a controller's tables in memory."""

import asyncio
from typing import Any

import pytest

from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.runtime.broker.directory_assignments import Assignment, DirectoryAssignments
from tests.simulator.loop import SimLoop
from tests.support.controllers import directory_id
from tests.support.hosting import NODE_ID, Hosting
from tests.support.metadata_services import InstantController


@pytest.mark.parametrize("error", [ApiError(ErrorCode.NOT_CONTROLLER), KeyError("unexpected")])
async def test_an_assignment_is_sent_until_the_controller_has_taken_it(loop: SimLoop, error: Exception) -> None:
    hosting = Hosting(loop)
    topic_id = hosting.create_topic("orders").topic_id
    controller: Any = InstantController(hosting.cluster)
    assignments = DirectoryAssignments(controller, NODE_ID, lambda: hosting.cluster.epochs[NODE_ID])
    assignments.start()
    accepted: list[bool] = []
    controller.error = error
    assignments.assign(Assignment(topic_id, 0, directory_id(NODE_ID), lambda: accepted.append(True)))
    await asyncio.sleep(1)
    assert not accepted
    controller.error = None
    await asyncio.sleep(10)
    assert accepted == [True]
    assert assignments.pending_count == 0
    await assignments.stop()
