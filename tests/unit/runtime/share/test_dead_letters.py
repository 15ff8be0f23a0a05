"""What a share group gives up goes to its dead-letter topic once, or is archived without; it never hangs."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

import pytest

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.record.compression import GZIP
from kafkapy.share.persister import PartitionResult, StateRead, StateReadResult, StateWrite
from kafkapy.share.record_state import ACK_ACCEPT, ACK_REJECT, ACK_RELEASE, RecordState
from tests.simulator.loop import SimLoop
from tests.support.dead_letters import DEAD, ENABLED, LetterShares, batches_in, offset_of
from tests.support.hosting import NOW_MS
from tests.support.share_partition_hosting import MemoryPersister, acquired_of

COPY = {"errors_deadletterqueue_copy_record_enable": "true"}
AUTO = {"errors_deadletterqueue_auto_create_topics_enable": "true"}
HEADERS = (
    ("__dlq.errors.topic", b"orders"),
    ("__dlq.errors.partition", b"0"),
    ("__dlq.errors.offset", b"1"),
    ("__dlq.errors.group", b"g"),
    ("__dlq.errors.delivery.count", b"1"),
    ("__dlq.errors.message", b"Offset rejected by client."),
)


async def reject(shares: LetterShares, *offsets: int, count: int = 3, kind: int = ACK_REJECT) -> None:
    """Produce records, and let a member reject some of them and accept the others."""
    shares.produce(*[b"value %d" % number for number in range(count)], key=b"key")
    await acknowledge(shares, offsets, kind)


async def acknowledge(shares: LetterShares, offsets: Sequence[int], kind: int = ACK_REJECT) -> None:
    member = shares.member()
    acquired = await member.acquire()
    response = await member.acknowledge(
        {
            0: [
                (first, last, [kind if offset in offsets else ACK_ACCEPT for offset in range(first, last + 1)])
                for first, last, _ in acquired
            ]
        }
    )
    assert response.responses[0].partitions[0].error_code == 0
    shares.partitions.connection_closed("c1")


def final_states(shares: LetterShares) -> dict[int, RecordState]:
    """Return the last state that was persisted of each offset."""
    return {
        offset: RecordState(batch.delivery_state)
        for write in shares.persister.writes
        for batch in write.state_batches
        for offset in range(batch.first_offset, batch.last_offset + 1)
    }


def is_archived(shares: LetterShares, *offsets: int) -> bool:
    states = final_states(shares)
    return all(states[offset] is RecordState.ARCHIVED for offset in offsets)


async def test_a_rejected_record_leaves_its_headers_and_is_then_archived(loop: SimLoop) -> None:
    shares = LetterShares(loop)
    await reject(shares, 1)
    await asyncio.sleep(1)
    (letter,) = shares.letters()
    assert (letter.key, letter.value, letter.headers) == (None, None, HEADERS)
    assert NOW_MS <= letter.timestamp_ms <= NOW_MS + 5_000
    states = [
        RecordState(batch.delivery_state)
        for write in shares.persister.writes
        for batch in write.state_batches
        if batch.first_offset <= 1 <= batch.last_offset
    ]
    assert states == [RecordState.ARCHIVING, RecordState.ARCHIVED]
    await shares.partitions.close()


async def test_key_and_value_are_copied_if_the_group_says_so(loop: SimLoop) -> None:
    shares = LetterShares(loop, **COPY)
    await reject(shares, 0, 2)
    await asyncio.sleep(1)
    assert [(each.key, each.value, offset_of(each)) for each in shares.letters()] == [
        (b"key", b"value 0", 0),
        (b"key", b"value 2", 2),
    ]
    await shares.partitions.close()


async def test_records_of_a_compressed_batch_are_copied_too_large_ones_leave_headers(loop: SimLoop) -> None:
    shares = LetterShares(loop, **COPY)
    shares.configure_topic(**{"max.message.bytes": "1000"})
    shares.produce(b"a" * 100, b"b" * 100, compression=GZIP)
    shares.produce(b"c" * 600, b"d" * 600, compression=GZIP)  # inflates to more than 1,000 bytes
    shares.produce(b"e" * 2000)
    shares.produce(b"f" * 900)  # with its headers it is too large
    shares.produce(b"g")
    await acknowledge(shares, range(7))
    await asyncio.sleep(1)
    found = {offset_of(each): each.value for each in shares.letters()}
    assert found == {0: b"a" * 100, 1: b"b" * 100, 2: None, 3: None, 4: None, 5: None, 6: b"g"}
    assert is_archived(shares, *range(7))
    await shares.partitions.close()


async def test_a_long_run_is_written_in_batches_that_the_topic_takes(loop: SimLoop) -> None:
    shares = LetterShares(loop, **COPY)
    shares.configure_topic(**{"max.message.bytes": "2000"})
    await reject(shares, *range(100), count=100)
    await asyncio.sleep(1)
    assert shares.letter_offsets() == list(range(100))
    counts = shares.counts.letters_of("g")
    assert (counts.written_records, counts.failed_requests) == (100, 0)
    assert counts.requests == len(batches_in(shares.hosting)) > 5
    assert all(1_000 < batch.size_bytes <= 2_000 for batch in batches_in(shares.hosting)[:-1])
    await shares.partitions.close()


async def test_letters_of_one_acknowledgement_share_a_batch(loop: SimLoop) -> None:
    shares = LetterShares(loop)
    await reject(shares, *range(0, 20, 2), count=20)
    await asyncio.sleep(1)
    assert [batch.record_count for batch in batches_in(shares.hosting)] == [10]
    archived = [write for write in shares.persister.writes if write.state_batches[0].delivery_state == 4]
    assert [len(write.state_batches) for write in archived] == [10], "and one write of their state"
    await shares.partitions.close()


async def test_a_record_out_of_attempts_is_a_dead_letter(loop: SimLoop) -> None:
    shares = LetterShares(loop, share_delivery_count_limit="2")
    shares.produce(b"poison")
    for _ in range(2):
        await acknowledge(shares, [0], ACK_RELEASE)
    await asyncio.sleep(1)
    (letter,) = shares.letters()
    headers = dict(letter.headers)
    assert headers["__dlq.errors.delivery.count"] == b"2"
    assert headers["__dlq.errors.message"] == b"Offset delivery count exceeded the threshold."
    await shares.partitions.close()


async def test_without_a_topic_name_nothing_is_written(loop: SimLoop) -> None:
    shares = LetterShares(loop)
    shares.configure(**{"errors.deadletterqueue.topic.name": "  "})
    await reject(shares, 1)
    await asyncio.sleep(1)
    assert shares.letters() == []
    assert is_archived(shares, 1)
    await shares.partitions.close()


@pytest.mark.parametrize(
    ("topic", "configs", "why"),
    [
        ("dlq.dead", {"errors.deadletterqueue.group.enable": "false"}, "does not have errors.deadletterqueue.group"),
        ("dead", {}, "does not begin with errors.deadletterqueue.topic.name.prefix=dlq."),
        ("dlq.missing", {}, "does not exist, and errors.deadletterqueue.auto.create.topics.enable is false"),
    ],
)
async def test_a_topic_that_is_forbidden_gets_nothing(
    loop: SimLoop, caplog: pytest.LogCaptureFixture, topic: str, configs: dict[str, str], why: str
) -> None:
    shares = LetterShares(loop)
    shares.configure(**{"errors.deadletterqueue.topic.name": topic})
    shares.configure_topic(**configs)
    if topic == "dead":
        shares.hosting.create_topic(topic, configs={"errors.deadletterqueue.group.enable": "true"})
    with caplog.at_level(logging.ERROR):
        await reject(shares, 1)
        await asyncio.sleep(1)
    assert why in caplog.text
    assert "Offsets 1 to 1" in caplog.text
    assert shares.letters() == []
    assert is_archived(shares, 1)
    assert shares.maker.requests == []
    await shares.partitions.close()


async def test_a_reason_is_logged_once_a_minute_with_how_much_it_cost(
    loop: SimLoop, caplog: pytest.LogCaptureFixture
) -> None:
    shares = LetterShares(loop)
    shares.configure(**{"errors.deadletterqueue.topic.name": "dlq.missing"})
    await reject(shares, 0, 2, 4, count=6)
    await asyncio.sleep(1)
    assert len(caplog.records) == 1
    await asyncio.sleep(60)
    shares.produce(b"again")
    await acknowledge(shares, [6])
    await asyncio.sleep(1)
    assert len(caplog.records) == 2
    assert caplog.messages[1].endswith("; so are 2 records before")
    await shares.partitions.close()


async def test_a_missing_topic_is_created_once(loop: SimLoop) -> None:
    shares = LetterShares(loop, has_topic=False, properties=AUTO)
    await reject(shares, 0, 2)
    await asyncio.sleep(1)
    (request,) = shares.maker.requests
    (topic,) = request.topics
    assert (topic.name, topic.num_partitions, topic.replication_factor) == (DEAD, -1, -1)
    assert {each.name: each.value for each in topic.configs} == {
        "errors.deadletterqueue.group.enable": "true",
        "message.timestamp.type": "CreateTime",
    }
    assert shares.letter_offsets() == [0, 2]
    await shares.partitions.close()


@pytest.mark.parametrize(
    ("responses", "seconds", "is_written"),
    [
        ([ErrorCode.TOPIC_ALREADY_EXISTS], 3, True),
        ([ErrorCode.NOT_CONTROLLER] * 4, 40, True),
        ([ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 5, 40, False),
        ([ErrorCode.POLICY_VIOLATION], 1, False),
    ],
)
async def test_a_creation_that_fails_is_tried_again_or_given_up(
    loop: SimLoop, responses: list[ErrorCode], seconds: int, is_written: bool
) -> None:
    shares = LetterShares(loop, has_topic=False, properties=AUTO)
    shares.maker.responses = list(responses)
    await reject(shares, 1)
    await asyncio.sleep(seconds)
    assert len(shares.maker.requests) == len(responses) + is_written
    assert is_archived(shares, 1)
    if is_written:
        assert shares.letter_offsets() == [1]
    else:
        assert DEAD not in shares.hosting.cluster.image.topics.by_name
    await shares.partitions.close()


async def test_too_few_replicas_are_waited_for(loop: SimLoop) -> None:
    shares = LetterShares(loop, has_topic=False, properties={"broker_count": 2})
    shares.hosting.create_topic(DEAD, replicas=(1, 2), isr=(1,), configs=ENABLED | {"min.insync.replicas": "2"})
    await reject(shares, 1)
    await asyncio.sleep(1)
    assert (shares.letters(), is_archived(shares, 1)) == ([], False)
    shares.configure_topic(**{"min.insync.replicas": "1"})
    await asyncio.sleep(3)
    assert (shares.letter_offsets(), is_archived(shares, 1)) == ([1], True)
    await shares.partitions.close()


async def test_a_leader_is_waited_for_half_a_minute(loop: SimLoop, caplog: pytest.LogCaptureFixture) -> None:
    shares = LetterShares(loop)
    shares.elect(-1)
    await reject(shares, 0)
    await asyncio.sleep(20)
    assert not is_archived(shares, 0)
    await asyncio.sleep(20)
    assert is_archived(shares, 0)
    assert "dlq.dead has no leader for a partition" in caplog.text
    shares.elect(1)
    assert shares.letters() == []
    assert shares.maker.requests == []
    await shares.partitions.close()


async def test_what_the_topic_refuses_is_archived_without(loop: SimLoop, caplog: pytest.LogCaptureFixture) -> None:
    shares = LetterShares(loop)
    shares.configure_topic(**{"cleanup.policy": "compact"})  # which takes no record without a key
    await reject(shares, 1)
    await asyncio.sleep(1)
    assert (shares.letters(), is_archived(shares, 1)) == ([], True)
    assert "INVALID_RECORD" in caplog.text
    counts = shares.counts.letters_of("g")
    assert (counts.written_records, counts.requests, counts.failed_requests) == (0, 1, 1)
    await shares.partitions.close()


async def test_what_was_not_copied_when_the_broker_died_is_copied_after_its_start(loop: SimLoop) -> None:
    shares = LetterShares(loop, share_delivery_count_limit="2")
    shares.elect(-1)
    await reject(shares, 1)
    await asyncio.sleep(1)
    await shares.partitions.close()
    assert not is_archived(shares, 1)
    shares.elect(1)
    shares.partitions = shares.new_partitions()
    await shares.member(connection="c2").acquire()
    await asyncio.sleep(1)
    assert (shares.letter_offsets(), is_archived(shares, 1)) == ([1], True)
    await shares.partitions.close()


async def test_a_copy_under_way_is_not_begun_again_when_the_share_partition_is_loaded_again(loop: SimLoop) -> None:
    """The last member has left, the next one comes while the topic still lacks a leader."""
    shares = LetterShares(loop)
    shares.elect(-1)
    await reject(shares, 1)
    await asyncio.sleep(0.5)
    assert (list(shares.partitions), is_archived(shares, 1)) == ([], False)
    member = shares.member("m2", connection="c2")
    assert acquired_of(await member.fetch(max_wait_ms=100)) == []
    shares.elect(1)
    await asyncio.sleep(3)
    assert (shares.letter_offsets(), is_archived(shares, 1)) == ([1], True)
    (in_use,) = shares.partitions
    assert in_use.partition.records.start_offset == 3
    await shares.partitions.close()


async def test_a_copy_that_ends_while_nobody_uses_the_share_partition_is_archived(loop: SimLoop) -> None:
    shares = LetterShares(loop)
    shares.elect(-1)
    await reject(shares, 1)
    await asyncio.sleep(0.5)
    assert not is_archived(shares, 1)
    shares.elect(1)
    await asyncio.sleep(3)
    assert list(shares.partitions) == []
    assert (shares.letter_offsets(), is_archived(shares, 1)) == ([1], True)
    await shares.member("m2", connection="c2").fetch(max_wait_ms=100)
    await asyncio.sleep(1)
    assert shares.letter_offsets() == [1], "not a second time after a load"
    await shares.partitions.close()


class FencingPersister(MemoryPersister):
    """Refuses writes of a share partition that has not read the state. `reading`: reads wait for it."""

    STATE_EPOCH = 7

    def __init__(self) -> None:
        super().__init__()
        self.reading = asyncio.Event()
        self.reading.set()

    async def read(self, group_id: str, reads: Sequence[StateRead]) -> list[StateReadResult]:
        await self.reading.wait()
        results = await super().read(group_id, reads)
        return [replace(each, state_epoch=self.STATE_EPOCH) for each in results]

    async def write(self, group_id: str, writes: Sequence[StateWrite]) -> list[PartitionResult]:
        if any(write.state_epoch < self.STATE_EPOCH for write in writes):
            self.errors.append(ErrorCode.FENCED_STATE_EPOCH)
        return await super().write(group_id, writes)


async def test_a_copy_is_archived_though_the_share_partition_cannot_be_loaded_again(loop: SimLoop) -> None:
    shares = LetterShares(loop)
    shares.persister = persister = FencingPersister()
    shares.elect(-1)
    await reject(shares, 1)
    await asyncio.sleep(0.5)
    persister.reading.clear()
    fetching = asyncio.ensure_future(shares.member("m2", connection="c2").fetch(max_wait_ms=100))
    shares.elect(1)
    await asyncio.sleep(3)
    assert (shares.letter_offsets(), is_archived(shares, 1)) == ([1], False)
    persister.errors.append(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    persister.reading.set()
    await fetching
    await asyncio.sleep(1)
    assert (list(shares.partitions), is_archived(shares, 1)) == ([], True)
    await shares.partitions.close()
