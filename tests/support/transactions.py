"""A transactional producer that is only requests: what each step of one says, at the versions that a test wants."""

from typing import Any

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from kafkapy.protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kafkapy.protocol.messages.end_txn_request import EndTxnRequest
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkapy.protocol.messages.init_producer_id_request import InitProducerIdRequest
from kafkapy.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kafkapy.protocol.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.support.client_requests import LATEST, READ_COMMITTED, batch_of, list_offset, produce_request, until
from tests.support.wire import WireClient

TRANSACTION = 1
SET, BROKER = 0, 4
NOT_YET = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)
"""Codes after which a client asks again: Apache Kafka's coordinator does much behind its responses."""


def find_transaction_coordinator(client: WireClient, transactional_id: str) -> None:
    """Ask until the transactional id has a coordinator."""
    request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[transactional_id])
    until(lambda: client.call(request, 6).coordinators[0].error_code == 0)


class TransactionalProducer:
    """Steps return error codes. `epoch` and `producer_id` follow what InitProducerId and EndTxn 5 say."""

    def __init__(self, client: WireClient, transactional_id: str) -> None:
        self._client = client
        self.transactional_id = transactional_id
        self.producer_id = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    def reconnect(self, client: WireClient) -> None:
        """Go on over another connection, perhaps to another broker."""
        self._client = client

    def init(self, *, version: int = 5, timeout_ms: int = 60_000, **fields: Any) -> int:
        """InitProducerId, asked again while the coordinator is busy."""
        find_transaction_coordinator(self._client, self.transactional_id)
        responses: list[Any] = []

        def is_answered() -> bool:
            responses.append(self.init_once(version=version, timeout_ms=timeout_ms, **fields))
            return responses[-1].error_code not in NOT_YET

        until(is_answered)
        return int(responses[-1].error_code)

    def init_once(self, *, version: int = 5, timeout_ms: int = 60_000, **fields: Any) -> Any:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms, **fields
        )
        response = self._client.call(request, version)
        if response.error_code == 0:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self.sequences.clear()
        return response

    def add(self, *topics: str, version: int = 3, partitions: tuple[int, ...] = (0,), **fields: Any) -> dict[str, int]:
        """AddPartitionsToTxn; the code of the first partition of each topic."""
        fields = {"v3_and_below_producer_id": self.producer_id, "v3_and_below_producer_epoch": self.epoch, **fields}
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_topics=[AddPartitionsToTxnTopic(topic, partitions=list(partitions)) for topic in topics],
            **fields,
        )
        codes: dict[str, int] = {}

        def is_answered() -> bool:
            for result in self._client.call(request, version).results_by_topic_v3_and_below:
                codes[result.name] = result.results_by_partition[0].partition_error_code
            return not NOT_YET.intersection(codes.values())

        until(is_answered)
        return codes

    def send(self, topic: str, value: bytes = b"value", *, version: int = 12, partition: int = 0, **fields: Any) -> int:
        """Produce one record; return its error code."""
        return int(self.send_and_respond(topic, value, version=version, partition=partition, **fields).error_code)

    def send_and_respond(
        self,
        topic: str,
        value: bytes = b"value",
        *,
        version: int = 12,
        partition: int = 0,
        transactional_id: str | None = "",
        **fields: Any,
    ) -> Any:
        sequence = fields.pop("base_sequence", self.sequences.get((topic, partition), 0))
        fields = {"producer_id": self.producer_id, "producer_epoch": self.epoch, "is_transactional": True, **fields}
        request = produce_request(topic, batch_of(value=value, base_sequence=sequence, **fields), partition=partition)
        request.transactional_id = self.transactional_id if transactional_id == "" else transactional_id
        responses: list[Any] = []

        def is_answered() -> bool:
            responses.append(self._client.call(request, version).responses[0].partition_responses[0])
            return responses[-1].error_code not in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS)

        until(is_answered)
        if responses[-1].error_code == 0:
            self.sequences[topic, partition] = sequence + 1
        return responses[-1]

    def end(self, *, commit: bool, version: int = 5, **fields: Any) -> int:
        """EndTxn, asked again while the coordinator is busy."""
        fields = {"producer_id": self.producer_id, "producer_epoch": self.epoch, **fields}
        request = EndTxnRequest(self.transactional_id, committed=commit, **fields)
        responses: list[Any] = []

        def is_answered() -> bool:
            responses.append(self._client.call(request, version))
            return responses[-1].error_code not in NOT_YET

        until(is_answered)
        if responses[-1].error_code == 0 and version >= 5:
            self.producer_id, self.epoch = responses[-1].producer_id, responses[-1].producer_epoch
            self.sequences.clear()
        return int(responses[-1].error_code)

    def add_offsets(self, group_id: str, *, version: int = 4) -> int:
        request = AddOffsetsToTxnRequest(
            self.transactional_id, producer_id=self.producer_id, producer_epoch=self.epoch, group_id=group_id
        )
        codes: list[int] = []

        def is_answered() -> bool:
            codes.append(self._client.call(request, version).error_code)
            return codes[-1] not in NOT_YET

        until(is_answered)
        return codes[-1]

    def commit_offset(self, group_id: str, topic: str | bytes, offset: int, *, version: int = 5, **fields: Any) -> int:
        """TxnOffsetCommit of partition 0 of a topic, of which version 6 takes the id."""
        partition = TxnOffsetCommitRequestPartition(0, committed_offset=offset, committed_metadata="")
        requested = TxnOffsetCommitRequestTopic(partitions=[partition])
        if isinstance(topic, str):
            requested.name = topic
        else:
            requested.topic_id = topic
        fields = {"producer_id": self.producer_id, "producer_epoch": self.epoch, **fields}
        request = TxnOffsetCommitRequest(
            self.transactional_id,
            group_id=group_id,
            topics=[requested],
            **fields,
        )
        codes: list[int] = []

        def is_answered() -> bool:
            codes.append(self._client.call(request, version).topics[0].partitions[0].error_code)
            return codes[-1] not in NOT_YET

        until(is_answered)
        return codes[-1]


def write_marker(client: WireClient, producer: TransactionalProducer, topic: str, **fields: Any) -> int:
    """WriteTxnMarkers for partition 0 of a topic, an abort unless said otherwise; return its code."""
    version = fields.pop("version", 2)
    partition = fields.pop("partition", 0)
    fields = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch, "coordinator_epoch": 0, **fields}
    marker = WritableTxnMarker(topics=[WritableTxnMarkerTopic(topic, partition_indexes=[partition])], **fields)
    (result,) = client.call(WriteTxnMarkersRequest([marker]), version).markers
    assert result.producer_id == fields["producer_id"]
    return int(result.topics[0].partitions[0].error_code)


def last_stable_offset(client: WireClient, topic: str, partition: int = 0) -> int:
    return int(list_offset(client, topic, LATEST, partition=partition, isolation_level=READ_COMMITTED).offset)


def read_committed(client: WireClient, topic: str) -> list[bytes | None]:
    """Return the values that a read_committed consumer hands out."""
    from tests.support.client_requests import fetch, kept_batches

    response = fetch(client, topic, isolation_level=READ_COMMITTED, max_wait_ms=0)
    return [record.value for batch in kept_batches(response) for record in batch.records()]


def hanging_transaction(client: WireClient, topic: str) -> int:
    """Leave a transaction open in partition 0 that no coordinator knows of; return its producer id.

    It takes a broker that does not verify partitions, as none did before KIP-890.
    """
    producer = TransactionalProducer(client, topic)
    assert producer.init() == 0
    verify_partitions(client, is_wanted=False)
    try:
        assert producer.send(topic, version=9) == 0
    finally:
        verify_partitions(client, is_wanted=True)
    return producer.producer_id


def verify_partitions(client: WireClient, *, is_wanted: bool) -> None:
    """Set transaction.partition.verification.enable of all brokers."""
    config = AlterableConfig(
        "transaction.partition.verification.enable", config_operation=SET, value=str(is_wanted).lower()
    )
    resource = AlterConfigsResource(BROKER, resource_name="", configs=[config])
    (response,) = client.call(IncrementalAlterConfigsRequest([resource]), 1).responses
    assert response.error_code == 0, response
