"""InitProducerId 0-5 with a transactional id: what is checked, and which epoch a producer goes on with.

v3: a producer may name the producer id and epoch that it has (KIP-360). The current ones are bumped; the ones before,
from a request whose answer was lost, get the current ones again; others are fenced.
"""

from typing import Final

from kafkapy.config.transaction import TransactionConfig
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.init_producer_id_request import InitProducerIdRequest
from kafkapy.transaction.metadata import NO_EPOCH, NO_PRODUCER_ID, TransactionMetadata, is_exhausted

FENCED_SINCE: Final = 4
"""The first InitProducerId whose clients know PRODUCER_FENCED."""


def check_init(request: InitProducerIdRequest, config: TransactionConfig) -> ErrorCode | None:
    """Return why a request is refused whoever coordinates its transactional id (which is not None), or None."""
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
        return ErrorCode.INVALID_REQUEST
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if not 0 < request.transaction_timeout_ms <= config.transaction_max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return None


def names_producer(request: InitProducerIdRequest) -> bool:
    """Whether the producer names the producer id and epoch that it has."""
    return request.producer_id != NO_PRODUCER_ID or request.producer_epoch != NO_EPOCH


def is_known_producer(metadata: TransactionMetadata, request: InitProducerIdRequest) -> bool:
    """Whether the producer may be the current one; its epoch is looked at when it is bumped."""
    return (
        not names_producer(request)
        or request.producer_id == metadata.producer_id
        or (request.producer_id == metadata.previous_producer_id and is_exhausted(request.producer_epoch))
    )
