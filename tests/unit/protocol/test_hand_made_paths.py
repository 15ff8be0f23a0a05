"""The wire paths made by hand, which CONTRIBUTING.md lists, and the fields of the specs that they know.

A field that is added to one of these messages fails here first: look at the path, then write the field down below.
"""

import re
from pathlib import Path
from typing import Final

import pytest

from kafkapy.protocol.field_table import FIELDS
from tests.support.interpreter import needs_interpreter

ROOT: Final = Path(__file__).resolve().parents[3]
HEADING: Final = "## Wire paths made by hand"
KNOWN: Final = """
kafkapy/handlers/data/small_produces.py
    ProduceRequest.PartitionProduceData: index records
    ProduceRequest.TopicProduceData: name topic_id partition_data
    ProduceRequest: transactional_id acks timeout_ms topic_data
    ProduceResponse.BatchIndexAndErrorMessage: batch_index batch_index_error_message
    ProduceResponse.LeaderIdAndEpoch: leader_id leader_epoch
    ProduceResponse.PartitionProduceResponse: index error_code base_offset log_append_time_ms log_start_offset
        record_errors error_message current_leader
    ProduceResponse.TopicProduceResponse: name topic_id partition_responses
    ProduceResponse.NodeEndpoint: node_id host port rack
    ProduceResponse: responses throttle_time_ms node_endpoints
kafkapy/handlers/data/wide_produces.py
    ProduceRequest.PartitionProduceData: index records
    ProduceRequest.TopicProduceData: name topic_id partition_data
    ProduceRequest: transactional_id acks timeout_ms topic_data
    ProduceResponse.BatchIndexAndErrorMessage: batch_index batch_index_error_message
    ProduceResponse.LeaderIdAndEpoch: leader_id leader_epoch
    ProduceResponse.PartitionProduceResponse: index error_code base_offset log_append_time_ms log_start_offset
        record_errors error_message current_leader
    ProduceResponse.TopicProduceResponse: name topic_id partition_responses
    ProduceResponse.NodeEndpoint: node_id host port rack
    ProduceResponse: responses throttle_time_ms node_endpoints
kafkapy/handlers/data/fetch_wire.py
    FetchRequest.ReplicaState: replica_id replica_epoch
    FetchRequest.FetchPartition: partition current_leader_epoch fetch_offset last_fetched_epoch
        log_start_offset partition_max_bytes replica_directory_id high_watermark
    FetchRequest.FetchTopic: topic topic_id partitions
    FetchRequest.ForgottenTopic: topic topic_id partitions
    FetchRequest: cluster_id replica_id replica_state max_wait_ms min_bytes max_bytes isolation_level
        session_id session_epoch topics forgotten_topics_data rack_id
    FetchResponse.EpochEndOffset: epoch end_offset
    FetchResponse.LeaderIdAndEpoch: leader_id leader_epoch
    FetchResponse.SnapshotId: end_offset epoch
    FetchResponse.AbortedTransaction: producer_id first_offset
    FetchResponse.PartitionData: partition_index error_code high_watermark last_stable_offset log_start_offset
        diverging_epoch current_leader snapshot_id aborted_transactions preferred_read_replica records
    FetchResponse.FetchableTopicResponse: topic topic_id partitions
    FetchResponse.NodeEndpoint: node_id host port rack
    FetchResponse: throttle_time_ms error_code session_id responses node_endpoints
kafkapy/handlers/topics/topic_pieces.py
    MetadataResponse.MetadataResponseBroker: node_id host port rack
    MetadataResponse.MetadataResponsePartition: error_code partition_index leader_id leader_epoch
        replica_nodes isr_nodes offline_replicas
    MetadataResponse.MetadataResponseTopic: error_code name topic_id is_internal partitions
        topic_authorized_operations
    MetadataResponse: throttle_time_ms brokers cluster_id controller_id topics cluster_authorized_operations
        error_code
kafkapy/handlers/configs/shared_rows.py
    DescribeConfigsResponse.DescribeConfigsSynonym: name value source
    DescribeConfigsResponse.DescribeConfigsResourceResult: name value read_only config_source is_sensitive synonyms
        config_type documentation
    DescribeConfigsResponse.DescribeConfigsResult: error_code error_message resource_type resource_name configs
    DescribeConfigsResponse: throttle_time_ms results
kafkapy/group/records.py
    OffsetCommitKey: group topic partition
    OffsetCommitValue: offset leader_epoch metadata commit_timestamp expire_timestamp topic_id
kafkapy/transaction/records.py
    TransactionLogKey: transactional_id
    TransactionLogValue.PartitionsSchema: topic partition_ids
    TransactionLogValue: producer_id previous_producer_id next_producer_id producer_epoch next_producer_epoch
        transaction_timeout_ms transaction_status transaction_partitions transaction_last_update_timestamp_ms
        transaction_start_timestamp_ms client_transaction_version
kafkapy/protocol/headers.py
    RequestHeader: request_api_key request_api_version correlation_id client_id
    ResponseHeader: correlation_id
"""
"""A path, then its messages and their structs with their fields, in the order of the spec."""


def listed() -> dict[str, list[str]]:
    """Return the tests that CONTRIBUTING.md names for each path."""
    section = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition(HEADING)[2].partition("\n## ")[0]
    rows = [re.findall(r"`([^`]+\.py(?:::\w+)?)`", line) for line in section.splitlines() if line.startswith("| `")]
    return {path: tests for path, *tests in rows}


def known() -> dict[str, dict[str, list[str]]]:
    paths: dict[str, dict[str, list[str]]] = {}
    for block in re.split(r"\n(?=\S)", KNOWN.strip()):
        path, *lines = re.sub(r"\n {8}", " ", block).split("\n")
        paths[path] = {name.strip(): fields.split() for name, _, fields in (line.partition(":") for line in lines)}
    return paths


def test_the_list_is_that_of_the_paths_known_here() -> None:
    assert listed().keys() == known().keys()


@needs_interpreter("the sources of compiled modules are not beside the tests")
@pytest.mark.parametrize("path", known())
def test_a_path_and_the_tests_that_tie_it_to_the_generated_codec_are_there(path: str) -> None:
    assert (ROOT / path).is_file()
    tests = listed()[path]
    assert tests, f"{path}: no test ties it"
    for test in tests:
        file, _, name = test.partition("::")
        assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text("utf-8"), re.M), test


@pytest.mark.parametrize("path", known())
def test_a_path_knows_all_fields_of_its_messages(path: str) -> None:
    for name, fields in known()[path].items():
        message, _, struct = name.partition(".")
        assert [row.split()[1] for row in FIELDS[message][struct or message]] == fields, f"{path}: {name}"
    messages = {name.partition(".")[0] for name in known()[path]}
    structs = {f"{message}.{struct}" for message in messages for struct in FIELDS[message]}
    assert structs == {name if "." in name else f"{name}.{name}" for name in known()[path]}


def test_a_field_that_is_added_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        FIELDS["OffsetCommitKey"], "OffsetCommitKey", [*FIELDS["OffsetCommitKey"]["OffsetCommitKey"], "x x"]
    )
    with pytest.raises(AssertionError, match=r"records\.py: OffsetCommitKey"):
        test_a_path_knows_all_fields_of_its_messages("kafkapy/group/records.py")
