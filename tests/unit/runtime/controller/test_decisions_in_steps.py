"""Decisions of the controller that take many steps: what else is asked meanwhile, and what becomes of them."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kafkapy.config.load import load
from kafkapy.errors import ApiError
from kafkapy.machine import Decision, Steps
from kafkapy.metadata.bootstrap import default_bootstrap_records
from kafkapy.metadata.controller import Controller
from kafkapy.metadata.image import MetadataImage
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from kafkapy.protocol.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkapy.protocol.messages.partition_record import PartitionRecord
from kafkapy.protocol.messages.topic_record import TopicRecord
from kafkapy.runtime.controller.controller import STEPS_PER_TURN, MetadataRuntime
from kafkapy.runtime.controller.settings import ControllerSettings
from kafkapy.runtime.controller.term import RECORDS_PER_STEP
from kafkapy.runtime.quorum.quorum import BATCH_OVERHEAD_BYTES, RECORD_OVERHEAD_BYTES
from tests.simulator.loop import SimClock, SimLoop, run
from tests.support.chance import SeededRandom
from tests.support.controllers import CLUSTER_ID, SimpleRules, registration_request
from tests.support.fake_quorum import FakeQuorum, decoded

SESSION_MS = 9_000
MANY = 3 * STEPS_PER_TURN


class Node:
    """An active controller of three unfenced brokers."""

    def __init__(self, loop: SimLoop, **properties: str) -> None:
        config, _ = load(
            {
                **{key.replace("_", "."): value for key, value in properties.items()},
                "node.id": "1",
                "process.roles": "controller",
                "listeners": "CONTROLLER://127.0.0.1:9093",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": "1@127.0.0.1:9093",
            }
        )
        self.loop = loop
        self.quorum = FakeQuorum(CLUSTER_ID)
        self.failures: list[BaseException] = []
        self.controller = MetadataRuntime(
            quorum=self.quorum,  # type: ignore[arg-type]
            settings=ControllerSettings(config, SimpleRules(), default_bootstrap_records()),
            clock=SimClock(loop),
            random=SeededRandom(),
            on_fatal=self.failures.append,
        )
        self.images: list[MetadataImage] = []
        self.controller.add_image_listener(lambda _, image: self.images.append(image))
        self.epochs: dict[int, int] = {}

    async def start(self) -> None:
        self.quorum.lead()
        for broker_id in (1, 2, 3):
            request = registration_request(broker_id)
            response = await self.controller.write(
                lambda controller, now_ms, request=request: controller.decide_register_broker(request, now_ms)  # type: ignore[misc]
            )
            self.epochs[broker_id] = response.broker_epoch
            await self.heartbeat(broker_id)

    async def heartbeat(self, broker_id: int) -> Any:
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self.epochs[broker_id],
            current_metadata_offset=self.quorum.high_watermark - 1,
        )
        return await self.controller.write(
            lambda controller, now_ms: controller.decide_heartbeat(request, now_ms), may_interrupt=True
        )

    async def create(self, name: str, partition_count: int = 1, timeout_ms: int = 30_000) -> Any:
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name, num_partitions=partition_count, replication_factor=3)]
        )
        response = await self.controller.write(
            lambda controller, _: controller.topics.decide_create(request), timeout_ms=timeout_ms
        )
        return response.topics[0]

    def records(self) -> list[Any]:
        return decoded(self.quorum.log)

    def fence_expired(self) -> Coroutine[Any, Any, list[int]]:
        return self.controller.write(lambda controller, now_ms: controller.decide_fence_expired(now_ms))


def on_node(test: Callable[[Node], Coroutine[Any, Any, None]]) -> None:
    async def main(loop: SimLoop) -> None:
        node = Node(loop)
        await node.start()
        await test(node)
        assert node.failures == []

    run(main)


def slow_decision(controller: Controller, _: int) -> Steps[Any, str]:
    """Take MANY steps, then make topic `slow`."""
    for _ in range(MANY):
        yield []
    assert "quick" not in controller.topics.by_name
    topic_id = b"t" * 16
    return Decision(
        "done",
        [TopicRecord("slow", topic_id=topic_id), PartitionRecord(0, topic_id=topic_id, replicas=[1], isr=[1])],
        is_atomic=True,
    )


def test_what_is_requested_amid_a_decision_is_decided_after_it() -> None:
    async def scenario(node: Node) -> None:
        slow = asyncio.ensure_future(node.controller.write(slow_decision))
        await asyncio.sleep(0)
        quick = asyncio.ensure_future(node.create("quick"))
        also = asyncio.ensure_future(node.create("slow"))

        assert await slow == "done"
        assert ((await quick).error_code, (await also).error_code) == (0, ErrorCode.TOPIC_ALREADY_EXISTS)
        assert [record.name for record in node.records() if isinstance(record, TopicRecord)] == ["slow", "quick"]

    on_node(scenario)


def test_a_heartbeat_that_changes_nothing_is_answered_amid_a_decision() -> None:
    async def scenario(node: Node) -> None:
        slow = asyncio.ensure_future(node.controller.write(slow_decision))
        await asyncio.sleep(0)

        assert not (await node.heartbeat(1)).is_fenced
        assert not slow.done()
        await slow

    on_node(scenario)


def test_a_heartbeat_that_changes_something_waits_and_renews_the_session_meanwhile() -> None:
    async def scenario(node: Node) -> None:
        await asyncio.sleep(SESSION_MS / 1000 - 1)
        for broker_id in (1, 2):
            await node.heartbeat(broker_id)
        await asyncio.sleep(2)
        assert await node.fence_expired() == [3]
        slow = asyncio.ensure_future(node.controller.write(slow_decision))
        await asyncio.sleep(0)
        back = asyncio.ensure_future(node.heartbeat(3))

        await slow
        assert not (await back).is_fenced
        kinds = [type(record) for record in node.records()]
        assert BrokerRegistrationChangeRecord in kinds[kinds.index(TopicRecord) :]

    on_node(scenario)


def test_a_decision_goes_on_though_nobody_waits_for_it() -> None:
    async def scenario(node: Node) -> None:
        slow = asyncio.ensure_future(node.controller.write(slow_decision))
        await asyncio.sleep(0)
        slow.cancel()
        assert (await node.create("slow")).error_code == ErrorCode.TOPIC_ALREADY_EXISTS

    on_node(scenario)


def test_who_gives_up_in_the_queue_keeps_nobody_waiting() -> None:
    async def scenario(node: Node) -> None:
        slow = asyncio.ensure_future(node.controller.write(slow_decision))
        await asyncio.sleep(0)
        first, second = (asyncio.ensure_future(node.create(name)) for name in ("first", "second"))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(ApiError) as refusal:
            await node.create("third", timeout_ms=1)
        assert refusal.value.code == ErrorCode.REQUEST_TIMED_OUT
        await slow
        assert (await second).error_code == 0
        assert set(node.controller.image.topics.by_name) == {"slow", "second"}

    on_node(scenario)


def test_a_decision_ends_with_its_term_and_leaves_nothing_of_an_atomic_one() -> None:
    async def scenario(node: Node) -> None:
        slow = asyncio.ensure_future(node.controller.write(slow_decision))
        await asyncio.sleep(0)
        waiting = asyncio.ensure_future(node.create("quick"))
        await asyncio.sleep(0)
        node.quorum.lose()
        node.quorum.lead()
        with pytest.raises(ApiError) as refusal:
            await slow
        assert refusal.value.code == ErrorCode.NOT_CONTROLLER
        assert (await waiting).error_code == 0
        assert set(node.controller.image.topics.by_name) == {"quick"}

    on_node(scenario)


def test_a_refusal_amid_the_steps_lets_the_next_one_decide() -> None:
    def refused(controller: Controller, _: int) -> Steps[Any, None]:
        for _ in range(MANY):
            yield []
        raise ApiError(ErrorCode.POLICY_VIOLATION)

    async def scenario(node: Node) -> None:
        with pytest.raises(ApiError):
            await node.controller.write(refused)
        assert (await node.create("quick")).error_code == 0

    on_node(scenario)


def test_a_large_topic_is_one_batch_and_one_image() -> None:
    async def scenario(node: Node) -> None:
        batches, images = len(node.quorum.log), len(node.images)
        assert (await node.create("large", MANY)).error_code == 0
        assert len(node.quorum.log) == batches + 1
        assert [len(image.topics.by_name) for image in node.images[images:]] == [1]
        assert len(node.controller.image.topics.by_name["large"].partitions) == MANY

    on_node(scenario)


def test_a_broker_is_fenced_in_steps_its_own_partitions_first() -> None:
    async def scenario(node: Node) -> None:
        await node.create("large", MANY)
        batches = len(node.quorum.log)
        await asyncio.sleep(SESSION_MS / 1000 - 1)
        for broker_id in (1, 2):
            await node.heartbeat(broker_id)
        await asyncio.sleep(2)
        fencing = asyncio.ensure_future(node.fence_expired())
        while not fencing.done():
            await asyncio.sleep(0.001)
            assert not (await node.heartbeat(1)).is_fenced
        large = node.controller.image.topics.by_name["large"]
        assert all(3 not in partition.isr for partition in large.partitions.values())
        assert node.controller.image.cluster.brokers[3].fenced
        assert all(len(batch.records) <= RECORDS_PER_STEP for batch in node.quorum.log[batches:])
        assert any(_leads(image, 3) == 0 and _isr_count(image, 3) for image in node.images if image.topics.by_name)

    on_node(scenario)


def _isr_count(image: MetadataImage, broker_id: int) -> int:
    return sum(
        broker_id in partition.isr for topic in image.topics.by_name.values() for partition in topic.partitions.values()
    )


def _leads(image: MetadataImage, broker_id: int) -> int:
    return sum(
        broker_id == partition.leader
        for topic in image.topics.by_name.values()
        for partition in topic.partitions.values()
    )


def test_batches_of_a_decision_that_is_not_atomic_are_as_small_as_the_log_wants_them() -> None:
    async def main(loop: SimLoop) -> None:
        node = Node(loop, internal_metadata_max_batch_size_in_bytes="1000")
        await node.start()
        await node.create("orders", 60)
        written = len(node.quorum.log)
        await asyncio.sleep(SESSION_MS / 1000 + 1)
        assert await node.fence_expired()
        batches = [batch.records for batch in node.quorum.log[written:]]
        assert sum(map(len, batches)) > 60
        assert all(BATCH_OVERHEAD_BYTES + sum(map(record_bytes, records)) <= 1000 for records in batches)

    def record_bytes(record: bytes) -> int:
        return len(record) + RECORD_OVERHEAD_BYTES

    run(main)
