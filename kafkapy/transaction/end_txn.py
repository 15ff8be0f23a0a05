"""EndTxn 0-5: which end of a transaction each state accepts, by version and epoch.

v0-4: the client keeps its epoch, so only the current epoch is accepted, and a retry is recognised by the state alone.
v5: every end bumps the epoch (KIP-890). A request at the previous epoch is a retry of the end that bumped it. If that
end exhausted the epochs, the retry has the previous producer id and its last epoch. An abort is accepted without a
transaction.

Deviation: Apache Kafka 4.3.1 takes every request at the previous epoch for a retry, also if the last end was by a
client older than KIP-890, which bumps no epoch. Then the current epoch is that of a newer producer, which fenced the
sender. If the sender got NONE, both producers would use the same epoch, and a batch of one could be taken for a
duplicate of the other's. Here the sender gets PRODUCER_FENCED from transaction.version 2 on, because both would else
use one epoch; below that, no client sends v5.

While markers are written Kafka always answers CONCURRENT_TRANSACTIONS. v5 checks this before the producer id and epoch,
because the client may already use those that follow the transaction.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.end_txn_request import EndTxnRequest
from kafkapy.transaction.metadata import BUMPING_VERSION, LAST_CLIENT_EPOCH, TransactionMetadata
from kafkapy.transaction.settings import TransactionSettings
from kafkapy.transaction.states import TransactionState

BUMPS_EPOCH_SINCE: Final = 5

Verdict: TypeAlias = ErrorCode | TransactionState
"""The state to prepare, or an error code: NONE for a retry of a request that was carried out."""

_EMPTY, _ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
_COMMITTED, _ABORTED = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT
_COMMIT, _ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT

_VERDICTS: Final[Mapping[tuple[TransactionState, TransactionState], Verdict]] = {
    (_EMPTY, _COMMIT): ErrorCode.INVALID_TXN_STATE,
    (_EMPTY, _ABORT): ErrorCode.INVALID_TXN_STATE,
    (_ONGOING, _COMMIT): _COMMIT,
    (_ONGOING, _ABORT): _ABORT,
    (_COMMITTED, _COMMIT): ErrorCode.NONE,
    (_COMMITTED, _ABORT): ErrorCode.INVALID_TXN_STATE,
    (_ABORTED, _COMMIT): ErrorCode.INVALID_TXN_STATE,
    (_ABORTED, _ABORT): ErrorCode.NONE,
}
"""Versions 0-4, by (state, requested end)."""

_VERDICTS_AT_CURRENT_EPOCH: Final[Mapping[tuple[TransactionState, TransactionState], Verdict]] = {
    (_EMPTY, _COMMIT): ErrorCode.INVALID_TXN_STATE,
    (_EMPTY, _ABORT): _ABORT,
    (_ONGOING, _COMMIT): _COMMIT,
    (_ONGOING, _ABORT): _ABORT,
    (_COMMITTED, _COMMIT): ErrorCode.INVALID_TXN_STATE,
    (_COMMITTED, _ABORT): _ABORT,
    (_ABORTED, _COMMIT): ErrorCode.INVALID_TXN_STATE,
    (_ABORTED, _ABORT): _ABORT,
}
_VERDICTS_OF_RETRY: Final[Mapping[tuple[TransactionState, TransactionState], Verdict]] = {
    (_COMMITTED, _COMMIT): ErrorCode.NONE,
    (_COMMITTED, _ABORT): ErrorCode.INVALID_TXN_STATE,
    (_ABORTED, _COMMIT): ErrorCode.INVALID_TXN_STATE,
    (_ABORTED, _ABORT): ErrorCode.NONE,
}
"""Version 5, for retries; in other states a request cannot be a retry."""


def verdict_of_end(
    metadata: TransactionMetadata, request: EndTxnRequest, version: int, settings: TransactionSettings
) -> Verdict:
    """Return the verdict on an EndTxn for a known transactional id."""
    if version >= BUMPS_EPOCH_SINCE:
        return _verdict_with_bump(metadata, request, settings)
    if metadata.producer_id != request.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if metadata.producer_epoch != request.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if metadata.state.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return _VERDICTS[metadata.state, _COMMIT if request.committed else _ABORT]


def _verdict_with_bump(metadata: TransactionMetadata, request: EndTxnRequest, settings: TransactionSettings) -> Verdict:
    if metadata.state.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    is_retry_of_last_epoch = (
        metadata.previous_producer_id == request.producer_id
        and request.producer_epoch == LAST_CLIENT_EPOCH
        and metadata.producer_epoch == 0
    )
    if metadata.producer_id != request.producer_id and not is_retry_of_last_epoch:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    target = _COMMIT if request.committed else _ABORT
    is_behind = metadata.producer_epoch == request.producer_epoch + 1
    if is_retry_of_last_epoch or (is_behind and _has_bumped(metadata, settings)):
        return _VERDICTS_OF_RETRY.get((metadata.state, target), ErrorCode.PRODUCER_FENCED)
    if metadata.producer_epoch != request.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return _VERDICTS_AT_CURRENT_EPOCH[metadata.state, target]


def _has_bumped(metadata: TransactionMetadata, settings: TransactionSettings) -> bool:
    """Whether the last end of a transaction bumped the epoch."""
    return metadata.client_transaction_version >= BUMPING_VERSION or settings.transaction_version() < BUMPING_VERSION
