"""The batch of a partition in a Produce request, as far as its header tells: is it valid, and is it transactional?"""

from struct import Struct
from typing import Final

from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.produce_request import ProduceRequest
from kafkapy.record.batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    MIN_MESSAGE_BYTES,
    TRANSACTIONAL_FLAG,
)
from kafkapy.record.compression import ZSTD
from kafkapy.seams import FileRegion

ZSTD_SINCE: Final = 7
_BATCH_START: Final = Struct(">8xi4xb4xH")
"""Fields of a batch header: length, magic, attributes."""
_FLAGS_POSITION: Final = ATTRIBUTES_POSITION + 1
"""The position of the attributes' lower byte."""


def has_transactional_batch(request: ProduceRequest) -> bool:
    """Return whether any partition's batch is transactional; `check_batch` refuses unreadable batches later."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            assert not isinstance(records, FileRegion), "a request never carries a region"
            if (
                records is not None
                and len(records) >= HEADER_BYTES
                and records[_FLAGS_POSITION] & TRANSACTIONAL_FLAG
                and records[MAGIC_POSITION] == 2
            ):
                return True
    return False


def check_batch(records: memoryview | bytes | None, version: int) -> tuple[memoryview | bytes, int]:
    """Return a partition's single batch (without an incomplete one after it) and its attributes.

    Raises ApiError: INVALID_RECORD without a batch, with more than one, or with another magic than 2;
    UNSUPPORTED_COMPRESSION_TYPE for zstd before v7; CORRUPT_MESSAGE for an impossible length or magic.
    """
    if records is None or len(records) < HEADER_BYTES:
        raise ApiError(ErrorCode.INVALID_RECORD, "a partition must have a record batch, and has none")
    length, magic, attributes = _BATCH_START.unpack_from(records)
    if (
        magic == 2
        and length + LOG_OVERHEAD_BYTES == len(records)
        and (version >= ZSTD_SINCE or attributes & CODEC_MASK != ZSTD)
    ):
        return records, attributes  # as nearly all
    if length < MIN_MESSAGE_BYTES:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"a record batch with length {length}")
    if not 0 <= magic <= 2:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"a record batch of magic {magic}")
    if magic != 2:
        raise ApiError(ErrorCode.INVALID_RECORD, f"a record batch of magic {magic}, which must be 2")
    if attributes & CODEC_MASK == ZSTD and version < ZSTD_SINCE:
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd in Produce {version}, which came with {ZSTD_SINCE}"
        )
    size_bytes = length + LOG_OVERHEAD_BYTES
    if size_bytes > len(records):
        raise ApiError(ErrorCode.INVALID_RECORD, "a partition must have a record batch, and has part of one")
    if _has_whole_batch(records[size_bytes:]):
        raise ApiError(ErrorCode.INVALID_RECORD, "a partition must have exactly one record batch")
    return records[:size_bytes], attributes


def _has_whole_batch(rest: memoryview | bytes) -> bool:
    if len(rest) < LOG_OVERHEAD_BYTES:
        return False
    return int.from_bytes(rest[8:12], "big", signed=True) <= len(rest) - LOG_OVERHEAD_BYTES
