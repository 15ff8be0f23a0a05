"""Codecs in Kafka's framings; what inflates too far is refused before it is in memory."""

import gzip
import struct
import subprocess
import sys
import tracemalloc
import zlib

import lz4.frame
import pytest
import snappy
import zstandard

from kafkapy.record.compression import (
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    compress,
    decompress,
)
from kafkapy.record.errors import CorruptRecordError, InvalidRecordsError, RecordTooLargeError

CODECS = [GZIP, SNAPPY, LZ4, ZSTD]
TEXT = b"".join(b"%d, " % number for number in range(30_000))
MIB = 1 << 20


@pytest.mark.parametrize("codec", [NONE, *CODECS])
@pytest.mark.parametrize("data", [b"", b"x", TEXT, bytes(range(256)) * 300], ids=["empty", "byte", "text", "bytes"])
def test_round_trip(codec: int, data: bytes) -> None:
    packed = compress(codec, memoryview(data))
    assert decompress(codec, memoryview(packed), 2, len(data)) == data


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("level", [1, 5, 9])
def test_levels(codec: int, level: int) -> None:
    assert decompress(codec, compress(codec, TEXT, level), 2, len(TEXT)) == TEXT


@pytest.mark.parametrize("codec", CODECS)
def test_one_byte_beyond_the_bound_is_refused(codec: int) -> None:
    packed = compress(codec, TEXT)
    with pytest.raises(RecordTooLargeError):
        decompress(codec, packed, 2, len(TEXT) - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_every_cut_is_corrupt(codec: int) -> None:
    packed = compress(codec, TEXT[:3000])
    for size in range(len(packed)):
        if codec == SNAPPY and size == 16:
            continue  # xerial's header alone: an empty stream
        with pytest.raises(CorruptRecordError):
            decompress(codec, packed[:size], 2, MIB)


def raw_snappy_claiming(length: int) -> bytes:
    out = bytearray()
    while length >= 0x80:
        out.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes(out) + bytes((length,)) + b"\x00x"


def zstd_claiming(size: int) -> bytes:
    return b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", size) + b"\x01\x00\x00"


BOMBS = {
    "gzip": (GZIP, gzip.compress(bytes(16 * MIB))),
    "gzip members": (GZIP, gzip.compress(bytes(MIB)) * 16),
    "snappy": (SNAPPY, compress(SNAPPY, bytes(16 * MIB))),
    "raw snappy": (SNAPPY, snappy.compress(bytes(16 * MIB))),
    "lz4": (LZ4, compress(LZ4, bytes(16 * MIB))),
    "lz4 of large blocks": (LZ4, lz4.frame.compress(bytes(16 * MIB), block_size=7, block_linked=False)),
    "zstd": (ZSTD, zstandard.compress(bytes(16 * MIB))),
    "zstd streamed": (ZSTD, zstandard.ZstdCompressor(write_content_size=False).compress(bytes(16 * MIB))),
    "zstd frames": (ZSTD, zstandard.compress(bytes(MIB)) * 16),
    "zstd long window": (ZSTD, zstandard.ZstdCompressor(22, write_content_size=False).compress(bytes(16 * MIB))),
}
LIARS = {
    "raw snappy": (SNAPPY, raw_snappy_claiming(4_000_000_000)),
    "xerial block": (SNAPPY, compress(SNAPPY, b"")[:16] + b"\x7f\xff\xff\xff" + b"x"),
    "xerial block of a liar": (
        SNAPPY,
        compress(SNAPPY, b"") + (7).to_bytes(4, "big") + raw_snappy_claiming(60_000_000)[:7],
    ),
    "zstd content size": (ZSTD, zstd_claiming(1 << 60)),
}


@pytest.mark.parametrize("codec_and_data", BOMBS.values(), ids=BOMBS.keys())
def test_bomb_is_refused_within_bounded_memory(codec_and_data: tuple[int, bytes]) -> None:
    codec, data = codec_and_data
    decompress(codec, compress(codec, b"x"), 2, 10)  # imports
    tracemalloc.start()
    try:
        with pytest.raises(RecordTooLargeError):
            decompress(codec, data, 2, 2 * MIB)
        assert tracemalloc.get_traced_memory()[1] < 6 * MIB + 2 * len(data)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec_and_data", LIARS.values(), ids=LIARS.keys())
def test_claimed_length_is_not_believed(codec_and_data: tuple[int, bytes]) -> None:
    codec, data = codec_and_data
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecordError):
            decompress(codec, data, 2, 100 * MIB)
        assert tracemalloc.get_traced_memory()[1] < 6 * MIB
    finally:
        tracemalloc.stop()


def test_bombs_do_not_grow_the_process() -> None:
    """tracemalloc does not see what the codecs' libraries allocate: the resident peak does."""
    code = """
import resource, sys
from kafkapy.record.compression import *
import gzip, zstandard, snappy, lz4.frame
from kafkapy.record.errors import RecordTooLargeError
bombs = [(codec, compress(codec, bytes(1 << 25))) for codec in (1, 2, 3, 4)]
bombs.append((4, zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1 << 25))))
def peak(): return int([l for l in open("/proc/self/status") if l.startswith("VmHWM")][0].split()[1])
open("/proc/self/clear_refs", "w").write("5")
before = peak()
for codec, data in bombs:
    try: decompress(codec, data, 2, 1 << 20); sys.exit("not refused")
    except RecordTooLargeError: pass
print(peak() - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 12 * 1024, done.stdout


def test_raw_snappy_is_read() -> None:
    assert decompress(SNAPPY, snappy.compress(TEXT), 2, MIB) == TEXT


def test_xerial_blocks_of_32_kib_are_written() -> None:
    packed = compress(SNAPPY, bytes(70_000))
    assert packed[:16].hex() == "82534e4150505900" + "00000001" + "00000001"
    (length,) = struct.unpack_from(">i", packed, 16)
    assert len(snappy.uncompress(packed[20 : 20 + length])) == 32768


def test_streams_that_follow_each_other_are_read_as_one() -> None:
    for codec in (GZIP, SNAPPY, ZSTD):
        assert decompress(codec, compress(codec, b"one ") + compress(codec, b"two"), 2, MIB) == b"one two"
    skippable = b"\x50\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"abc"
    assert decompress(ZSTD, skippable + compress(ZSTD, b"x") + skippable, 2, MIB) == b"x"


def test_lz4_frame_is_of_the_kind_that_kafka_writes() -> None:
    """FLG 0x60: version 1, independent blocks, no checksums; BD 0x40: 64 KiB; HC 0x82."""
    assert compress(LZ4, TEXT)[:7].hex() == "04224d18" + "60" + "40" + "82"


def test_lz4_header_checksum_counts_only_from_magic_1_on() -> None:
    frame = bytearray(compress(LZ4, TEXT))
    frame[6] ^= 0xFF
    assert decompress(LZ4, bytes(frame), 0, MIB) == TEXT
    with pytest.raises(CorruptRecordError):
        decompress(LZ4, bytes(frame), 1, MIB)
    with_size = bytearray(lz4.frame.compress(TEXT, block_linked=False, store_size=True))
    with_size[14] ^= 0xFF
    assert decompress(LZ4, bytes(with_size), 0, MIB) == TEXT


def test_lz4_blocks_that_depend_on_each_other_are_refused() -> None:
    with pytest.raises(CorruptRecordError, match="independent"):
        decompress(LZ4, lz4.frame.compress(TEXT, block_linked=True), 2, MIB)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codecs_that_do_not_exist(codec: int) -> None:
    with pytest.raises(InvalidRecordsError) as caught:
        decompress(codec, b"", 2, 1)
    assert caught.value.code == 76


@pytest.mark.parametrize("codec", CODECS)
def test_garbage_is_corrupt(codec: int) -> None:
    for garbage in (b"", b"\x01", b"\xff" * 100, zlib.compress(TEXT)):
        with pytest.raises(CorruptRecordError):
            decompress(codec, garbage, 2, MIB)


def test_codecs_are_imported_when_first_used() -> None:
    code = (
        "import sys, kafkapy.record.batch, kafkapy.record.validate, kafkapy.record.control, kafkapy.record.legacy;"
        "print([name for name in ('lz4', 'snappy', 'cramjam', 'zstandard', 'gzip') if name in sys.modules],"
        "[name for name in sys.modules if name.startswith('kafkapy.protocol')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] ['kafkapy.protocol', 'kafkapy.protocol.error_code']"


@pytest.mark.parametrize("codec", [GZIP, ZSTD])
def test_streams_of_very_many_parts_are_refused(codec: int) -> None:
    """A part that makes nothing costs a call all the same."""
    assert decompress(codec, compress(codec, b"") * 1000 + compress(codec, b"x"), 2, MIB) == b"x"
    with pytest.raises(CorruptRecordError, match="more than 4096"):
        decompress(codec, compress(codec, b"") * 5000, 2, MIB)


def test_a_zstd_frame_of_very_many_blocks_is_refused() -> None:
    empty_blocks = bytes(3) * 70_000 + b"\1\0\0"  # raw, of no bytes; the last one says so
    with pytest.raises(CorruptRecordError, match="more than 65536 blocks"):
        decompress(ZSTD, b"\x28\xb5\x2f\xfd\0\x58" + empty_blocks, 2, MIB)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_what_is_large_is_inflated_whole(codec: int) -> None:
    data = b"".join(b"%d," % number for number in range(700_000))
    assert len(data) > 4 * MIB
    assert decompress(codec, compress(codec, data), 2, len(data)) == data
    with pytest.raises(RecordTooLargeError):
        decompress(codec, compress(codec, data), 2, len(data) - 1)
