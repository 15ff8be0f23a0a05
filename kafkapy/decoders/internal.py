"""Decodes Kafka's internal topics: offsets and groups, transactions, share groups, the metadata log."""

import json
from typing import Any, Final

from kafkapy.decoders.errors import DecodeError
from kafkapy.record.batch import Record
from kafkapy.storage.offline.dump_records import (
    Decode,
    decode_group,
    decode_metadata,
    decode_share,
    decode_transaction,
)

_DECODERS: Final[dict[str, Decode]] = {
    "__consumer_offsets": decode_group,
    "__transaction_state": decode_transaction,
    "__share_group_state": decode_share,
    "__cluster_metadata": decode_metadata,
}
INTERNAL_TOPICS: Final = frozenset(_DECODERS)


def decode_internal(topic: str, key: bytes | None, value: bytes | None) -> tuple[Any, Any]:
    """Return key and value of a record of an internal topic; None for a tombstone. Raises DecodeError."""
    decoder = _DECODERS.get(topic)
    if decoder is None:
        raise DecodeError(f"{topic} is no internal topic")
    try:
        key_text, value_text = decoder(Record(0, 0, key, value))
    except (ValueError, IndexError, RecursionError) as error:
        raise DecodeError(f"not a record of {topic}: {error}") from error
    failed = next((text for text in (key_text, value_text) if text and text.startswith(("Error", "Unknown"))), None)
    if failed is not None:
        raise DecodeError(failed)
    return _parsed(key_text), None if value is None else _parsed(value_text)


def _parsed(text: str | None) -> Any:
    return json.loads(text) if text is not None and text.startswith("{") else text
