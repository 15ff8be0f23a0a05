"""The transaction coordinator's runtime: markers in the same turn, later ones, time-outs, loading, what it imports."""

import asyncio
import errno
import subprocess
import sys
from collections import Counter
from collections.abc import Coroutine
from typing import Any

import pytest

from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.partition_change_record import PartitionChangeRecord
from kafkapy.record.builder import build_batch
from kafkapy.runtime.coordinators.coordinator import LOGGED_VERSIONS
from kafkapy.runtime.coordinators.marker_writer import MARKERS_PER_FLUSH, MAX_MARKERS_NOW
from kafkapy.runtime.coordinators.markers import Marker, MarkerResults
from kafkapy.transaction.settings import TRANSACTION_STATE_TOPIC
from kafkapy.types import TopicPartition
from tests.simulator.io_pool import SimIoPool
from tests.simulator.loop import SimLoop
from tests.support.hosting import NOW_MS, run_scheduled, topic_id
from tests.support.transaction_hosting import SimProducer, TransactionHosting, batches_of, shape_of


async def hosting_with_producer(
    loop: SimLoop, *topics: str, **properties: str
) -> tuple[TransactionHosting, SimProducer]:
    hosting = TransactionHosting(loop, **properties)
    hosting.create_state_topic()
    for topic in topics or ("orders",):
        hosting.create_topic(topic)
    producer = SimProducer(hosting)
    assert await producer.init() == ErrorCode.NONE
    return hosting, producer


async def test_markers_and_the_end_stand_before_the_response(loop: SimLoop):
    hosting, producer = await hosting_with_producer(loop, "orders", "trades")
    assert [await producer.send("orders"), await producer.send("trades")] == [0, 0]
    assert await producer.end() == ErrorCode.NONE
    assert producer.state() == "CompleteCommit"
    for topic in ("orders", "trades"):
        assert shape_of(batches_of(hosting, topic)) == ["records", "marker"]
        assert hosting.log(topic).last_stable_offset == 2


async def test_markers_of_one_turn_for_one_partition_are_one_write(loop: SimLoop):
    hosting, _ = await hosting_with_producer(loop)
    producers = [SimProducer(hosting, f"t-{number}") for number in range(10)]
    for producer in producers:
        await producer.init()
        await producer.send()
    writes: Counter[str] = Counter()

    def note(operation: str, path: str) -> None:
        if operation == "write" and path.endswith(".log"):
            writes[path.split("/")[2]] += 1

    hosting.disk.hook = note
    assert await asyncio.gather(*(producer.end() for producer in producers)) == [0] * 10
    assert shape_of(batches_of(hosting, "orders")) == ["records"] * 10 + ["marker"] * 10
    assert [producer.state() for producer in producers] == ["CompleteCommit"] * 10
    assert writes == {"orders-0": 1, "__transaction_state-0": 10 + 1}, "ten decisions, and their completions together"


async def test_completions_that_cannot_be_written_together_are_tried_again(loop: SimLoop):
    hosting, _ = await hosting_with_producer(loop)
    producers = [SimProducer(hosting, f"t-{number}") for number in range(3)]
    for producer in producers:
        await producer.init()
        await producer.send()
    state_writes = 0

    def fill_disk(operation: str, path: str) -> None:
        nonlocal state_writes
        if operation == "write" and path.startswith("/data/__transaction_state-0/"):
            state_writes += 1
            if state_writes > len(producers):
                raise OSError(errno.ENOSPC, "no space")

    hosting.disk.hook = fill_disk
    assert await asyncio.gather(*(producer.end() for producer in producers)) == [0] * 3
    assert shape_of(batches_of(hosting, "orders")) == ["records"] * 3 + ["marker"] * 3
    assert [producer.state() for producer in producers] == ["PrepareCommit"] * 3
    hosting.disk.hook = None
    await asyncio.sleep(1)
    assert [producer.state() for producer in producers] == ["CompleteCommit"] * 3
    assert shape_of(batches_of(hosting, "orders")) == ["records"] * 3 + ["marker"] * 3


def is_answered_at_once(end: Coroutine[Any, Any, int]) -> bool:
    """Whether EndTxn is answered, with NONE, before the loop goes on."""
    try:
        end.send(None)
    except StopIteration as stop:
        return bool(stop.value == ErrorCode.NONE)
    end.close()
    return False


async def test_markers_that_have_no_other_to_wait_for_are_written_with_the_decision(loop: SimLoop):
    hosting, producer = await hosting_with_producer(loop, "orders", "trades")
    await producer.send("orders")
    await producer.send("trades")
    assert is_answered_at_once(producer.end())
    assert producer.state() == "CompleteCommit"
    for topic in ("orders", "trades"):
        assert shape_of(batches_of(hosting, topic)) == ["records", "marker"]


async def test_markers_wait_for_another_transaction_of_the_partition(loop: SimLoop):
    hosting, producer = await hosting_with_producer(loop)
    other = SimProducer(hosting, "other")
    await other.init()
    await producer.send()
    await other.send()
    assert not is_answered_at_once(producer.end())
    assert producer.state() == "PrepareCommit"
    await run_scheduled()
    assert producer.state() == "CompleteCommit"
    assert is_answered_at_once(other.end()), "no other is open any more"


async def test_markers_of_many_partitions_wait_for_the_next_pass(loop: SimLoop):
    hosting, producer = await hosting_with_producer(loop)
    hosting.create_topic("wide", MAX_MARKERS_NOW + 1)
    for partition_id in range(MAX_MARKERS_NOW + 1):
        await producer.send("wide", partition_id=partition_id)
    assert not is_answered_at_once(producer.end())
    await run_scheduled()
    assert producer.state() == "CompleteCommit"


async def test_a_transaction_of_very_many_partitions_is_ended_in_slices(loop: SimLoop):
    hosting, producer = await hosting_with_producer(loop)
    hosting.create_topic("wide", MARKERS_PER_FLUSH + 5)
    for partition_id in range(MARKERS_PER_FLUSH + 5):
        assert await producer.send("wide", partition_id=partition_id) == ErrorCode.NONE
    assert await producer.end() == ErrorCode.NONE
    assert producer.state() == "CompleteCommit"
    assert shape_of(batches_of(hosting, "wide", MARKERS_PER_FLUSH + 4)) == ["records", "marker"]


async def test_a_marker_that_is_fenced_takes_no_other_along(loop: SimLoop):
    hosting, producer = await hosting_with_producer(loop)
    other = SimProducer(hosting, "other")
    await other.init()
    await producer.send()
    await other.send()
    hosting.log().producer_state.producers[other.producer_id].move_to_epoch(9)
    assert await asyncio.gather(producer.end(), other.end()) == [0, 0]
    assert producer.state() == "CompleteCommit"
    assert shape_of(batches_of(hosting, "orders")) == ["records", "records", "marker"]


async def test_a_partition_without_room_holds_up_no_response_and_gets_its_marker_later(loop: SimLoop):
    hosting, producer = await hosting_with_producer(loop, "orders", "trades")
    await producer.send("orders")
    await producer.send("trades")

    def fill_disk(operation: str, path: str) -> None:
        if operation == "write" and path.startswith("/data/trades-0/"):
            raise OSError(errno.ENOSPC, "no space")

    hosting.disk.hook = fill_disk
    assert await producer.end() == ErrorCode.NONE
    assert producer.state() == "PrepareCommit"
    assert shape_of(batches_of(hosting, "orders")) == ["records", "marker"]
    assert await producer.send("orders") == ErrorCode.CONCURRENT_TRANSACTIONS
    hosting.disk.hook = None
    await asyncio.sleep(6)
    assert producer.state() == "CompleteCommit"
    assert shape_of(batches_of(hosting, "trades")) == ["records", "marker"]
    assert await producer.send("orders") == ErrorCode.NONE


async def test_an_end_that_finds_no_room_for_its_own_record_is_completed_later(loop: SimLoop):
    hosting, producer = await hosting_with_producer(loop)
    await producer.send()
    seen = 0

    def fill_disk(operation: str, path: str) -> None:
        nonlocal seen
        if operation == "write" and path.startswith(f"/data/{TRANSACTION_STATE_TOPIC}-0/"):
            seen += 1
            if seen > 1:
                raise OSError(errno.ENOSPC, "no space")

    hosting.disk.hook = fill_disk
    assert await producer.end() == ErrorCode.NONE
    assert producer.state() == "PrepareCommit"
    hosting.disk.hook = None
    await asyncio.sleep(6)
    assert producer.state() == "CompleteCommit"
    assert shape_of(batches_of(hosting, "orders")) == ["records", "marker"], "it is not written again"


async def test_a_prepare_that_finds_no_room_is_refused_and_the_transaction_goes_on(loop: SimLoop):
    hosting, producer = await hosting_with_producer(loop)
    await producer.send()

    def fill_disk(operation: str, path: str) -> None:
        if operation == "write" and path.startswith(f"/data/{TRANSACTION_STATE_TOPIC}-0/"):
            raise OSError(errno.ENOSPC, "no space")

    hosting.disk.hook = fill_disk
    with pytest.raises(ApiError) as caught:
        await producer.end()
    assert caught.value.code == ErrorCode.NOT_COORDINATOR
    hosting.disk.hook = None
    assert (producer.state(), shape_of(batches_of(hosting, "orders"))) == ("Ongoing", ["records"])
    await asyncio.sleep(2)
    assert await producer.end() == ErrorCode.NONE


async def test_a_transaction_that_is_decided_is_completed_by_the_next_start(loop: SimLoop):
    hosting, producer = await hosting_with_producer(loop)
    await producer.send()

    def fail_markers(operation: str, path: str) -> None:
        if operation == "write" and path.startswith("/data/orders-0/"):
            raise OSError(errno.ENOSPC, "no space")

    hosting.disk.hook = fail_markers
    await producer.end(commit=False)
    hosting.disk.hook = None
    await hosting.transactions.close()
    hosting.restart()
    await hosting.loaded()
    await run_scheduled()
    assert producer.state() == "CompleteAbort"
    assert shape_of(batches_of(hosting, "orders")) == ["records", "marker"]


async def test_records_of_unknown_versions_are_ignored_with_a_warning(loop: SimLoop, caplog: pytest.LogCaptureFixture):
    """Apache Kafka 4.3.1 logs each: "Unknown message value with version 2 while loading transaction state from
    __transaction_state-0. Ignoring it. It could be a left over from an aborted upgrade."
    """

    hosting, producer = await hosting_with_producer(loop)
    (known,) = [record for batch in batches_of(hosting, TRANSACTION_STATE_TOPIC) for record in batch.records()]
    assert known.key is not None
    assert known.value is not None
    other = known.key[:-1] + b"u"
    unknown = [
        (other, b"\0\2" + known.value[2:]),
        (b"\0\1" + other[2:], known.value),
        (b"\0\1" + other[2:], None),
        *((version.to_bytes(2, "big"), b"\0\0") for version in range(2, 2 + LOGGED_VERSIONS)),
    ]
    for key, value in [*unknown, (known.key[:-1] + b"v", known.value)]:
        hosting.log(TRANSACTION_STATE_TOPIC).append_as_leader(
            bytearray(build_batch([(NOW_MS, key, value, ())])), leader_epoch=0, now_ms=NOW_MS
        )
    await hosting.transactions.close()
    hosting.restart()
    await hosting.loaded()
    assert set(hosting.transactions.host_of("t").shard.transactions) == {producer.transactional_id, "v"}
    (warning,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert warning == (
        "Ignored 8 records of __transaction_state-0 with unknown versions (1 of key 0, value 2; 1 of key 1, value 1; "
        "1 of key 1; 1 of key 2, value 0; 1 of key 3, value 0; 3 of others); they may be left over from an aborted "
        "upgrade"
    )


async def test_a_marker_in_the_log_of_the_coordinator_keeps_no_shard_from_loading(loop: SimLoop):
    """WriteTxnMarkers takes any partition, and any producer id."""
    hosting, producer = await hosting_with_producer(loop)
    await producer.send()
    results: list[MarkerResults] = []
    marker = Marker(producer_id=77, producer_epoch=0, is_commit=True, coordinator_epoch=0, transaction_version=0)
    own = TopicPartition(TRANSACTION_STATE_TOPIC, 0)
    hosting._new_sink().write({own: [marker]}, timeout_ms=1000, on_done=results.append)
    assert results == [{own: [ErrorCode.NONE]}]
    await hosting.transactions.close()
    hosting.restart()
    await hosting.loaded()
    assert producer.state() == "Ongoing"
    assert await producer.end() == ErrorCode.NONE
    assert producer.state() == "CompleteCommit"


async def test_the_slowest_load_of_the_last_half_minute_is_exported(loop: SimLoop):
    hosting, _ = await hosting_with_producer(loop)
    assert hosting.transactions.max_load_time_ms() == 0
    hosting.io_pool = SimIoPool(loop, call_ms=7)
    await hosting.transactions.close()
    hosting.restart()
    await hosting.loaded()
    assert 7 <= hosting.transactions.max_load_time_ms() < 100
    await asyncio.sleep(30.1)
    assert hosting.transactions.max_load_time_ms() == 0


async def test_a_transaction_over_its_timeout_is_aborted_with_a_higher_epoch(loop: SimLoop):
    hosting, producer = await hosting_with_producer(loop)
    await producer.init(timeout_ms=5000)
    await producer.send()
    await hosting.transactions.abort_timed_out()
    assert producer.state() == "Ongoing"
    await asyncio.sleep(5.001)
    await hosting.transactions.abort_timed_out()
    await run_scheduled()
    assert producer.state() == "CompleteAbort"
    assert await producer.end() == ErrorCode.INVALID_TXN_STATE
    assert hosting.log().last_stable_offset == hosting.log().log_end_offset


async def test_ids_that_nobody_uses_are_forgotten(loop: SimLoop):
    hosting, producer = await hosting_with_producer(loop, transactional_id_expiration_ms="10000")
    await hosting.transactions.expire()
    assert producer.state() == "Empty"
    await asyncio.sleep(10.001)
    await hosting.transactions.expire()
    host = hosting.transactions.host_of("t")
    assert host.shard.transactions == {}
    assert batches_of(hosting, TRANSACTION_STATE_TOPIC)[-1].producer_id == -1


async def test_a_producer_id_is_waited_for(loop: SimLoop):
    hosting, _ = await hosting_with_producer(loop)
    producers = [SimProducer(hosting, f"t-{number}") for number in range(25)]
    assert await asyncio.gather(*(producer.init() for producer in producers)) == [0] * 25
    assert len({producer.producer_id for producer in producers}) == 25


async def test_a_partition_without_a_leader_gets_its_marker_later(loop: SimLoop):
    """Apache Kafka 4.3.1 takes it for deleted: KAFKA-20734."""
    hosting, producer = await hosting_with_producer(loop)
    await producer.send()
    hosting.commit(PartitionChangeRecord(partition_id=0, topic_id=topic_id("orders"), leader=-1, isr=[1]))
    assert await producer.end() == ErrorCode.NONE
    assert producer.state() == "PrepareCommit"
    hosting.commit(PartitionChangeRecord(partition_id=0, topic_id=topic_id("orders"), leader=1))
    await asyncio.sleep(5)
    assert producer.state() == "CompleteCommit"
    assert shape_of(batches_of(hosting, "orders")) == ["records", "marker"]


async def test_a_deleted_topic_needs_no_marker(loop: SimLoop):
    hosting, producer = await hosting_with_producer(loop, "orders", "trades")
    await producer.send("orders")
    await producer.send("trades")
    hosting.delete_topic("trades")
    assert await producer.end() == ErrorCode.NONE
    assert producer.state() == "CompleteCommit"


async def test_effects_of_a_lost_partition_are_dropped(loop: SimLoop):
    hosting, producer = await hosting_with_producer(loop)
    await producer.send()

    def fail_markers(operation: str, path: str) -> None:
        if operation == "write" and path.startswith("/data/orders-0/"):
            raise OSError(errno.ENOSPC, "no space")

    hosting.disk.hook = fail_markers
    await producer.end()
    hosting.delete_topic(TRANSACTION_STATE_TOPIC)
    hosting.disk.hook = None
    await asyncio.sleep(10)
    assert shape_of(batches_of(hosting, "orders")) == ["records"], "its coordinator is another one"
    assert hosting.clock.wall_ms() > NOW_MS


def test_nothing_of_transactions_is_imported_at_the_start():
    program = """
import sys
import kafkapy.server.broker, kafkapy.serving.router
LATE = ("shard_host", "markers", "marker_writer", "transaction_host")
late = tuple(f"kafkapy.runtime.coordinators.{name}" for name in LATE)
late += ("kafkapy.transaction.", "kafkapy.runtime.peer", "kafkapy.protocol.messages.add_partitions_to_txn")
print([name for name in sys.modules if name.startswith(late) and name != "kafkapy.transaction.settings"])
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == "[]"
