"""Batches of records, with the fields of their header as arguments."""

from collections.abc import Iterable, Sequence
from typing import Any

from kafkapy.record import builder
from kafkapy.record.batch import Record
from kafkapy.record.builder import BatchFields, NewRecord


def build_batch(records: Sequence[NewRecord], **fields: Any) -> bytes:
    """Return one batch that holds the records; `fields` are those of BatchFields."""
    return builder.build_batch(records, BatchFields(**fields))


def build_batch_of(records: Iterable[Record], **fields: Any) -> bytes:
    """Return one batch of records with increasing offsets; base_offset defaults to the first record's."""
    records = list(records)
    fields.setdefault("base_offset", records[0].offset if records else 0)
    return builder.build_batch_of(records, BatchFields(**fields))
