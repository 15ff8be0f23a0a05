"""Batches of values alone, as the metadata log has them, and of one record, as coordinators write them."""

import pytest

from kafkapy.record.batch import TRANSACTIONAL_FLAG
from kafkapy.record.builder import build_batch_of_one, build_batch_of_values, encode_record
from tests.support.batches import build_batch


@pytest.mark.parametrize("values", [[b"a"], [b"", b"b" * 63, b"c" * 64, b"d" * 9000], [b"e"] * 9000])
def test_a_batch_of_values_is_what_any_other_way_makes_of_them(values: list[bytes]) -> None:
    records = [(1_600_000_000_000, None, value, ()) for value in values]
    assert build_batch_of_values(values, base_offset=7, leader_epoch=3, timestamp_ms=1_600_000_000_000) == build_batch(
        records, base_offset=7, leader_epoch=3
    )


@pytest.mark.parametrize("key", [None, b"", b"k" * 64])
@pytest.mark.parametrize("value", [None, b"", b"v" * 9000])
@pytest.mark.parametrize("is_transactional", [False, True])
def test_a_batch_of_one_record_is_what_any_other_way_makes_of_it(
    key: bytes | None, value: bytes | None, is_transactional: bool
) -> None:
    place = {"base_offset": 7, "leader_epoch": 3}
    attributes = TRANSACTIONAL_FLAG if is_transactional else 0
    batch = build_batch_of_one(
        encode_record(key, value), 1_600_000_000_000, attributes=attributes, producer=(5, 1, 0), **place
    )
    assert batch == build_batch(
        [(1_600_000_000_000, key, value, ())],
        is_transactional=is_transactional,
        producer_id=5,
        producer_epoch=1,
        base_sequence=0,
        **place,
    )
