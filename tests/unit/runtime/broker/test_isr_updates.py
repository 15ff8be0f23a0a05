"""Asking for ISRs: what each response of the controller comes to."""

from collections.abc import Callable
from typing import Any

import pytest

from kafkapy.errors import ApiError
from kafkapy.metadata.registrations import PartitionRegistration
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.alter_partition_request import AlterPartitionRequest
from kafkapy.protocol.messages.alter_partition_request import TopicData as IsrTopicData
from kafkapy.protocol.messages.alter_partition_response import AlterPartitionResponse, PartitionData, TopicData
from kafkapy.protocol.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from kafkapy.protocol.messages.partition_change_record import PartitionChangeRecord
from kafkapy.replication.delayed_produce import PartitionAppend
from kafkapy.replication.hosted_partitions import HostedPartition
from kafkapy.runtime.broker.isr_updates import PARTITIONS_PER_REQUEST, IsrUpdates
from kafkapy.timer.purgatory import DelayedOperation
from tests.simulator.loop import SimLoop
from tests.support.hosting import NOW_MS, Hosting, batch

Response = Callable[[AlterPartitionRequest], AlterPartitionResponse]


class FakeController:
    """runtime.active_controller.ActiveController with prepared answers."""

    def __init__(self, *responses: Response) -> None:
        self._responses = list(responses)
        self.requests: list[AlterPartitionRequest] = []

    async def send_request(self, request: Any, _decide: Any) -> Any:
        self.requests.append(request)
        return self._responses.pop(0)(request)


def refused(code: ErrorCode) -> Response:
    def respond(request: AlterPartitionRequest) -> AlterPartitionResponse:
        (topic,) = request.topics
        part = PartitionData(partition_index=topic.partitions[0].partition_index, error_code=code)
        return AlterPartitionResponse(topics=[TopicData(topic_id=topic.topic_id, partitions=[part])])

    return respond


def done(request: AlterPartitionRequest) -> AlterPartitionResponse:
    (topic,) = request.topics
    (requested,) = topic.partitions
    part = PartitionData(
        partition_index=requested.partition_index,
        leader_id=1,
        leader_epoch=requested.leader_epoch,
        isr=[each.broker_id for each in requested.new_isr_with_epochs],
        partition_epoch=requested.partition_epoch + 1,
    )
    return AlterPartitionResponse(topics=[TopicData(topic_id=topic.topic_id, partitions=[part])])


def answered_all(request: AlterPartitionRequest) -> AlterPartitionResponse:
    (topic,) = request.topics
    parts = [
        done(AlterPartitionRequest(topics=[IsrTopicData(topic_id=topic.topic_id, partitions=[each])]))
        .topics[0]
        .partitions[0]
        for each in topic.partitions
    ]
    return AlterPartitionResponse(topics=[TopicData(topic_id=topic.topic_id, partitions=parts)])


def failed(code: ErrorCode) -> Response:
    def respond(_request: AlterPartitionRequest) -> AlterPartitionResponse:
        raise ApiError(code)

    return respond


def empty(_request: AlterPartitionRequest) -> AlterPartitionResponse:
    return AlterPartitionResponse()


def new_updates(hosting: Hosting, controller: Any) -> IsrUpdates:
    updates = IsrUpdates(
        hosting.manager,
        controller,
        node_id=1,
        broker_epoch=lambda: 5,
        max_lag_ms=lambda: 30_000,
        clock=hosting.clock,
    )
    hosting.manager.on_isr_wanted = updates.enqueue
    updates.start()
    return updates


def set_up(loop: SimLoop, *responses: Response) -> tuple[HostedPartition, FakeController, IsrUpdates]:
    """Return a partition whose follower 2 has just asked to join the ISR."""
    hosting = Hosting(loop, broker_count=2)
    partition = hosting.create_topic(replicas=(1, 2), isr=(1,))
    controller = FakeController(*responses)
    updates = new_updates(hosting, controller)
    epoch = hosting.cluster.image.cluster.brokers[2].epoch
    hosting.manager.record_follower_fetch(
        partition, 2, fetch_offset=0, log_start_offset=0, leader_end_offset=0, broker_epoch=epoch
    )
    return partition, controller, updates


async def pass_ms(loop: SimLoop, duration_ms: int) -> None:
    end: Any = loop.create_future()
    loop.call_later(duration_ms / 1000, end.set_result, None)
    await end


async def test_a_follower_joins_with_its_broker_epoch(loop: SimLoop) -> None:
    partition, controller, updates = set_up(loop, done)
    await pass_ms(loop, 1)
    assert (partition.isr, partition.pending_isr) == ((1, 2), None)
    assert (updates.expand_count, updates.shrink_count, updates.failure_count) == (1, 0, 0)
    requested = controller.requests[0].topics[0].partitions[0].new_isr_with_epochs
    assert [(each.broker_id, each.broker_epoch) for each in requested] == [
        (1, 5),
        (2, partition.followers[2].broker_epoch),
    ]
    await updates.stop()


async def test_a_change_is_counted_whose_metadata_arrives_before_its_response(loop: SimLoop) -> None:
    """So it is on a broker that is the active controller, too: its response waits until the image is applied."""
    known: list[HostedPartition] = []

    def done_after_the_metadata(request: AlterPartitionRequest) -> AlterPartitionResponse:
        (partition,) = known
        image = PartitionRegistration(
            replicas=(1, 2),
            directories=(bytes(16),) * 2,
            isr=(1, 2),
            removing_replicas=(),
            adding_replicas=(),
            elr=(),
            last_known_elr=(),
            leader=1,
            leader_recovery_state=0,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch + 1,
        )
        assert not partition.become_leader(image, NOW_MS)
        assert (partition.isr, partition.pending_isr) == ((1, 2), None)
        return done(request)

    partition, _, updates = set_up(loop, done_after_the_metadata)
    known.append(partition)
    await pass_ms(loop, 1)
    assert (updates.expand_count, updates.shrink_count, updates.failure_count) == (1, 0, 0)
    await updates.stop()


async def test_a_partition_that_is_deleted_while_its_isr_is_refused_is_forgotten(loop: SimLoop) -> None:
    again = refused(ErrorCode.UNKNOWN_SERVER_ERROR)
    partition, _, updates = set_up(loop, again, again, again, again)
    await pass_ms(loop, 60)
    assert list(updates._refusals) == [partition]
    partition.reject_isr_change()
    await pass_ms(loop, 200)
    assert not updates._refusals
    await updates.stop()


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
async def test_a_change_that_was_not_made_ends_with_the_isr_as_before(loop: SimLoop, code: ErrorCode) -> None:
    partition, controller, updates = set_up(loop, refused(code))
    await pass_ms(loop, 200)
    assert (partition.isr, partition.pending_isr, len(controller.requests)) == ((1,), None, 1)
    assert (updates.expand_count, updates.shrink_count, updates.failure_count) == (0, 0, 1)
    await updates.stop()


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    ],
)
async def test_a_change_whose_fate_is_open_counts_until_metadata_settles_it(loop: SimLoop, code: ErrorCode) -> None:
    partition, controller, updates = set_up(loop, refused(code))
    await pass_ms(loop, 200)
    assert partition.pending_isr is not None
    assert (len(controller.requests), updates.failure_count) == (1, 1)
    await updates.stop()


PARTITION_ERRORS = [refused(ErrorCode.NOT_CONTROLLER), refused(ErrorCode.UNKNOWN_SERVER_ERROR)]


@pytest.mark.parametrize(
    "respond",
    [
        *PARTITION_ERRORS,
        failed(ErrorCode.STALE_BROKER_EPOCH),
        failed(ErrorCode.NOT_CONTROLLER),
        failed(ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        empty,
    ],
)
async def test_any_other_failure_is_retried_after_50_ms(loop: SimLoop, respond: Response) -> None:
    partition, controller, updates = set_up(loop, respond, done)
    await pass_ms(loop, 49)
    assert len(controller.requests) == 1
    await pass_ms(loop, 2)
    assert (partition.isr, len(controller.requests)) == ((1, 2), 2)
    assert (updates.expand_count, updates.failure_count) == (1, int(respond in PARTITION_ERRORS))
    await updates.stop()


async def test_the_high_watermark_waits_no_longer_for_a_follower_that_may_not_join(loop: SimLoop) -> None:
    """The follower has been fenced meanwhile: nobody else moves the high watermark."""
    partition, _, updates = set_up(loop, refused(ErrorCode.INELIGIBLE_REPLICA))
    hosting = updates._replica_manager
    assert partition.log is not None
    append = PartitionAppend(partition, batch(b"x"))
    assert not hosting.append_records([append], required_acks=-1)
    partition.followers[2].broker_epoch = None  # as of an earlier life: not eligible any more
    answered = loop.create_future()
    hosting.wait_for_replicas([append], timeout_ms=10_000, on_done=lambda: answered.set_result(None))
    await pass_ms(loop, 10)
    assert (answered.done(), partition.log.high_watermark, append.error_code) == (True, 1, 0)
    await updates.stop()


async def test_the_high_watermark_waits_no_longer_for_a_broker_that_is_fenced_last(loop: SimLoop) -> None:
    hosting = Hosting(loop, broker_count=2)
    partition = hosting.create_topic(replicas=(1, 2), isr=(1, 2))
    updates = new_updates(hosting, FakeController())
    epoch = hosting.cluster.image.cluster.brokers[2].epoch
    hosting.manager.record_follower_fetch(
        partition, 2, fetch_offset=0, log_start_offset=0, leader_end_offset=0, broker_epoch=epoch
    )
    hosting.manager.append_records([PartitionAppend(partition, batch(b"x"))], required_acks=1)
    hosting.commit(PartitionChangeRecord(partition_id=0, topic_id=partition.topic_id, isr=[1]))
    await pass_ms(loop, 1)
    assert partition.log is not None
    assert (partition.isr, partition.log.high_watermark) == ((1,), 0)
    hosting.commit(BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=epoch, fenced=1))
    updates.on_brokers_changed()
    await pass_ms(loop, 1)
    assert partition.log.high_watermark == 1
    await updates.stop()


async def test_a_request_that_fails_does_not_end_the_watch_over_lagging_followers(loop: SimLoop) -> None:
    hosting = Hosting(loop, broker_count=2)
    partition = hosting.create_topic(replicas=(1, 2))
    controller: Any = FakeController(done)
    updates = IsrUpdates(
        hosting.manager,
        controller,
        node_id=1,
        broker_epoch=lambda: 5,
        max_lag_ms=lambda: 30_000,
        clock=hosting.clock,
    )
    hosting.manager.on_isr_wanted = updates.enqueue
    updates.start()
    assert partition.log is not None
    hosting.manager.wait_for_commit(Failing(), partition, timeout_ms=100_000)
    partition.log.append_as_leader(batch(b"x"), leader_epoch=partition.leader_epoch, now_ms=NOW_MS)
    partition.record_follower_fetch(2, fetch_offset=0, log_start_offset=0, now_ms=0)
    partition.followers[2].log_end_offset = 1
    await pass_ms(loop, 16_000)
    assert partition.log.high_watermark == 1, "the watch has moved it, and met the request that fails"
    partition.log.append_as_leader(batch(b"y"), leader_epoch=partition.leader_epoch, now_ms=NOW_MS)
    await pass_ms(loop, 50_000)
    assert partition.isr == (1,)
    await updates.stop()


class Failing(DelayedOperation):
    """A request that meets a mistake of ours once it could be answered."""

    def __init__(self) -> None:
        super().__init__()
        self._is_watched = False

    def try_complete(self) -> bool:
        if self._is_watched:
            raise RuntimeError("a mistake")
        self._is_watched = True
        return False

    def on_complete(self) -> None: ...


async def test_what_has_no_room_in_a_request_comes_with_the_next_one(loop: SimLoop) -> None:
    hosting = Hosting(loop, broker_count=2)
    hosting.create_topic(partition_count=2 * PARTITIONS_PER_REQUEST + 1, replicas=(1, 2), isr=(1,))
    all_done = [answered_all] * 3
    controller = FakeController(failed(ErrorCode.NOT_CONTROLLER), *all_done)
    updates = new_updates(hosting, controller)
    epoch = hosting.cluster.image.cluster.brokers[2].epoch
    for partition in hosting.manager.partitions:
        hosting.manager.record_follower_fetch(
            partition, 2, fetch_offset=0, log_start_offset=0, leader_end_offset=0, broker_epoch=epoch
        )
    await pass_ms(loop, 200)
    assert {(partition.isr, partition.pending_isr) for partition in hosting.manager.partitions} == {((1, 2), None)}
    sizes = [len(request.topics[0].partitions) for request in controller.requests]
    assert (sum(sizes), max(sizes)) == (3 * PARTITIONS_PER_REQUEST + 1, PARTITIONS_PER_REQUEST)
    await updates.stop()


async def test_one_request_is_in_flight_and_what_is_wanted_meanwhile_shares_the_next(loop: SimLoop) -> None:
    class SlowController(FakeController):
        async def send_request(self, request: Any, _decide: Any) -> Any:
            in_flight.append(request)
            assert len(in_flight) == 1
            response = await super().send_request(request, _decide)
            await pass_ms(loop, 100)
            in_flight.clear()
            return response

    in_flight: list[AlterPartitionRequest] = []
    hosting = Hosting(loop, broker_count=2)
    hosting.create_topic(partition_count=3, replicas=(1, 2), isr=(1,))
    controller = SlowController(answered_all, answered_all)
    updates = new_updates(hosting, controller)
    epoch = hosting.cluster.image.cluster.brokers[2].epoch
    for partition in hosting.manager.partitions:
        hosting.manager.record_follower_fetch(
            partition, 2, fetch_offset=0, log_start_offset=0, leader_end_offset=0, broker_epoch=epoch
        )
        await pass_ms(loop, 10)
    await pass_ms(loop, 300)
    assert [len(request.topics[0].partitions) for request in controller.requests] == [1, 2]
    assert {partition.isr for partition in hosting.manager.partitions} == {(1, 2)}
    await updates.stop()


async def test_a_change_that_newer_metadata_ended_before_it_was_sent_is_not_sent(loop: SimLoop) -> None:
    """It would be sent with the epoch of that metadata, which it does not know."""
    partition, controller, updates = set_up(loop, done)
    assert partition.pending_isr is not None
    newer = PartitionRegistration(
        (1, 2), (bytes(16),) * 2, (1,), (), (), (), (), 1, 0, partition.leader_epoch, partition.partition_epoch + 1
    )
    partition.become_leader(newer, now_ms=0)
    await pass_ms(loop, 200)
    assert controller.requests == []
    await updates.stop()
