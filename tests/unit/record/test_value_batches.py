"""Batches of values alone, as the metadata log has them."""

import pytest

from kafkapy.record.builder import build_batch, build_batch_of_values


@pytest.mark.parametrize("values", [[b"a"], [b"", b"b" * 63, b"c" * 64, b"d" * 9000], [b"e"] * 9000])
def test_a_batch_of_values_is_what_any_other_way_makes_of_them(values: list[bytes]) -> None:
    records = [(1_600_000_000_000, None, value, ()) for value in values]
    assert build_batch_of_values(values, base_offset=7, leader_epoch=3, timestamp_ms=1_600_000_000_000) == build_batch(
        records, base_offset=7, leader_epoch=3
    )
