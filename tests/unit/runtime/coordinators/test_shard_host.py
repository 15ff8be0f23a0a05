"""What a shard host does for any kind of coordinator: effects once committed, records and markers of transactions."""

import asyncio
import logging
from typing import Any

import pytest

from kafkapy.dataclass import dataclass
from kafkapy.errors import ApiError
from kafkapy.group.decision import GroupDecision
from kafkapy.group.offsets import offset_record
from kafkapy.group.settings import OFFSETS_TOPIC
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.offset_commit_value import OffsetCommitValue
from kafkapy.protocol.messages.partition_change_record import PartitionChangeRecord
from kafkapy.record.batches import batches
from kafkapy.replication.hosted_partitions import HostedPartition
from kafkapy.runtime.coordinators.markers import Marker
from kafkapy.runtime.coordinators.shard_host import HostState, ShardHost
from kafkapy.runtime.coordinators.writer import CoordinatorLog, TransactionalWrite
from tests.simulator.loop import SimLoop
from tests.support.group_hosting import GROUP, GroupHosting
from tests.support.hosting import NOW_MS, Hosting, run_scheduled, topic_id

PRODUCER_ID = 7


class Names:
    """A shard that keeps the names in its records, in their order."""

    def __init__(self) -> None:
        self.names: list[tuple[str, int, int]] = []

    def replay(self, record: str, record_offset: int, producer_id: int = -1) -> None:
        self.names.append((record, record_offset, producer_id))


class NameCodec:
    def encode_record(self, record: str, timestamp_ms: int) -> Any:
        return timestamp_ms, record.encode(), b"", ()

    def decode_record(self, key: bytes | None, value: bytes | None) -> str:
        assert key is not None
        return key.decode()


@dataclass(slots=True)
class NameDecision:
    response: Any
    records: tuple[str, ...] = ()
    effects: tuple[str, ...] = ()
    parked_responses: tuple[Any, ...] = ()
    on_failed: None = None
    is_atomic: bool = True


class NameHost(ShardHost[Names]):
    def __init__(self, hosting: Hosting, partition: HostedPartition) -> None:
        log = CoordinatorLog(NameCodec(), lambda: 0, lambda: 5000, lambda: 1 << 20)
        super().__init__(
            partition,
            Names(),
            log,
            replica_manager=hosting.manager,
            clock=hosting.clock,
            wheel=hosting.wheel,
            logger=logging.getLogger("kafkapy.test"),
        )
        self.carried_out: list[str] = []
        self.activate()

    def run_effect(self, effect: str) -> None:
        self.carried_out.append(effect)


def decided(decision: NameDecision) -> Any:
    return lambda shard, token, now_ms: decision


def fetched_by_follower(hosting: Hosting, partition: HostedPartition, offset: int) -> None:
    partition.record_follower_fetch(2, fetch_offset=offset, log_start_offset=0, now_ms=NOW_MS)
    hosting.manager.complete_waiting(partition)


async def test_effects_are_carried_out_before_the_response_when_the_records_are_committed_at_once(loop: SimLoop):
    hosting = Hosting(loop)
    host = NameHost(hosting, hosting.create_topic())
    assert await host.call("k", decided(NameDecision("done", ("a",), ("tell",)))) == "done"
    assert host.carried_out == ["tell"]


async def test_effects_wait_for_the_replicas_however_long_they_take(loop: SimLoop):
    hosting = Hosting(loop, broker_count=2)
    partition = hosting.create_topic(replicas=[1, 2])
    host = NameHost(hosting, partition)
    with pytest.raises(ApiError) as caught:
        await host.call("k", decided(NameDecision("done", ("a",), ("tell",))))
    assert caught.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert host.carried_out == [], "the client has given up, but nothing is committed"
    fetched_by_follower(hosting, partition, 1)
    assert host.carried_out == ["tell"]


async def test_effects_are_left_to_the_next_leader_when_the_partition_is_lost(loop: SimLoop):
    hosting = Hosting(loop, broker_count=2)
    host = NameHost(hosting, hosting.create_topic(replicas=[1, 2]))
    response = hosting.start(host.call("k", decided(NameDecision("done", ("a",), ("tell",)))))
    await run_scheduled()
    hosting.commit(PartitionChangeRecord(partition_id=0, topic_id=topic_id("orders"), leader=2))
    with pytest.raises(ApiError):
        await response
    assert host.carried_out == []


async def test_a_shard_ends_with_its_leader_epoch_though_this_node_leads_on(loop: SimLoop):
    hosting = Hosting(loop, broker_count=2)
    partition = hosting.create_topic(replicas=[1, 2])
    host = NameHost(hosting, partition)
    response = hosting.start(host.call("k", decided(NameDecision("done", ("a",), ("tell",)))))
    await run_scheduled()
    hosting.commit(PartitionChangeRecord(partition_id=0, topic_id=topic_id("orders"), leader=1))
    fetched_by_follower(hosting, partition, 1)
    await asyncio.gather(response, return_exceptions=True)
    assert (host.is_led_here, host.is_active, host.carried_out) == (False, False, [])
    with pytest.raises(ApiError):
        await host.call("k", decided(NameDecision("done")))


async def test_effects_of_an_append_that_fails_are_not_carried_out(loop: SimLoop):
    hosting = Hosting(loop)
    host = NameHost(hosting, hosting.create_topic(configs={"max.message.bytes": "100"}))
    with pytest.raises(ApiError):
        await host.call("k", decided(NameDecision("done", ("a" * 200,), ("tell",))))
    assert (host.carried_out, host.shard.names) == ([], [])


class Forgetful(Names):
    """A shard that cannot replay what it has decided, as a mistake in it would have it."""

    def replay(self, record: str, record_offset: int, producer_id: int = -1) -> None:
        raise AssertionError(record)


async def test_a_record_that_cannot_be_replayed_fails_what_waits_for_a_later_decision(loop: SimLoop):
    hosting = Hosting(loop)
    host = NameHost(hosting, hosting.create_topic())
    waiting = hosting.start(host.call("k", decided(NameDecision(None))))
    await run_scheduled()
    host.shard = Forgetful()
    with pytest.raises(AssertionError):
        await host.call("k", decided(NameDecision("done", ("a",))))
    with pytest.raises(ApiError) as caught:
        await asyncio.wait_for(waiting, 1)
    assert (caught.value.code, host.state) == (ErrorCode.NOT_COORDINATOR, HostState.FAILED)


# -- transactions in a coordinator's log --------------------------------------------------------------------------


def transactional_write(hosting: GroupHosting) -> TransactionalWrite:
    log = hosting.log(OFFSETS_TOPIC)
    guard = log.producer_state.start_verification(PRODUCER_ID, 0, 3, supports_epoch_bump=True, now_ms=NOW_MS)
    return TransactionalWrite(PRODUCER_ID, 3, guard)


async def commit_in_transaction(hosting: GroupHosting, offset: int) -> None:
    record = offset_record(GROUP, "orders", 0, OffsetCommitValue(offset))
    await hosting.groups.host_of(GROUP).call(
        GROUP, lambda shard, token, now_ms: GroupDecision("done", [record]), transactional_write(hosting)
    )


def end_transaction(hosting: GroupHosting, *, is_commit: bool, producer_epoch: int = 4) -> int:
    (append,) = hosting.groups.append_markers(0, [Marker(PRODUCER_ID, producer_epoch, is_commit, 0, 2)])
    return append.error_code


async def test_offsets_of_a_transaction_are_committed_by_its_marker(loop: SimLoop):
    hosting = GroupHosting(loop)
    hosting.create_offsets_topic()
    await hosting.commit_offset(5)
    await commit_in_transaction(hosting, 9)
    assert await hosting.committed_offset() == 5
    assert end_transaction(hosting, is_commit=True) == ErrorCode.NONE
    assert await hosting.committed_offset() == 9


async def test_offsets_of_a_transaction_are_dropped_by_an_abort(loop: SimLoop):
    hosting = GroupHosting(loop)
    hosting.create_offsets_topic()
    await hosting.commit_offset(5)
    await commit_in_transaction(hosting, 9)
    assert end_transaction(hosting, is_commit=False) == ErrorCode.NONE
    assert await hosting.committed_offset() == 5


async def test_a_marker_that_is_fenced_changes_nothing(loop: SimLoop):
    hosting = GroupHosting(loop)
    hosting.create_offsets_topic()
    await commit_in_transaction(hosting, 9)
    assert end_transaction(hosting, is_commit=True, producer_epoch=3) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await hosting.committed_offset() == -1
    assert end_transaction(hosting, is_commit=True) == ErrorCode.NONE
    assert await hosting.committed_offset() == 9


async def test_what_a_transaction_wrote_is_loaded_as_it_was_replayed(loop: SimLoop):
    hosting = GroupHosting(loop)
    partition = hosting.create_offsets_topic()
    await commit_in_transaction(hosting, 9)
    end_transaction(hosting, is_commit=True)
    data = partition.log.read(0, 1 << 20, wait=True).region.read()
    found = [
        (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.is_control) for batch in batches(data)
    ]
    assert found == [(PRODUCER_ID, 3, 0, False), (PRODUCER_ID, 4, -1, True)]
    hosting.restart()
    while hosting.groups.host_of(GROUP).state is HostState.LOADING:
        await asyncio.sleep(0.001)
    assert await hosting.committed_offset() == 9
