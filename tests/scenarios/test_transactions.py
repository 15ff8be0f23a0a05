"""Transactions as clients of today (KIP-890) and those before meet them: what is answered, and what can be read then.

Which epoch and state the coordinator answers what for: tests/golden. Here it is about partitions, groups, markers.
"""

from collections.abc import Callable
from typing import Any

import pytest

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from kafkapy.protocol.messages.list_transactions_request import ListTransactionsRequest
from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.client_requests import LATEST, batch_of, create_topic, delete_topic, list_offset, produce, until
from tests.support.offsets import commit, committed, delete_offsets, fetch_group, find_coordinator
from tests.support.transactions import (
    TransactionalProducer,
    find_transaction_coordinator,
    last_stable_offset,
    read_committed,
    write_marker,
)
from tests.support.wire import WireClient


@pytest.fixture
def producer(client: WireClient, topic: str) -> TransactionalProducer:
    """A producer whose transactional id is the topic's name, and its topic."""
    create_topic(client, topic)
    made = TransactionalProducer(client, topic)
    assert made.init() == ErrorCode.NONE
    return made


def test_transaction_version_2_is_returned(client: WireClient) -> None:
    response = client.call(ApiVersionsRequest("tests", client_software_version="1"), 4)
    levels = {feature.name: feature.max_version_level for feature in response.finalized_features}
    assert levels["transaction.version"] == 2
    versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    keys = (22, 24, 25, 26, 27, 65, 66)
    assert [versions[key] for key in keys] == [(0, 5), (0, 5), (0, 4), (0, 5), (1, 2), (0, 0), (0, 2)]
    assert versions[28] in ((0, 5), (0, 6)), "the second is that of Apache Kafka 4.4.0, and ours"


@pytest.mark.parametrize("version", [11, 12])
def test_of_a_partition_that_is_named_twice_the_last_batch_is_in_the_transaction(
    client: WireClient, topic: str, producer: TransactionalProducer, version: int
) -> None:
    assert producer.add(topic) == {topic: ErrorCode.NONE}
    fields = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch, "base_sequence": 0}
    batches = [batch_of(value=value, is_transactional=True, **fields) for value in (b"one", b"two")]
    data = TopicProduceData(topic, partition_data=[PartitionProduceData(0, records=batch) for batch in batches])
    request = ProduceRequest(topic, acks=-1, timeout_ms=30_000, topic_data=[data])
    [response] = client.call(request, version).responses[0].partition_responses
    assert (response.error_code, response.base_offset) == (0, 0)
    assert producer.end(commit=True, version=1 if version < 12 else 5) == ErrorCode.NONE
    until(lambda: read_committed(client, topic) == [b"two"])


# -- both kinds of clients --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_committed", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("version", [10, 11, 12])
def test_a_transaction_is_read_whole_or_not_at_all(
    client: WireClient, topic: str, producer: TransactionalProducer, version: int, is_committed: bool
) -> None:
    if version < 12:
        assert producer.add(topic) == {topic: ErrorCode.NONE}
    for value in (b"a", b"b"):
        assert producer.send(topic, value, version=version) == ErrorCode.NONE
    assert (last_stable_offset(client, topic), read_committed(client, topic)) == (0, [])
    assert producer.end(commit=is_committed, version=5 if version == 12 else 1) == ErrorCode.NONE
    until(lambda: last_stable_offset(client, topic) == 3)
    assert read_committed(client, topic) == ([b"a", b"b"] if is_committed else [])
    assert list_offset(client, topic, LATEST).offset == 3


@pytest.mark.parametrize("version", [10, 11])
def test_a_sequence_of_an_aborted_transaction_is_still_a_duplicate(
    client: WireClient, topic: str, producer: TransactionalProducer, version: int
) -> None:
    """Its epoch is still the same: no broker can know new records by it (tests/support/copier.py)."""
    assert producer.add(topic) == {topic: ErrorCode.NONE}
    assert producer.send_and_respond(topic, b"aborted", version=version).base_offset == 0
    assert producer.end(commit=False, version=1) == ErrorCode.NONE
    until(lambda: last_stable_offset(client, topic) == 2)
    assert producer.add(topic) == {topic: ErrorCode.NONE}
    again = producer.send_and_respond(topic, b"lost", version=version, base_sequence=0)
    assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 0)
    assert producer.end(commit=True, version=1) == ErrorCode.NONE
    until(lambda: last_stable_offset(client, topic) == 3)
    assert read_committed(client, topic) == []
    assert list_offset(client, topic, LATEST).offset == 3


def test_both_kinds_take_turns_on_one_partition_and_under_one_id(
    client: WireClient, topic: str, producer: TransactionalProducer
) -> None:
    for number in range(3):
        assert producer.send(topic, b"new-%d" % number) == ErrorCode.NONE
        assert producer.end(commit=True) == ErrorCode.NONE
        older = TransactionalProducer(client, topic)
        assert older.init(version=4) == ErrorCode.NONE
        assert older.add(topic, version=0) == {topic: ErrorCode.NONE}
        assert older.send(topic, b"old-%d" % number, version=10) == ErrorCode.NONE
        assert older.end(commit=True, version=1) == ErrorCode.NONE
        assert producer.init() == ErrorCode.NONE
    until(lambda: last_stable_offset(client, topic) == 12)
    assert read_committed(client, topic) == [b"new-0", b"old-0", b"new-1", b"old-1", b"new-2", b"old-2"]


def test_each_end_at_version_5_raises_the_epoch(topic: str, producer: TransactionalProducer) -> None:
    epochs = []
    for _ in range(3):
        assert producer.send(topic) == ErrorCode.NONE
        assert producer.end(commit=True) == ErrorCode.NONE
        epochs.append(producer.epoch)
    assert epochs == [1, 2, 3]


# -- Produce ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "code"), [(9, ErrorCode.INVALID_TXN_STATE), (10, ErrorCode.INVALID_TXN_STATE),
                          (11, ErrorCode.TRANSACTION_ABORTABLE)],
)  # fmt: skip
def test_a_partition_that_was_not_added_takes_nothing(
    client: WireClient, topic: str, producer: TransactionalProducer, version: int, code: int
) -> None:
    response = producer.send_and_respond(topic, version=version)
    assert (response.error_code, response.base_offset) == (code, -1)
    if version < 11:
        assert response.error_message == "Partition was not added to the transaction"
    assert list_offset(client, topic, LATEST).offset == 0


def test_version_12_adds_the_partition_and_a_first_sequence_other_than_0_is_out_of_order(
    client: WireClient, topic: str, producer: TransactionalProducer
) -> None:
    assert producer.send(topic, base_sequence=3) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    (described,) = client.call(DescribeTransactionsRequest([topic]), 0).transaction_states
    assert described.transaction_state == "Ongoing", "it stays added"
    assert producer.send(topic) == ErrorCode.NONE


@pytest.mark.parametrize("version", [10, 12])
@pytest.mark.parametrize("behind", [-1, 1], ids=["older", "newer"])
def test_an_epoch_that_is_not_the_current_one_is_refused(
    topic: str, producer: TransactionalProducer, version: int, behind: int
) -> None:
    producer.init()
    assert producer.epoch == 1
    assert producer.send(topic, version=version, producer_epoch=1 + behind) == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("version", [10, 12])
def test_a_producer_id_that_is_not_the_transactional_ids_is_refused(
    topic: str, producer: TransactionalProducer, version: int
) -> None:
    requested = {"version": version, "producer_id": producer.producer_id + 1000}
    assert producer.send(topic, **requested) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_an_unknown_transactional_id_is_refused(topic: str, producer: TransactionalProducer) -> None:
    code = producer.send(topic, transactional_id=f"{topic}-unknown")
    assert code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("version", [10, 12])
def test_a_transactional_batch_without_a_transactional_id_has_no_right(
    topic: str, producer: TransactionalProducer, version: int
) -> None:
    code = producer.send(topic, version=version, transactional_id=None)
    assert code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_plain_batch_in_an_open_transaction_is_refused(
    client: WireClient, topic: str, producer: TransactionalProducer
) -> None:
    assert producer.send(topic) == ErrorCode.NONE
    assert producer.send(topic, is_transactional=False) == ErrorCode.INVALID_TXN_STATE
    assert list_offset(client, topic, LATEST).offset == 1


def test_batches_of_a_pipeline_stay_in_their_order(
    client: WireClient, topic: str, producer: TransactionalProducer
) -> None:
    from tests.support.client_requests import fetch, produce_request, values_in

    for number in range(5):
        fields: Any = {"producer_id": producer.producer_id, "producer_epoch": 0, "is_transactional": True}
        request = produce_request(topic, batch_of(value=b"%d" % number, base_sequence=number, **fields))
        request.transactional_id = topic
        client.send(request, 12)
    responses = [client.receive().responses[0].partition_responses[0] for _ in range(5)]
    assert [(response.error_code, response.base_offset) for response in responses] == [
        (0, offset) for offset in range(5)
    ]
    assert values_in(fetch(client, topic)) == [b"%d" % number for number in range(5)]


def test_a_batch_sent_again_is_answered_with_its_offset(topic: str, producer: TransactionalProducer) -> None:
    assert producer.send_and_respond(topic).base_offset == 0
    assert producer.send_and_respond(topic, base_sequence=0).base_offset == 0
    assert producer.send_and_respond(topic).base_offset == 1


# -- AddPartitionsToTxn -----------------------------------------------------------------------------------------------


def test_partitions_are_added_all_or_none(client: WireClient, topic: str, producer: TransactionalProducer) -> None:
    codes = producer.add(topic, f"{topic}-missing")
    assert codes == {
        topic: ErrorCode.OPERATION_NOT_ATTEMPTED,
        f"{topic}-missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    (described,) = client.call(DescribeTransactionsRequest([topic]), 0).transaction_states
    assert described.transaction_state == "Empty"


@pytest.mark.parametrize(
    ("version", "code"),
    [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED), (3, ErrorCode.PRODUCER_FENCED)],
)
def test_a_fenced_producer_gets_the_code_of_the_requests_version(
    topic: str, producer: TransactionalProducer, version: int, code: int
) -> None:
    older = producer.epoch
    producer.init()
    assert producer.add(topic, version=version, v3_and_below_producer_epoch=older) == {topic: code}
    assert producer.end(commit=True, version=min(version, 3), producer_epoch=older) == code


def test_internal_topics_cannot_be_added(client: WireClient, topic: str, producer: TransactionalProducer) -> None:
    assert producer.add("__transaction_state") == {"__transaction_state": ErrorCode.TOPIC_AUTHORIZATION_FAILED}


# -- fencing ----------------------------------------------------------------------------------------------------------


def test_a_newer_producer_aborts_the_transaction_of_the_older_one(
    client: WireClient, topic: str, producer: TransactionalProducer
) -> None:
    assert producer.send(topic, b"lost") == ErrorCode.NONE
    newer = TransactionalProducer(client, topic)
    assert newer.init_once().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert newer.init() == ErrorCode.NONE
    assert (newer.producer_id, newer.epoch) == (producer.producer_id, producer.epoch + 2)
    assert producer.end(commit=True) == ErrorCode.PRODUCER_FENCED
    assert newer.send(topic, b"kept") == ErrorCode.NONE
    assert newer.end(commit=True) == ErrorCode.NONE
    until(lambda: read_committed(client, topic) == [b"kept"])


@pytest.mark.ours
def test_the_next_step_after_an_end_never_meets_concurrent_transactions(
    client: WireClient, topic: str, producer: TransactionalProducer
) -> None:
    """Apache Kafka writes the markers behind its response; here they stand before it."""
    for _ in range(20):
        assert producer.send(topic) == ErrorCode.NONE
        assert producer.end(commit=True) == ErrorCode.NONE
        assert last_stable_offset(client, topic) == list_offset(client, topic, LATEST).offset
        assert producer.init_once().error_code == ErrorCode.NONE


# -- WriteTxnMarkers --------------------------------------------------------------------------------------------------


def test_an_administrators_abort_ends_the_transaction_in_the_partition(
    client: WireClient, topic: str, producer: TransactionalProducer
) -> None:
    assert producer.send(topic) == ErrorCode.NONE
    assert write_marker(client, producer, topic) == ErrorCode.NONE
    assert (last_stable_offset(client, topic), read_committed(client, topic)) == (2, [])
    assert write_marker(client, producer, topic) == ErrorCode.NONE, "the same marker again"


def test_each_marker_has_its_own_error(client: WireClient, topic: str, producer: TransactionalProducer) -> None:
    producer.init()
    assert producer.send(topic) == ErrorCode.NONE
    assert write_marker(client, producer, topic, producer_epoch=0) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert write_marker(client, producer, f"{topic}-missing") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert write_marker(client, producer, topic, partition=7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert write_marker(client, producer, topic, transaction_version=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert last_stable_offset(client, topic) == 0, "nothing has ended it"
    assert write_marker(client, producer, topic, coordinator_epoch=5, version=1) == ErrorCode.NONE
    code = write_marker(client, producer, topic, coordinator_epoch=4)
    assert code == ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_a_marker_of_a_producer_that_nobody_knows_is_written(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    unknown = TransactionalProducer(client, topic)
    unknown.producer_id, unknown.epoch = 123_456_789, 0
    assert write_marker(client, unknown, topic) == ErrorCode.NONE
    assert list_offset(client, topic, LATEST).offset == 1


# -- groups -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def group(client: WireClient, topic: str) -> str:
    group_id = f"{topic}-group"
    find_coordinator(client, group_id)
    return group_id


@pytest.mark.parametrize("version", [2, 3, 4, 5])
@pytest.mark.parametrize("is_committed", [True, False], ids=["commit", "abort"])
def test_offsets_are_valid_with_their_transaction(
    client: WireClient, topic: str, group: str, producer: TransactionalProducer, version: int, is_committed: bool
) -> None:
    assert commit(client, group, topic, 3) == [0]
    if version < 5:
        assert producer.add_offsets(group) == ErrorCode.NONE
    assert producer.commit_offset(group, topic, 9, version=version) == ErrorCode.NONE
    assert committed(client, group, topic) == [3]
    (pending,) = fetch_group(client, group, topic, require_stable=True).topics[0].partitions
    assert pending.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert producer.end(commit=is_committed, version=5 if version == 5 else 1) == ErrorCode.NONE
    until(lambda: fetch_group(client, group, topic, require_stable=True).topics[0].partitions[0].error_code == 0)
    assert committed(client, group, topic, require_stable=True) == [9 if is_committed else 3]


@pytest.mark.parametrize(
    ("version", "code"),
    [(2, ErrorCode.INVALID_TXN_STATE), (3, ErrorCode.INVALID_TXN_STATE), (4, ErrorCode.TRANSACTION_ABORTABLE)],
)
def test_offsets_of_a_group_that_was_not_added_are_refused(
    client: WireClient, topic: str, group: str, producer: TransactionalProducer, version: int, code: int
) -> None:
    assert producer.commit_offset(group, topic, 9, version=version) == code
    assert committed(client, group, topic, require_stable=True) == [-1]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"generation_id_or_member_epoch": 1, "member_id": "m"}, ErrorCode.ILLEGAL_GENERATION),
        ({"producer_epoch": 7}, ErrorCode.INVALID_PRODUCER_EPOCH),
        ({"producer_id": 123_456_789}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ({"generation_id_or_member_epoch": -1, "member_id": ""}, ErrorCode.NONE),
    ],
    ids=["a generation of no group", "an epoch to come", "another producer", "who names no member"],
)
def test_offsets_are_fenced(
    topic: str, group: str, producer: TransactionalProducer, fields: dict[str, Any], code: int
) -> None:
    assert producer.commit_offset(group, topic, 9, **fields) == code


def test_a_plain_commit_that_came_later_wins(
    client: WireClient, topic: str, group: str, producer: TransactionalProducer
) -> None:
    assert producer.commit_offset(group, topic, 9) == ErrorCode.NONE
    assert commit(client, group, topic, 11) == [0]
    assert producer.end(commit=True) == ErrorCode.NONE
    until(lambda: fetch_group(client, group, topic, require_stable=True).topics[0].partitions[0].error_code == 0)
    assert committed(client, group, topic, require_stable=True) == [11]


def test_offsets_that_are_deleted_in_between_stay_deleted(
    client: WireClient, topic: str, group: str, producer: TransactionalProducer
) -> None:
    assert producer.commit_offset(group, topic, 9) == ErrorCode.NONE
    assert delete_offsets(client, group, topic, 0).error_code == ErrorCode.NONE
    assert producer.end(commit=True) == ErrorCode.NONE
    assert committed(client, group, topic, require_stable=True) == [-1]


def test_offsets_of_topics_that_do_not_exist_are_refused_alone(
    topic: str, group: str, producer: TransactionalProducer
) -> None:
    assert producer.commit_offset(group, f"{topic}-missing", 9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert producer.commit_offset("", topic, 9) == ErrorCode.INVALID_GROUP_ID


# -- the end with a deleted topic -------------------------------------------------------------------------------------


def test_a_topic_that_is_deleted_holds_up_no_transaction(
    client: WireClient, topic: str, producer: TransactionalProducer
) -> None:
    other = f"{topic}-other"
    create_topic(client, other)
    assert [producer.send(topic, b"kept"), producer.send(other)] == [0, 0]
    delete_topic(client, other)
    assert producer.end(commit=True) == ErrorCode.NONE
    assert producer.init() == ErrorCode.NONE
    until(lambda: read_committed(client, topic) == [b"kept"])


# -- seen -------------------------------------------------------------------------------------------------------------


def test_an_open_transaction_is_described_and_listed(
    client: WireClient, topic: str, producer: TransactionalProducer
) -> None:
    assert producer.send(topic) == ErrorCode.NONE
    described, unknown = client.call(DescribeTransactionsRequest([topic, f"{topic}-x"]), 0).transaction_states
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert (described.transaction_state, described.producer_id) == ("Ongoing", producer.producer_id)
    assert [(each.topic, each.partitions) for each in described.topics] == [(topic, [0])]
    requested = ListTransactionsRequest(state_filters=["Ongoing", "Dreaming"], transactional_id_pattern=topic)
    listed = client.call(requested, 2)
    assert listed.unknown_state_filters == ["Dreaming"]
    assert [each.transactional_id for each in listed.transaction_states] == [topic]
    refused = client.call(ListTransactionsRequest(transactional_id_pattern="("), 2)
    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_state_topic_is_made_as_apache_kafka_makes_it(client: WireClient, connect: Callable[[], WireClient]) -> None:
    from kafkapy.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource

    find_transaction_coordinator(client, "t")
    (described,) = client.call(
        DescribeConfigsRequest(
            [DescribeConfigsResource(2, resource_name="__transaction_state", configuration_keys=None)]
        ),
        4,
    ).results
    own = {each.name: each.value for each in described.configs if each.config_source == 1}
    assert own == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "1",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }


def test_idempotent_batches_beside_a_transaction_are_as_before(
    client: WireClient, topic: str, producer: TransactionalProducer
) -> None:
    assert producer.send(topic) == ErrorCode.NONE
    plain = produce(client, topic, batch_of(value=b"plain"))
    assert (plain.error_code, plain.base_offset) == (0, 1)
    assert read_committed(client, topic) == [], "behind the last stable offset"
