"""A log over time, by what its directory holds: rolled, kept, deleted, changed at run time, killed and started again.

KAFKAPY_COMPAT_SERVER=apache says the same of Apache Kafka 4.4.0.
"""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.servers import Server
from kafkapy.protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kafkapy.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkapy.record.batch import LOG_APPEND_TIME, RecordBatch
from kafkapy.record.compression import GZIP, LZ4, NONE, ZSTD
from tests.compat.conftest import new_server
from tests.support.batches import build_batch
from tests.support.client_requests import (
    EARLIEST,
    LATEST,
    batch_of,
    batches_in,
    create_topic,
    fetch,
    list_offset,
    produce,
    until,
)
from tests.support.wire import WireClient

TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
HOUR_MS = 3_600_000
OFTEN = {
    "log.initial.task.delay.ms": "50",
    "log.retention.check.interval.ms": "50",
    "log.flush.start.offset.checkpoint.interval.ms": "50",
    "log.segment.delete.delay.ms": "1000",
    "log.cleaner.backoff.ms": "100",
}


@pytest.fixture(scope="module")
def busy_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A broker that looks after its logs all the time."""
    with new_server(tmp_path_factory.mktemp("busy") / "data", OFTEN) as running:
        yield running


@pytest.fixture
def client(busy_server: Server) -> Iterator[WireClient]:
    with WireClient(busy_server.bootstrap) as client:
        yield client


def files(server: Server, topic: str, suffix: str = ".log") -> list[str]:
    """Return the names of a partition's files, base offsets shortened."""
    directory = server.directory / f"{topic}-0"
    return sorted(path.name.lstrip("0") for path in directory.iterdir() if path.name.endswith(suffix))


def alter(client: WireClient, name: str, *, kind: int = TOPIC, **configs: str | None) -> None:
    """Set configs, or delete those that are None."""
    changes = [
        AlterableConfig(key.replace("_", "."), config_operation=SET if text else DELETE, value=text)
        for key, text in configs.items()
    ]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(kind, resource_name=name, configs=changes)])
    (result,) = client.call(request, 1).responses
    assert result.error_code == 0, result


def old_batch(age_ms: int, count: int = 1, *, value: bytes = b"old") -> bytes:
    return build_batch([(int(time.time() * 1000) - age_ms, b"key", value, ())] * count)


def delete_records(client: WireClient, topic: str, offset: int) -> int:
    requested = DeleteRecordsTopic(topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])
    (response,) = client.call(DeleteRecordsRequest([requested], timeout_ms=30_000), 2).topics
    assert response.partitions[0].error_code == 0, response
    return int(response.partitions[0].low_watermark)


def let_retention_run(client: WireClient, topic: str) -> None:
    """Wait until a run that begins from now on has taken something."""
    other = f"{topic}-taken"
    create_topic(client, other, retention_ms=str(HOUR_MS))
    for end_offset in (1, 2):  # the run that takes the first may have begun before
        assert produce(client, other, old_batch(2 * HOUR_MS)).error_code == 0
        until(lambda: earliest(client, other) == end_offset)  # noqa: B023


def earliest(client: WireClient, topic: str) -> int:
    return int(list_offset(client, topic, EARLIEST).offset)


# -- rolling --------------------------------------------------------------------------------------------------------


def test_segments_are_rolled_by_size(client: WireClient, busy_server: Server, topic: str) -> None:
    create_topic(client, topic, segment_bytes="1048576", max_message_bytes="2000000")
    for _ in range(5):
        assert produce(client, topic, batch_of(2, value=bytes(300_000))).error_code == 0
    assert files(busy_server, topic) == [f"{base}.log".lstrip("0") for base in ("", 2, 4, 6, 8)]
    too_large = produce(client, topic, batch_of(value=bytes(1_100_000)))
    assert too_large.error_code == 18, "RECORD_LIST_TOO_LARGE: it would not fit into any segment"


def test_segments_are_rolled_by_the_time_of_records(client: WireClient, busy_server: Server, topic: str) -> None:
    """Between the first batch's timestamp and that of the one to come, not by the clock."""
    create_topic(
        client, topic, segment_ms=str(HOUR_MS), retention_ms="-1", message_timestamp_after_max_ms=str(9 * HOUR_MS)
    )
    for age_ms in (0, -HOUR_MS + 600_000, HOUR_MS, -2 * HOUR_MS, -2 * HOUR_MS, -3 * HOUR_MS - 60_000):
        assert produce(client, topic, old_batch(age_ms)).error_code == 0
    assert files(busy_server, topic) == [".log", "3.log", "5.log"]


def test_a_full_index_rolls_the_segment(client: WireClient, busy_server: Server, topic: str) -> None:
    """24 bytes: three entries by offset, one by time (the last is kept for the roll), each behind 100 bytes."""
    create_topic(client, topic, segment_index_bytes="24", index_interval_bytes="100")
    for _ in range(7):
        assert produce(client, topic, batch_of(value=bytes(200))).error_code == 0
    assert files(busy_server, topic) == [".log", "2.log", "4.log", "6.log"]


# -- retention ------------------------------------------------------------------------------------------------------


def test_retention_ms_takes_what_is_too_old_the_active_segment_too(
    client: WireClient, busy_server: Server, topic: str
) -> None:
    create_topic(client, topic, retention_ms="-1")
    assert produce(client, topic, old_batch(2 * HOUR_MS, 3)).error_code == 0
    let_retention_run(client, topic)
    assert earliest(client, topic) == 0
    alter(client, topic, retention_ms=str(HOUR_MS), file_delete_delay_ms="6000")
    until(lambda: earliest(client, topic) == 3)
    until(lambda: files(busy_server, topic) == ["3.log"])
    assert files(busy_server, topic, ".deleted") == [".index.deleted", ".log.deleted", ".timeindex.deleted"]
    until(lambda: not files(busy_server, topic, ".deleted"))
    assert produce(client, topic, batch_of()).base_offset == 3


def test_one_young_record_keeps_its_segment(client: WireClient, topic: str) -> None:
    create_topic(client, topic, retention_ms=str(HOUR_MS))
    now_ms = int(time.time() * 1000)
    mixed = build_batch([(now_ms - 9 * HOUR_MS, None, b"old", ()), (now_ms, None, b"new", ())])
    assert produce(client, topic, mixed).error_code == 0
    assert produce(client, topic, old_batch(9 * HOUR_MS)).error_code == 0
    let_retention_run(client, topic)
    assert earliest(client, topic) == 0


def test_retention_bytes_keeps_at_least_so_much(client: WireClient, busy_server: Server, topic: str) -> None:
    create_topic(client, topic, segment_bytes="1048576")
    for _ in range(4):
        assert produce(client, topic, batch_of(value=bytes(700_000))).error_code == 0
    alter(client, topic, retention_bytes="1400000")
    until(lambda: files(busy_server, topic) == ["2.log", "3.log"])
    assert earliest(client, topic) == 2
    alter(client, topic, retention_bytes="0")
    until(lambda: earliest(client, topic) == 4)


def test_a_brokers_config_reaches_the_topics_that_inherit_it(
    client: WireClient, busy_server: Server, topic: str
) -> None:
    create_topic(client, topic)
    own = f"{topic}-own"
    create_topic(client, own, retention_ms="-1")
    for name in (topic, own):
        assert produce(client, name, old_batch(2 * HOUR_MS)).error_code == 0
    alter(client, "", kind=BROKER, log_retention_ms=str(HOUR_MS))
    until(lambda: earliest(client, topic) == 1)
    assert earliest(client, own) == 0
    alter(client, "", kind=BROKER, log_retention_ms=None, message_max_bytes="100")
    until(lambda: produce(client, topic, batch_of(value=bytes(200))).error_code == 10)
    alter(client, "", kind=BROKER, message_max_bytes=None, log_message_timestamp_type="LogAppendTime")
    until(lambda: produce(client, topic, batch_of(value=bytes(200))).log_append_time_ms > 0)
    alter(client, "", kind=BROKER, log_message_timestamp_type=None)


# -- changes of a topic's configs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "config", "value", "age_ms"),
    [
        (87, "cleanup_policy", "compact", 0),
        (10, "max_message_bytes", "100", 0),
        (32, "message_timestamp_before_max_ms", str(HOUR_MS), 2 * HOUR_MS),
        (32, "message_timestamp_after_max_ms", "1000", -HOUR_MS // 2),
    ],
    ids=["policy", "size", "too old", "too new"],
)
def test_what_a_topic_refuses_is_changed_there_and_back(
    client: WireClient, topic: str, code: int, config: str, value: str, age_ms: int
) -> None:
    """Apache Kafka answers a change before its log has heard of it, hence `until`."""
    create_topic(client, topic, retention_ms="-1")
    key = None if config == "cleanup_policy" else b"key"
    records = build_batch([(int(time.time() * 1000) - age_ms, key, bytes(200), ())])
    assert produce(client, topic, records).error_code == 0
    alter(client, topic, **{config: value})
    until(lambda: produce(client, topic, records).error_code == code)
    alter(client, topic, **{config: None})
    until(lambda: produce(client, topic, records).error_code == 0)


def test_how_records_are_stored_is_changed_again_and_again(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    value = b"".join(b'{"id": %d, "price": %d}' % (number, number % 77) for number in range(2000))
    sizes = []
    for configs, codec, timestamp_type in (
        ({"compression_type": "gzip", "compression_gzip_level": "1"}, GZIP, 0),
        ({"compression_type": "zstd"}, ZSTD, 0),
        ({"compression_type": "gzip", "compression_gzip_level": "9"}, GZIP, 0),
        ({"compression_type": "uncompressed", "message_timestamp_type": "LogAppendTime"}, NONE, LOG_APPEND_TIME),
        ({"compression_type": None, "message_timestamp_type": None}, LZ4, 0),
    ):
        alter(client, topic, **configs)
        until(lambda: last_stored(client, topic, value).compression == codec)  # noqa: B023
        batch = last_stored(client, topic, value)
        assert batch.timestamp_type == timestamp_type
        assert [record.value for record in batch.records()] == [value]
        sizes.append(batch.size_bytes)
    assert sizes[0] > sizes[2]


def last_stored(client: WireClient, topic: str, value: bytes) -> RecordBatch:
    response = produce(client, topic, batch_of(value=value, compression=LZ4))
    assert response.error_code == 0
    (batch,) = batches_in(fetch(client, topic, response.base_offset))
    assert isinstance(batch, RecordBatch)
    return batch


# -- DeleteRecords --------------------------------------------------------------------------------------------------


def test_the_log_start_offset_survives_a_kill(tmp_path: Path, topic: str) -> None:
    """Inside a segment by its checkpoint, at a segment's start by the segments that are there."""
    with new_server(tmp_path / "data", OFTEN) as server:
        with WireClient(server.bootstrap) as client:
            inside, between = f"{topic}-inside", f"{topic}-between"
            for name in (inside, between):
                create_topic(client, name, segment_bytes="1048576")
                for _ in range(3):
                    assert produce(client, name, batch_of(3, value=bytes(200_000))).error_code == 0
            assert delete_records(client, inside, 4) == 4
            assert delete_records(client, between, 6) == 6
            checkpoint = server.directory / "log-start-offset-checkpoint"
            until(lambda: checkpoint.exists() and f"{inside} 0 4" in checkpoint.read_text())
            until(lambda: files(server, inside) == ["3.log", "6.log"])
            until(lambda: files(server, between) == ["6.log"])
        server.stop(signal.SIGKILL)
        server.start()
        with WireClient(server.bootstrap) as client:
            for name, offset in ((inside, 4), (between, 6)):
                until(lambda: list_offset(client, name, LATEST).error_code == 0)  # noqa: B023
                assert earliest(client, name) == offset
                assert list_offset(client, name, LATEST).offset == 9
                assert fetch(client, name, offset - 1).error_code == 1, "OFFSET_OUT_OF_RANGE"
                assert batches_in(fetch(client, name, offset))[0].last_offset >= offset


def test_records_deleted_from_a_compacted_topic_are_gone_only_where_it_deletes(client: WireClient, topic: str) -> None:
    create_topic(client, topic, cleanup_policy="compact,delete")
    assert produce(client, topic, batch_of(5, key=b"key")).error_code == 0
    assert delete_records(client, topic, -1) == 5
    alter(client, topic, cleanup_policy="compact")
    requested = DeleteRecordsRequest(
        [DeleteRecordsTopic(topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=5)])], timeout_ms=30_000
    )
    until(lambda: client.call(requested, 2).topics[0].partitions[0].error_code == 44)  # POLICY_VIOLATION
