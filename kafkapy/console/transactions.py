"""Transactional ids, a transaction, and the producers in the state of a partition's leader."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from kafkapy.cli.transaction_admin import OpenTransaction, TransactionAdmin, TransactionError
from kafkapy.console.brokers import BadRequest, Brokers, ClusterError, NotFound
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.types import TopicPartition

MAX_TRANSACTIONS: Final = 1000
"""Rows of a page's table."""


@contextmanager
def transaction_admin(brokers: Brokers) -> Iterator[TransactionAdmin]:
    """Yield requests about transactions; turn their errors into ClusterError."""
    try:
        with TransactionAdmin(brokers.servers) as admin:
            yield admin
    except TransactionError as error:
        raise ClusterError(str(error)) from error


def transaction_list(
    brokers: Brokers, states: list[str], open_ms: int = -1
) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """Return transactional ids, in these states, and open for at least open_ms, if given; and brokers that failed.

    The brokers have the reason beside their id. One that restarts does not hide the transactions of the others. Raises
    ClusterError.
    """
    silent = brokers.find_silent([each.node_id for each in brokers.nodes()])
    failures = {each: f"no broker answers at {brokers.address_of(each)}" for each in silent}
    with transaction_admin(brokers) as admin:
        return admin.list_transactions(states=states, duration_ms=open_ms, failures=failures), failures


def transaction(brokers: Brokers, transactional_id: str) -> tuple[int, Any]:
    """Return the coordinator of a transactional id, and its description of it. Raises ClusterError, NotFound."""
    with transaction_admin(brokers) as admin:
        try:
            return admin.describe(transactional_id)
        except TransactionError as error:
            if error.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise NotFound(f"There is no transactional id {transactional_id}.") from error
            raise


def producers(brokers: Brokers, topic: str, partition: int) -> list[Any]:
    """Return the producers of a partition. Raises ClusterError."""
    with transaction_admin(brokers) as admin:
        return admin.producers_of(TopicPartition(topic, partition))


def hanging(brokers: Brokers, partition: TopicPartition, producer_id: int) -> OpenTransaction:
    """Return a producer's transaction in a partition, unknown to its coordinator. Raises ClusterError, BadRequest."""
    with transaction_admin(brokers) as admin:
        found = [each for each in admin.open_transactions([partition]) if each.producer.producer_id == producer_id]
        if not found:
            raise BadRequest(f"Producer {producer_id} has no transaction open in {partition}.")
        if not admin.hanging_among(found):
            raise BadRequest("Its coordinator knows this transaction: abort it by its transactional id.")
        starts = {each.producer.current_txn_start_offset for each in found}
        still = [each for each in admin.open_transactions([partition]) if each.producer.producer_id == producer_id]
        if not still or still[0].producer.current_txn_start_offset not in starts:
            # its coordinator has ended it between the two requests; a later transaction must not be aborted
            raise BadRequest(f"Producer {producer_id} has ended the transaction in {partition} by now.")
        return still[0]
