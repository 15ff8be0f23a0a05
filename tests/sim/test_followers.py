"""Followers over simulated links: what they do to their logs, whatever the leader answers. KIP-101, 279, 595, 903."""

from typing import Any

import pytest

from kafkapy.machine import Decision
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.alter_partition_response import AlterPartitionResponse, TopicData
from kafkapy.protocol.messages.alter_partition_response import PartitionData as AlteredPartition
from kafkapy.protocol.messages.fetch_request import FetchPartition
from kafkapy.protocol.messages.fetch_response import EpochEndOffset, FetchResponse, PartitionData
from kafkapy.protocol.messages.partition_change_record import PartitionChangeRecord
from kafkapy.record.control import EndTxnMarker, build_end_txn_marker
from kafkapy.record.validate import AppendOrigin
from kafkapy.replication.fetch_session import FetchedPartition
from kafkapy.replication.partition import Role
from kafkapy.storage.log.log import Log
from kafkapy.storage.log.reader import FetchIsolation
from tests.simulator.loop import SimLoop
from tests.simulator.replicas import Node, ReplicaWorld, content, stored
from tests.support.controllers import registration_request
from tests.support.hosting import NOW_MS, batch, topic_id
from tests.support.interpreter import needs_interpreter


def elect(world: ReplicaWorld, leader: int, isr: Any = None) -> None:
    """Have another replica lead, in an ISR of its own if none is named, and all nodes know it at once."""
    record = PartitionChangeRecord(
        partition_id=0, topic_id=topic_id("orders"), leader=leader, isr=list((leader,) if isr is None else isr)
    )
    world.commit(Decision(None, [record]))
    for node in world.nodes.values():
        node.follow(world.cluster.image)


def fill(node: Node, leader_epoch: int, *values: bytes) -> None:
    """Write to a log behind everybody's back, a batch a value, as a leader of an epoch did."""
    for value in values:
        node.log().append_as_leader(batch(value), leader_epoch=leader_epoch, now_ms=NOW_MS)


def epochs_of(node: Node) -> list[tuple[int, int]]:
    return [(entry.leader_epoch, entry.start_offset) for entry in node.log().leader_epochs.entries]


async def agree(world: ReplicaWorld, limit_ms: int = 20_000) -> None:
    """Wait until all logs are the same, and have committed all."""

    def is_same() -> bool:
        logs = [node.log() for node in world.nodes.values()]
        ends = {(log.log_end_offset, log.high_watermark, log.log_start_offset) for log in logs}
        return len(ends) == 1 and all(end == high for end, high, _ in ends) and len({content(log) for log in logs}) == 1

    await world.until(is_same, limit_ms)


async def test_a_follower_fetches_what_is_there_and_what_comes(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 2)
    world.create_topic(replicas=(1, 2))
    fill(world.nodes[1], 0, b"before")
    assert await world.produce(1, b"after") == (0, 1)
    await agree(world)
    assert [value for _, _, value in stored(world.nodes[2].log())] == [b"before", b"after"]
    await world.stop()


async def test_a_fetch_has_the_limits_of_the_followers_configuration(loop: SimLoop) -> None:
    limits = {
        "replica_fetch_max_bytes": "2048",
        "replica_fetch_min_bytes": "3",
        "replica_fetch_response_max_bytes": "4096",
        "replica_fetch_wait_max_ms": "200",
    }
    world = ReplicaWorld(loop, 2, **limits)
    world.create_topic(replicas=(1, 2))
    await world.pass_ms(100)
    (_, _, _, request), *_ = world.requests
    (topic,) = request.topics
    fields = (topic.partitions[0].partition_max_bytes, request.min_bytes, request.max_bytes, request.max_wait_ms)
    assert fields == (2048, 3, 4096, 200)
    await world.stop()


async def test_a_follower_fetches_with_the_epoch_of_its_brokers_registration(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 2)
    world.create_topic(replicas=(1, 2))
    await world.pass_ms(100)
    states = [request.replica_state for *_, request in world.requests]
    assert {(state.replica_id, state.replica_epoch) for state in states} == {(2, world.cluster.epochs[2])}
    await world.stop()


async def test_a_high_watermark_beyond_a_followers_log_ends_with_that(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 2)
    world.create_topic(replicas=(1, 2), isr=(1,))
    world.isolate(2)
    await world.produce(1, b"a", b"b")
    follower = world.nodes[2].log()

    def hold_back_records(_sender: int, _receiver: int, response: Any) -> Any:
        parts = [part for topic in response.responses for part in topic.partitions]
        for part in parts:
            assert part.high_watermark == 2
            part.records = b""
        return response

    world.tamper = hold_back_records
    world.heal()
    await world.pass_ms(2000)
    assert (follower.log_end_offset, follower.high_watermark) == (0, 0)
    world.tamper = None
    await agree(world)
    await world.stop()


async def test_a_consumer_that_waits_at_a_follower_is_answered_when_that_hears_of_the_commit(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 2)
    world.create_topic(replicas=(1, 2))
    assert (await world.produce(1, b"a"))[0] == 0
    await agree(world)
    partition = world.nodes[2].partition()
    answered_ms: list[float] = []
    requested = FetchedPartition("orders", topic_id("orders"), FetchPartition(0, fetch_offset=1))
    world.nodes[2].manager.wait_for_data(
        [(requested, partition)],
        isolation=FetchIsolation.HIGH_WATERMARK,
        min_bytes=1,
        max_wait_ms=60_000,
        on_done=lambda: answered_ms.append(loop.now_ms()),
        reads_followers=True,
    )
    begin_ms = loop.now_ms()
    assert (await world.produce(1, b"b"))[0] == 0
    await world.pass_ms(1000)
    assert [answered - begin_ms < 1000 for answered in answered_ms] == [True]
    await world.stop()


async def test_a_follower_cuts_off_what_it_alone_has(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 2)
    world.create_topic(replicas=(1, 2), isr=(1, 2))
    await world.produce(1, b"a", b"b")
    world.isolate(1)
    fill(world.nodes[1], 0, b"mine", b"mine too")
    elect(world, 2, isr=(2,))
    fill(world.nodes[2], 1, b"theirs")
    world.heal()
    await agree(world)
    assert stored(world.nodes[1].log()) == [(0, 0, b"a"), (1, 0, b"b"), (2, 1, b"theirs")]
    assert epochs_of(world.nodes[1]) == [(0, 0), (1, 2)]
    await world.stop()


async def test_logs_that_parted_several_times_agree_in_the_end(loop: SimLoop) -> None:
    """KIP-279: the epochs of either side that the other does not know, between those that both do."""
    world = ReplicaWorld(loop, 2)
    world.create_topic(replicas=(1, 2), isr=(1,), leader=1)
    world.isolate(2)
    leader, follower = world.nodes[1], world.nodes[2]
    fill(leader, 0, b"a", b"b")
    fill(follower, 0, b"a", b"b")
    for epoch, value in ((2, b"l2"), (4, b"l4"), (7, b"l7")):
        fill(leader, epoch, value)
    for epoch, value in ((1, b"f1"), (3, b"f3"), (5, b"f5"), (6, b"f6")):
        fill(follower, epoch, value)
    world.commit(Decision(None, [PartitionChangeRecord(partition_id=0, topic_id=topic_id("orders"), leader=1)] * 8))
    world.heal()
    await agree(world)
    assert [value for _, _, value in stored(follower.log())] == [b"a", b"b", b"l2", b"l4", b"l7"]
    await world.produce(1, b"l8")
    await agree(world)
    assert epochs_of(follower) == epochs_of(leader)
    await world.stop()


async def test_a_follower_that_lacks_the_leaders_epoch_is_cut_to_the_end_of_its_own_one_before(loop: SimLoop) -> None:
    """KIP-279: the leader's epoch ends later than that, in records that the follower does not have either."""
    world = ReplicaWorld(loop, 2)
    world.create_topic(replicas=(1, 2), isr=(1,))
    world.isolate(2)
    leader, follower = world.nodes[1], world.nodes[2]
    for node in (leader, follower):
        fill(node, 0, b"a", b"b")
    fill(leader, 2, b"l2", b"l2", b"l2")
    fill(follower, 1, b"f1")
    fill(follower, 3, b"f3", b"f3", b"f3")
    world.commit(Decision(None, [PartitionChangeRecord(partition_id=0, topic_id=topic_id("orders"), leader=1)] * 4))
    world.heal()
    await agree(world)
    assert [value for _, _, value in stored(follower.log())] == [b"a", b"b", b"l2", b"l2", b"l2"]
    await world.stop()


async def test_a_follower_longer_than_the_leader_in_the_same_epoch_is_cut(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 2)
    world.create_topic(replicas=(1, 2), isr=(1,))
    world.isolate(2)
    fill(world.nodes[1], 0, b"a")
    fill(world.nodes[2], 0, b"a", b"b", b"c")
    world.heal()
    await agree(world)
    assert stored(world.nodes[2].log()) == [(0, 0, b"a")]
    await world.stop()


async def test_a_replica_that_knows_no_epoch_is_cut_to_its_high_watermark(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 2)
    world.create_topic(replicas=(1, 2), isr=(1, 2))
    await world.produce(1, b"a")
    await agree(world)
    world.isolate(2)
    fill(world.nodes[2], 0, b"not committed")
    world.nodes[2].log().leader_epochs.clear()
    elect(world, 1, isr=(1,))
    assert stored(world.nodes[2].log()) == [(0, 0, b"a")]
    await world.stop()


async def test_a_follower_that_begins_too_early_starts_over_where_the_leader_begins(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 2)
    world.create_topic(replicas=(1, 2), isr=(1,))
    world.isolate(2)
    for value in (b"a", b"b", b"c"):
        await world.produce(1, value)
    log = world.nodes[1].log()
    log.roll(NOW_MS)
    await world.produce(1, b"d")
    log.maybe_increment_log_start_offset(3)
    world.heal()
    await world.until(lambda: world.nodes[2].log().log_end_offset == 4)
    assert world.nodes[2].log().log_start_offset == 3
    assert [offset for offset, _, _ in stored(world.nodes[2].log())] == [3]
    await world.stop()


async def test_a_log_begins_with_the_batch_that_holds_the_leaders_log_start(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 2)
    world.create_topic(replicas=(1, 2), isr=(1,))
    world.isolate(2)
    await world.produce(1, b"a", b"b", b"c")
    world.nodes[1].log().maybe_increment_log_start_offset(2)
    world.heal()
    await world.until(lambda: world.nodes[2].log().log_end_offset == 3)
    follower = world.nodes[2].log()
    assert content(follower) == content(world.nodes[1].log())
    await world.until(lambda: follower.log_start_offset == 2)
    await world.stop()


async def test_batches_of_a_later_epoch_than_requested_are_left_out(loop: SimLoop) -> None:
    """KAFKA-18723: a leader that was elected again may answer a fetch of the epoch before with its new batches."""
    world = ReplicaWorld(loop, 2)
    world.create_topic(replicas=(1, 2))
    await world.produce(1, b"a")
    await agree(world)

    def with_later_batches(_sender: int, _receiver: int, response: Any) -> Any:
        if isinstance(response, FetchResponse):
            for topic in response.responses:
                for part in topic.partitions:
                    if part.records and part.error_code == 0:
                        data = bytearray(part.records)
                        data[12:16] = (9).to_bytes(4)
                        part.records = bytes(data)
        return response

    world.tamper = with_later_batches
    await world.produce(1, b"b", timeout_ms=100)
    assert world.nodes[2].log().log_end_offset == 1
    world.tamper = None
    await agree(world)
    await world.stop()


def tamper_once(world: ReplicaWorld, change: Any) -> None:
    """Change the first response with records, and let the others pass."""

    def tamper(_sender: int, _receiver: int, response: Any) -> Any:
        if isinstance(response, FetchResponse):
            for topic in response.responses:
                for part in topic.partitions:
                    if part.records:
                        world.tamper = None
                        change(part)
                        return response
        return response

    world.tamper = tamper


async def test_a_response_to_a_request_of_an_earlier_leader_epoch_is_ignored(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 2)
    world.create_topic(replicas=(1, 2))
    await world.produce(1, b"a")
    await agree(world)
    truncations = world.nodes[2].log().truncation_count

    def diverge_in_an_epoch_that_ends_meanwhile(part: PartitionData) -> None:
        part.records, part.diverging_epoch = b"", EpochEndOffset(epoch=0, end_offset=0)
        elect(world, 1, isr=(1, 2))

    tamper_once(world, diverge_in_an_epoch_that_ends_meanwhile)
    assert (await world.produce(1, b"b"))[0] == 0
    await agree(world)
    assert world.tamper is None
    assert world.nodes[2].log().truncation_count == truncations
    await world.stop()


async def test_a_damaged_batch_is_requested_again_after_the_back_off(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 2)
    world.create_topic(2, replicas=(1, 2))
    await world.pass_ms(100)

    def damage(part: PartitionData) -> None:
        part.records = bytes(part.records[:-1]) + b"\xff"

    tamper_once(world, damage)
    begin_ms = loop.now_ms()
    code, _ = await world.produce(1, b"damaged on its way", number=0, timeout_ms=5000)
    assert code == 0
    assert 1000 <= loop.now_ms() - begin_ms < 1600
    await world.stop()


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
async def test_a_partition_that_fails_waits_alone(loop: SimLoop, code: ErrorCode) -> None:
    world = ReplicaWorld(loop, 2)
    world.create_topic(2, replicas=(1, 2))
    await world.pass_ms(100)

    def refuse(part: PartitionData) -> None:
        part.error_code, part.records = code, b""

    tamper_once(world, refuse)
    begin_ms = loop.now_ms()
    first = world.nodes[1].run(world.produce(1, b"refused", number=0, timeout_ms=5000))
    await world.pass_ms(20)
    assert (await world.produce(1, b"beside it", number=1))[0] == 0
    assert loop.now_ms() - begin_ms < 100
    assert (await first)[0] == 0
    assert 1000 <= loop.now_ms() - begin_ms < 1600
    await world.stop()


async def test_a_new_leader_epoch_ends_the_back_off(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 2)
    world.create_topic(replicas=(1, 2))
    await world.pass_ms(100)

    def refuse(part: PartitionData) -> None:
        part.error_code, part.records = ErrorCode.NOT_LEADER_OR_FOLLOWER, b""

    tamper_once(world, refuse)
    begin_ms = loop.now_ms()
    first = world.nodes[1].run(world.produce(1, b"refused", timeout_ms=5000))
    await world.pass_ms(20)
    elect(world, 1, isr=(1, 2))
    assert (await first)[0] == 0
    assert loop.now_ms() - begin_ms < 500
    await world.stop()


async def test_a_leader_is_followed_to_its_new_address(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 2)
    world.create_topic(replicas=(1, 2))
    await world.pass_ms(100)
    fetchers = world.nodes[2].fetchers
    new_peer, ports = fetchers.new_peer, []

    def new_peer_of(host: str, port: int) -> Any:
        ports.append(port)
        return new_peer(host, port)

    fetchers.new_peer = new_peer_of
    request = registration_request(1, incarnation=world.cluster.epochs[1])
    request.listeners[0].port = 9192
    controller = world.cluster.controller
    world.commit(controller.decide_register_broker(request, world.cluster.now_ms, is_local=True))
    for node in world.nodes.values():
        node.follow(world.cluster.image)
    await world.pass_ms(2000)
    assert ports == [9192]
    await world.stop()


async def test_an_idle_followers_log_start_rises_with_the_leaders_by_the_next_check_of_lag(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 2)
    world.create_topic(replicas=(1, 2))
    assert (await world.produce(1, b"a", b"b"))[0] == 0
    await agree(world)
    world.nodes[1].log().maybe_increment_log_start_offset(1)  # as retention does
    await world.until(lambda: world.nodes[2].log().log_start_offset == 1, 16_000)
    await world.stop()


async def test_a_follower_that_is_behind_in_epochs_waits_for_metadata(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 2)
    world.create_topic(replicas=(1, 2))
    await world.pass_ms(100)
    world.cut.add((0, 2))  # no metadata for 2
    world.commit(Decision(None, [PartitionChangeRecord(partition_id=0, topic_id=topic_id("orders"), leader=1)]))
    await world.pass_ms(1000)
    request_count = len(world.requests)
    await world.pass_ms(5000)
    assert len(world.requests) == request_count, "nothing is fetched with an epoch that is over"
    world.heal()
    assert (await world.produce(1, b"a"))[0] == 0
    await world.stop()


async def test_a_failed_directory_ends_its_partitions_and_not_the_fetcher(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 2)
    world.create_topic(2, replicas=(1, 2), isr=(1,))
    await world.pass_ms(100)
    follower = world.nodes[2]
    follower.disk.fail("write", path="orders-0/")
    await world.produce(1, b"a", number=0, timeout_ms=100)
    await world.pass_ms(2000)
    assert follower.partition(0).role is Role.OFFLINE
    request_count = len(world.requests)
    await world.pass_ms(2000)
    assert len(world.requests) == request_count, "all of its partitions lie in that directory"
    await world.stop()


@needs_interpreter("it replaces a method")
async def test_an_unexpected_error_ends_one_partition(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 2)
    world.create_topic(2, replicas=(1, 2), isr=(1, 2))
    await world.pass_ms(100)
    follower = world.nodes[2]
    original = follower.fetchers.logs.append

    def fail(partition: Any, *rest: Any) -> bool:
        if partition.topic_partition.partition == 0:
            raise AssertionError("an invariant broke")
        return original(partition, *rest)

    follower.fetchers.logs.append = fail  # type: ignore[method-assign]
    await world.produce(1, b"a", number=0, timeout_ms=100)
    assert (await world.produce(1, b"b", number=1))[0] == 0
    assert follower.log(number=0).log_end_offset == 0
    await world.stop()


async def test_producers_aborted_transactions_epochs_and_log_start_equal_the_leaders(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 2)
    world.create_topic(replicas=(1, 2))
    leader, follower = world.nodes[1], world.nodes[2]
    ids = {"producer_id": 7, "producer_epoch": 0}
    log = leader.log()
    log.append_as_leader(batch(b"v", base_sequence=0, **ids), leader_epoch=0, now_ms=NOW_MS)
    opening = batch(b"v", base_sequence=1, is_transactional=True, base_offset=1, **ids)
    log.append_as_follower(bytearray(opening), NOW_MS)  # as a leader does after verifying
    marker = build_end_txn_marker(EndTxnMarker(False, 0), timestamp_ms=NOW_MS, **ids)
    log.append_as_leader(marker, leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    await world.produce(1, b"end")
    await agree(world)
    log.maybe_increment_log_start_offset(1)
    await agree(world)
    assert follower.log().log_start_offset == 1
    assert [producers_of(node.log()) for node in (leader, follower)] == [[(7, 0, [(0, 0), (1, 1)])]] * 2
    assert [aborted_in(node.log()) for node in (leader, follower)] == [[(7, 1)]] * 2
    assert follower.log().last_stable_offset == log.last_stable_offset == 4
    assert epochs_of(follower) == epochs_of(leader)
    await world.stop()


def producers_of(log: Log) -> list[Any]:
    """Return each producer's id, epoch and batches by sequence and last offset."""
    return [
        (entry.producer_id, entry.producer_epoch, [(each.last_sequence, each.last_offset) for each in entry.batches])
        for entry in log.producer_state.producers.values()
    ]


def aborted_in(log: Log) -> list[tuple[int, int]]:
    """Return producer id and first offset of each aborted transaction, as the index has them."""
    read = log.read(log.log_start_offset, 1 << 20, isolation=FetchIsolation.TXN_COMMITTED)
    assert read.region is not None
    read.region.release()
    return [(producer_id, first_offset) for producer_id, first_offset, *_ in read.aborted_transactions or ()]


async def test_records_are_durable_at_flush_messages_before_the_leader_hears_of_them(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 2)
    world.create_topic(replicas=(1, 2), configs={"flush.messages": "1"})
    await world.pass_ms(100)
    node = world.nodes[1]
    node.run(world.produce(1, b"a"))
    follower = world.nodes[2].log()
    await world.until(lambda: node.partition().followers[2].log_end_offset == 1)
    assert follower.recovery_point == 1
    await world.stop()


def named(world: ReplicaWorld) -> list[list[int]]:
    """Return the partitions that each request named."""
    return [
        [part.partition for topic in requested.topics for part in topic.partitions] for *_, requested in world.requests
    ]


async def test_a_follower_names_what_changed_and_again_all_after_its_leader_forgot(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 2)
    world.create_topic(3, replicas=(1, 2))
    await world.pass_ms(2000)
    world.requests.clear()
    await world.produce(1, b"a", number=1)
    await world.pass_ms(1000)
    assert [each for each in named(world) if each] == [[1]]
    world.nodes[1].sessions._sessions.clear()
    world.requests.clear()
    await world.pass_ms(1000)
    assert [0, 1, 2] in named(world)
    assert (await world.produce(1, b"b", number=2))[0] == 0
    await world.stop()


async def test_a_deleted_topic_is_fetched_no_more(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 2)
    world.create_topic(replicas=(1, 2))
    await world.pass_ms(1000)
    world.nodes[1].delete_topic()
    for node in world.nodes.values():
        node.follow(world.cluster.image)
    await world.pass_ms(2000)
    world.requests.clear()
    await world.pass_ms(2000)
    assert world.requests == []
    await world.stop()


async def test_a_follower_that_stands_still_leaves_the_isr_and_comes_back(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 3)
    world.create_topic(replicas=(1, 2, 3), configs={"min.insync.replicas": "2"})
    await world.produce(1, b"a")
    world.cut |= {(3, 1), (1, 3)}
    code, _ = await world.produce(1, b"b", timeout_ms=60_000)
    assert (code, world.registration().isr) == (0, (1, 2))
    assert 30_000 <= loop.now_ms() <= 46_000, "replica.lag.time.max.ms, looked at every half of it"
    world.cut.clear()
    await world.until(lambda: set(world.registration().isr) == {1, 2, 3})
    await agree(world)
    await world.stop()


async def test_an_isr_change_whose_response_is_lost_counts_all_the_same(loop: SimLoop) -> None:
    """The controller has the follower in the ISR: it may elect it, so nothing is committed that it has not."""
    world = ReplicaWorld(loop, 2)
    world.create_topic(replicas=(1, 2), isr=(1,))
    world.cut.add((0, 1))  # the controller's responses, and its metadata
    await world.until(lambda: set(world.registration().isr) == {1, 2})
    world.cut |= {(2, 1), (1, 2)}
    code, _ = await world.produce(1, b"only here", timeout_ms=10_000)
    assert code == ErrorCode.REQUEST_TIMED_OUT
    assert world.nodes[1].log().high_watermark == 0
    world.heal()
    await agree(world)
    await world.stop()


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
async def test_a_follower_that_the_controller_refuses_joins_by_a_later_fetch_without_records(
    loop: SimLoop, code: ErrorCode
) -> None:
    world = ReplicaWorld(loop, 2)
    part = AlteredPartition(partition_index=0, error_code=code)
    refusals = [AlterPartitionResponse(topics=[TopicData(topic_id=topic_id("orders"), partitions=[part])])] * 3
    world.create_topic(replicas=(1, 2), isr=(1,))
    commit = world.commit
    world.commit = lambda decision: refusals.pop() if refusals else commit(decision)  # type: ignore[method-assign]
    await world.until(lambda: world.registration().isr == (1, 2), 5000)
    assert len(world.alterations) == 4
    assert loop.now_ms() >= 3 * 500, "once a fetch, which waits for replica.fetch.wait.max.ms"
    await world.stop()


async def test_the_number_of_fetchers_can_change_while_they_run(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 2)
    world.create_topic(8, replicas=(1, 2))
    await world.pass_ms(1000)
    follower = world.nodes[2]
    assert len(follower.fetchers._fetchers) == 1
    for count in (3, 1, 2):
        follower.resize_fetchers(count)
        world.nodes[1].alter_configs("orders", {"retention.ms": str(count * 1_000_000)})
        for node in world.nodes.values():
            node.follow(world.cluster.image)
        await world.pass_ms(1000)
        assert len(follower.fetchers._fetchers) == count
        for number in range(8):
            assert (await world.produce(1, b"a", number=number))[0] == 0
    await world.stop()
