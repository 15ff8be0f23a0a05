"""Our transaction coordinator answers and writes what Apache Kafka 4.4.0 did, in every state, byte for byte.

transactions.jsonl.gz is made by tools/record_transactions.py; tests/support/transaction_script.py says what is in it.
Ids that Kafka chose and the times at which it wrote are given to the shard; all else it must come to by itself. The one
deviation is in tests/support/transaction_deviation.py.
"""

import gzip
import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from kafkapy.errors import ApiError
from kafkapy.protocol.api import request_type, response_type
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from kafkapy.protocol.messages.describe_transactions_response import DescribeTransactionsResponse
from kafkapy.protocol.messages.list_transactions_response import ListTransactionsResponse
from kafkapy.transaction.decision import TransactionDecision, WriteMarkers
from kafkapy.transaction.filters import TransactionFilters
from kafkapy.transaction.hash_order import string_hash
from kafkapy.transaction.metadata import TransactionMetadata
from kafkapy.transaction.records import TransactionRecord, decode_record
from kafkapy.types import TopicPartition
from tests.support.transaction_deviation import as_answered_here
from tests.support.transaction_script import HELD, OFFSETS_PARTITION_COUNT
from tests.support.transaction_world import TransactionWorld

GOLDEN = Path(__file__).with_name("transactions.jsonl.gz")
LATER_MS = 10_000

Raw = list[Any]


def scenarios() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the scenarios of each name and level of transaction.version."""
    with gzip.open(GOLDEN, "rt", encoding="utf-8") as lines:
        found = sorted(map(as_answered_here, map(json.loads, lines)), key=_title)
    for title, group in groupby(found, key=_title):
        yield title, list(group)


def _title(scenario: dict[str, Any]) -> str:
    return f"{scenario['name']} at {scenario['transaction_version']}"


@pytest.mark.parametrize(("title", "played"), [pytest.param(*each, id=each[0]) for each in scenarios()])
def test_the_coordinator_answers_and_writes_what_kafka_does(title: str, played: list[dict[str, Any]]) -> None:
    for scenario in played:
        replayed = Replayed(scenario["transaction_version"])
        replayed.load(scenario["crafted"])
        for number, step in enumerate(scenario["steps"]):
            replayed.take(step, f"step {number} of {title}: {_shown(step)}")


def test_there_is_every_state_version_and_kind_of_request() -> None:
    titles = [title for title, _ in scenarios()]
    for state in ("empty", "ongoing of v5", "committing by v4", "aborting by v5", "committed by v5", "aborted by v4"):
        for transaction_version in (0, 1, 2):
            if transaction_version or not state.endswith("v5"):
                assert f"{state} at {transaction_version}" in titles


class Replayed(TransactionWorld):
    """A shard that is asked what Kafka was asked, at the times and with the fresh ids that Kafka had."""

    def __init__(self, transaction_version: int) -> None:
        super().__init__(transaction_version)
        self.held = {HELD}
        self._expected: list[TransactionMetadata | None] = []
        self._fresh_ids: list[int] = []

    def _allocate_producer_id(self) -> int | None:
        return self._fresh_ids.pop() if self._fresh_ids else None

    def load(self, crafted: list[Raw]) -> None:
        for key, value in map(_bytes, crafted):
            self.log.append((key, value))
            record = decode_record(key, value)
            assert record is not None
            self.shard.replay(record, 0)

    def take(self, step: dict[str, Any], where: str) -> None:
        """Take a step and compare the response and the records."""
        expected = [_bytes(each) for each in step.get("records", ())]
        self._expect(expected)
        written = len(self.log)
        if "do" in step:
            self._do(step["do"])
        else:
            (key, version), requested = step["api"], bytes.fromhex(step["request"])
            request = request_type(key).decode(requested, version)
            response = response_type(key).decode(bytes.fromhex(step["response"]), version)
            self._expect_ids(response)
            assert _normal(self._respond(request, version)) == _normal(response), where
        assert _readable(self.log[written:]) == _readable(expected), where
        assert self.log[written:] == expected, where

    def _expect(self, records: list[Any]) -> None:
        """Set the clock to when Kafka wrote, and have those ids at hand that are new."""
        decoded = [decode_record(*each) for each in records]
        assert None not in decoded
        self._expected = [each.metadata for each in decoded if each is not None]
        self._fresh_ids = []
        for metadata in self._expected:
            if metadata is not None:
                self._expect_id(metadata.producer_id)
                self._expect_id(metadata.next_producer_id)
                self.now_ms = max(self.now_ms, metadata.last_update_ms)
        first = next((each for each in self._expected if each is not None), None)
        if first is not None:
            self.now_ms = first.last_update_ms

    def _expect_id(self, producer_id: int) -> None:
        known = {each.producer_id for each in self.shard.transactions.values()}
        if producer_id != -1 and producer_id not in known | set(self._fresh_ids):
            self._fresh_ids.append(producer_id)

    def _expect_ids(self, response: Any) -> None:
        if hasattr(response, "producer_id"):
            self._expect_id(response.producer_id)

    def write_markers(self, effect: WriteMarkers) -> None:
        completed = self._expected[-1] if self._expected else None
        if completed is not None:
            self.now_ms = completed.last_update_ms
        super().write_markers(effect)

    def _do(self, what: str) -> None:
        if what == "reload":
            self.carry_out(self.shard.on_loaded(self.now_ms))
        elif what == "time out":
            assert self.time_out()
        else:
            assert what == "expire"
            self.now_ms = 1_800_000_000_000
            assert self.expire()

    # -- what handlers do -----------------------------------------------------------------------------------------

    def _respond(self, request: Any, version: int) -> Any:
        response = {
            "InitProducerIdRequest": self._init_producer_id,
            "AddPartitionsToTxnRequest": self._add_partitions,
            "AddOffsetsToTxnRequest": self._add_offsets,
            "EndTxnRequest": self._end_txn,
            "DescribeTransactionsRequest": self._describe,
            "ListTransactionsRequest": self._list,
        }[request.NAME]
        return response(request, version)

    def _init_producer_id(self, request: Any, version: int) -> Any:
        return self.carry_out(self.shard.init_producer_id(request, version, self.now_ms))

    def _end_txn(self, request: Any, version: int) -> Any:
        return self.carry_out(self.shard.end_txn(request, version, self.now_ms))

    def _add_offsets(self, request: Any, version: int) -> Any:
        code = string_hash(request.group_id)
        partition = min(code, (1 << 32) - code) % OFFSETS_PARTITION_COUNT
        decision = self.shard.add_offsets(
            request, version, self.now_ms, offsets_partition=TopicPartition("__consumer_offsets", partition)
        )
        return self.carry_out(decision)

    def _add_partitions(self, request: Any, version: int) -> Any:
        if version < 4:
            requested = _partitions(request.v3_and_below_topics)
            code = self._added(
                request.v3_and_below_transactional_id,
                request.v3_and_below_producer_id,
                request.v3_and_below_producer_epoch,
                requested,
                version,
            )
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(dict.fromkeys(requested, code)))
        (transaction,) = request.transactions
        producer = transaction.transactional_id, transaction.producer_id, transaction.producer_epoch
        requested = _partitions(transaction.topics)
        if transaction.verify_only:
            codes = self.shard.verify_partitions(*producer, requested)
        else:
            codes = dict.fromkeys(requested, self._added(*producer, requested, version))
        result = AddPartitionsToTxnResult(transaction.transactional_id, topic_results=_results(codes))
        return AddPartitionsToTxnResponse(results_by_transaction=[result])

    def _added(self, transactional_id: str, producer_id: int, epoch: int, requested: Any, version: int) -> ErrorCode:
        decision: TransactionDecision = self.shard.add_partitions(
            transactional_id, producer_id, epoch, requested, version, self.now_ms
        )
        return ErrorCode(self.carry_out(decision))

    def _describe(self, request: Any, version: int) -> Any:
        return DescribeTransactionsResponse(
            transaction_states=[self.shard.describe(each) for each in request.transactional_ids]
        )

    def _list(self, request: Any, version: int) -> Any:
        try:
            filters = TransactionFilters.of(request)
        except ApiError as error:
            return ListTransactionsResponse(error_code=error.code)
        listed = list(filter(None, self.shard.list_transactions(filters, self.now_ms + LATER_MS)))
        return ListTransactionsResponse(
            0, error_code=0, unknown_state_filters=filters.unknown_states, transaction_states=listed
        )


def _partitions(topics: Any) -> list[TopicPartition]:
    return [TopicPartition(topic.name, partition) for topic in topics for partition in topic.partitions]


def _results(codes: dict[TopicPartition, ErrorCode]) -> list[AddPartitionsToTxnTopicResult]:
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    for (topic, partition), code in codes.items():
        results = topics.setdefault(topic, AddPartitionsToTxnTopicResult(topic)).results_by_partition
        results.append(AddPartitionsToTxnPartitionResult(partition_index=partition, partition_error_code=code))
    return list(topics.values())


def _normal(response: Any) -> Any:
    """Return the response with its lists sorted that have no order: those that handlers make, and lists of ids."""
    if isinstance(response, AddPartitionsToTxnResponse):
        for topics in (
            response.results_by_topic_v3_and_below,
            *(each.topic_results for each in response.results_by_transaction),
        ):
            topics.sort(key=lambda topic: topic.name)
            for topic in topics:
                topic.results_by_partition.sort(key=lambda partition: partition.partition_index)
    if isinstance(response, ListTransactionsResponse):
        response.transaction_states.sort(key=lambda state: state.transactional_id)
        response.unknown_state_filters.sort()
    return response


def _bytes(raw: Raw) -> tuple[bytes, bytes | None]:
    key, value = raw
    return bytes.fromhex(key), None if value is None else bytes.fromhex(value)


def _readable(records: Any) -> list[TransactionRecord | None]:
    return [decode_record(*each) for each in records]


def _shown(step: dict[str, Any]) -> str:
    if "do" in step:
        return str(step["do"])
    key, version = step["api"]
    return f"{request_type(key).decode(bytes.fromhex(step['request']), version)} v{version}"
