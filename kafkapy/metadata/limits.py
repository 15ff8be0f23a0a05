"""How many records one operation of a client may have in the metadata log; how many partitions a client may change."""

from collections.abc import Callable
from typing import Final

from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode

MAX_RECORDS_PER_OPERATION: Final = 10_000
"""Kafka's bound, and that of a batch of the metadata log: the records of an operation are one batch."""


def check_operation_size(count: int) -> None:
    """Raise ApiError POLICY_VIOLATION if an operation has more records (or results) than it may."""
    if count > MAX_RECORDS_PER_OPERATION:
        raise ApiError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")


CountPartitions = Callable[[int], None]
"""Counts partitions that a client creates or deletes for its controller_mutation_rate (KIP-599).

Called once a topic has passed all other checks. Raises ApiError THROTTLING_QUOTA_EXCEEDED."""


def count_none(_partition_count: int) -> None:
    """The CountPartitions of those that have no quota."""
