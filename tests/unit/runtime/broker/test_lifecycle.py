"""BrokerLifecycle over a controller whose quorum is in memory, in virtual time."""

import asyncio
import logging
from typing import Any

import pytest

from kafkapy.errors import ApiError
from kafkapy.machine import Decision
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from kafkapy.protocol.messages.broker_heartbeat_response import BrokerHeartbeatResponse
from kafkapy.protocol.messages.broker_registration_request import BrokerRegistrationRequest
from kafkapy.protocol.messages.broker_registration_response import BrokerRegistrationResponse
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkapy.protocol.messages.partition_record import PartitionRecord
from kafkapy.protocol.messages.topic_record import TopicRecord
from kafkapy.protocol.primitives import Message
from kafkapy.runtime.broker.active_controller import LOCAL_TIMEOUT_MS, ActiveController
from kafkapy.runtime.broker.lifecycle import BrokerLifecycle, Incarnation, LifecycleState
from kafkapy.runtime.controller.schedule import FENCE_CHECKS_PER_SESSION
from tests.simulator.loop import SimLoop
from tests.support.controller_nodes import Node, on_node, unfenced
from tests.support.controllers import CLUSTER_ID, directory_id


def test_broker_registers_is_unfenced_and_heard_of() -> None:
    async def scenario(node: Node) -> None:
        lifecycle = await node.started()
        node.controller.start()
        await asyncio.sleep(60)

        broker = node.controller.image.cluster.brokers[1]
        assert broker.epoch == lifecycle.broker_epoch
        assert not broker.fenced
        assert lifecycle.state is LifecycleState.RUNNING
        await lifecycle.close()
        await node.controller.close()

    on_node(scenario)


@pytest.mark.parametrize(("is_enabled", "leader"), [("true", 1), ("false", 2)])
def test_preferred_replicas_lead_again_after_the_interval(is_enabled: str, leader: int) -> None:
    async def test(node: Node) -> None:
        node.quorum.lead()
        topic = TopicRecord(name="foo", topic_id=b"f" * 16)
        partition = PartitionRecord(partition_id=0, topic_id=b"f" * 16, replicas=[1, 2], isr=[1, 2], leader=2)
        await node.controller.write(lambda *_: Decision(None, [unfenced(1), unfenced(2), topic, partition]))
        node.controller.start()

        await asyncio.sleep(1.1)

        found = node.controller.image.topics.partition("foo", 0)
        assert found is not None
        assert found.leader == leader
        await node.controller.close()

    on_node(test, auto_leader_rebalance_enable=is_enabled, leader_imbalance_check_interval_seconds="1")


def test_silent_broker_is_fenced_after_its_session() -> None:
    async def scenario(node: Node) -> None:
        lifecycle = await node.started()
        node.controller.start()
        await lifecycle.close()
        await asyncio.sleep(8)
        assert not node.controller.image.cluster.brokers[1].fenced
        await asyncio.sleep(3)
        assert node.controller.image.cluster.brokers[1].fenced
        await node.controller.close()

    on_node(scenario)


def test_a_slow_commit_of_a_fencing_is_not_taken_for_a_loop_that_stood_still() -> None:
    async def scenario(node: Node) -> None:
        node.quorum.lead()
        loop = asyncio.get_running_loop()
        begin_s = loop.time()
        await node.controller.write(lambda *_: Decision(None, [unfenced(1), unfenced(2)]))
        node.controller.start()
        await asyncio.sleep(6)
        heartbeat = BrokerHeartbeatRequest(broker_id=2, broker_epoch=102, current_metadata_offset=1 << 40)
        await node.controller.write(lambda controller, now_ms: controller.decide_heartbeat(heartbeat, now_ms))
        node.quorum.commit_delay_ms = 4_000
        while not node.controller.image.cluster.brokers[1].fenced:
            await asyncio.sleep(0.1)
        assert loop.time() - begin_s < 6 + 9, "broker 2 is still to be fenced"

        while not node.controller.image.cluster.brokers[2].fenced:
            await asyncio.sleep(0.1)
        assert loop.time() - begin_s < 6 + 9 + 9 / FENCE_CHECKS_PER_SESSION + 4 + 0.2
        await node.controller.close()

    on_node(scenario)


def test_a_broker_is_not_fenced_while_its_own_controller_commits_for_long() -> None:
    """Else what its unfencing decides, for 22,000 partitions on busy cores, would have it fenced again each time."""

    async def scenario(node: Node) -> None:
        lifecycle = await node.started()
        node.controller.start()
        node.quorum.commit_delay_ms = 30_000
        topic = TopicRecord(name="foo", topic_id=b"f" * 16)
        image_count = len(node.images)
        await node.controller.write(lambda *_: Decision(None, [topic]))
        node.quorum.commit_delay_ms = 0
        await asyncio.sleep(60)
        assert not any(image.cluster.brokers[1].fenced for _, image in node.images[image_count:])
        assert node.controller.image.topics.by_name["foo"]
        await lifecycle.close()
        await node.controller.close()

    on_node(scenario)


def test_a_loop_that_stood_still_fences_nobody_but_who_stays_silent() -> None:
    async def scenario(node: Node) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        lifecycle = await node.started()
        node.controller.start()
        image_count = len(node.images)
        for _ in range(40):  # whichever timer is due first afterwards
            await asyncio.sleep(0.33)
            loop.block(12_000)
            await asyncio.sleep(3)
        assert not any(image.cluster.brokers[1].fenced for _, image in node.images[image_count:])

        await lifecycle.close()
        loop.block(12_000)
        await asyncio.sleep(3)
        assert node.controller.image.cluster.brokers[1].fenced
        await node.controller.close()

    on_node(scenario)


def test_registration_waits_for_a_controller() -> None:
    async def scenario(node: Node) -> None:
        lifecycle = node.lifecycle()
        task = asyncio.ensure_future(lifecycle.register())
        await asyncio.sleep(2)
        assert not task.done()
        node.quorum.lead()

        assert await task > 0
        await lifecycle.close()

    on_node(scenario)


def test_broker_killed_in_this_process_is_back_without_waiting_for_its_session() -> None:
    async def scenario(node: Node) -> None:
        killed = await node.started()
        await node.create("orders")
        await killed.close()
        loop = asyncio.get_running_loop()
        started = loop.time()

        again = node.lifecycle(b"j" * 16)
        await again.register()
        await again.unfence()

        assert loop.time() - started < 0.1
        assert node.controller.image.topics.by_name["orders"].partitions[0].leader == 1
        assert again.broker_epoch > killed.broker_epoch
        await again.close()

    on_node(scenario)


def test_broker_of_another_cluster_is_refused() -> None:
    async def scenario(node: Node) -> None:
        node.quorum.lead()
        lifecycle = BrokerLifecycle(
            controller=ActiveController(node.controller),
            config=node.config,
            incarnation=Incarnation("other", b"i" * 16, {}, [directory_id(1)]),
        )
        with pytest.raises(ApiError) as refusal:
            await lifecycle.register()

        assert refusal.value.code == ErrorCode.INCONSISTENT_CLUSTER_ID

    on_node(scenario)


def test_a_request_to_a_controller_here_that_commits_nothing_ends_as_one_over_the_network() -> None:
    async def scenario(node: Node) -> None:
        await node.started()
        node.quorum.commit_delay_ms = 2 * LOCAL_TIMEOUT_MS
        active, outcomes = ActiveController(node.controller), list[Any]()
        request = CreateTopicsRequest(topics=[CreatableTopic(name="late", num_partitions=1, replication_factor=1)])

        def decide(controller: Any, _: int) -> Any:
            return controller.topics.decide_create(request)

        active.send_request_soon(request, decide, outcomes.append)
        with pytest.raises(ApiError) as refused:
            await active.send_request(request, decide)
        await asyncio.sleep(1)

        assert [refused.value.code, *(each.code for each in outcomes)] == 2 * [ErrorCode.REQUEST_TIMED_OUT]

    on_node(scenario)


class Refusing:
    """A channel to another node's controller, which answers with `code` until that is 0."""

    def __init__(self, code: int) -> None:
        self.code = code
        self.sent_at_s: list[float] = []

    async def call(self, request: Message) -> Any:
        self.sent_at_s.append(asyncio.get_running_loop().time())
        if isinstance(request, BrokerRegistrationRequest):
            return BrokerRegistrationResponse(error_code=self.code, broker_epoch=7)
        return BrokerHeartbeatResponse(error_code=self.code, is_fenced=False)


def over_the_network(node: Node, channel: Refusing) -> BrokerLifecycle:
    return BrokerLifecycle(
        controller=ActiveController(node.controller, lambda: channel),  # type: ignore[arg-type, return-value]
        config=node.config,
        incarnation=Incarnation(CLUSTER_ID, b"i" * 16, {}, [directory_id(1)]),
    )


@pytest.mark.parametrize("code", [ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_a_refused_registration_is_tried_again_after_the_heartbeat_interval(code: ErrorCode) -> None:
    async def scenario(node: Node) -> None:
        channel = Refusing(code)
        lifecycle = over_the_network(node, channel)
        task = asyncio.ensure_future(lifecycle.register())
        await asyncio.sleep(5)
        assert not task.done()
        assert [sent_s - channel.sent_at_s[0] for sent_s in channel.sent_at_s] == pytest.approx([0, 2, 4], abs=0.01)
        assert lifecycle.refusal is not None
        assert lifecycle.refusal.code == code
        channel.code = 0

        assert await task == 7
        channel.code = code
        unfenced = asyncio.ensure_future(lifecycle.unfence())
        await asyncio.sleep(3)
        channel.code = 0
        await unfenced
        assert lifecycle.refusal is None
        await lifecycle.close()

    on_node(scenario)


def test_a_broker_whose_id_another_one_took_logs_once_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(node: Node) -> None:
        channel = Refusing(0)
        lifecycle = over_the_network(node, channel)
        await lifecycle.register()
        await lifecycle.unfence()
        channel.code = ErrorCode.STALE_BROKER_EPOCH
        await asyncio.sleep(10)
        assert len(channel.sent_at_s) > 5, "it asks on"
        await lifecycle.close()

    on_node(scenario)
    (line,) = [message for message in caplog.messages if "STALE_BROKER_EPOCH" in message]
    assert "another process has registered with node.id=1 after this one" in line
    assert "broker epoch 7 is no longer valid. End the process that should not have this id" in line


def test_heartbeats_that_are_answered_again_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(node: Node) -> None:
        channel = Refusing(0)
        lifecycle = over_the_network(node, channel)
        await lifecycle.register()
        await lifecycle.unfence()
        channel.code = ErrorCode.NOT_CONTROLLER
        await asyncio.sleep(10)
        channel.code = 0
        await asyncio.sleep(10)
        await lifecycle.close()

    with caplog.at_level(logging.INFO, "kafkapy.runtime"):
        on_node(scenario)
    refused, answered = (message for message in caplog.messages if "heartbeat" in message)
    assert refused.startswith("A broker heartbeat failed, trying again: NOT_CONTROLLER")
    assert answered == "Broker heartbeats are answered again"


def test_a_failed_directory_is_reported_at_once() -> None:
    async def scenario(node: Node) -> None:
        lifecycle = await node.started()

        lifecycle.directory_failed(directory_id(1))
        await asyncio.sleep(0.05)

        assert node.controller.image.cluster.brokers[1].directories == (directory_id(2),)
        await asyncio.sleep(40)
        assert node.failures == []

    on_node(scenario)


def test_a_broker_that_cannot_report_a_failed_directory_has_to_stop() -> None:
    async def scenario(node: Node) -> None:
        lifecycle = await node.started()
        node.quorum.lose()

        lifecycle.directory_failed(directory_id(1))
        await asyncio.sleep(29)
        assert node.failures == []
        await asyncio.sleep(2)

        assert "couldn't communicate offline log dir" in str(node.failures.pop())

    on_node(scenario)


def test_shut_down_hands_over_and_is_fast() -> None:
    async def scenario(node: Node) -> None:
        lifecycle = await node.started()
        await node.create("orders")
        loop = asyncio.get_running_loop()
        started = loop.time()

        await lifecycle.shut_down()

        assert loop.time() - started < 0.1
        broker = node.controller.image.cluster.brokers[1]
        assert (broker.in_controlled_shutdown, broker.fenced) == (True, True)
        assert node.controller.image.topics.by_name["orders"].partitions[0].leader == -1
        again = node.lifecycle(b"j" * 16)
        await again.register()
        await again.unfence()
        assert node.controller.image.topics.by_name["orders"].partitions[0].leader == 1
        await again.close()

    on_node(scenario)


def test_shut_down_without_a_controller_does_not_hang(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(node: Node) -> None:
        lifecycle = await node.started()
        node.quorum.lose()

        await lifecycle.shut_down()

        assert lifecycle.state is LifecycleState.NOT_RUNNING

    on_node(scenario)
    assert "Controlled shutdown was not finished in 5000 ms" in caplog.messages


@pytest.mark.parametrize("is_before", [True, False])
def test_a_controlled_shutdown_that_is_hurried_waits_for_nobody(
    caplog: pytest.LogCaptureFixture, is_before: bool
) -> None:
    async def scenario(node: Node) -> None:
        lifecycle = await node.started()
        node.quorum.lose()
        loop = asyncio.get_running_loop()
        started = loop.time()
        if is_before:
            lifecycle.hurry()
        else:
            loop.call_later(0.5, lifecycle.hurry)
            loop.call_later(0.5, lifecycle.hurry)

        await lifecycle.shut_down()

        assert loop.time() - started == pytest.approx(0 if is_before else 0.5, abs=0.1)
        assert lifecycle.state is LifecycleState.NOT_RUNNING
        lifecycle.hurry()  # too late

    on_node(scenario)
    assert "Controlled shutdown was not finished as it was asked to hurry" in caplog.messages
