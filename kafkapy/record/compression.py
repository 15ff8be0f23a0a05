"""The five codecs of record batches, in the framings that Kafka's clients read and write.

    1 gzip     RFC 1952, members may follow each other
    2 snappy   xerial's: a 16-byte header, then blocks of (int32 length, raw snappy); raw snappy alone is read, too
    3 lz4      the LZ4 frame with independent blocks; messages of magic 0 carry a header checksum that was computed over
               the frame's magic as well (KAFKA-3160): it is ignored when read, written when asked for magic 0
    4 zstd     frames of RFC 8878, one after the other

Inflating is bounded: nothing is allocated from a length that the input claims without its being checked against
max_bytes and against what input of that size can hold. Codecs are imported when first used.
"""

import zlib

from kafkapy.record.errors import (
    UNSUPPORTED_COMPRESSION_TYPE,
    CorruptRecordError,
    InvalidRecordsError,
    RecordTooLargeError,
)
from kafkapy.seams import ReadableBuffer

NONE = 0
GZIP = 1
SNAPPY = 2
LZ4 = 3
ZSTD = 4

NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

MAX_DECOMPRESSED_BYTES = 104_857_600
"""How far a batch may inflate where the caller sets no bound: what socket.request.max.bytes lets through uncompressed.

A deviation: Kafka has no bound, and a batch of a few KiB can fill its heap.
"""

LZ4_DEFAULT_LEVEL = 9
"""Kafka's default for lz4; it stands for the fast compressor, every other level for the high one."""

_XERIAL_HEADER = b"\x82SNAPPY\x00" + bytes((0, 0, 0, 1, 0, 0, 0, 1))
_XERIAL_MAGIC = _XERIAL_HEADER[:8]
_XERIAL_BLOCK_BYTES = 32 * 1024
_SNAPPY_MAX_RATIO = 22  # a copy element of 3 bytes makes 64
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_BLOCK_BYTES = 128 * 1024
_ZSTD_WINDOW_BYTES = 1 << 27  # the largest window that libzstd decodes unless told otherwise


def compress(codec: int, data: ReadableBuffer, level: int | None = None, magic: int = 2) -> bytes:
    """Return `data` compressed as `codec`; level as the topic keys compression.*.level, None for Kafka's default."""
    if codec == NONE:
        return bytes(data)
    if codec == GZIP:
        compressor = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
        return compressor.compress(data) + compressor.flush()
    if codec == SNAPPY:
        return _compress_snappy(data)
    if codec == LZ4:
        return _compress_lz4(data, LZ4_DEFAULT_LEVEL if level is None else level, magic)
    if codec == ZSTD:
        import zstandard

        return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)
    raise _unknown_codec(codec)


def decompress(codec: int, data: ReadableBuffer, magic: int, max_bytes: int) -> bytes:
    """Return what `data` inflates to.

    Raises RecordTooLargeError before it would exceed max_bytes, CorruptRecordError when it is not what the codec
    writes, InvalidRecordsError (UNSUPPORTED_COMPRESSION_TYPE) for a codec that does not exist.
    """
    if codec == NONE:
        return bytes(data)
    if codec == GZIP:
        return _decompress_gzip(data, max_bytes)
    if codec == SNAPPY:
        return _decompress_snappy(bytes(data), max_bytes)
    if codec == LZ4:
        return _decompress_lz4(bytes(data), magic, max_bytes)
    if codec == ZSTD:
        return _decompress_zstd(bytes(data), max_bytes)
    raise _unknown_codec(codec)


def _unknown_codec(codec: int) -> InvalidRecordsError:
    return InvalidRecordsError(f"compression type {codec} does not exist", code=UNSUPPORTED_COMPRESSION_TYPE)


def _too_large(max_bytes: int) -> RecordTooLargeError:
    return RecordTooLargeError(f"the records inflate to more than {max_bytes} bytes")


def _decompress_gzip(data: ReadableBuffer, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    inflated_bytes = 0
    rest: ReadableBuffer = data
    while True:
        decompressor = zlib.decompressobj(31)
        try:
            part = decompressor.decompress(rest, max_bytes - inflated_bytes + 1)
        except zlib.error as error:
            raise CorruptRecordError(f"gzip: {error}") from error
        parts.append(part)
        inflated_bytes += len(part)
        if inflated_bytes > max_bytes:
            raise _too_large(max_bytes)
        if not decompressor.eof:
            raise CorruptRecordError("gzip: the stream is cut short")
        rest = decompressor.unused_data
        if rest[:2] != b"\x1f\x8b":  # Java's reader, too, takes what is no further member as the end
            return b"".join(parts) if len(parts) > 1 else part


def _compress_snappy(data: ReadableBuffer) -> bytes:
    import snappy

    parts = [_XERIAL_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = snappy.compress(bytes(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(len(block).to_bytes(4, "big"))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: bytes, max_bytes: int) -> bytes:
    if data[:8] != _XERIAL_MAGIC:
        return _inflate_snappy_block(data, max_bytes)
    parts: list[bytes] = []
    inflated_bytes = 0
    position = 16
    while position < len(data):
        block_bytes = int.from_bytes(data[position : position + 4], "big")
        if data[position : position + 8] == _XERIAL_MAGIC:  # streams may follow each other
            position += 16
            continue
        position += 4
        if block_bytes > len(data) - position:
            raise CorruptRecordError(f"snappy: a block of {block_bytes} bytes in {len(data) - position} bytes")
        part = _inflate_snappy_block(data[position : position + block_bytes], max_bytes - inflated_bytes)
        parts.append(part)
        inflated_bytes += len(part)
        position += block_bytes
    if position > len(data):
        raise CorruptRecordError("snappy: the stream is cut short")
    return b"".join(parts)


def _inflate_snappy_block(block: bytes, max_bytes: int) -> bytes:
    import snappy

    length = 0
    for index, byte in enumerate(block[:5]):
        length |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            break
    else:
        raise CorruptRecordError("snappy: a block does not start with its length")
    if length > _SNAPPY_MAX_RATIO * len(block):
        raise CorruptRecordError(f"snappy: {len(block)} bytes cannot inflate to {length}")
    if length > max_bytes:
        raise _too_large(max_bytes)
    try:
        return bytes(snappy.uncompress(block))
    except snappy.UncompressError as error:
        raise CorruptRecordError("snappy: a block does not inflate") from error


def _compress_lz4(data: ReadableBuffer, level: int, magic: int) -> bytes:
    import lz4.frame

    frame: bytes = lz4.frame.compress(
        data,
        compression_level=0 if level == LZ4_DEFAULT_LEVEL else max(level, lz4.frame.COMPRESSIONLEVEL_MINHC),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    if magic > 0:
        return frame
    return frame[:6] + _lz4_checksum(frame[:6]) + frame[7:]


def _decompress_lz4(data: bytes, magic: int, max_bytes: int) -> bytes:
    import lz4.frame

    decompressor = lz4.frame.LZ4FrameDecompressor()
    parts: list[bytes] = []
    inflated_bytes = 0
    chunk_bytes = max(65536, 4 * len(data))
    rest = _check_lz4_header(data, magic)
    try:
        while not decompressor.eof:
            part = decompressor.decompress(rest, min(chunk_bytes, max_bytes - inflated_bytes + 1))
            rest = b""
            parts.append(part)
            inflated_bytes += len(part)
            if inflated_bytes > max_bytes:
                raise _too_large(max_bytes)
            if decompressor.needs_input and not decompressor.eof:
                raise CorruptRecordError("lz4: the frame is cut short")
    except (RuntimeError, ValueError) as error:
        raise CorruptRecordError(f"lz4: {error}") from error
    return b"".join(parts)


def _check_lz4_header(data: bytes, magic: int) -> bytes:
    """Return the frame with a right header checksum where magic 0 allows a wrong one. Raises CorruptRecordError.

    Blocks that depend on each other are refused: Kafka's clients cannot read them.
    """
    if data[:4] != _LZ4_MAGIC or len(data) < 7:
        raise CorruptRecordError("lz4: not a frame")
    flags = data[4]
    if flags & 0xE0 != 0x60:
        raise CorruptRecordError(f"lz4: frame flags {flags:#04x}: version 1 with independent blocks is needed")
    if magic > 0:
        return data
    checksum_position = 14 if flags & 0x08 else 6
    return data[:checksum_position] + _lz4_checksum(data[4:checksum_position]) + data[checksum_position + 1 :]


def _lz4_checksum(descriptor: bytes) -> bytes:
    """Return the second byte of XXH32 (seed 0) of fewer than 16 bytes: the frame header's checksum."""
    assert len(descriptor) < 16
    prime_1, prime_2, prime_3, prime_4, prime_5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    digest = prime_5 + len(descriptor)
    whole_words = len(descriptor) & ~3
    for position in range(0, whole_words, 4):
        digest += int.from_bytes(descriptor[position : position + 4], "little") * prime_3
        digest = _rotate_left(digest, 17) * prime_4
    for byte in descriptor[whole_words:]:
        digest = _rotate_left(digest + byte * prime_5, 11) * prime_1
    digest &= 0xFFFFFFFF
    digest = (digest ^ digest >> 15) * prime_2 & 0xFFFFFFFF
    digest = (digest ^ digest >> 13) * prime_3 & 0xFFFFFFFF
    return bytes(((digest ^ digest >> 16) >> 8 & 0xFF,))


def _rotate_left(value: int, count: int) -> int:
    value &= 0xFFFFFFFF
    return (value << count | value >> (32 - count)) & 0xFFFFFFFF


def _decompress_zstd(data: bytes, max_bytes: int) -> bytes:
    import zstandard

    inflate = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES).decompress
    parts: list[bytes] = []
    position = 0
    while position < len(data) or not parts:
        end, most_bytes, is_exact = _zstd_frame_bounds(data, position)
        if is_exact and most_bytes > max_bytes:
            raise _too_large(max_bytes)
        if most_bytes > 0:
            try:
                part = inflate(data[position:end], max_output_size=min(most_bytes, max_bytes))
            except zstandard.ZstdError as error:
                if most_bytes > max_bytes:
                    raise _too_large(max_bytes) from error
                raise CorruptRecordError(f"zstd: {error}") from error
            parts.append(part)
            max_bytes -= len(part)
        else:
            parts.append(b"")
        position = end
    return b"".join(parts) if len(parts) > 1 else parts[0]


def _zstd_frame_bounds(data: bytes, start: int) -> tuple[int, int, bool]:
    """Return (where the frame at `start` ends, the most bytes that it makes, whether it says so), off its headers.

    libzstd gives no output before it is given a place for all of it, and frames that were streamed do not say how much
    that is. Raises CorruptRecordError, also where the frame claims a size that its blocks cannot make.
    """
    if data[start + 1 : start + 4] == b"\x2a\x4d\x18" and data[start] & 0xF0 == 0x50:  # a skippable frame
        end = start + 8 + int.from_bytes(data[start + 4 : start + 8], "little")
        if end > len(data):
            raise CorruptRecordError("zstd: a frame is cut short")
        return end, 0, True
    if data[start : start + 4] != _ZSTD_MAGIC or len(data) < start + 6:
        raise CorruptRecordError("zstd: not a frame")
    descriptor = data[start + 4]
    is_single_segment = descriptor >> 5 & 1
    position = start + 5 + (1 - is_single_segment) + (0, 1, 2, 4)[descriptor & 3]
    size_length = (is_single_segment, 2, 4, 8)[descriptor >> 6]
    claimed_bytes = int.from_bytes(data[position : position + size_length], "little") + (256 if size_length == 2 else 0)
    position, most_bytes = _walk_zstd_blocks(data, position + size_length)
    end = position + (4 if descriptor & 4 else 0)
    if end > len(data):
        raise CorruptRecordError("zstd: a frame is cut short")
    if claimed_bytes > most_bytes:
        raise CorruptRecordError(f"zstd: a frame claims {claimed_bytes} bytes, its blocks make {most_bytes} at most")
    return (end, claimed_bytes, True) if size_length else (end, most_bytes, False)


def _walk_zstd_blocks(data: bytes, position: int) -> tuple[int, int]:
    """Return (the position behind the last block, the most bytes that the blocks make)."""
    most_bytes = 0
    is_last = 0
    while not is_last:
        if position + 3 > len(data):
            raise CorruptRecordError("zstd: a frame is cut short")
        header = int.from_bytes(data[position : position + 3], "little")
        is_last = header & 1
        block_type = header >> 1 & 3
        block_bytes = header >> 3
        position += 3 + (1 if block_type == 1 else block_bytes)
        most_bytes += _ZSTD_BLOCK_BYTES if block_type == 2 else block_bytes
    return position, most_bytes
