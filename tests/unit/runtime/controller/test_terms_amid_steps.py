"""What ends a term, a decision or the process between two steps of the controller, and what others wait for then."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from kafkapy.errors import ApiError
from kafkapy.machine import Decision, Steps
from kafkapy.metadata.controller import Controller
from kafkapy.metadata.record_serde import encode_record
from kafkapy.metadata.topics import TOPICS_PER_STEP
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.clear_elr_record import ClearElrRecord
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkapy.protocol.messages.no_op_record import NoOpRecord
from tests.unit.runtime.controller.test_decisions_in_steps import MANY, Node, on_node, slow_decision


async def term_begun(node: Node) -> Iterator[None]:
    """Return the steps that are left of another term's beginning."""
    topics = [CreatableTopic(f"t{number}", num_partitions=1, replication_factor=3) for number in range(TOPICS_PER_STEP)]
    await node.controller.write(lambda controller, _: controller.topics.decide_create(CreateTopicsRequest(topics)))
    node.quorum.lose()
    node.quorum.leader_epoch += 1
    node.quorum.leader_id = node.quorum.node_id
    steps = node.controller.on_leader_change(node.quorum.node_id, node.quorum.leader_epoch)
    assert steps is not None
    next(steps)
    assert not node.controller.is_active
    return steps


def test_a_term_that_is_resigned_while_it_begins_does_not_begin() -> None:
    async def scenario(node: Node) -> None:
        steps = await term_begun(node)
        node.quorum.leader_id = -1
        assert node.controller.on_leader_change(-1, node.quorum.leader_epoch) is None  # a leader resigns in its epoch
        assert list(steps) == []
        assert not node.controller.is_active

    on_node(scenario)


def test_a_term_does_not_begin_once_the_controller_is_closed() -> None:
    async def scenario(node: Node) -> None:
        steps = await term_begun(node)
        await node.controller.close()
        assert list(steps) == []
        assert not node.controller.is_active

    on_node(scenario)


def test_a_stop_fails_requests_waiting_for_a_turn_before_the_current_decision_goes_on() -> None:
    async def scenario(node: Node) -> None:
        slow = asyncio.ensure_future(node.controller.write(slow_decision))
        waiting = asyncio.ensure_future(node.create("quick"))
        await asyncio.sleep(0)
        await node.controller.close()
        results = await asyncio.wait_for(asyncio.gather(slow, waiting, return_exceptions=True), 1)
        assert isinstance(results[0], asyncio.CancelledError)
        assert isinstance(results[1], ApiError)
        assert results[1].code == ErrorCode.NOT_CONTROLLER
        assert node.controller.image.topics.by_name == {}

    on_node(scenario)


def test_a_decision_in_steps_is_answered_once_it_is_committed_whatever_was_decided_after_it() -> None:
    def first(controller: Controller, _: int) -> Steps[Any, str]:
        for _ in range(MANY):
            yield []
        return Decision("first", [NoOpRecord()])

    async def scenario(node: Node) -> None:
        def second(controller: Controller, _: int) -> Decision[Any, str]:
            node.quorum.commit_delay_ms = 60_000
            return Decision("second", [NoOpRecord()])

        requested = [asyncio.ensure_future(node.controller.write(decide)) for decide in (first, second)]
        assert await asyncio.wait_for(requested[0], 1) == "first"
        assert not requested[1].done()
        assert await requested[1] == "second"

    on_node(scenario)


def test_a_record_that_the_tables_cannot_take_stops_the_controller_whatever_the_error() -> None:
    async def scenario(node: Node) -> None:
        with pytest.raises(KeyError):
            await node.controller.write(lambda *_: Decision(None, [ClearElrRecord(topic_name="missing")]))
        assert [type(failure) for failure in node.failures] == [KeyError]
        assert not node.controller.is_active
        node.failures.clear()

    on_node(scenario)


def test_a_decision_whose_term_ends_before_its_caller_hears_of_it_is_not_acknowledged() -> None:
    async def scenario(node: Node) -> None:
        def decide(controller: Controller, _: int) -> Steps[Any, str]:
            for _ in range(MANY):
                yield []
            asyncio.get_running_loop().call_soon(node.quorum.lose)
            return Decision("done", [NoOpRecord()])

        requested = asyncio.ensure_future(node.controller.write(decide))
        while node.controller.is_active:
            await asyncio.sleep(0.001)
        node.quorum.commit_foreign([encode_record(NoOpRecord(), 0)] * 2)
        with pytest.raises(ApiError) as refusal:
            await asyncio.wait_for(requested, 1)
        assert refusal.value.code == ErrorCode.NOT_CONTROLLER

    on_node(scenario)
