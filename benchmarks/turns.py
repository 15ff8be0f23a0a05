"""How long the controller's loop is held in one pass with 100,000 partitions: `python -m benchmarks.turns`.

One controller with the quorum of production on a directory of its own, and three brokers that are registrations only.
The last line is JSON: what the benchmark of three nodes shows of it.
Topics are created and changed, a broker is fenced and comes back, another term begins, a snapshot is loaded. For each,
in CPU milliseconds of the loop's thread (thread_time): the longest pass of the loop, all passes, and the seconds until
it was done. Other processes disturb these figures little; the garbage collector is as the broker sets it.
"""

import argparse
import asyncio
import json
import resource
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from kafkapy.config.dynamic import DynamicConfig
from kafkapy.config.load import load
from kafkapy.config.rules import DynamicConfigRules
from kafkapy.metadata.bootstrap import default_bootstrap_records
from kafkapy.metadata.brokers import registration_features
from kafkapy.metadata.configs import ConfigOperation, ConfigOperationType
from kafkapy.metadata.image import RESOURCE_TOPIC, ConfigResource
from kafkapy.metadata.loader import ImageLoader
from kafkapy.protocol.messages import alter_partition_reassignments_request as reassign
from kafkapy.protocol.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from kafkapy.protocol.messages.broker_registration_request import BrokerRegistrationRequest, Feature, Listener
from kafkapy.protocol.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkapy.raft.voters import Endpoint, VoterSet, static_voter
from kafkapy.reactor.io_pool import ThreadIoPool
from kafkapy.runtime.controller.controller import MetadataRuntime
from kafkapy.runtime.controller.settings import ControllerSettings
from kafkapy.runtime.quorum.identity import MetadataDirectory, QuorumIdentity
from kafkapy.runtime.quorum.quorum import Quorum
from kafkapy.seams import System
from kafkapy.server.process.heap import FrozenMetadata, freeze_heap
from kafkapy.server.process.system_clock import SystemClock, SystemRandom
from kafkapy.storage.system_disk import SystemDisk

CLUSTER_ID = "CCCCCCCCCCCCCCCCCCCCCQ"
BROKERS = (2, 3, 4)
TOPIC_PARTITIONS = 10
SESSION_MS = 9_000
FENCED = "a broker of three fenced"


class TimedLoop(asyncio.SelectorEventLoop):
    """Measures the CPU time of each pass."""

    def __init__(self) -> None:
        super().__init__()
        self.longest_ms = self.total_ms = 0.0

    def _run_once(self) -> None:
        start = time.thread_time()
        super()._run_once()  # type: ignore[misc]
        taken_ms = (time.thread_time() - start) * 1000
        self.longest_ms = max(self.longest_ms, taken_ms)
        self.total_ms += taken_ms


class SkippingClock(SystemClock):
    """A clock that can be set forward, so that sessions run out at once."""

    skipped_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.skipped_ms


class Node:
    """A controller alone, on a directory of its own."""

    def __init__(self, loop: TimedLoop, directory: str) -> None:
        self.loop = loop
        self.clock = SkippingClock()
        self.config, _ = load(
            {
                "node.id": "1",
                "process.roles": "controller",
                "listeners": "CONTROLLER://127.0.0.1:19093",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": "1@127.0.0.1:19093",
                "log.dirs": directory,
            }
        )
        self.failures: list[BaseException] = []
        self.figures: dict[str, dict[str, float]] = {}
        """By name of what was measured."""
        endpoint = Endpoint("CONTROLLER", "127.0.0.1", 19093)
        self.quorum = Quorum(
            identity=QuorumIdentity(CLUSTER_ID, 1, b"d" * 16, (endpoint,), VoterSet([static_voter(1, endpoint)])),
            directory=MetadataDirectory(f"{directory}/__cluster_metadata-0"),
            config=self.config.quorum,
            system=System(SystemDisk(), self.clock, SystemRandom(), ThreadIoPool(loop, 2)),
            on_fatal=self.failures.append,
        )
        self.controller = MetadataRuntime(
            quorum=self.quorum,
            settings=ControllerSettings(
                self.config, DynamicConfigRules(DynamicConfig(self.config)), default_bootstrap_records()
            ),
            clock=self.clock,
            random=SystemRandom(),
            on_fatal=self.failures.append,
        )
        self.first_write_ms = 0.0
        """From an election to the commit of the first write after it."""
        self.epochs: dict[int, int] = {}
        self.beating: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def measured(self, name: str) -> AsyncIterator[None]:
        """Print what the loop's passes took inside of the block."""
        await asyncio.sleep(0.01)
        self.loop.longest_ms = self.loop.total_ms = 0.0
        start = time.monotonic()
        yield
        seconds = time.monotonic() - start
        await asyncio.sleep(0.01)
        memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        self.figures[name] = {"longest_ms": self.loop.longest_ms, "seconds": seconds, "memory_mb": memory_mb}
        print(
            f"{name:42} longest {self.loop.longest_ms:8.1f} ms   CPU {self.loop.total_ms:8.0f} ms   "
            f"done in {seconds:6.2f} s   peak memory {memory_mb} MB",
            flush=True,
        )
        assert not self.failures, self.failures

    async def start_broker(self, broker_id: int) -> None:
        request = BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id=CLUSTER_ID,
            incarnation_id=self.clock.monotonic_ms().to_bytes(8) + bytes(4) + broker_id.to_bytes(4),
            listeners=[Listener(name="PLAINTEXT", host=f"host{broker_id}", port=9092, security_protocol=0)],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in registration_features().items()
            ],
            log_dirs=[bytes(12) + (1000 + broker_id).to_bytes(4)],
        )
        response = await self.controller.write(
            lambda controller, now_ms: controller.decide_register_broker(request, now_ms)
        )
        self.epochs[broker_id] = response.broker_epoch
        await self.heartbeat(broker_id)

    async def heartbeat(self, broker_id: int, *, want_shut_down: bool = False) -> Any:
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self.epochs[broker_id],
            current_metadata_offset=self.quorum.log_end_offset,
            want_shut_down=want_shut_down,
        )
        return await self.controller.write(
            lambda controller, now_ms: controller.decide_heartbeat(request, now_ms), may_interrupt=True
        )

    async def create_topics(self, prefix: str, count: int, partition_count: int = TOPIC_PARTITIONS) -> None:
        topics = [
            CreatableTopic(f"{prefix}-{number}", num_partitions=partition_count, replication_factor=3)
            for number in range(count)
        ]
        response = await self.controller.write(
            lambda controller, _: controller.topics.decide_create(CreateTopicsRequest(topics=topics))
        )
        assert not any(topic.error_code for topic in response.topics), response.topics[0]

    async def keep_beating(self, broker_id: int) -> None:
        while True:
            await asyncio.sleep(1)
            await self.heartbeat(broker_id)

    async def until_fenced(self, broker_id: int) -> None:
        while not self.controller.image.cluster.brokers[broker_id].fenced:
            await asyncio.sleep(0.01)

    def leaders(self) -> set[int]:
        image = self.controller.image
        return {partition.leader for topic in image.topics.by_id.values() for partition in topic.partitions.values()}


async def fill(node: Node, partition_count: int) -> None:
    async with node.measured(f"{partition_count} partitions created"):
        for number in range(partition_count // (50 * TOPIC_PARTITIONS)):
            await node.create_topics(f"topic-{number}", 50)


async def make_and_delete_large(node: Node) -> None:
    """A topic of 10,000 partitions, by two requests: one writes 10,000 records at most."""
    async with node.measured("a topic of 10,000 partitions made"):
        await node.create_topics("large", 1, 9_000)
        request = CreatePartitionsRequest(topics=[CreatePartitionsTopic("large-0", count=10_000, assignments=None)])
        response = await node.controller.write(
            lambda controller, _: controller.topics.decide_create_partitions(request)
        )
        assert not response.results[0].error_code, response
    topic_id = node.controller.image.topics.by_name["large-0"].topic_id
    async with node.measured("it is deleted"):
        await node.controller.write(lambda controller, _: controller.topics.decide_delete([topic_id]))
    assert "large-0" not in node.controller.image.topics.by_name


async def fence_and_return(node: Node) -> None:
    async with node.measured(FENCED):
        node.clock.skipped_ms += SESSION_MS + 1000
        for broker_id in BROKERS[:2]:
            await node.heartbeat(broker_id)
            node.beating.append(asyncio.get_running_loop().create_task(node.keep_beating(broker_id)))
        await node.controller.schedule.fence_expired(late_ms=0)
        await node.until_fenced(BROKERS[2])
    async with node.measured("it registers anew and is unfenced"):
        await node.start_broker(BROKERS[2])
    async with node.measured("one of two others shuts down"):
        await node.heartbeat(BROKERS[1], want_shut_down=True)
    assert BROKERS[1] not in node.leaders()


async def change_much_at_once(node: Node) -> None:
    async with node.measured("4,900 topics created by one request"):
        await node.create_topics("many", 4_900, 1)
    request = reassign.AlterPartitionReassignmentsRequest(
        topics=[
            reassign.ReassignableTopic(
                f"topic-{number // 50}-{number % 50}",
                partitions=[
                    reassign.ReassignablePartition(partition, replicas=[2, 3]) for partition in range(TOPIC_PARTITIONS)
                ],
            )
            for number in range(990)
        ]
    )
    async with node.measured("9,900 partitions reassigned by one request"):
        await node.controller.write(lambda controller, _: controller.reassignments.decide_alter(request))
    operations = [ConfigOperation(key, ConfigOperationType.SET, "100000") for key in ("retention.ms", "segment.ms")]
    changes = {ConfigResource(RESOURCE_TOPIC, f"many-{number}"): operations for number in range(4_900)}
    async with node.measured("9,800 configs set by one request"):
        await node.controller.write(lambda controller, _: controller.configs.decide_incremental_alter(changes))


async def begin_terms(node: Node) -> None:
    async with node.measured("another term: first write committed"):
        node.quorum.resign(node.quorum.leader_epoch)
        while not node.quorum.is_leader:
            await asyncio.sleep(0.001)
        elected = time.monotonic()
        while not node.controller.is_active:
            await asyncio.sleep(0.001)
        await node.create_topics("first-of-the-term", 1)
        node.first_write_ms = (time.monotonic() - elected) * 1000
    print(f"    {node.first_write_ms:.1f} ms after the election", flush=True)
    async with node.measured("leaders' balance"):
        await node.controller.schedule.balance_leaders(0)
    async with node.measured("unclean elections"):
        await node.controller.schedule.elect_uncleanly(0)


async def load_snapshot(node: Node) -> None:
    """Write a snapshot, and load it over the image before."""
    async with node.measured("a snapshot written"):
        node.quorum._snapshots._schedule._max_bytes = 1
        node.quorum._maybe_take_snapshot()
        while node.quorum._snapshots._job is not None:
            await asyncio.sleep(0.01)
    snapshot_id = node.quorum.latest_snapshot_id
    assert snapshot_id is not None
    for name in ("a snapshot loaded over the same image", "a snapshot loaded over nothing"):
        async with node.measured(name):
            node.quorum._delivery.begin_with(snapshot_id)
            node.quorum._notify()
            await node.quorum.wait_until(lambda: not node.quorum._delivery.is_busy)
        node.controller._loader = ImageLoader()


async def run(loop: TimedLoop, partition_count: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        node = Node(loop, directory)
        await node.quorum.start()
        for broker_id in BROKERS:
            await node.start_broker(broker_id)
        freeze_heap()
        frozen = FrozenMetadata()
        node.controller.add_image_listener(frozen.on_image)
        node.controller.set_load_listener(frozen.count_changes)
        await fill(node, partition_count)
        await change_much_at_once(node)
        await make_and_delete_large(node)
        await fence_and_return(node)
        await begin_terms(node)
        await load_snapshot(node)
        for task in node.beating:
            task.cancel()
        await node.controller.close()
        await node.quorum.close()
        print(json.dumps(summary(node)))


def summary(node: Node) -> dict[str, float]:
    """Return what a fenced broker costs, how soon an elected controller writes, and the longest pass of all."""
    fenced = node.figures[FENCED]
    return {
        "longest_turn_ms": fenced["longest_ms"],
        "all_lead_s": fenced["seconds"],
        "controller_memory_mb": fenced["memory_mb"],
        "first_write_ms": node.first_write_ms,
        "longest_turn_of_all_ms": max(each["longest_ms"] for each in node.figures.values()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=100_000)
    arguments = parser.parse_args()
    loop = TimedLoop()
    asyncio.set_event_loop(loop)
    loop.run_until_complete(run(loop, arguments.partitions))


if __name__ == "__main__":
    main()
