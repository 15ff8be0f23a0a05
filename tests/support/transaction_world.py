"""A transaction shard with a log in memory: records are encoded, and decoded when the shard is loaded anew."""

from collections.abc import Iterable
from typing import Any

from kafkapy.config.transaction import TransactionConfig
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from kafkapy.protocol.messages.end_txn_request import EndTxnRequest
from kafkapy.protocol.messages.end_txn_response import EndTxnResponse
from kafkapy.protocol.messages.init_producer_id_request import InitProducerIdRequest
from kafkapy.protocol.messages.init_producer_id_response import InitProducerIdResponse
from kafkapy.transaction.decision import TransactionDecision, WriteMarkers
from kafkapy.transaction.metadata import TransactionMetadata
from kafkapy.transaction.records import TransactionRecord, decode_record, encode_record
from kafkapy.transaction.settings import TransactionSettings
from kafkapy.transaction.shard import TransactionShard
from kafkapy.types import TopicPartition

X = "x"
"""The transactional id that is meant if none is named."""
TIMEOUT_MS = 60_000
COORDINATOR_EPOCH = 4
ORDERS, TRADES = TopicPartition("orders", 0), TopicPartition("trades", 0)
OFFSETS = TopicPartition("__consumer_offsets", 0)


class TransactionWorld:
    """Requests in one line. Markers stand at once, except in the partitions that are `held`; time stands still."""

    def __init__(self, transaction_version: int = 2, config: TransactionConfig | None = None) -> None:
        self.settings = TransactionSettings.fixed(config, transaction_version)
        self.now_ms = 1_000_000
        self.next_producer_id = 1000
        self.has_producer_ids = True
        self.held: set[TopicPartition] = set()
        self.log: list[tuple[bytes | None, bytes | None]] = []
        self.markers: list[WriteMarkers] = []
        """All that were asked for."""
        self.outstanding: list[WriteMarkers] = []
        self.shard = self._new_shard()

    def _new_shard(self) -> TransactionShard:
        return TransactionShard(
            self.settings, coordinator_epoch=COORDINATOR_EPOCH, allocate_producer_id=self._allocate_producer_id
        )

    def _allocate_producer_id(self) -> int | None:
        if not self.has_producer_ids:
            return None
        self.next_producer_id += 1
        return self.next_producer_id - 1

    # -- decide, append, replay -----------------------------------------------------------------------------------

    def carry_out(self, decision: TransactionDecision) -> Any:
        """Append and replay the records, write the markers; return the response."""
        for record in decision.records:
            self.append(record)
        for effect in decision.effects:
            self.markers.append(effect)
            self.outstanding.append(effect)
            self.write_markers(effect)
        return decision.response

    def append(self, record: TransactionRecord) -> None:
        _, key, value, _ = encode_record(record, self.now_ms)
        self.log.append((key, value))
        self.shard.replay(record, len(self.log) - 1)

    def write_markers(self, effect: WriteMarkers) -> None:
        """Write the markers that can be written now."""
        standing = [partition for partition in effect.partitions if partition not in self.held]
        decision = self.shard.markers_written(effect, standing, self.now_ms)
        if decision.records:
            self.outstanding.remove(effect)
        self.carry_out(decision)

    def release(self) -> None:
        """Let every partition take its marker."""
        self.held.clear()
        for effect in list(self.outstanding):
            self.write_markers(effect)

    def reload(self) -> None:
        """Replay the log into a new shard, as after a restart."""
        self.shard = self._new_shard()
        self.outstanding.clear()
        for offset, (key, value) in enumerate(self.log):
            record = decode_record(key, value)
            if record is not None:
                self.shard.replay(record, offset)
        self.carry_out(self.shard.on_loaded(self.now_ms))

    # -- requests -------------------------------------------------------------------------------------------------

    def init(
        self, transactional_id: str = X, producer: tuple[int, int] = (-1, -1), *, version: int = 5, **fields: Any
    ) -> InitProducerIdResponse:
        request = InitProducerIdRequest(
            transactional_id,
            transaction_timeout_ms=fields.pop("timeout_ms", TIMEOUT_MS),
            producer_id=producer[0],
            producer_epoch=producer[1],
            **fields,
        )
        response = self.carry_out(self.shard.init_producer_id(request, version, self.now_ms))
        assert isinstance(response, InitProducerIdResponse)
        return response

    def started(self, transactional_id: str = X, **fields: Any) -> tuple[int, int]:
        """Return the producer id and epoch that InitProducerId gives."""
        response = self.init(transactional_id, **fields)
        assert response.error_code == 0, response
        return response.producer_id, response.producer_epoch

    def add(
        self,
        producer: tuple[int, int],
        partitions: Iterable[TopicPartition] = (ORDERS,),
        *,
        transactional_id: str = X,
        version: int = 5,
    ) -> ErrorCode:
        decision = self.shard.add_partitions(transactional_id, *producer, list(partitions), version, self.now_ms)
        return ErrorCode(self.carry_out(decision))

    def add_offsets(self, producer: tuple[int, int], *, transactional_id: str = X, version: int = 4) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id, producer_id=producer[0], producer_epoch=producer[1], group_id="readers"
        )
        decision = self.shard.add_offsets(request, version, self.now_ms, offsets_partition=OFFSETS)
        return ErrorCode(self.carry_out(decision).error_code)

    def verify(
        self, producer: tuple[int, int], *partitions: TopicPartition, transactional_id: str = X
    ) -> list[ErrorCode]:
        return list(self.shard.verify_partitions(transactional_id, *producer, partitions).values())

    def end(
        self, producer: tuple[int, int], *, is_commit: bool, transactional_id: str = X, version: int = 5
    ) -> tuple[ErrorCode, int, int]:
        request = EndTxnRequest(
            transactional_id, producer_id=producer[0], producer_epoch=producer[1], committed=is_commit
        )
        response = self.carry_out(self.shard.end_txn(request, version, self.now_ms))
        assert isinstance(response, EndTxnResponse)
        return ErrorCode(response.error_code), response.producer_id, response.producer_epoch

    def commit(self, producer: tuple[int, int], **options: Any) -> tuple[ErrorCode, int, int]:
        return self.end(producer, is_commit=True, **options)

    def abort(self, producer: tuple[int, int], **options: Any) -> tuple[ErrorCode, int, int]:
        return self.end(producer, is_commit=False, **options)

    def time_out(self) -> list[str]:
        """Abort what has timed out; return which."""
        overdue = self.shard.timed_out(self.shard.ongoing(), self.now_ms)
        for transactional_id in overdue:
            self.carry_out(self.shard.abort_timed_out(transactional_id, self.now_ms))
        return overdue

    def expire(self) -> list[str]:
        """Remove what has expired; return which."""
        before = set(self.shard.transactions)
        self.carry_out(self.shard.expire(list(self.shard.transactions), self.now_ms))
        return sorted(before - set(self.shard.transactions))

    @property
    def state(self) -> TransactionMetadata:
        """What is known of X."""
        return self.shard.transactions[X]

    def put(self, metadata: TransactionMetadata, transactional_id: str = X) -> None:
        """Append a record, as though it had been decided earlier."""
        self.append(TransactionRecord(transactional_id, metadata))


def changed(metadata: TransactionMetadata, **fields: Any) -> TransactionMetadata:
    """Return a copy with new values of some fields, whatever the transitions allow."""
    return TransactionMetadata(**(metadata.fields() | fields))
