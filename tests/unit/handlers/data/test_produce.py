"""Produce on a simulated disk: what is appended, what is refused and how, and what waits."""

import errno
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.handlers.context import CloseConnection
from kafkapy.handlers.data import produce
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.partition_change_record import PartitionChangeRecord
from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkapy.record.compression import ZSTD
from kafkapy.runtime.turns import STEPS_PER_TURN
from kafkapy.security.authorizer import AclOperation
from tests.simulator.loop import SimLoop
from tests.support.hosting import NOW_MS, CountedTurns, Hosting, batch, run_scheduled, topic_id
from tests.support.metadata_services import Deny, on_wire, response_of

VERSIONS = range(3, 14)


def context(version: int = 13, client_id: str | None = "tester", client: str = "c") -> Any:
    return SimpleNamespace(
        api_version=version,
        listener_name="PLAINTEXT",
        client_id=client_id,
        connection=SimpleNamespace(),
        client=("User:" + client, "127.0.0.1"),
        is_long=False,
    )


def request(version: int, *partitions: tuple[int, Any], topic: str = "orders", acks: int = 1, **fields: Any) -> Any:
    data = [PartitionProduceData(number, records=records) for number, records in partitions]
    named = (
        TopicProduceData(topic, topic_id=bytes(16), partition_data=data)
        if version < 13
        else TopicProduceData("", topic_id=topic_id(topic), partition_data=data)
    )
    fields.setdefault("timeout_ms", 1_000)
    return ProduceRequest(acks=acks, topic_data=[named], **fields)


def send(
    hosting: Hosting,
    requested: Any,
    version: int = 13,
    authorizer: Any = None,
    client_id: str = "tester",
    client: str = "c",
) -> Any:
    """Drive a produce that must not wait; return the responses of its first topic's partitions, as on the wire."""
    response = response_of(produce.handle(hosting.services(authorizer), context(version, client_id, client), requested))
    return on_wire(response, version).responses[0].partition_responses


def send_one(hosting: Hosting, records: Any, version: int = 13, **fields: Any) -> Any:
    return send(hosting, request(version, (0, records), **fields), version)[0]


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_version_appends_and_returns_the_offset(loop: SimLoop, version: int) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic()
    responses = [send_one(hosting, batch(b"a", b"b"), version) for _ in range(2)]
    assert [(each.error_code, each.base_offset, each.log_append_time_ms) for each in responses] == [
        (0, 0, -1),
        (0, 2, -1),
    ]
    assert responses[0].log_start_offset == (0 if version >= 5 else -1)
    assert partition.log.high_watermark == 4


@pytest.mark.parametrize("acks", [1, -1])
async def test_acks_without_followers_are_answered_without_waiting(loop: SimLoop, acks: int) -> None:
    hosting = Hosting(loop)
    hosting.create_topic()
    assert send_one(hosting, batch(b"a"), acks=acks).error_code == 0
    assert hosting.manager.waiting_count == 0


async def test_acks_zero_gets_no_response_and_is_in_the_log(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic()
    assert response_of(produce.handle(hosting.services(), context(), request(13, (0, batch(b"a")), acks=0))) is None
    assert partition.log.log_end_offset == 1


async def test_an_error_under_acks_zero_closes_the_connection(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    hosting.create_topic()
    with pytest.raises(CloseConnection):
        response_of(produce.handle(hosting.services(), context(), request(13, (7, batch(b"a")), acks=0)))


@pytest.mark.parametrize("acks", [2, -2, 7])
async def test_other_acks_are_refused_and_nothing_is_appended(loop: SimLoop, acks: int) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic()
    refused = send_one(hosting, batch(b"a"), acks=acks)
    assert (refused.error_code, refused.base_offset) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)
    assert partition.log.log_end_offset == 0


async def test_unknown_topics_partitions_and_ids_are_distinguished(loop: SimLoop) -> None:
    hosting = Hosting(loop, broker_count=2)
    hosting.create_topic()
    hosting.create_topic("elsewhere", replicas=(2,))
    for version, topic, number, code in (
        (12, "nowhere", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (13, "nowhere", 0, ErrorCode.UNKNOWN_TOPIC_ID),
        (13, "orders", 5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (12, "elsewhere", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ):
        refused = send(hosting, request(version, (number, batch(b"a")), topic=topic), version)[0]
        assert (refused.error_code, refused.base_offset) == (code, -1), (version, topic)
        assert refused.error_message is None, "a long name would come back for each of its partitions"


@pytest.mark.parametrize("version", [9, 10, 13])
async def test_the_leader_is_returned_with_not_leader(loop: SimLoop, version: int) -> None:
    hosting = Hosting(loop, broker_count=2)
    hosting.create_topic("elsewhere", replicas=(2, 1))
    requested = request(version, (0, batch(b"a")), topic="elsewhere")
    response = on_wire(response_of(produce.handle(hosting.services(), context(version), requested)), version)
    refused = response.responses[0].partition_responses[0]
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    reported = (refused.current_leader.leader_id, refused.current_leader.leader_epoch)
    endpoints = [(each.node_id, each.host, each.port) for each in response.node_endpoints]
    assert (reported, endpoints) == (((-1, -1), []) if version < 10 else ((2, 0), [(2, "host2", 9092)]))


async def test_each_partition_answers_for_itself(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    hosting.create_topic(partition_count=2)
    responses = send(hosting, request(13, (0, batch(b"a")), (9, batch(b"a")), (1, batch(b"a", b"b"))))
    assert [(each.index, each.error_code, each.base_offset) for each in responses] == [
        (0, 0, 0),
        (9, 3, -1),
        (1, 0, 0),
    ]


@pytest.mark.parametrize(
    ("records", "version", "code"),
    [
        (None, 13, ErrorCode.INVALID_RECORD),
        (memoryview(b""), 13, ErrorCode.INVALID_RECORD),
        (batch(b"a")[:-1], 13, ErrorCode.INVALID_RECORD),
        (memoryview(bytes(batch(b"a")) * 2), 13, ErrorCode.INVALID_RECORD),
        (memoryview(bytes(batch(b"a"))[:16] + b"\1" + bytes(batch(b"a"))[17:]), 13, ErrorCode.INVALID_RECORD),
        (memoryview(bytes(batch(b"a"))[:8] + bytes(4) + bytes(batch(b"a"))[12:]), 13, ErrorCode.CORRUPT_MESSAGE),
        (memoryview(bytes(batch(b"abc"))[:-2] + b"zz"), 13, ErrorCode.CORRUPT_MESSAGE),
        (batch(b"a", compression=ZSTD), 6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (batch(b"a", compression=ZSTD), 7, ErrorCode.NONE),
        (batch(b"a" * 2_000_000), 13, ErrorCode.MESSAGE_TOO_LARGE),
        (batch(b"a", timestamp_ms=NOW_MS + 2 * 3_600_000), 13, ErrorCode.INVALID_TIMESTAMP),
        (batch(b"a", is_control=True), 13, ErrorCode.INVALID_RECORD),
    ],
)
async def test_what_is_no_batch_to_append_is_refused_with_its_code(
    loop: SimLoop, records: Any, version: int, code: ErrorCode
) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic()
    reported = send_one(hosting, records, version)
    assert reported.error_code == code
    assert reported.base_offset == (-1 if code else 0)
    assert partition.log.log_end_offset == (0 if code else 1)


async def test_what_is_cut_short_behind_the_batch_is_left_out(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic()
    whole = bytes(batch(b"a"))
    assert send_one(hosting, memoryview(whole + whole[:20])).error_code == 0
    assert partition.log.size_bytes == len(whole)


async def test_records_without_key_to_a_compacted_topic_are_named_one_by_one(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    hosting.create_topic(configs={"cleanup.policy": "compact"})
    refused = send_one(hosting, batch(b"a", b"b"))
    assert (refused.error_code, refused.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert [error.batch_index for error in refused.record_errors] == [0, 1]
    assert refused.error_message
    assert refused.log_start_offset == 0
    assert send_one(hosting, batch(b"a", key=b"k")).error_code == 0


async def test_the_append_time_is_returned_if_the_topic_uses_it(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    hosting.create_topic(configs={"message.timestamp.type": "LogAppendTime"})
    assert send_one(hosting, batch(b"a", timestamp_ms=5)).log_append_time_ms == NOW_MS


async def test_a_changed_topic_config_holds_for_the_next_append(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    hosting.create_topic()
    assert send_one(hosting, batch(b"a" * 500)).error_code == 0
    hosting.alter_configs("orders", {"max.message.bytes": "300"})
    assert send_one(hosting, batch(b"a" * 500)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    hosting.alter_configs("orders", {"max.message.bytes": None})
    assert send_one(hosting, batch(b"a" * 500)).error_code == 0


def idempotent(sequence: int, epoch: int = 0, producer_id: int = 7) -> memoryview:
    return batch(b"a", producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


async def test_idempotent_producers(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic()
    reported = [send_one(hosting, idempotent(sequence)) for sequence in (3, 4, 5, 4, 3)]
    assert [(each.error_code, each.base_offset) for each in reported] == [(0, 0), (0, 1), (0, 2), (0, 1), (0, 0)]
    gap = send_one(hosting, idempotent(7))
    assert (gap.error_code, gap.base_offset) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert send_one(hosting, idempotent(0, epoch=1)).base_offset == 3
    assert send_one(hosting, idempotent(6)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition.log.log_end_offset == 4


async def test_a_duplicate_survives_a_restart(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    hosting.create_topic()
    assert send_one(hosting, idempotent(0)).base_offset == 0
    hosting.restart()
    assert send_one(hosting, idempotent(0)).base_offset == 0
    assert send_one(hosting, idempotent(1)).base_offset == 1


async def test_a_recreated_topic_knows_nothing_of_its_producers_before(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    hosting.create_topic()
    assert send_one(hosting, idempotent(5)).base_offset == 0
    hosting.delete_topic()
    hosting.create_topic(generation=2)
    assert send_one(hosting, idempotent(5)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert send_one(hosting, idempotent(5), 12).base_offset == 0
    assert send_one(hosting, idempotent(6), 12).base_offset == 1


async def test_too_few_in_sync_replicas_refuse_acks_all_only(loop: SimLoop) -> None:
    hosting = Hosting(loop, broker_count=2)
    hosting.create_topic(replicas=(1, 2), isr=(1,), configs={"min.insync.replicas": "2"})
    refused = send_one(hosting, batch(b"a"), acks=-1)
    assert (refused.error_code, refused.base_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
    assert send_one(hosting, batch(b"a"), acks=1).error_code == 0


async def test_min_isr_above_the_replicas_counts_as_all_of_them(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    hosting.create_topic(configs={"min.insync.replicas": "3"})
    assert send_one(hosting, batch(b"a"), acks=-1).error_code == 0


async def test_acks_all_waits_for_the_followers(loop: SimLoop) -> None:
    hosting = Hosting(loop, broker_count=2)
    partition = hosting.create_topic(replicas=(1, 2))
    task = hosting.start(produce.handle(hosting.services(), context(), request(13, (0, batch(b"a")), acks=-1)))
    await run_scheduled()
    assert not task.done()
    if partition.record_follower_fetch(2, fetch_offset=1, log_start_offset=0, now_ms=0):
        hosting.manager.complete_waiting(partition)
    reported = (await task).responses[0].partition_responses[0]
    assert (reported.error_code, reported.base_offset, loop.now_ms()) == (0, 0, 0)


async def test_acks_all_times_out(loop: SimLoop) -> None:
    hosting = Hosting(loop, broker_count=2)
    hosting.create_topic(replicas=(1, 2))
    requested = request(13, (0, batch(b"a")), acks=-1, timeout_ms=1_500)
    reported = (await produce.handle(hosting.services(), context(), requested)).responses[0].partition_responses[0]
    assert (reported.error_code, loop.now_ms()) == (ErrorCode.REQUEST_TIMED_OUT, 1_500)
    assert hosting.manager.waiting_count == 0


async def test_a_waiting_append_learns_that_the_isr_shrank_or_the_leader_went(loop: SimLoop) -> None:
    hosting = Hosting(loop, broker_count=2)
    hosting.create_topic(replicas=(1, 2), configs={"min.insync.replicas": "2"})
    services = hosting.services()
    task = hosting.start(produce.handle(services, context(), request(13, (0, batch(b"a")), acks=-1)))
    await run_scheduled()
    hosting.commit(PartitionChangeRecord(partition_id=0, topic_id=topic_id("orders"), leader=2, isr=[2]))
    reported = (await task).responses[0].partition_responses[0]
    assert reported.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def transactional() -> memoryview:
    return batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)


async def test_transactional_batches_need_the_right_to_a_transactional_id(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    hosting.create_topic(partition_count=2)
    denied = Deny((AclOperation.WRITE, "t"))
    for transactional_id in (None, "t"):
        requested = request(13, (0, batch(b"a")), (1, transactional()), transactional_id=transactional_id)
        codes = [each.error_code for each in send(hosting, requested, authorizer=denied)]
        assert codes == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2


async def test_a_topic_needs_the_right_to_write(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic()
    denied = Deny((AclOperation.WRITE, "orders"))
    for version in (12, 13):
        refused = send(hosting, request(version, (0, batch(b"a"))), version, authorizer=denied)[0]
        assert (refused.error_code, refused.base_offset) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)
    assert partition.log.log_end_offset == 0


async def test_internal_topics_are_for_the_admin_client_only(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    hosting.create_topic("__consumer_offsets")
    requested = request(13, (0, batch(b"a", key=b"k")), topic="__consumer_offsets")
    assert send(hosting, requested)[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert send(hosting, requested, client_id="__admin_client")[0].error_code == 0


async def test_a_failed_disk_is_a_storage_error_for_all_of_its_partitions(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    hosting.create_topic(partition_count=2)
    hosting.disk.fail("write", path="orders-0")
    responses = send(hosting, request(13, (0, batch(b"a")), (1, batch(b"a"))))
    assert [each.error_code for each in responses] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert [each.base_offset for each in responses] == [-1, -1]


async def test_a_full_disk_refuses_and_goes_on_once_there_is_room(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    hosting.create_topic()
    hosting.disk.fail("write", errno.ENOSPC, path=".log")
    assert send_one(hosting, batch(b"a")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert send_one(hosting, batch(b"a")).base_offset == 0


@pytest.mark.parametrize("acks", [1, -1])
async def test_a_produce_to_many_partitions_is_handled_in_turns(loop: SimLoop, acks: int) -> None:
    """Each outcome, and their order, is that of a small one."""
    hosting = Hosting(loop)
    count = 5 * STEPS_PER_TURN
    hosting.create_topic("orders", count)
    sent = [(number % (count + 10), batch(b"a") if number % 7 else b"broken") for number in range(count)]
    services = hosting.services(None)
    services.turns = turns = CountedTurns()
    large = context(13)
    large.is_long = True
    await produce.handle(services, large, request(13, *sent, acks=acks))
    response = await produce.handle(services, large, request(13, *sent, (count + 1, batch(b"b")), acks=acks))
    (parts,) = (topic.partition_responses for topic in response.responses)
    assert [part.index for part in parts] == [*(number for number, _ in sent), count + 1]
    assert [part.base_offset for part in parts] == [*(1 if number % 7 else -1 for number in range(count)), -1]
    assert parts[-1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert turns.count >= 2 * 2 * (count // STEPS_PER_TURN - 1), "planned and appended, twice"
