"""The transactional ids of one `__transaction_state` partition: a machine that decides requests and replays records.

Decide, append, replay: methods for requests return a TransactionDecision and do not change the shard; only `replay`
changes the state that is in the log. The only soft state is which partitions of a decided transaction still need their
marker; after a load all markers are written again. Driven by `runtime/coordinators/transaction_host.py`.

A transaction ends with two records. PrepareCommit or PrepareAbort decides it. Once that is committed, the effect
WriteMarkers has the markers written to the partitions. When each partition has its marker, `markers_written` decides
the second record, CompleteCommit or CompleteAbort. In between the transactional id answers CONCURRENT_TRANSACTIONS.

Deviation: Apache Kafka answers CONCURRENT_TRANSACTIONS also while a record of the transactional id is being replicated.
Here the next request is decided at once, on the state after that record, and its response waits until both are
committed, because the client then needs no retry.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from kafkapy.protocol.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from kafkapy.protocol.messages.describe_transactions_response import TopicData
from kafkapy.protocol.messages.describe_transactions_response import TransactionState as DescribedTransaction
from kafkapy.protocol.messages.end_txn_request import EndTxnRequest
from kafkapy.protocol.messages.end_txn_response import EndTxnResponse
from kafkapy.protocol.messages.init_producer_id_request import InitProducerIdRequest
from kafkapy.protocol.messages.init_producer_id_response import InitProducerIdResponse
from kafkapy.protocol.messages.list_transactions_response import TransactionState as ListedTransaction
from kafkapy.record.batch import NO_PRODUCER_ID
from kafkapy.transaction.decision import NeedsProducerId, TransactionDecision, WriteMarkers
from kafkapy.transaction.end_txn import BUMPS_EPOCH_SINCE, verdict_of_end
from kafkapy.transaction.filters import TransactionFilters
from kafkapy.transaction.init_producer_id import FENCED_SINCE as INIT_FENCED_SINCE
from kafkapy.transaction.init_producer_id import check_init, is_known_producer, names_producer
from kafkapy.transaction.metadata import (
    BUMPING_VERSION,
    LAST_CLIENT_EPOCH,
    MAX_EPOCH,
    NO_EPOCH,
    TransactionMetadata,
    completed,
    created,
    following_producer,
    prepared,
    prepared_and_bumped,
    prepared_and_fenced,
    with_epoch_bumped,
    with_epoch_kept,
    with_new_producer_id,
    with_partitions,
)
from kafkapy.transaction.records import VALUE_VERSION, TransactionRecord
from kafkapy.transaction.settings import TransactionSettings
from kafkapy.transaction.states import TransactionState
from kafkapy.types import TopicPartition

FENCED_SINCE: Final = 2
"""The first AddPartitionsToTxn, AddOffsetsToTxn and EndTxn whose clients know PRODUCER_FENCED."""
BUMPING_PARTITIONS_SINCE: Final = 4
"""The first AddPartitionsToTxn for clients of transaction version 2."""


class TransactionShard:
    """The coordinator of the transactional ids of one partition."""

    def __init__(
        self,
        settings: TransactionSettings,
        *,
        coordinator_epoch: int,
        allocate_producer_id: Callable[[], int | None],
    ) -> None:
        """`allocate_producer_id` returns an unused producer id, or None if there is none (raises NeedsProducerId)."""
        self.settings = settings
        self.coordinator_epoch = coordinator_epoch
        self.transactions: dict[str, TransactionMetadata] = {}
        """By transactional id."""
        self._allocate_producer_id = allocate_producer_id
        self._ongoing: dict[str, frozenset[TopicPartition]] = {}
        """By transactional id in state ONGOING: the transaction's partitions, as a set for lookups."""
        self._unmarked: dict[str, dict[TopicPartition, None]] = {}
        """By transactional id in a prepared state: the partitions that are not known to have their marker."""
        self._open: dict[int, str] = {}
        """By producer id: the transactional id whose transaction is ongoing or prepared."""

    # -- InitProducerId -------------------------------------------------------------------------------------------

    def init_producer_id(self, request: InitProducerIdRequest, version: int, now_ms: int) -> TransactionDecision:
        """Decide the next producer id and epoch of a transactional id. Raises NeedsProducerId.

        - An unknown transactional id gets a new producer id, with epoch 0.
        - While a transaction is prepared, its markers are being written: CONCURRENT_TRANSACTIONS, the client retries.
        - A request that names another producer id than the current one (KIP-360) is fenced.
        - An ongoing transaction is aborted, which fences its producer: CONCURRENT_TRANSACTIONS until that has ended.
        - Else the epoch is bumped, or a new producer id follows the last epoch. An old epoch in the request is fenced.
        """
        refusal = check_init(request, self.settings.config)
        if refusal is not None:
            return _init_failed(refusal)
        transactional_id, timeout_ms = str(request.transactional_id), request.transaction_timeout_ms
        metadata = self.transactions.get(transactional_id)
        if metadata is None:
            return self._initialized(
                transactional_id, created(self._fresh_producer_id(), timeout_ms=timeout_ms, now_ms=now_ms)
            )
        if metadata.state.is_prepared:  # before the producer is looked at: in Apache Kafka its end is pending by then
            return _init_failed(ErrorCode.CONCURRENT_TRANSACTIONS)
        if not is_known_producer(metadata, request):
            return _init_failed(_fenced(version, INIT_FENCED_SINCE))
        if metadata.state is TransactionState.ONGOING:
            decision = self._abort_and_fence(transactional_id, metadata, now_ms)
            decision.response = _init_failed(ErrorCode.CONCURRENT_TRANSACTIONS).response
            return decision
        following = self._next_producer(metadata, request, version, now_ms)
        if isinstance(following, ErrorCode):
            return _init_failed(following)
        return self._initialized(transactional_id, following)

    def _next_producer(
        self, metadata: TransactionMetadata, request: InitProducerIdRequest, version: int, now_ms: int
    ) -> TransactionMetadata | ErrorCode:
        """Return the metadata with the next producer epoch or a new producer id, or the error code of a refusal."""
        timeout_ms, is_named = request.transaction_timeout_ms, names_producer(request)
        is_current = not is_named or request.producer_epoch == metadata.producer_epoch
        last_producer_epoch = metadata.producer_epoch if is_named else NO_EPOCH
        if metadata.is_epoch_exhausted:
            if not is_current:
                return ErrorCode.UNKNOWN_SERVER_ERROR  # like Kafka, which fails on an assertion here
            return with_new_producer_id(
                metadata,
                self._fresh_producer_id(),
                last_producer_epoch=last_producer_epoch,
                timeout_ms=timeout_ms,
                now_ms=now_ms,
            )
        if is_current:
            return with_epoch_bumped(
                metadata, last_producer_epoch=last_producer_epoch, timeout_ms=timeout_ms, now_ms=now_ms
            )
        if request.producer_epoch == metadata.last_producer_epoch:
            return with_epoch_kept(metadata, timeout_ms=timeout_ms, now_ms=now_ms)
        return _fenced(version, INIT_FENCED_SINCE)

    def _initialized(self, transactional_id: str, metadata: TransactionMetadata) -> TransactionDecision:
        assert metadata.state is TransactionState.EMPTY, f"a producer would begin inside of {metadata}"
        assert metadata.producer_epoch <= LAST_CLIENT_EPOCH, "no epoch would be left to fence the client with"
        response = InitProducerIdResponse(producer_id=metadata.producer_id, producer_epoch=metadata.producer_epoch)
        return TransactionDecision(response, [self._record(transactional_id, metadata)])

    # -- partitions -----------------------------------------------------------------------------------------------

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        version: int,
        now_ms: int,
    ) -> TransactionDecision:
        """Decide to add partitions to the transaction, all or none. The response is one error code for all of them.

        `version` is that of AddPartitionsToTxn: 4 and later for clients of transaction version 2.
        """
        client_version = BUMPING_VERSION if version >= BUMPING_PARTITIONS_SINCE else 0
        return self._add(transactional_id, producer_id, producer_epoch, partitions, version, client_version, now_ms)

    def add_offsets(
        self, request: AddOffsetsToTxnRequest, version: int, now_ms: int, *, offsets_partition: TopicPartition
    ) -> TransactionDecision:
        """Decide to add the `__consumer_offsets` partition with the group's offsets to the transaction."""
        decision = self._add(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            [offsets_partition],
            version,
            0,
            now_ms,
        )
        decision.response = AddOffsetsToTxnResponse(error_code=decision.response)
        return decision

    def _add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        version: int,
        client_version: int,
        now_ms: int,
    ) -> TransactionDecision:
        if not transactional_id:
            return TransactionDecision(ErrorCode.INVALID_REQUEST)
        metadata = self.transactions.get(transactional_id)
        if metadata is not None and metadata.state.is_prepared:
            return TransactionDecision(ErrorCode.CONCURRENT_TRANSACTIONS)
        if metadata is None or metadata.producer_id != producer_id:
            return TransactionDecision(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if metadata.producer_epoch != producer_epoch:
            return TransactionDecision(_fenced(version, FENCED_SINCE))
        added = self._ongoing.get(transactional_id)
        # Most requests name partitions that the transaction has: nothing is appended.
        if added is not None and added.issuperset(partitions):
            return TransactionDecision(ErrorCode.NONE)
        following = with_partitions(metadata, partitions, client_transaction_version=client_version, now_ms=now_ms)
        return TransactionDecision(ErrorCode.NONE, [self._record(transactional_id, following)])

    def verify_partitions(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Return an error code per partition: NONE if the producer's transaction has it."""
        metadata = self.transactions.get(transactional_id)
        error = self._verification_error(transactional_id, metadata, producer_id, producer_epoch)
        if error is not None:
            return dict.fromkeys(partitions, error)
        added = self._ongoing.get(transactional_id, frozenset())
        return {
            partition: ErrorCode.NONE if partition in added else ErrorCode.TRANSACTION_ABORTABLE
            for partition in partitions
        }

    def _verification_error(
        self, transactional_id: str, metadata: TransactionMetadata | None, producer_id: int, producer_epoch: int
    ) -> ErrorCode | None:
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        if metadata is None or metadata.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if metadata.producer_epoch != producer_epoch:
            return ErrorCode.PRODUCER_FENCED
        return ErrorCode.CONCURRENT_TRANSACTIONS if metadata.state.is_prepared else None

    # -- the end of a transaction ---------------------------------------------------------------------------------

    def end_txn(self, request: EndTxnRequest, version: int, now_ms: int) -> TransactionDecision:
        """Decide an EndTxn; end_txn.py has the verdict for each state. Raises NeedsProducerId."""
        if not request.transactional_id:
            return _end_failed(ErrorCode.INVALID_REQUEST)
        metadata = self.transactions.get(request.transactional_id)
        if metadata is None:
            return _end_failed(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        is_bumping = version >= BUMPS_EPOCH_SINCE
        verdict = verdict_of_end(metadata, request, version, self.settings)
        if verdict is ErrorCode.NONE:
            return TransactionDecision(_ended(metadata) if is_bumping else EndTxnResponse())
        if isinstance(verdict, ErrorCode):
            return _end_failed(_fenced(version, FENCED_SINCE) if verdict is ErrorCode.PRODUCER_FENCED else verdict)
        if not is_bumping:
            following = prepared(metadata, verdict, now_ms=now_ms)
            return self._prepare(request.transactional_id, following, EndTxnResponse())
        if metadata.producer_epoch == MAX_EPOCH and verdict is TransactionState.PREPARE_COMMIT:
            # As in Kafka: a commit needs a next epoch, and there is none. An abort does not.
            return _end_failed(ErrorCode.UNKNOWN_SERVER_ERROR)
        following = self._bumped(metadata, verdict, now_ms)
        return self._prepare(request.transactional_id, following, _ended(following))

    def _abort_and_fence(
        self, transactional_id: str, metadata: TransactionMetadata, now_ms: int
    ) -> TransactionDecision:
        """Decide an abort that the client did not request. The epoch is bumped, which fences the client."""
        assert metadata.state is TransactionState.ONGOING, f"{metadata} has nothing to abort"
        if self.settings.transaction_version() >= BUMPING_VERSION:
            return self._prepare(transactional_id, self._bumped(metadata, TransactionState.PREPARE_ABORT, now_ms))
        return self._prepare(transactional_id, prepared_and_fenced(metadata, now_ms=now_ms))

    def _bumped(self, metadata: TransactionMetadata, target: TransactionState, now_ms: int) -> TransactionMetadata:
        return prepared_and_bumped(
            metadata,
            target,
            next_producer_id=self._fresh_producer_id() if metadata.is_epoch_exhausted else NO_PRODUCER_ID,
            client_transaction_version=BUMPING_VERSION,
            now_ms=now_ms,
        )

    def _prepare(
        self, transactional_id: str, metadata: TransactionMetadata, response: EndTxnResponse | None = None
    ) -> TransactionDecision:
        markers = self._markers(transactional_id, metadata, metadata.partitions)
        return TransactionDecision(response, [self._record(transactional_id, metadata)], [markers])

    def _markers(
        self, transactional_id: str, metadata: TransactionMetadata, partitions: Iterable[TopicPartition]
    ) -> WriteMarkers:
        assert metadata.state.is_prepared, f"markers of a transaction that is not decided: {metadata}"
        return WriteMarkers(
            transactional_id,
            producer_id=metadata.producer_id,
            producer_epoch=metadata.producer_epoch,
            is_commit=metadata.state is TransactionState.PREPARE_COMMIT,
            coordinator_epoch=self.coordinator_epoch,
            transaction_version=metadata.client_transaction_version,
            partitions=tuple(partitions),
        )

    def markers_written(
        self, markers: WriteMarkers, partitions: Iterable[TopicPartition], now_ms: int
    ) -> TransactionDecision:
        """Record that partitions have their marker or need none; after the last, decide to complete the transaction.

        If the record cannot be appended, call it again with no partitions.
        """
        metadata = self.transactions.get(markers.transactional_id)
        if metadata is None or not _is_of(markers, metadata):
            return TransactionDecision()
        assert markers.transactional_id in self._unmarked, "a decided transaction has a list of missing markers"
        unmarked = self._unmarked[markers.transactional_id]
        for partition in partitions:
            unmarked.pop(partition, None)
        if unmarked:
            return TransactionDecision()
        return TransactionDecision(records=[self._record(markers.transactional_id, completed(metadata, now_ms=now_ms))])

    # -- time -----------------------------------------------------------------------------------------------------

    def ongoing(self) -> list[str]:
        """Return the transactional ids in state ONGOING."""
        return list(self._ongoing)

    def timed_out(self, transactional_ids: Iterable[str], now_ms: int) -> list[str]:
        """Return those of the ids whose transaction has exceeded the transaction.timeout.ms of its producer."""
        return [
            each
            for each in transactional_ids
            if (metadata := self.transactions.get(each)) is not None and metadata.is_timed_out(now_ms)
        ]

    def abort_timed_out(self, transactional_id: str, now_ms: int, *, is_due: bool = False) -> TransactionDecision:
        """Decide the abort of a transaction, if it has timed out or `is_due`. Raises NeedsProducerId."""
        metadata = self.transactions.get(transactional_id)
        is_due = is_due and transactional_id in self._ongoing
        if metadata is None or not (is_due or metadata.is_timed_out(now_ms)):
            return TransactionDecision()
        return self._abort_and_fence(transactional_id, metadata, now_ms)

    def expire(self, transactional_ids: Iterable[str], now_ms: int) -> TransactionDecision:
        """Decide the removal of those of the ids that were not used for transactional.id.expiration.ms."""
        expiration_ms = self.settings.config.transactional_id_expiration_ms
        expired = [
            each
            for each in transactional_ids
            if (metadata := self.transactions.get(each)) is not None and metadata.is_expired(now_ms, expiration_ms)
        ]
        is_closed = self._ongoing.keys().isdisjoint(expired) and self._unmarked.keys().isdisjoint(expired)
        assert is_closed, "partitions would wait for ever for the markers of a forgotten transaction"
        return TransactionDecision(records=[self._record(each, None) for each in expired], is_atomic=False)

    # -- ListTransactions, DescribeTransactions -------------------------------------------------------------------

    def describe(self, transactional_id: str) -> DescribedTransaction:
        """Return a transactional id for DescribeTransactions. Prepared: only its partitions still without marker."""
        if not transactional_id:
            return DescribedTransaction(ErrorCode.INVALID_REQUEST)
        metadata = self.transactions.get(transactional_id)
        if metadata is None:
            return DescribedTransaction(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id=transactional_id)
        return DescribedTransaction(
            ErrorCode.NONE,
            transactional_id=transactional_id,
            transaction_state=metadata.state.shown_name,
            transaction_timeout_ms=metadata.timeout_ms,
            transaction_start_time_ms=metadata.start_ms,
            producer_id=metadata.producer_id,
            producer_epoch=metadata.producer_epoch,
            topics=_described_topics(self._unmarked.get(transactional_id, metadata.partitions)),
        )

    def list_transactions(self, filters: TransactionFilters, now_ms: int) -> Iterator[ListedTransaction | None]:
        """Yield each transactional id, or None for one that fails a filter: callers can pause after any of them."""
        for transactional_id, metadata in list(self.transactions.items()):
            if filters.passes(transactional_id, metadata, now_ms):
                yield ListedTransaction(
                    transactional_id, producer_id=metadata.producer_id, transaction_state=metadata.state.shown_name
                )
            else:
                yield None

    def takes_part(self, producer_id: int, partition: TopicPartition) -> bool:
        """Whether the producer's transaction has yet to end in the partition: ongoing, or its marker is missing."""
        transactional_id = self._open.get(producer_id)
        if transactional_id is None:
            return False
        return partition in self._unmarked.get(transactional_id, self._ongoing.get(transactional_id, ()))

    # -- replay ---------------------------------------------------------------------------------------------------

    def replay(self, record: TransactionRecord, record_offset: int, producer_id: int = NO_PRODUCER_ID) -> None:
        """Apply one record. `record_offset` and `producer_id` are not used."""
        transactional_id, metadata = record.transactional_id, record.metadata
        before = self.transactions.get(transactional_id)
        if before is not None:
            self._open.pop(before.producer_id, None)
            self._ongoing.pop(transactional_id, None)
            self._unmarked.pop(transactional_id, None)
        if metadata is None:
            self.transactions.pop(transactional_id, None)
            return
        self.transactions[transactional_id] = metadata
        if metadata.state is TransactionState.ONGOING:
            self._ongoing[transactional_id] = frozenset(metadata.partitions)
            self._open[metadata.producer_id] = transactional_id
        elif metadata.state.is_prepared:
            self._open[metadata.producer_id] = transactional_id
            self._unmarked[transactional_id] = dict.fromkeys(metadata.partitions)

    def on_loaded(self, now_ms: int) -> TransactionDecision:
        """After the log was replayed, return the effects that write the markers of all decided transactions."""
        assert self._ongoing.keys().isdisjoint(self._unmarked), "a transaction is ongoing or decided, not both"
        return TransactionDecision(
            effects=[
                self._markers(transactional_id, self.transactions[transactional_id], unmarked)
                for transactional_id, unmarked in self._unmarked.items()
            ]
        )

    def _record(self, transactional_id: str, metadata: TransactionMetadata | None) -> TransactionRecord:
        return TransactionRecord(transactional_id, metadata, min(self.settings.transaction_version(), VALUE_VERSION))

    def _fresh_producer_id(self) -> int:
        producer_id = self._allocate_producer_id()
        if producer_id is None:
            raise NeedsProducerId
        assert producer_id not in self._open, f"producer id {producer_id} is that of {self._open[producer_id]}"
        return producer_id


def _is_of(markers: WriteMarkers, metadata: TransactionMetadata) -> bool:
    """Whether the markers belong to the current prepared transaction."""
    return (
        metadata.state.is_prepared
        and metadata.producer_id == markers.producer_id
        and metadata.producer_epoch == markers.producer_epoch
    )


def _fenced(version: int, fenced_since: int) -> ErrorCode:
    return ErrorCode.PRODUCER_FENCED if version >= fenced_since else ErrorCode.INVALID_PRODUCER_EPOCH


def _init_failed(code: ErrorCode) -> TransactionDecision:
    return TransactionDecision(
        InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)
    )


def _end_failed(code: ErrorCode) -> TransactionDecision:
    return TransactionDecision(EndTxnResponse(error_code=code))


def _ended(metadata: TransactionMetadata) -> EndTxnResponse:
    """Return the response to EndTxn 5, with the producer id and epoch that the client uses next."""
    producer_id, producer_epoch = following_producer(metadata)
    return EndTxnResponse(producer_id=producer_id, producer_epoch=producer_epoch)


def _described_topics(partitions: Iterable[TopicPartition]) -> list[TopicData]:
    topics: dict[str, TopicData] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, TopicData(topic)).partitions.append(partition)
    return list(topics.values())
