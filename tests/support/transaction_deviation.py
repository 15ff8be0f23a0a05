"""Where our transaction coordinator answers otherwise than Apache Kafka 4.3.1 does: transaction/end_txn.py says why."""

from typing import Any

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.end_txn_request import EndTxnRequest
from kafkapy.protocol.messages.end_txn_response import EndTxnResponse
from kafkapy.transaction.metadata import BUMPING_VERSION, TransactionMetadata
from kafkapy.transaction.records import decode_record
from kafkapy.transaction.states import COMPLETE_STATES

END_TXN_5 = [26, 5]


def as_answered_here(scenario: dict[str, Any]) -> dict[str, Any]:
    """Return a recorded scenario with the responses that we give: PRODUCER_FENCED for what was not a retry."""
    known: dict[str, TransactionMetadata | None] = {}
    _learn(known, scenario["crafted"])
    steps = []
    for step in scenario["steps"]:
        is_other = scenario["transaction_version"] == BUMPING_VERSION and _is_taken_for_retry(step, known)
        steps.append({**step, "response": _fenced_response()} if is_other else step)
        _learn(known, step.get("records", ()))
    return {**scenario, "steps": steps}


def _learn(known: dict[str, TransactionMetadata | None], records: Any) -> None:
    for key, value in records:
        record = decode_record(bytes.fromhex(key), bytes.fromhex(value) if value is not None else None)
        assert record is not None
        known[record.transactional_id] = record.metadata


def _is_taken_for_retry(step: dict[str, Any], known: dict[str, TransactionMetadata | None]) -> bool:
    """Whether a client is told how a newer producer's transaction ended, which bumped no epoch."""
    if step.get("api") != END_TXN_5:
        return False
    request = EndTxnRequest.decode(bytes.fromhex(step["request"]), 5)
    metadata = known.get(request.transactional_id)
    return (
        metadata is not None
        and metadata.state in COMPLETE_STATES
        and metadata.client_transaction_version < BUMPING_VERSION
        and metadata.producer_id == request.producer_id
        and metadata.producer_epoch == request.producer_epoch + 1
    )


def _fenced_response() -> str:
    return EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED).encode(5).hex()
