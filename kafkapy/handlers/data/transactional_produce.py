"""Transactional batches of a Produce request: verified with the coordinator before they are appended.

With versions 3 to 11 the client must have added the partitions; from 12 on the verification adds them (KIP-890). All
transactional batches of a request must be of one producer.
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.runtime.coordinators.transaction_verification import TransactionalProducer, Verified

if TYPE_CHECKING:
    from kafkapy.handlers.context import RequestContext, Services
    from kafkapy.replication.delayed_produce import PartitionAppend
    from kafkapy.replication.hosted_partitions import HostedPartition
    from kafkapy.storage.log.coalesced_append import Verify
    from kafkapy.storage.producers.entry import VerificationGuard

ABORTABLE_SINCE: Final = 11
ADDING_SINCE: Final = 12
UNVERIFIED: Final = frozenset(
    (
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)
"""Error codes of the coordinator that producers do not know. They get NOT_ENOUGH_REPLICAS, and retry."""

_PRODUCER: Final = Struct(">43xqhi")
"""Fields of a batch header: producer id, producer epoch, base sequence."""


class SeveralProducersError(Exception):
    """A request with transactional batches of more than one producer."""


async def verify(
    services: "Services",
    context: "RequestContext",
    transactional_id: str,
    appends: Sequence["PartitionAppend"],
) -> None:
    """Set each append's verification guard, or the error of its batch. Raises SeveralProducersError.

    The connection is held meanwhile, so that its batches are appended in order.
    """
    producers = [_PRODUCER.unpack_from(append.records) for append in appends]
    named = {(producer_id, epoch) for producer_id, epoch, _ in producers if producer_id >= 0}
    if len(named) > 1:
        raise SeveralProducersError
    for producer_id, producer_epoch in named:
        base_sequences = {
            append.partition: base_sequence
            for append, (producer_id, _, base_sequence) in zip(appends, producers, strict=True)
            if producer_id >= 0
        }
        if _is_open_in(base_sequences, producer_id, producer_epoch):
            return  # as for most batches: the append checks the rest
        producer = _producer_of(context.api_version, transactional_id, producer_id, producer_epoch)
        context.connection.is_held = True
        verified = await services.transaction_verification.verify_with_retries(producer, base_sequences)
        context.connection.is_held = False
        for append in appends:
            if append.partition in verified:
                _apply_verification(append, verified[append.partition], producer)


def verifier(services: "Services", version: int, transactional_id: str, partition: "HostedPartition") -> "Verify":
    """Return a function that verifies the first batch of a transaction, which CoalescedAppend has found valid.

    It returns None if the verification has to wait, or has failed: `verify` then repeats it, to the same outcome.
    """

    def verify_at_once(producer_id: int, producer_epoch: int, base_sequence: int) -> "VerificationGuard | None":
        producer = _producer_of(version, transactional_id, producer_id, producer_epoch)
        return services.transaction_verification.verify_at_once(producer, partition, base_sequence)

    return verify_at_once


def _producer_of(version: int, transactional_id: str, producer_id: int, producer_epoch: int) -> TransactionalProducer:
    """Return the producer of a request, with what the version of Produce implies about it."""
    return TransactionalProducer(
        transactional_id,
        producer_id,
        producer_epoch,
        adds_partitions=version >= ADDING_SINCE,
        knows_transaction_abortable=version >= ABORTABLE_SINCE,
    )


def _is_open_in(partitions: Iterable["HostedPartition"], producer_id: int, producer_epoch: int) -> bool:
    """Whether the producer's transaction is open in each of the partitions, so that there is nothing to verify."""
    for partition in partitions:
        log = partition.log
        if log is None or not log.producer_state.has_open_transaction(producer_id, producer_epoch):
            return False
    return True


def _apply_verification(append: "PartitionAppend", verified: Verified, producer: TransactionalProducer) -> None:
    append.verification = verified.guard
    code = verified.code
    if code == ErrorCode.NONE:
        return
    message = None
    if code == ErrorCode.INVALID_TXN_STATE:
        message = "Partition was not added to the transaction"
    elif code in UNVERIFIED or (code == ErrorCode.CONCURRENT_TRANSACTIONS and not producer.adds_partitions):
        name = ErrorCode(code).name
        message = f"Unable to verify the partition has been added to the transaction. Underlying error: {name}"
        code = ErrorCode.NOT_ENOUGH_REPLICAS
    append.refuse(code, message)
