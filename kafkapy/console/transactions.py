"""Transactional ids, one transaction, and the producers that a partition's leader remembers."""

from typing import Any, Final

from kafkapy.cli.transaction_admin import TransactionAdmin, TransactionError
from kafkapy.console.brokers import ClusterError, NotFound
from kafkapy.console.settings import Settings
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.types import TopicPartition

MAX_TRANSACTIONS: Final = 1000
"""One page's table."""


def transaction_list(
    settings: Settings, states: list[str], open_ms: int = -1
) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """Return transactional ids, in these states, and open for at least open_ms, if given; and brokers that failed.

    The brokers have the reason beside their id. One that restarts does not hide the transactions of the others. Raises
    ClusterError.
    """
    failures: dict[int, str] = {}
    try:
        with TransactionAdmin(settings.servers) as admin:
            return admin.list_transactions(states=states, duration_ms=open_ms, failures=failures), failures
    except TransactionError as error:
        raise ClusterError(str(error)) from error


def transaction(settings: Settings, transactional_id: str) -> tuple[int, Any]:
    """Return the coordinator of a transactional id, and its description of it. Raises ClusterError, NotFound."""
    try:
        with TransactionAdmin(settings.servers) as admin:
            return admin.describe(transactional_id)
    except TransactionError as error:
        if error.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise NotFound(f"There is no transactional id {transactional_id}.") from error
        raise ClusterError(str(error)) from error


def producers(settings: Settings, topic: str, partition: int) -> list[Any]:
    """Raises ClusterError."""
    try:
        with TransactionAdmin(settings.servers) as admin:
            return admin.producers_of(TopicPartition(topic, partition))
    except TransactionError as error:
        raise ClusterError(str(error)) from error
