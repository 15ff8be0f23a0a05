"""Fences earlier leaders: nothing that they have decided is appended after the records that this leader has read.

By its lease a leader knows that no other registry leads (election.py). But its process may be suspended between that
check and the append, and the network may deliver the append after its session has ended. So each leader writes with a
producer epoch of its own, of a transactional id with the name of the group. Its first batch is a NOOP. After it the
leader of the topic's partition refuses batches with earlier epochs. The new leader reads the topic up to that batch
before it decides anything. There is no transaction: the batches are those of an idempotent producer.

Without a transaction coordinator, or the right to WRITE to that transactional id, there is only the lease; that is
logged. Confluent's registries write without an epoch, and are not fenced.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

from kafkapy.dataclass import dataclass
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.init_producer_id_request import InitProducerIdRequest
from kafkapy.record.builder import PLAIN_FIELDS, BatchFields
from kafkapy.registry.cluster import Cluster, ClusterError, call, check

INIT_PRODUCER_ID_VERSION: Final = 1
TRANSACTION_TIMEOUT_MS: Final = 60_000
"""The default of Java's producer. There is never a transaction to abort."""
CLAIM_TIMEOUT_S: Final = 5.0
"""The time for the coordinator to grant an epoch: after a move it has loaded by then."""
RETRY_S: Final = 0.1
RENEW_S: Final = 3_600.0
"""After this time the next epoch is claimed. A coordinator forgets a transactional id without requests for seven days;
its next epoch would belong to another producer id, and fence no earlier leader."""
RETRY_UNFENCED_S: Final = 60.0
"""The interval of claims as long as there is no epoch."""
FENCED: Final = frozenset((ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED))

logger = logging.getLogger("kafkapy.registry")


@dataclass(slots=True)
class Producer:
    """The producer's id and epoch; `sequence`: that of its next record."""

    producer_id: int
    producer_epoch: int
    sequence: int = 0


class Fence:
    """The epoch of one registry, used by one thread at a time."""

    def __init__(self, cluster: Cluster, name: str, term: Callable[[], int]) -> None:
        """`name`: the transactional id. `term`: returns how often this registry has become the leader."""
        self._cluster = cluster
        self._name = name
        self._term = term
        self._producer: Producer | None = None
        self._claimed_term = -1
        self._valid_until_s = 0.0

    def must_claim(self) -> bool:
        """Whether an epoch must be claimed before the next decision."""
        return self._claimed_term != self._term() or time.monotonic() >= self._valid_until_s

    def claim(self) -> bool:
        """Claim the next epoch; return whether the coordinator has granted one."""
        term = self._term()  # a term that begins meanwhile claims again
        self._producer = self._granted()
        self._claimed_term = term
        self._valid_until_s = time.monotonic() + (RETRY_UNFENCED_S if self._producer is None else RENEW_S)
        return self._producer is not None

    def fields(self) -> BatchFields:
        """Return the producer fields of the next batch's header."""
        producer = self._producer
        if producer is None:
            return PLAIN_FIELDS
        return BatchFields(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=producer.sequence,
        )

    def on_appended(self, record_count: int) -> None:
        if self._producer is not None:
            self._producer.sequence += record_count

    def on_failure(self) -> None:
        """Drop the epoch after a refused batch, or one with an unknown outcome: the next epoch keeps that batch out."""
        self._producer = None
        self._claimed_term = -1

    def _granted(self) -> Producer | None:
        deadline_s = time.monotonic() + CLAIM_TIMEOUT_S
        while True:
            try:
                return self._ask()
            except ClusterError as error:
                is_passing = error.code is ErrorCode.NONE or error.code.is_retriable
                if not is_passing or time.monotonic() >= deadline_s:
                    logger.warning(
                        "No producer epoch of the transactional id %s: a registry that led before is not fenced: %s",
                        self._name,
                        error,
                    )
                    return None
            time.sleep(RETRY_S)

    def _ask(self) -> Producer:
        """Ask the coordinator for the next producer epoch, once. Raises ClusterError."""
        request = InitProducerIdRequest(self._name, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
        with self._cluster.to_transaction_coordinator(self._name) as connection:
            granted = call(connection, request, INIT_PRODUCER_ID_VERSION, CLAIM_TIMEOUT_S)
        check(granted.error_code, f"the transactional id {self._name}")
        return Producer(granted.producer_id, granted.producer_epoch)
