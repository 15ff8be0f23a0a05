"""A controller with its broker over a quorum in memory, in virtual time, driven by tests."""

from collections.abc import Callable, Coroutine
from typing import Any

from kafkapy.config.load import load
from kafkapy.metadata.bootstrap import default_bootstrap_records
from kafkapy.metadata.delta import MetadataDelta
from kafkapy.metadata.image import MetadataImage
from kafkapy.metadata.registrations import Endpoint
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkapy.protocol.messages.register_broker_record import RegisterBrokerRecord
from kafkapy.runtime.broker.active_controller import ActiveController
from kafkapy.runtime.broker.lifecycle import BrokerLifecycle, Incarnation
from kafkapy.runtime.controller.controller import MetadataRuntime
from kafkapy.runtime.controller.settings import ControllerSettings
from tests.simulator.loop import SimClock, SimLoop, run
from tests.support.chance import SeededRandom
from tests.support.controllers import CLUSTER_ID, SimpleRules, directory_id
from tests.support.fake_quorum import FakeQuorum, decoded

PROPERTIES = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:9093",
}


class Node:
    """A controller with its broker, driven by tests."""

    def __init__(self, loop: SimLoop, **properties: str) -> None:
        keys = {key.replace("_", "."): value for key, value in properties.items()}
        self.config, _ = load({**PROPERTIES, **keys})
        self.quorum = FakeQuorum(CLUSTER_ID)
        self.failures: list[BaseException] = []
        self.controller = MetadataRuntime(
            quorum=self.quorum,  # type: ignore[arg-type]
            settings=ControllerSettings(self.config, SimpleRules(), default_bootstrap_records()),
            clock=SimClock(loop),
            random=SeededRandom(),
            on_fatal=self.failures.append,
        )
        self.images: list[tuple[MetadataDelta, MetadataImage]] = []
        self.controller.add_image_listener(lambda delta, image: self.images.append((delta, image)))

    def lifecycle(self, incarnation: bytes = b"i" * 16) -> BrokerLifecycle:
        return BrokerLifecycle(
            controller=ActiveController(self.controller),
            config=self.config,
            incarnation=Incarnation(
                CLUSTER_ID,
                incarnation,
                {"PLAINTEXT": Endpoint("127.0.0.1", 9092, 0)},
                [directory_id(1), directory_id(2)],
            ),
            on_fatal=self.failures.append,
        )

    async def started(self) -> BrokerLifecycle:
        self.quorum.lead()
        lifecycle = self.lifecycle()
        await lifecycle.register()
        await lifecycle.unfence()
        return lifecycle

    async def create(self, name: str, timeout_ms: int | None = None) -> Any:
        request = CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)])
        response = await self.controller.write(
            lambda controller, _: controller.topics.decide_create(request), timeout_ms=timeout_ms
        )
        return response.topics[0]


def on_node(test: Callable[[Node], Coroutine[Any, Any, None]], **properties: str) -> None:
    async def main(loop: SimLoop) -> None:
        node = Node(loop, **properties)
        await test(node)
        assert node.failures == []

    run(main)


def unfenced(broker_id: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(broker_id=broker_id, broker_epoch=100 + broker_id, fenced=False)


def kinds(node: Node) -> list[str]:
    return [type(record).__name__ for record in decoded(node.quorum.log)]
