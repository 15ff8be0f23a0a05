"""The checks of InitProducerId 0-5 with a transactional id.

v3: a producer may name its current producer id and epoch (KIP-360). If they are the current ones, the epoch is bumped.
If they are the previous ones, the response to an earlier request was lost, and the current ones are returned again.
Others are fenced.
"""

from typing import Final

from kafkapy.config.transaction import TransactionConfig
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.init_producer_id_request import InitProducerIdRequest
from kafkapy.record.batch import NO_PRODUCER_ID
from kafkapy.transaction.metadata import NO_EPOCH, TransactionMetadata, is_exhausted

FENCED_SINCE: Final = 4
"""The first InitProducerId whose clients know PRODUCER_FENCED."""


def check_init(request: InitProducerIdRequest, config: TransactionConfig) -> ErrorCode | None:
    """Return the error code of a request that any coordinator refuses, or None. Its transactional id is not None."""
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
        return ErrorCode.INVALID_REQUEST
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if not 0 < request.transaction_timeout_ms <= config.transaction_max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return None


def names_producer(request: InitProducerIdRequest) -> bool:
    """Whether the request names the producer's id and epoch."""
    return request.producer_id != NO_PRODUCER_ID or request.producer_epoch != NO_EPOCH


def is_known_producer(metadata: TransactionMetadata, request: InitProducerIdRequest) -> bool:
    """Whether the request names no producer, or the one that has the transactional id; its epoch is checked later.

    The previous producer id counts, too, if the request has its last epoch: the response with the new id may be lost.
    """
    return (
        not names_producer(request)
        or request.producer_id == metadata.producer_id
        or (request.producer_id == metadata.previous_producer_id and is_exhausted(request.producer_epoch))
    )
