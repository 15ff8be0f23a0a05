"""The filters of ListTransactions 0-2.

v1: transactions that have run longer than a duration (KIP-994). v2: transactional ids that a regular expression matches
as a whole (KIP-1152). Deviation: Apache Kafka evaluates it by java.util.regex. Here it is RE2, because its time is
linear; so look-around and back-references are refused as INVALID_REGULAR_EXPRESSION.
"""

from typing import Any

from kafkapy.config.patterns import PatternError, compiled
from kafkapy.dataclass import dataclass
from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.list_transactions_request import ListTransactionsRequest
from kafkapy.transaction.metadata import TransactionMetadata
from kafkapy.transaction.states import STATE_BY_SHOWN_NAME, TransactionState


@dataclass(slots=True, frozen=True)
class TransactionFilters:
    """A transaction is listed if it passes all filters. An empty filter, or duration_ms < 0, passes everything."""

    producer_ids: frozenset[int] = frozenset()
    state_names: frozenset[str] = frozenset()
    duration_ms: int = -1
    pattern: Any = None

    @classmethod
    def of(cls, request: ListTransactionsRequest) -> "TransactionFilters":
        """Return the filters of a request. Raises ApiError INVALID_REGULAR_EXPRESSION."""
        return cls(
            frozenset(request.producer_id_filters),
            frozenset(request.state_filters),
            request.duration_filter,
            _compiled(request.transactional_id_pattern) if request.transactional_id_pattern else None,
        )

    @property
    def unknown_states(self) -> list[str]:
        """The names in the filter that are not states; the response returns them."""
        return sorted(name for name in self.state_names if name not in STATE_BY_SHOWN_NAME)

    def passes(self, transactional_id: str, metadata: TransactionMetadata, now_ms: int) -> bool:
        if metadata.state is TransactionState.DEAD:
            return False
        if self.producer_ids and metadata.producer_id not in self.producer_ids:
            return False
        if self.state_names and metadata.state.shown_name not in self.state_names:
            return False
        if self.duration_ms >= 0 and now_ms - metadata.start_ms <= self.duration_ms:
            return False
        return self.pattern is None or self.pattern.fullmatch(transactional_id) is not None


def _compiled(pattern: str) -> Any:
    try:
        return compiled(pattern)
    except PatternError as error:
        message = f"Transaction ID pattern `{pattern}` is not a valid regular expression: {error}."
        raise ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from error
