"""Null in more bytes than it needs, for each kind of compact field."""

import pytest

from kafkapy.errors import ProtocolError
from kafkapy.protocol import primitives

DATA = b"\x00rest"
"""What follows a length's first byte, 0x80: its second, and other fields."""


@pytest.mark.parametrize("kind", ["string", "byte_string", "records"])
def test_null_is_null_where_it_may_be_and_refused_where_not(kind: str) -> None:
    nullable = getattr(primitives, f"compact_nullable_{kind}")
    assert nullable(DATA, 0, 0x80) == (None, 1)
    with pytest.raises(ProtocolError, match="null where the schema allows none"):
        getattr(primitives, f"compact_{kind}")(DATA, 0, 0x80)


@pytest.mark.parametrize("kind", ["string", "byte_string", "records"])
def test_a_long_value_is_read_whole(kind: str) -> None:
    value = b"v" * 300  # 301 is AD 02
    read, end = getattr(primitives, f"compact_nullable_{kind}")(b"\x02" + value + b"rest", 0, 0xAD)
    assert (bytes(read, "utf-8") if isinstance(read, str) else bytes(read), end) == (value, 301)
