"""Transactions whose coordinator and partitions are on different brokers, over a simulated network."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kafkapy.errors import ApiError
from kafkapy.group.settings import OFFSETS_TOPIC
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest
from kafkapy.protocol.messages.remove_topic_record import RemoveTopicRecord
from kafkapy.protocol.messages.write_txn_markers_request import WriteTxnMarkersRequest
from kafkapy.runtime.coordinators.markers import LocalMarkers, Marker
from kafkapy.runtime.coordinators.transaction_verification import TransactionalProducer
from kafkapy.transaction.settings import TRANSACTION_STATE_TOPIC
from kafkapy.types import TopicPartition
from tests.simulator.loop import SimLoop, run
from tests.support.hosting import topic_id
from tests.support.linked_brokers import LinkedBrokers
from tests.support.transaction_hosting import SimProducer, batches_of, shape_of

COORDINATOR, LEADER, OTHER = 1, 2, 3


def linked(test: Callable[[LinkedBrokers], Awaitable[None]]) -> Callable[[], None]:
    """Make a test of a coroutine over three brokers; 1 coordinates transactions, 2 leads orders, 1 leads trades."""

    def run_test() -> None:
        async def main(loop: SimLoop) -> None:
            brokers = LinkedBrokers(loop, 3)
            brokers.create_topic(TRANSACTION_STATE_TOPIC, COORDINATOR)
            brokers.create_topic("orders", LEADER, 2, others=[OTHER])
            brokers.create_topic("trades", COORDINATOR)
            await test(brokers)
            await brokers.close()

        run(main)

    return run_test


async def producer_at(brokers: LinkedBrokers, transactional_id: str = "t") -> SimProducer:
    """Return a producer whose partitions are led by broker 2."""
    producer = SimProducer(brokers.nodes[LEADER], transactional_id, coordinator=brokers.nodes[COORDINATOR])
    assert await producer.init() == ErrorCode.NONE
    return producer


def requested(brokers: LinkedBrokers, broker_id: int, kind: type) -> list:
    return [request for request in brokers.nodes[broker_id].requests if isinstance(request, kind)]


async def become(producer: SimProducer, state: str, within_ms: int = 1000) -> None:
    for _ in range(within_ms):
        if producer.state() == state:
            return
        await asyncio.sleep(0.001)
    raise AssertionError(producer.state())


# -- adding and verifying ---------------------------------------------------------------------------------------------


@linked
async def test_a_partition_is_added_by_the_coordinators_broker(brokers: LinkedBrokers) -> None:
    producer = await producer_at(brokers)
    assert await producer.send() == ErrorCode.NONE
    host = brokers.nodes[COORDINATOR].transactions.host_of("t")
    assert host.shard.transactions["t"].partitions == (TopicPartition("orders", 0),)
    (request,) = requested(brokers, COORDINATOR, AddPartitionsToTxnRequest)
    assert [each.verify_only for each in request.transactions] == [False]
    assert await producer.send() == ErrorCode.NONE
    assert len(requested(brokers, COORDINATOR, AddPartitionsToTxnRequest)) == 1, "it is open by now"


@linked
async def test_a_client_of_version_1_has_its_partitions_verified(brokers: LinkedBrokers) -> None:
    producer = await producer_at(brokers)
    leader, coordinator = brokers.nodes[LEADER], brokers.nodes[COORDINATOR]
    old = TransactionalProducer(
        "t", producer.producer_id, producer.epoch, adds_partitions=False, knows_transaction_abortable=False
    )
    added, other = (leader.manager.partitions.find("orders", number) for number in range(2))
    await coordinator.transactions.decide(
        "t", lambda shard, now_ms: shard.add_partitions("t", old.producer_id, 0, [added.topic_partition], 3, now_ms)
    )
    verified = await leader.verification.verify(old, {added: 0, other: 0})
    assert [verified[each].code for each in (added, other)] == [ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE]
    (request,) = requested(brokers, COORDINATOR, AddPartitionsToTxnRequest)
    assert [each.verify_only for each in request.transactions] == [True]


@linked
async def test_what_comes_while_a_question_is_under_way_goes_together(brokers: LinkedBrokers) -> None:
    producers = [await producer_at(brokers, f"t-{number}") for number in range(10)]
    responses = asyncio.gather(producers[0].send(), *(producer.send(partition_id=1) for producer in producers))
    assert await responses == [ErrorCode.NONE] * 11
    requests = requested(brokers, COORDINATOR, AddPartitionsToTxnRequest)
    assert sum(len(each.transactions) for each in requests) == 10, "both partitions of t-0 are one entry"
    assert len(requests) == 1
    assert await asyncio.gather(*(producer.send() for producer in producers[1:])) == [ErrorCode.NONE] * 9
    assert len(requested(brokers, COORDINATOR, AddPartitionsToTxnRequest)) == 2


@linked
async def test_an_older_epoch_is_fenced_from_another_broker(brokers: LinkedBrokers) -> None:
    former = await producer_at(brokers)
    producer = await producer_at(brokers)
    assert await asyncio.gather(former.send(), producer.send()) == [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.NONE]


@linked
async def test_no_controller_is_distinguished_from_no_response(brokers: LinkedBrokers) -> None:
    producer = await producer_at(brokers)
    brokers.unreachable.add("host1")
    assert await producer.send() == ErrorCode.NETWORK_EXCEPTION
    brokers.unreachable.clear()
    brokers.lead(TRANSACTION_STATE_TOPIC, -1)
    assert await producer.send() == ErrorCode.COORDINATOR_NOT_AVAILABLE


@linked
async def test_a_broker_that_no_longer_coordinates_answers_not_coordinator(brokers: LinkedBrokers) -> None:
    producer = await producer_at(brokers)
    brokers.behind.add(LEADER)
    brokers.lead(TRANSACTION_STATE_TOPIC, OTHER)
    assert await producer.send() == ErrorCode.NOT_COORDINATOR


@linked
async def test_a_coordinator_that_stands_still_is_waited_for_until_it_is_fenced(brokers: LinkedBrokers) -> None:
    producer = await producer_at(brokers)
    brokers.nodes[COORDINATOR].responses.clear()
    sending = asyncio.ensure_future(producer.send())
    await asyncio.sleep(2)
    assert not sending.done()
    brokers.fence(COORDINATOR)
    await asyncio.sleep(0.2)
    assert sending.done()
    assert await sending == ErrorCode.NETWORK_EXCEPTION


@linked
async def test_verification_needs_authorization(brokers: LinkedBrokers) -> None:
    producer = await producer_at(brokers)
    brokers.nodes[COORDINATOR].deny()
    assert await producer.send() == ErrorCode.INVALID_TXN_STATE


@linked
async def test_the_end_of_the_transaction_before_is_waited_for(brokers: LinkedBrokers) -> None:
    producer = await producer_at(brokers)
    await producer.send()
    brokers.nodes[LEADER].responses.clear()
    assert await producer.end() == ErrorCode.NONE
    sending = asyncio.ensure_future(producer.send())
    await asyncio.sleep(0.05)
    assert (sending.done(), producer.state()) == (False, "PrepareCommit")
    brokers.nodes[LEADER].responses.set()
    assert await sending == ErrorCode.NONE


# -- markers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_markers_reach_partitions_of_all_brokers_before_the_end(commit: bool) -> None:
    @linked
    async def test(brokers: LinkedBrokers) -> None:
        producer = await producer_at(brokers)
        assert [await producer.send("orders"), await producer.send("orders", partition_id=1)] == [0, 0]
        local = SimProducer(brokers.nodes[COORDINATOR])
        local.producer_id, local.epoch = producer.producer_id, producer.epoch
        assert await local.send("trades") == ErrorCode.NONE
        brokers.nodes[LEADER].responses.clear()
        assert await producer.end(commit=commit) == ErrorCode.NONE
        await asyncio.sleep(1)
        assert producer.state() == ("PrepareCommit" if commit else "PrepareAbort")
        assert shape_of(batches_of(brokers.nodes[COORDINATOR], "trades")) == ["records", "marker"]
        brokers.nodes[LEADER].responses.set()
        await become(producer, "CompleteCommit" if commit else "CompleteAbort")
        for partition_id in range(2):
            assert shape_of(batches_of(brokers.nodes[LEADER], "orders", partition_id)) == ["records", "marker"]
        (request,) = requested(brokers, LEADER, WriteTxnMarkersRequest)
        assert [each.transaction_version for each in request.markers] == [2]

    test()


@linked
async def test_markers_of_many_transactions_go_to_a_broker_together(brokers: LinkedBrokers) -> None:
    producers = [await producer_at(brokers, f"t-{number}") for number in range(10)]
    await asyncio.gather(*(producer.send() for producer in producers))
    assert await asyncio.gather(*(producer.end() for producer in producers)) == [ErrorCode.NONE] * 10
    for producer in producers:
        await become(producer, "CompleteCommit")
    (request,) = requested(brokers, LEADER, WriteTxnMarkersRequest)
    assert len(request.markers) == 10


@linked
async def test_a_broker_that_cannot_be_reached_gets_its_markers_later(brokers: LinkedBrokers) -> None:
    producer = await producer_at(brokers)
    other = await producer_at(brokers, "other")
    await producer.send()
    await other.send()
    brokers.cut_off(LEADER)
    assert await asyncio.gather(producer.end(), other.end(commit=False)) == [ErrorCode.NONE] * 2
    await asyncio.sleep(20)
    assert (producer.state(), other.state()) == ("PrepareCommit", "PrepareAbort")
    brokers.unreachable.clear()
    await become(producer, "CompleteCommit", 8000)
    await become(other, "CompleteAbort", 8000)
    assert shape_of(batches_of(brokers.nodes[LEADER], "orders")) == ["records", "records", "marker", "marker"]


@linked
async def test_a_new_leader_gets_the_marker_at_once(brokers: LinkedBrokers) -> None:
    producer = await producer_at(brokers)
    await producer.send()
    brokers.nodes[LEADER].responses.clear()
    assert await producer.end() == ErrorCode.NONE
    await asyncio.sleep(5)
    brokers.fence(LEADER)
    brokers.lead("orders", -1)
    await asyncio.sleep(10)
    assert producer.state() == "PrepareCommit"
    brokers.lead("orders", OTHER)
    await become(producer, "CompleteCommit", 100)
    assert shape_of(batches_of(brokers.nodes[OTHER], "orders")) == ["records", "marker"]


@linked
async def test_a_topic_that_is_deleted_meanwhile_needs_no_marker(brokers: LinkedBrokers) -> None:
    producer = await producer_at(brokers)
    await producer.send()
    brokers.cut_off(LEADER)
    assert await producer.end() == ErrorCode.NONE
    await asyncio.sleep(3)
    brokers.commit(RemoveTopicRecord(topic_id=topic_id("orders")))
    await become(producer, "CompleteCommit", 2000)


@linked
async def test_a_fenced_coordinator_leaves_the_end_to_another(brokers: LinkedBrokers) -> None:
    """Broker 3 coordinates with a later epoch, which the partition has seen; broker 1 does not know it yet."""
    producer = await producer_at(brokers)
    leader = brokers.nodes[LEADER]
    marker = Marker(producer.producer_id, producer.epoch, is_commit=False, coordinator_epoch=7, transaction_version=0)
    LocalMarkers(leader.manager, leader.groups, leader.clock).write(
        {TopicPartition("orders", 0): [marker]}, timeout_ms=1000, on_done=lambda results: None
    )
    await producer.send()
    assert await producer.end() == ErrorCode.NONE
    await asyncio.sleep(60)
    assert producer.state() == "PrepareCommit"
    assert len(requested(brokers, LEADER, WriteTxnMarkersRequest)) == 1


@linked
async def test_a_coordinator_that_may_not_write_markers_tries_again(brokers: LinkedBrokers) -> None:
    producer = await producer_at(brokers)
    await producer.send()
    brokers.nodes[LEADER].deny()
    assert await producer.end() == ErrorCode.NONE
    await asyncio.sleep(3)
    assert producer.state() == "PrepareCommit"
    assert len(requested(brokers, LEADER, WriteTxnMarkersRequest)) > 3


@linked
async def test_offsets_become_visible_at_the_groups_broker(brokers: LinkedBrokers) -> None:
    brokers.create_topic(OFFSETS_TOPIC, LEADER)
    producer = await producer_at(brokers)
    group = brokers.nodes[LEADER]
    assert await producer.commit_offset(5) == [ErrorCode.NONE]
    assert await group.committed_offset() == -1
    assert await producer.end() == ErrorCode.NONE
    await become(producer, "CompleteCommit")
    assert await group.committed_offset() == 5


@linked
async def test_the_next_coordinator_writes_the_markers_that_are_missing(brokers: LinkedBrokers) -> None:
    producer = await producer_at(brokers)
    await producer.send()
    brokers.cut_off(LEADER)
    await producer.end()
    coordinator = brokers.nodes[COORDINATOR]
    await coordinator.transactions.close()
    brokers.unreachable.clear()
    coordinator.restart()
    await coordinator.loaded()
    await become(producer, "CompleteCommit")


# -- another coordinator ----------------------------------------------------------------------------------------------


def replicated(test: Callable[[LinkedBrokers], Awaitable[None]]) -> Callable[[], None]:
    """Make a test over three brokers; 1 coordinates and 3 follows, in sync; 2 leads orders."""

    def run_test() -> None:
        async def main(loop: SimLoop) -> None:
            brokers = LinkedBrokers(loop, 3)
            for topic, leader_id in ((TRANSACTION_STATE_TOPIC, COORDINATOR), ("orders", LEADER)):
                brokers.create_topic(topic, leader_id, others=[OTHER])
            await asyncio.sleep(0.2)
            brokers.join_isr(TRANSACTION_STATE_TOPIC, COORDINATOR, OTHER)
            await test(brokers)
            await brokers.close()

        run(main)

    return run_test


async def taken_over(brokers: LinkedBrokers, producer: SimProducer) -> None:
    """Let broker 3 coordinate instead of 1, which does not know it; the client has found it."""
    brokers.cut_off(COORDINATOR)
    brokers.behind.add(COORDINATOR)
    brokers.fence(COORDINATOR)
    brokers.lead(TRANSACTION_STATE_TOPIC, OTHER)
    producer.coordinator = brokers.nodes[OTHER]
    await producer.coordinator.loaded()


@replicated
async def test_a_decision_is_answered_and_carried_out_once_the_replicas_have_it(brokers: LinkedBrokers) -> None:
    producer = await producer_at(brokers)
    await producer.send()
    brokers.nodes[COORDINATOR].responses.clear()  # what has been answered is replicated; nothing more is
    ending = asyncio.ensure_future(producer.end())
    await asyncio.sleep(5)
    assert (ending.done(), producer.state()) == (False, "PrepareCommit")
    assert requested(brokers, LEADER, WriteTxnMarkersRequest) == []
    brokers.nodes[COORDINATOR].responses.set()
    assert await ending == ErrorCode.NONE
    await become(producer, "CompleteCommit")
    assert len(requested(brokers, LEADER, WriteTxnMarkersRequest)) == 1


@replicated
async def test_what_the_replicas_do_not_have_is_not_answered_by_a_coordinator_that_lost_it(
    brokers: LinkedBrokers,
) -> None:
    producer = await producer_at(brokers)
    await producer.send()
    brokers.cut_off(COORDINATOR)
    ending = asyncio.ensure_future(producer.end())
    await asyncio.sleep(0.1)
    await taken_over(brokers, producer)
    assert producer.state() == "Ongoing", "the commit was never decided"
    brokers.behind.clear()
    brokers.catch_up()
    with pytest.raises(ApiError) as caught:
        await ending
    assert caught.value.code == ErrorCode.NOT_COORDINATOR
    assert await producer.end(commit=False) == ErrorCode.NONE
    await become(producer, "CompleteAbort")


@replicated
async def test_a_transaction_goes_on_with_another_coordinator(brokers: LinkedBrokers) -> None:
    producer = await producer_at(brokers)
    assert await producer.send() == ErrorCode.NONE
    await taken_over(brokers, producer)
    assert producer.state() == "Ongoing"
    assert await producer.send() == ErrorCode.NONE
    assert await producer.end() == ErrorCode.NONE
    await become(producer, "CompleteCommit")
    assert await producer.send() == ErrorCode.NONE, "the partition's leader has found the coordinator"


@replicated
async def test_another_coordinator_writes_the_markers_of_what_was_decided(brokers: LinkedBrokers) -> None:
    producer = await producer_at(brokers)
    await producer.send()
    brokers.cut_off(LEADER)
    assert await producer.end() == ErrorCode.NONE
    await taken_over(brokers, producer)
    assert producer.state() == "PrepareCommit"
    brokers.unreachable.remove(f"host{LEADER}")
    await become(producer, "CompleteCommit", 10_000)
    marker = requested(brokers, LEADER, WriteTxnMarkersRequest)[-1].markers[0]
    assert marker.coordinator_epoch == 1


@replicated
async def test_another_coordinator_aborts_what_has_timed_out(brokers: LinkedBrokers) -> None:
    producer = await producer_at(brokers)
    await producer.init(timeout_ms=5000)
    await producer.send()
    await taken_over(brokers, producer)
    await asyncio.sleep(5.1)
    await producer.coordinator.transactions.abort_timed_out()
    await become(producer, "CompleteAbort")
    assert brokers.nodes[LEADER].log("orders").last_stable_offset == 2


@replicated
async def test_a_coordinator_that_comes_back_finds_what_the_other_has_decided(brokers: LinkedBrokers) -> None:
    producer = await producer_at(brokers)
    former = brokers.nodes[COORDINATOR]
    await producer.send()
    await taken_over(brokers, producer)
    await producer.end()
    brokers.unreachable.clear()
    brokers.behind.clear()
    brokers.fence(COORDINATOR, is_fenced=False)
    with pytest.raises(ApiError) as caught:
        former.transactions.host_of("t").check_active()
    assert caught.value.code == ErrorCode.NOT_COORDINATOR
    await asyncio.sleep(1)
    brokers.join_isr(TRANSACTION_STATE_TOPIC, OTHER, COORDINATOR)
    brokers.lead(TRANSACTION_STATE_TOPIC, COORDINATOR)
    producer.coordinator = former
    await former.loaded()
    assert producer.state() == "CompleteCommit"
    assert await producer.send() == ErrorCode.NONE
