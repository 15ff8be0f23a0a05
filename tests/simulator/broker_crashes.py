"""Lives of one simulated computer: users work on its broker, the power goes, the broker starts again and is checked.

What must hold after every start, whatever the disk kept: metadata that was acknowledged is there (it is fsynced);
every partition is whole batches without a gap, each of them as it was sent, none of them twice; below the recovery
point nothing is missing. Where the page cache survived (a kill), or the broker was stopped, no acknowledged record is
missing either. Everything comes from the seed, so that a history that broke can be lived again.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from random import Random
from typing import Any

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from kafkapy.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkapy.protocol.messages.metadata_request import MetadataRequest
from kafkapy.types import TopicPartition
from tests.simulator.broker_world import KafkaClient, Machine, Topic
from tests.simulator.disk import Keep, SimCrash, SimDisk
from tests.simulator.loop import START_WALL_MS, SimLoop, run
from tests.simulator.network import LinkRules

USER_COUNT = 3
TOPIC_RESOURCE = 2
ALTERED_KEY = "max.message.bytes"
GONE = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
FORGOTTEN = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
PROPERTIES = {
    "metadata_log_max_record_bytes_between_snapshots": "3000",
    "internal_metadata_log_segment_bytes": "4000",
    "log_flush_offset_checkpoint_interval_ms": "300",
    "replica_high_watermark_checkpoint_interval_ms": "300",
}


class Fate(Enum):
    """What the users know of a topic. Of what was not acknowledged they know nothing until they look."""

    UNKNOWN = auto()
    CREATED = auto()
    DELETED = auto()


@dataclass
class PartitionModel:
    acknowledged: dict[int, tuple[bytes, ...]] = field(default_factory=dict)
    """Values by base offset."""
    sent: set[tuple[bytes, ...]] = field(default_factory=set)
    recovery_point: int = 0


@dataclass
class TopicModel:
    topic: Topic
    partitions: list[PartitionModel]
    fate: Fate = Fate.UNKNOWN
    configs: set[str | None] = field(default_factory=lambda: {None})
    """What the altered key may be: as acknowledged last, or as asked for since."""


@dataclass
class Retry:
    """A batch of an idempotent producer that was not acknowledged before the end."""

    topic: str
    partition: int
    values: tuple[bytes, ...]
    producer: dict[str, int]


class Model:
    """What all users together sent and were told, over all lives."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicModel] = {}
        self.retries: list[Retry] = []
        self.history: list[str] = []
        self._count = 0

    def next_number(self) -> int:
        self._count += 1
        return self._count

    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.history).encode()).hexdigest()


class User:
    """One client with a producer id of its own, doing one thing after another until the end."""

    def __init__(self, machine: Machine, model: Model, random: Random) -> None:
        self.machine = machine
        self.model = model
        self.random = random
        self.client = machine.connect()
        self._producer: dict[str, int] = {}
        self._sequences: dict[TopicPartition, int] = {}

    async def work(self) -> None:
        producer_id, producer_epoch = await self.client.init_producer_id()
        self._note(f"producer id {producer_id}")
        self._producer = {"producer_id": producer_id, "producer_epoch": producer_epoch}
        actions: list[Callable[[], Awaitable[None]]] = [self.create, self.produce, self.alter, self.fetch, self.delete]
        while True:
            (action,) = self.random.choices(actions, [2, 24, 2, 3, 1])
            await action()
            if self.random.random() < 0.3:
                await asyncio.sleep(self.random.expovariate(20))

    def _note(self, text: str) -> None:
        self.model.history.append(f"{self.machine.clock.wall_ms()} {text}")

    def _created(self) -> list[TopicModel]:
        return [each for each in self.model.topics.values() if each.fate is Fate.CREATED]

    async def create(self) -> None:
        if len(self._created()) >= 6:
            return
        name, count = f"topic-{self.model.next_number()}", self.random.randrange(1, 4)
        model = TopicModel(Topic(name, b""), [PartitionModel() for _ in range(count)])
        self.model.topics[name] = model
        configs = self.random.choice([{}, {"flush_messages": "1"}, {"segment_ms": "300"}])
        model.topic = await self.client.create_topic(name, count, **configs)
        model.fate = Fate.CREATED
        self._note(f"created {name} {model.topic.topic_id.hex()}")

    async def delete(self) -> None:
        created = self._created()
        if len(created) < 3:
            return
        model = self.random.choice(created)
        model.fate = Fate.UNKNOWN
        await self.client.delete_topic(model.topic)
        model.fate = Fate.DELETED
        self._note(f"deleted {model.topic.name}")

    async def alter(self) -> None:
        created = self._created()
        if not created:
            return
        model, value = self.random.choice(created), str(100_000 + self.model.next_number())
        model.configs.add(value)
        change = AlterableConfig(ALTERED_KEY, config_operation=0, value=value)
        resource = AlterConfigsResource(TOPIC_RESOURCE, resource_name=model.topic.name, configs=[change])
        (result,) = (await self.client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)).responses
        if result.error_code == 0:
            model.configs = {value} if model.configs == {value} or len(model.configs) == 2 else model.configs
            self._note(f"altered {model.topic.name} {value}")
        else:
            assert model.fate is not Fate.CREATED, result

    async def produce(self) -> None:
        created = self._created()
        if not created:
            return
        model = self.random.choice(created)
        partition = self.random.randrange(len(model.partitions))
        size_bytes = self.random.choice([10, 10, 1000, 5000])
        values = tuple(
            b"%d " % self.model.next_number() + b"." * size_bytes for _ in range(self.random.randrange(1, 4))
        )
        producer = dict(self._producer) if self.random.random() < 0.7 else {}
        key = TopicPartition(model.topic.name, partition)
        if producer:
            producer["base_sequence"] = self._sequences.get(key, 0)
        retry = Retry(model.topic.name, partition, values, producer)
        if await self.send(model, retry) and producer:
            self._sequences[key] = producer["base_sequence"] + len(values)

    async def send(self, model: TopicModel, batch: Retry) -> bool:
        """Produce with acks=all; return whether it was acknowledged. What has no response yet is in model.retries."""
        partition = model.partitions[batch.partition]
        partition.sent.add(batch.values)
        if batch.producer:
            self.model.retries.append(batch)
        response = await self.client.produce(model.topic, *batch.values, partition=batch.partition, **batch.producer)
        if batch.producer:
            self.model.retries.remove(batch)
        if response.error_code:
            assert response.error_code in FORGOTTEN or model.fate is not Fate.CREATED, response
            return False
        before = partition.acknowledged.setdefault(response.base_offset, batch.values)
        assert before == batch.values, f"{model.topic.name}-{batch.partition} has two batches at {response.base_offset}"
        self._note(f"produced {model.topic.name}-{batch.partition} {response.base_offset} {len(batch.values)}")
        return True

    async def fetch(self) -> None:
        created = self._created()
        if not created:
            return
        model = self.random.choice(created)
        partition = self.random.randrange(len(model.partitions))
        known = model.partitions[partition].acknowledged
        if not known:
            return
        offset = self.random.choice(list(known))
        response = await self.client.fetch(model.topic, offset, partition=partition, max_wait_ms=50)
        if response.error_code:
            assert response.error_code in GONE, response
            assert model.fate is not Fate.CREATED
            return
        self._note(f"fetched {model.topic.name}-{partition} {offset} {len(response.records)}")


class Doom:
    """A disk's hook: with the n-th change, or when told, the machine is dead, and nothing touches the disk any more."""

    def __init__(self, loop: SimLoop, change_count: int | None) -> None:
        self.crashed = loop.create_future()
        self._changes_left = change_count
        self._is_dead = False

    def __call__(self, operation: str, path: str) -> None:
        if operation in ("open", "read") and not self._is_dead:
            return
        if self._changes_left is not None:
            self._changes_left -= 1
            self._is_dead |= self._changes_left < 0
        if self._is_dead:
            if not self.crashed.done():
                self.crashed.set_result(None)
            raise SimCrash(f"{operation} {path}")

    def die(self) -> None:
        self._is_dead = True


@dataclass(frozen=True)
class End:
    """How a life ends: at a time, or at a change of the disk if that comes first; then what the disk keeps.

    A clean stop comes before the power goes.
    """

    keep: Keep
    after_seconds: float
    at_change: int | None = None
    is_stop: bool = False

    @property
    def keeps_all(self) -> bool:
        return self.keep == "all" or self.is_stop


class Computer:
    """A disk and its lives; `history` in the model is all that happened."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.disk = SimDisk(seed)
        self.model = Model()
        self._wall_ms = START_WALL_MS
        self._life_count = 0
        self._is_checked = True
        """Whether this life came so far; until one does, what any of them lost may be missing."""
        self._keeps_all = True

    def live(self, end: End) -> None:
        """Boot, check, work, end as told."""
        self._life_count += 1
        self._is_checked = False
        problems: list[str] = []

        async def main(loop: SimLoop) -> None:
            await self._main(loop, end, problems)

        run(main, seed=self.seed * 100 + self._life_count)
        self.disk.hook = None
        assert not problems, problems
        self.disk.crash(end.keep)
        self._keeps_all = end.keeps_all and (self._keeps_all or self._is_checked)

    async def _main(self, loop: SimLoop, end: End, problems: list[str]) -> None:
        doom = Doom(loop, end.at_change)

        def on_exception(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            if not isinstance(context.get("exception"), SimCrash) and not doom.crashed.done():
                problems.append(f"{context.get('message')}: {context.get('exception')!r}")

        loop.set_exception_handler(on_exception)
        machine = Machine(
            loop,
            disk=self.disk,
            seed=self.seed * 100 + self._life_count,
            start_wall_ms=self._wall_ms,
            rules=LinkRules(min_delay_ms=0.05, max_delay_ms=3),
            **PROPERTIES,
        )
        machine.format()
        self.disk.hook = doom
        life = loop.create_task(self._life(machine))
        await asyncio.wait([life, doom.crashed], timeout=end.after_seconds, return_when=asyncio.FIRST_COMPLETED)
        if life.done() and not isinstance(life.exception(), SimCrash):
            life.result()
        if end.is_stop and not doom.crashed.done():
            life.cancel()
            await asyncio.gather(life, return_exceptions=True)
            await machine.stop()
            self.model.history.append("stopped")
        self._note_recovery_points(machine)
        doom.die()
        self._wall_ms = machine.clock.wall_ms() + 1000
        self.model.history.append(f"{machine.clock.wall_ms()} the end, {end.keep}, {self.disk.changes} changes")

    async def _life(self, machine: Machine) -> None:
        await machine.boot()
        checker = Checker(machine, self.model, keeps_all=self._keeps_all)
        await checker.check()
        self._is_checked = True
        seeds = [f"{self.seed} {self._life_count} {number}" for number in range(USER_COUNT)]
        users = [User(machine, self.model, Random(seed)) for seed in seeds]
        retries, self.model.retries = self.model.retries, []
        for retry in retries:
            await checker.retry(users[0], retry)
        await asyncio.gather(*(user.work() for user in users))

    def _note_recovery_points(self, machine: Machine) -> None:
        """Remember what the broker took for durable."""
        for partition, log in machine.logs().items():
            model = self.model.topics.get(partition.topic)
            if model is not None and log.topic_id == model.topic.topic_id:
                noted = model.partitions[partition.partition]
                noted.recovery_point = max(noted.recovery_point, log.recovery_point)


class Checker:
    """Compares a broker that has just started with what its users know; takes over what they could not know."""

    def __init__(self, machine: Machine, model: Model, *, keeps_all: bool) -> None:
        self.machine = machine
        self.model = model
        self.keeps_all = keeps_all
        self.client: KafkaClient

    async def check(self) -> None:
        self.client = self.machine.connect()
        await self._check_topics()
        for model in self.model.topics.values():
            if model.fate is not Fate.CREATED:
                continue
            await self._check_configs(model)
            for number, partition in enumerate(model.partitions):
                await self._check_partition(model, number, partition)

    async def _check_topics(self) -> None:
        response = await self.client.call(MetadataRequest(topics=None), 12)
        found = {topic.name: topic for topic in response.topics}
        assert found.keys() <= self.model.topics.keys()
        for name, model in self.model.topics.items():
            if model.fate is Fate.CREATED:
                assert found[name].topic_id == model.topic.topic_id
            elif model.fate is Fate.DELETED:
                assert name not in found
            elif name in found:
                model.topic = Topic(name, found[name].topic_id)
                model.fate = Fate.CREATED
            else:
                model.fate = Fate.DELETED
            if name in found:
                assert len(found[name].partitions) == len(model.partitions)
                assert {each.leader_id for each in found[name].partitions} == {self.machine.config.node_id}

    async def _check_configs(self, model: TopicModel) -> None:
        resource = DescribeConfigsResource(
            TOPIC_RESOURCE, resource_name=model.topic.name, configuration_keys=[ALTERED_KEY]
        )
        (result,) = (await self.client.call(DescribeConfigsRequest(resources=[resource]), 4)).results
        (config,) = result.configs
        is_set = config.config_source == 1
        value = config.value if is_set else None
        assert value in model.configs, f"{model.topic.name}: {value} is none of {model.configs}"
        model.configs = {value}

    async def _check_partition(self, model: TopicModel, number: int, partition: PartitionModel) -> None:
        name = f"{model.topic.name}-{number}"
        found = await self.client.read_all(model.topic, partition=number)
        seen: set[tuple[bytes, ...]] = set()
        end_offset = 0
        for batch in found:
            assert batch.base_offset == end_offset, f"{name}: a gap at {end_offset}"
            assert batch.has_valid_crc(), f"{name}: a damaged batch at {batch.base_offset}"
            values = tuple(record.value or b"" for record in batch.records())
            assert values in partition.sent, f"{name}: nobody sent the batch at {batch.base_offset}"
            assert values not in seen, f"{name}: the batch at {batch.base_offset} is there twice"
            known = partition.acknowledged.get(batch.base_offset)
            assert known in (None, values), f"{name}: another batch was acknowledged at {batch.base_offset}"
            seen.add(values)
            end_offset = batch.next_offset
        assert end_offset >= partition.recovery_point, f"{name}: lost what was durable"
        missing = [offset for offset in partition.acknowledged if offset >= end_offset]
        assert not (self.keeps_all and missing), f"{name}: acknowledged batches at {missing} are lost"
        assert partition.acknowledged.keys() - set(missing) <= {batch.base_offset for batch in found}
        for offset in missing:
            del partition.acknowledged[offset]
        partition.recovery_point = 0
        self.model.history.append(f"found {name} up to {end_offset}, {len(missing)} lost")

    async def retry(self, user: User, batch: Retry) -> None:
        """Send again what had no response, as producers do: it must not be there twice, which the next check sees."""
        model = self.model.topics[batch.topic]
        if model.fate is not Fate.CREATED:
            return
        was_taken = await user.send(model, batch)
        assert was_taken or not self.keeps_all, "the producer is forgotten, although nothing was lost"
