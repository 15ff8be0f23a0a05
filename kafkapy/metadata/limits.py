"""Limits of one client operation: records in the metadata log, and partitions created or deleted."""

from collections.abc import Callable
from typing import Final

from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode

MAX_RECORDS_PER_OPERATION: Final = 10_000
"""Kafka's limit for an operation, and for a batch of the metadata log: an operation's records are one batch."""


def check_operation_size(count: int) -> None:
    """Raise ApiError POLICY_VIOLATION if an operation has more records (or results) than MAX_RECORDS_PER_OPERATION."""
    if count > MAX_RECORDS_PER_OPERATION:
        raise ApiError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")


ChargePartitions = Callable[[int], None]
"""Charges a client's controller_mutation_rate for created or deleted partitions (KIP-599): serving/quotas.py.

Called after a topic has passed all other checks. Raises ApiError THROTTLING_QUOTA_EXCEEDED."""


def charge_none(_partition_count: int) -> None:
    """The ChargePartitions of clients without a quota."""
