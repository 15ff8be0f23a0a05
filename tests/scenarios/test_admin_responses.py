"""What administrators and user interfaces read and rely on: all of it, with type and source."""

import csv
from pathlib import Path
from typing import Any

import pytest

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kafkapy.protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kafkapy.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from kafkapy.protocol.messages.describe_cluster_request import DescribeClusterRequest
from kafkapy.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from kafkapy.protocol.messages.describe_log_dirs_request import DescribeLogDirsRequest
from kafkapy.protocol.messages.describe_topic_partitions_request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from kafkapy.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.support.client_requests import (
    EARLIEST,
    LATEST,
    batch_of,
    create_topic,
    describe_topic,
    fetch,
    list_offset,
    metadata,
    produce,
    until,
)
from tests.support.wire import WireClient

GOLDEN = Path(__file__).parent.parent / "golden"
TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
DYNAMIC_TOPIC_CONFIG, DEFAULT_CONFIG = 1, 5
NOT_ASKED = -(2**31)


def facts(name: str) -> dict[str, dict[str, str]]:
    with (GOLDEN / name).open() as rows:
        return {row["name"]: row for row in csv.DictReader(rows, delimiter="\t")}


def describe_configs(
    client: WireClient, resource_type: int, name: str, keys: list[str] | None = None, **options: bool
) -> Any:
    resource = DescribeConfigsResource(resource_type, resource_name=name, configuration_keys=keys)
    (result,) = client.call(DescribeConfigsRequest([resource], **options), 4).results
    return result


def alter(client: WireClient, name: str, *changes: tuple[str, int, str | None]) -> Any:
    configs = [AlterableConfig(key, config_operation=operation, value=value) for key, operation, value in changes]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(TOPIC, resource_name=name, configs=configs)])
    (response,) = client.call(request, 1).responses
    return response


def value_of(client: WireClient, topic: str, key: str) -> str | None:
    (config,) = describe_configs(client, TOPIC, topic, [key]).configs
    return str(config.value)


# -- configs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [None, []], ids=["null", "empty"])
def test_all_configs_of_a_topic_are_described(client: WireClient, topic: str, keys: list[str] | None) -> None:
    """Schema Registry died on a missing cleanup.policy."""
    create_topic(client, topic, retention_ms="7200000")
    result = describe_configs(client, TOPIC, topic, keys)
    known = {name for name, row in facts("topic_configs.tsv").items() if row["internal"] == "false"}
    found = {config.name: config for config in result.configs}
    assert set(found) == known
    assert (found["retention.ms"].value, found["retention.ms"].config_source) == ("7200000", DYNAMIC_TOPIC_CONFIG)
    assert found["cleanup.policy"].value == "delete"
    assert found["cleanup.policy"].config_source == DEFAULT_CONFIG
    assert all(config.config_type > 0 for config in result.configs), "every type is known"
    assert not any(config.synonyms or config.documentation for config in result.configs), "they were not asked for"


def test_requested_synonyms_come_nearest_first(client: WireClient, topic: str) -> None:
    create_topic(client, topic, segment_bytes="1048576")
    (config,) = describe_configs(client, TOPIC, topic, ["segment.bytes"], include_synonyms=True).configs
    assert [(each.name, each.value, each.source) for each in config.synonyms] == [
        ("segment.bytes", "1048576", DYNAMIC_TOPIC_CONFIG),
        ("log.segment.bytes", "1073741824", DEFAULT_CONFIG),
    ]


def test_what_user_interfaces_request_is_served(client: WireClient) -> None:
    node_id = metadata(client).brokers[0].node_id
    found = {config.name: config for config in describe_configs(client, BROKER, str(node_id)).configs}
    assert {"num.partitions", "log.dirs", "listeners", "auto.create.topics.enable", "log.retention.ms"} <= set(found)
    assert found["num.partitions"].value == "1"
    assert found["num.partitions"].read_only
    assert not any(config.is_sensitive and config.value is not None for config in found.values())


def test_a_resource_that_is_not_there_has_its_own_error(client: WireClient, topic: str) -> None:
    missing = describe_configs(client, TOPIC, topic)
    assert (missing.error_code, missing.resource_name) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic)
    assert describe_configs(client, TOPIC, "no/name").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert describe_configs(client, BROKER, "4711").error_code == ErrorCode.INVALID_REQUEST


def test_lists_are_appended_to_and_subtracted_from(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    assert alter(client, topic, ("cleanup.policy", APPEND, "compact")).error_code == 0
    until(lambda: value_of(client, topic, "cleanup.policy") == "delete,compact")
    assert alter(client, topic, ("cleanup.policy", SUBTRACT, "delete")).error_code == 0
    until(lambda: value_of(client, topic, "cleanup.policy") == "compact")
    assert alter(client, topic, ("cleanup.policy", DELETE, None)).error_code == 0
    until(lambda: value_of(client, topic, "cleanup.policy") == "delete")
    assert alter(client, topic, ("retention.ms", APPEND, "1")).error_code == ErrorCode.INVALID_CONFIG


def test_a_change_is_taken_whole_or_not_at_all(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    refused = alter(client, topic, ("retention.ms", SET, "1000"), ("segment.bytes", SET, "not a number"))
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert refused.error_message
    assert value_of(client, topic, "retention.ms") == "604800000"


def test_a_change_holds_for_the_next_batch(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    assert produce(client, topic, batch_of(value=bytes(3000))).error_code == 0
    assert alter(client, topic, ("max.message.bytes", SET, "1000")).error_code == 0
    until(lambda: produce(client, topic, batch_of(value=bytes(3000))).error_code == ErrorCode.MESSAGE_TOO_LARGE)


# -- topics ---------------------------------------------------------------------------------------------------------


def creatable(name: str, **fields: Any) -> CreatableTopic:
    return CreatableTopic(name=name, **{"num_partitions": 1, "replication_factor": 1, **fields})


def test_every_topic_to_be_created_has_one_result_of_its_own(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    bad_value = [CreatableTopicConfig(name="retention.ms", value="soon")]
    request = CreateTopicsRequest(
        topics=[
            creatable(f"{topic}-new", num_partitions=-1, replication_factor=-1),
            creatable(topic),
            creatable("no/name"),
            creatable(""),
            creatable("x" * 250),
            creatable(f"{topic}-0", num_partitions=0),
            creatable(f"{topic}-9", replication_factor=9),
            creatable(f"{topic}-config", configs=bad_value),
            creatable(f"{topic}-twice"),
            creatable(f"{topic}-twice"),
        ],
        timeout_ms=30_000,
    )
    results = client.call(request, 7).topics
    assert {result.name: result.error_code for result in results} == {
        f"{topic}-new": 0,
        topic: ErrorCode.TOPIC_ALREADY_EXISTS,
        "no/name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "x" * 250: ErrorCode.INVALID_TOPIC_EXCEPTION,
        f"{topic}-0": ErrorCode.INVALID_PARTITIONS,
        f"{topic}-9": ErrorCode.INVALID_REPLICATION_FACTOR,
        f"{topic}-config": ErrorCode.INVALID_CONFIG,
        f"{topic}-twice": ErrorCode.INVALID_REQUEST,
    }
    assert len(results) == 9
    (new,) = (result for result in results if result.name == f"{topic}-new")
    assert (new.num_partitions, new.replication_factor) == (1, 1)
    assert {config.name: config.value for config in new.configs}["cleanup.policy"] == "delete"
    for result in results:
        if result.error_code:
            assert result.error_message
            assert (result.topic_id, result.num_partitions, result.replication_factor) == (bytes(16), -1, -1)


def test_validate_only_creates_nothing(client: WireClient, topic: str) -> None:
    request = CreateTopicsRequest(topics=[creatable(topic)], timeout_ms=30_000, validate_only=True)
    assert client.call(request, 7).topics[0].error_code == 0
    assert metadata(client, topic).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_every_topic_to_be_deleted_has_one_result_of_its_own(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    states = [DeleteTopicState(name=name) for name in (topic, f"{topic}-missing")]
    results = client.call(DeleteTopicsRequest(topics=states, timeout_ms=30_000), 6).responses
    assert {result.name: result.error_code for result in results} == {
        topic: 0,
        f"{topic}-missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_partitions_are_added_never_taken(client: WireClient, topic: str) -> None:
    create_topic(client, topic, 2)
    for count, code in ((2, ErrorCode.INVALID_PARTITIONS), (1, ErrorCode.INVALID_PARTITIONS), (3, ErrorCode.NONE)):
        wanted = [CreatePartitionsTopic(topic, count=count, assignments=None)]
        (result,) = client.call(CreatePartitionsRequest(wanted, timeout_ms=30_000), 3).results
        assert result.error_code == code
    until(lambda: produce(client, topic, batch_of(), partition=2).error_code == 0)


def test_deleted_records_are_gone_and_the_log_begins_behind_them(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    produce(client, topic, batch_of(10))
    responses = [delete_records(client, topic, offset) for offset in (4, 11, -1)]
    assert [(response.error_code, response.low_watermark) for response in responses] == [
        (0, 4),
        (ErrorCode.OFFSET_OUT_OF_RANGE, -1),
        (0, 10),
    ]
    assert list_offset(client, topic, EARLIEST).offset == list_offset(client, topic, LATEST).offset == 10
    assert fetch(client, topic, 3).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch(client, topic, 10).log_start_offset == 10
    assert produce(client, topic, batch_of()).log_start_offset == 10


def delete_records(client: WireClient, topic: str, offset: int) -> Any:
    topics = [DeleteRecordsTopic(topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])]
    return client.call(DeleteRecordsRequest(topics, timeout_ms=30_000), 2).topics[0].partitions[0]


# -- descriptions ---------------------------------------------------------------------------------------------------


def test_partitions_are_described_in_order_and_by_pages(client: WireClient, topic: str) -> None:
    """What Java's administrators ask since 3.7; it goes on from a cursor."""
    names = [f"{topic}-{letter}" for letter in "cab"]
    for name in names:
        create_topic(client, name, 3)
    request = DescribeTopicPartitionsRequest([TopicRequest(name=name) for name in names], response_partition_limit=4)
    seen: list[tuple[str, int]] = []
    while True:
        response = client.call(request, 0)
        page = [(each.name, part.partition_index) for each in response.topics for part in each.partitions]
        assert 0 < len(page) <= 4
        seen += page
        if response.next_cursor is None:
            break
        request.cursor = Cursor(response.next_cursor.topic_name, partition_index=response.next_cursor.partition_index)
    assert seen == [(name, partition) for name in sorted(names) for partition in range(3)]


def test_a_topic_that_cannot_be_described_says_why(client: WireClient, topic: str) -> None:
    missing = describe_topic(client, topic)
    assert (missing.error_code, missing.name) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic)
    assert missing.partitions == []
    assert describe_topic(client, "__consumer_offsets").is_internal


@pytest.mark.parametrize("is_requested", [False, True])
def test_the_cluster_is_described(client: WireClient, is_requested: bool) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=is_requested)
    response = client.call(request, 2)
    known = metadata(client)
    assert response.cluster_id == known.cluster_id
    assert [(each.broker_id, each.host, each.port) for each in response.brokers] == [
        (each.node_id, each.host, each.port) for each in known.brokers
    ]
    assert response.controller_id in [each.broker_id for each in response.brokers]
    assert (response.cluster_authorized_operations == NOT_ASKED) == (not is_requested)


def test_log_directories_are_described_with_sizes(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    batch = batch_of(value=bytes(1000))
    produce(client, topic, batch)
    response = client.call(DescribeLogDirsRequest(topics=None), 4)
    assert response.error_code == 0
    (directory,) = response.results
    assert (directory.error_code, directory.log_dir[0]) == (0, "/")
    assert directory.total_bytes >= directory.usable_bytes > 0
    (found,) = (each for each in directory.topics if each.name == topic)
    (partition,) = found.partitions
    assert (partition.partition_index, partition.partition_size, partition.offset_lag) == (0, len(batch), 0)
    assert not partition.is_future_key


# -- offsets --------------------------------------------------------------------------------------------------------


def test_the_special_timestamps_and_their_versions(client: WireClient, topic: str) -> None:
    """-1 latest, -2 earliest, -3 the largest timestamp's, -4 and -5 of tiered storage, and -6."""
    create_topic(client, topic)
    produce(client, topic, batch_of(3))
    responses = {timestamp: list_offset(client, topic, timestamp).offset for timestamp in range(-6, 0)}
    assert responses == {-1: 3, -2: 0, -3: 0, -4: 0, -5: -1, -6: responses[-6]}
    for timestamp, first_version in ((-3, 7), (-4, 8), (-5, 9), (-6, 11)):
        known = list_offset(client, topic, timestamp, version=first_version)
        assert known.error_code == 0, timestamp
        unknown = list_offset(client, topic, timestamp, version=first_version - 1)
        assert unknown.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert (unknown.offset, unknown.timestamp, unknown.leader_epoch) == (-1, -1, -1)


def test_no_offset_and_no_timestamp_are_minus_1(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    for timestamp in (0, 2**62, -3):
        response = list_offset(client, topic, timestamp)
        assert (response.error_code, response.offset, response.timestamp) == (0, -1, -1)
    latest = list_offset(client, topic, LATEST)
    assert (latest.offset, latest.timestamp) == (0, -1)
    missing = list_offset(client, f"{topic}-missing", LATEST)
    assert (missing.error_code, missing.offset) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
