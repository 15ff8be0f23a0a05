"""Lives of a simulated broker that serves a queue: membership, states, share partitions and their members together.

Members join by heartbeats, fetch, and accept, release, reject, renew, oversleep, close their connections and leave
requests unanswered, over the simulated network. Beside them records are produced and deleted, limits of the group
change, disks are full for a while, the states' log is pruned and snapshotted. A life ends when the machine dies at one
of the changes of its disk; the last life has no trouble, and ends when the group has no lag. What members saw is judged
by tests/support/share_history.py.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Final

from kafkapy.protocol.messages import share_acknowledge_request as acknowledging
from kafkapy.protocol.messages import share_fetch_request as fetching
from kafkapy.protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kafkapy.protocol.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkapy.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from kafkapy.share.record_state import ACK_ACCEPT, ACK_REJECT, ACK_RELEASE, ACK_RENEW
from tests.simulator.broker_world import KafkaClient, Machine, Topic
from tests.simulator.disk import Keep, SimDisk
from tests.simulator.loop import START_WALL_MS, SimLoop
from tests.simulator.transaction_crashes import Trouble, live_until_death, run_life
from tests.support.share_history import Act, Breach, Event, Place, Rule, breaches

TOPIC: Final = "jobs"
GROUP: Final = TOPIC
PARTITION_COUNT: Final = 2
LOCK_S: Final = 1.0
LIMITS: Final = (2, 3, 5, 10)
MAX_ATTEMPTS: Final = max(LIMITS)
TICK_S: Final = 0.005
MEMBERS: Final = 3
GROUP_RESOURCE: Final = 32
LEAVES: Final = -1
PROPERTIES: Final = {
    "group_share_min_record_lock_duration_ms": "1000",
    "group_share_record_lock_duration_ms": "1000",
    "group_share_min_heartbeat_interval_ms": "100",
    "group_share_heartbeat_interval_ms": "100",
    "group_share_min_session_timeout_ms": "1500",
    "group_share_session_timeout_ms": "1500",
    "group_share_assignment_interval_ms": "100",
    "share_coordinator_state_topic_num_partitions": "2",
    "share_coordinator_snapshot_update_records_per_snapshot": "5",
    "share_coordinator_cold_partition_snapshot_interval_ms": "700",
    "share_coordinator_state_topic_prune_interval_ms": "900",
    "offsets_topic_num_partitions": "2",
    "log_flush_offset_checkpoint_interval_ms": "300",
    "replica_high_watermark_checkpoint_interval_ms": "300",
}
FLUSHED: Final = {"log_flush_interval_messages": "1"}
FULL: Final = ("__share_group_state", "__consumer_offsets", TOPIC)
TYPES: Final = {Act.ACCEPT: ACK_ACCEPT, Act.RELEASE: ACK_RELEASE, Act.REJECT: ACK_REJECT, Act.RENEW: ACK_RENEW}
GOOD: Final = (Act.ACCEPT,)
ALL: Final = (Act.ACCEPT, Act.ACCEPT, Act.ACCEPT, Act.RELEASE, Act.REJECT, Act.RENEW)


class QueueComputer:
    """A disk, its lives, and the history of the members of all of them."""

    def __init__(self, seed: int, properties: dict[str, str] | None = None) -> None:
        self.disk = SimDisk(seed)
        self.events: list[Event] = []
        self.sent: list[Place] = []
        self.deleted_before = dict.fromkeys(range(PARTITION_COUNT), 0)
        self.random = Random(seed)
        self._properties = {**PROPERTIES, **(properties or {})}
        self._seed = seed
        self._life_count = self._member_count = 0
        self._base_s, self._began_s = 1.0, 0.0
        """The history's time when this life began, and the loop's."""
        self._wall_ms = START_WALL_MS
        self._topic: Topic
        self._machine: Machine

    # -- lives ----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        async def create() -> None:
            client = self._machine.connect()
            self._topic = await client.create_topic(TOPIC, PARTITION_COUNT)
            await self._set_group(client, share_auto_offset_reset="earliest")
            find = FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])
            while (await client.call(find, 6)).coordinators[0].error_code:  # the first one has the topic created
                await asyncio.sleep(0.1)
            await self._machine.stop()

        self._run(create, None)
        self.disk.sync_all()
        self.disk.crash("all")

    def live(self, *, keep: Keep, dies_at: int, seconds: float = 8.0) -> None:
        """Let everybody work until the machine dies at a change of its disk, or for so long; `keep`: what is left."""
        self._run(lambda: self._work(seconds), dies_at)
        self.disk.crash(keep)

    def end(self) -> list[Breach]:
        """Live once more without trouble until nothing is left to do; return what the whole history breaks."""

        async def finish() -> None:
            client = self._machine.connect()
            tasks = [asyncio.ensure_future(self._member(is_good=True)) for _ in range(2)]
            await asyncio.wait_for(self._no_lag(client), 120)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._machine.stop()

        self._run(finish, None)
        sent = [place for place in self.sent if place[1] >= self.deleted_before[place[0]]]
        found = breaches(self.events, sent, lock_s=LOCK_S - TICK_S, limit=MAX_ATTEMPTS)
        lost = breaches(self.events, sent, lock_s=LOCK_S, limit=min(LIMITS))  # which limit a record has met is not kept
        return [each for each in found if each.rule is not Rule.LOST] + [
            each for each in lost if each.rule is Rule.LOST
        ]

    async def _no_lag(self, client: KafkaClient) -> None:
        request = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(GROUP, topics=None)])
        while True:
            (group,) = (await client.call(request, 1)).groups
            parts = [part for topic in group.topics for part in topic.partitions]
            if len(parts) == PARTITION_COUNT and all(part.lag == 0 for part in parts):
                return
            await asyncio.sleep(0.5)

    async def _work(self, seconds: float) -> None:
        works = [self._produce(), self._steer(), self._maintain(), self._trouble.fill_disks(self.random, FULL, 4)]
        works += [self._members() for _ in range(MEMBERS)]
        tasks = [asyncio.ensure_future(each) for each in works]
        done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            task.cancel()
        for task in done:
            task.result()

    def _run(self, main: Callable[[], Awaitable[None]], dies_at: int | None) -> None:
        self._life_count += 1
        seed = self._seed * 100 + self._life_count
        run_life(lambda loop, trouble: self._live(loop, trouble, main), self.disk, dies_at, seed=seed)

    async def _live(self, loop: SimLoop, trouble: Trouble, main: Callable[[], Awaitable[None]]) -> None:
        seed = self._seed * 100 + self._life_count
        self._machine = Machine(loop, disk=self.disk, seed=seed, start_wall_ms=self._wall_ms, **self._properties)
        self._machine.format()
        self._began_s = loop.time()
        self._trouble = trouble
        self.disk.hook = trouble
        await live_until_death(self._machine, trouble, main)
        self._wall_ms = self._machine.clock.wall_ms() + 1000
        died_s = self.now()
        self.events.append(Event(died_s, died_s, "", Act.RESTARTED))
        self._base_s = died_s + 1.0

    def now(self) -> float:
        return self._base_s + self._machine.loop.time() - self._began_s

    # -- what goes on ---------------------------------------------------------------------------------------------

    async def _produce(self) -> None:
        client, dice = self._machine.connect(), self.random
        while True:
            partition, count = dice.randrange(PARTITION_COUNT), dice.choice((1, 2, 10))
            response = await client.produce(self._topic, *[b"x"] * count, partition=partition)
            if response.error_code == 0:
                self.sent += [(partition, response.base_offset + each) for each in range(count)]
            await asyncio.sleep(dice.choice((0, 0.05, 0.3)))

    async def _steer(self) -> None:
        """Change the limits of the group, and delete records."""
        client, dice = self._machine.connect(), self.random
        while True:
            await asyncio.sleep(dice.uniform(0.2, 2))
            if dice.random() < 0.5:
                limits = {
                    "share_delivery_count_limit": str(dice.choice(LIMITS)),
                    "share_partition_max_record_locks": str(dice.choice((100, 200, 2000))),
                }
                await self._set_group(client, **limits)
            else:
                await self._delete_some(client, dice.randrange(PARTITION_COUNT))

    async def _delete_some(self, client: KafkaClient, partition: int) -> None:
        low = await client.list_offset(self._topic, -2, partition=partition)
        high = await client.list_offset(self._topic, -1, partition=partition)
        if low.error_code or high.error_code or high.offset <= low.offset:
            return
        offset = low.offset + min(self.random.randrange(8), high.offset - low.offset)
        # known before the response: the deletion may stand though the machine dies
        self.deleted_before[partition] = max(self.deleted_before[partition], offset)
        part = DeleteRecordsPartition(partition_index=partition, offset=offset)
        topic = DeleteRecordsTopic(self._topic.name, partitions=[part])
        await client.call(DeleteRecordsRequest(topics=[topic], timeout_ms=5_000), 2)

    async def _set_group(self, client: KafkaClient, **configs: str) -> None:
        altered = [AlterableConfig(key.replace("_", "."), value=value) for key, value in configs.items()]
        resource = AlterConfigsResource(GROUP_RESOURCE, resource_name=GROUP, configs=altered)
        await client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)

    async def _maintain(self) -> None:
        while True:
            await asyncio.sleep(self.random.uniform(0.1, 1))
            coordinator = self._machine.server._coordinators.share.coordinator
            await self.random.choice((coordinator.prune, coordinator.snapshot_cold))()

    async def _members(self) -> None:
        while True:
            await self._member(is_good=False)

    async def _member(self, *, is_good: bool) -> None:
        """Live one life of a member, which ends with its connection, or goes on if it is good."""
        self._member_count += 1
        member = QueueMember(self, self._machine.connect(), f"m{self._member_count}", is_good=is_good)
        try:
            await member.live()
        except EOFError:
            pass  # the node closed the connection
        finally:
            at_s = self.now()
            member.client.link.channel.close()
            self.events.append(Event(at_s, at_s, member.name, Act.GONE))

    def add(self, begin_s: float, act: Act, member: str, place: Place, delivery_count: int = 0) -> None:
        self.events.append(Event(begin_s, self.now(), member, act, place, delivery_count))

    @property
    def topic_id(self) -> bytes:
        return self._topic.topic_id


class QueueMember:
    """One member on one connection."""

    def __init__(self, computer: QueueComputer, client: KafkaClient, name: str, *, is_good: bool) -> None:
        self.computer = computer
        self.client = client
        self.name = name
        self._is_good = is_good
        self._epoch = 0
        self._session_epoch = 0
        self._assigned: list[int] = []
        self._beaten_s = -1.0

    async def live(self) -> None:
        dice = self.computer.random
        turns = 1_000_000 if self._is_good else dice.randrange(1, 25)
        for _ in range(turns):
            await self._heartbeat()
            if not self._assigned:
                await asyncio.sleep(0.1)
                continue
            acquired = await self._fetch()
            if not acquired:
                await asyncio.sleep(0.05)
            elif not self._is_good and dice.random() < 0.1:
                await asyncio.sleep(1.5 * LOCK_S)
            for partition, first, last in acquired:
                if not self._is_good and dice.random() < 0.1:
                    return  # closes the connection with records in its hands
                await self._acknowledge(partition, first, last)
        if dice.random() < 0.5:
            await self._beat(LEAVES)

    async def _heartbeat(self) -> None:
        if self.computer.now() - self._beaten_s < 0.2 and self._assigned:
            return
        self._beaten_s = self.computer.now()
        response = await self._beat(self._epoch)
        if response.error_code:
            self._epoch = 0
            await asyncio.sleep(0.1)
            return
        self._epoch = response.member_epoch
        if response.assignment is not None:
            found = [each for topic in response.assignment.topic_partitions for each in topic.partitions]
            if found != self._assigned:
                self._assigned = found

    async def _beat(self, epoch: int) -> Any:
        names = [TOPIC] if epoch == 0 else None
        request = ShareGroupHeartbeatRequest(
            GROUP, member_id=self.name, member_epoch=epoch, subscribed_topic_names=names
        )
        return await self.client.call(request, 1)

    async def _fetch(self) -> list[tuple[int, int, int]]:
        """Return partition, first and last offset of what was acquired."""
        dice, computer = self.computer.random, self.computer
        begin_s = computer.now()
        request = fetching.ShareFetchRequest(
            group_id=GROUP,
            member_id=self.name,
            share_session_epoch=self._session_epoch,
            max_wait_ms=dice.choice((0, 100, 400)),
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=dice.choice((1, 5, 50)),
            batch_size=dice.choice((1, 10)),
            share_acquire_mode=dice.randrange(2),
            topics=[
                fetching.FetchTopic(
                    computer.topic_id, partitions=[fetching.FetchPartition(each) for each in self._assigned]
                )
            ],
        )
        response = await self.client.call(request, 2)
        if response.error_code:
            self._session_epoch = 0
            return []
        self._session_epoch += 1
        acquired = []
        for part in (part for topic in response.responses for part in topic.partitions):
            for each in part.acquired_records:
                acquired.append((part.partition_index, each.first_offset, each.last_offset))
                for offset in range(each.first_offset, each.last_offset + 1):
                    place = (part.partition_index, offset)
                    computer.add(begin_s, Act.DELIVERED, self.name, place, each.delivery_count)
        return acquired

    async def _acknowledge(self, partition: int, first: int, last: int) -> None:
        dice, computer = self.computer.random, self.computer
        acts = [dice.choice(GOOD if self._is_good else ALL) for _ in range(first, last + 1)]
        batch = acknowledging.AcknowledgementBatch(
            first_offset=first, last_offset=last, acknowledge_types=[TYPES[act] for act in acts]
        )
        part = acknowledging.AcknowledgePartition(partition, acknowledgement_batches=[batch])
        request = acknowledging.ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id=self.name,
            share_session_epoch=self._session_epoch,
            topics=[acknowledging.AcknowledgeTopic(computer.topic_id, partitions=[part])],
            is_renew_ack=Act.RENEW in acts,
        )
        places = [(partition, offset) for offset in range(first, last + 1)]
        begin_s, is_known = computer.now(), False
        try:
            await self.client.send(request, 2)
            if not self._is_good and dice.random() < 0.05:
                raise EOFError  # closes the connection before the response
            response = await self.client.receive()
            is_known = not response.error_code and not response.responses[0].partitions[0].error_code
            self._session_epoch = 0 if response.error_code else self._session_epoch + 1
        finally:
            for place, act in zip(places, acts, strict=True):
                computer.add(begin_s, act if is_known else Act.UNKNOWN, self.name, place)
