"""The compression codecs of record batches, in the framings that Kafka's clients read and write.

    1 gzip     RFC 1952, possibly several members
    2 snappy   xerial framing: a 16-byte header, then blocks of (int32 length, raw snappy); bare raw snappy is also read
    3 lz4      the LZ4 frame with independent blocks; in messages of magic 0 the header checksum also covers the frame's
               magic (KAFKA-3160): this checksum is ignored when read, and written for magic 0
    4 zstd     frames of RFC 8878, possibly several

Decompression is bounded: memory is allocated for a claimed length only after checking it against max_bytes and against
the most that input of that size can decompress to, and streams of very many parts are refused. Large data is processed
1 MiB at a time, so that a worker blocks other threads only briefly. Codec libraries are imported at first use; one that
is not installed is a MissingCodecError. zstd is also in the standard library, since Python 3.14.
"""

import zlib
from collections.abc import Callable
from importlib import import_module
from io import BytesIO
from typing import Any

from kafkapy.record.errors import (
    UNSUPPORTED_COMPRESSION_TYPE,
    CorruptRecordError,
    InvalidRecordsError,
    MissingCodecError,
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
"""Bound of the decompressed size of a batch that is read: the default of socket.request.max.bytes.

Deviation: Apache Kafka has no bound. Here there is one, because a batch of a few KiB could fill the memory.
"""

MAX_APPENDED_BYTES = 48 << 20
"""Bound of the decompressed size of a batch that is appended (unless its topic accepts larger uncompressed ones), or is
converted from or for a client older than Kafka 0.11. A request thus costs at most 64 MiB beyond itself, with copies."""

MAX_RECOMPRESSED_BYTES = 21 << 20
"""The same bound for a batch that is compressed again, in another codec: three copies of it exist meanwhile."""

MAX_PARTS = 4096
"""Maximum consecutive members, frames or streams: each costs a library call, and no client writes many."""

MAX_ZSTD_BLOCKS = 65_536
"""Maximum blocks in a frame. A block takes at least 3 bytes and decompresses to at most 128 KiB."""

LZ4_DEFAULT_LEVEL = 9
"""Kafka's default for lz4. It selects the fast compressor; every other level selects the high-compression one."""

ZSTD_DEFAULT_LEVEL = 3

_XERIAL_HEADER = b"\x82SNAPPY\x00" + bytes((0, 0, 0, 1, 0, 0, 0, 1))
_XERIAL_MAGIC = _XERIAL_HEADER[:8]
_XERIAL_BLOCK_BYTES = 32 * 1024  # as snappy-java's streams, which Kafka's own clients write
_SNAPPY_MAX_RATIO = 22  # a copy element of 3 bytes produces 64
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_BLOCK_BYTES = 128 * 1024  # the largest that the format allows (RFC 8878)
_CHUNK_BYTES = 1 << 20  # inflated at a time: a bound is noticed before memory is taken for more
_BEST_RATIOS = {GZIP: 1032, SNAPPY: _SNAPPY_MAX_RATIO, LZ4: 255}
_MAX_BLOCK_HEADERS_READ = 1024  # half a millisecond; of zstd at most 128 MiB, of snappy usually 32 MiB
_GZIP_INPUT_BYTES = 1 << 16  # zlib copies its unconsumed input, at each call and after each member
_ZSTD_WINDOW_BYTES = 1 << 27  # libzstd's default limit for decoding


def compress(codec: int, data: ReadableBuffer, level: int | None = None, magic: int = 2) -> bytes:
    """Return `data` compressed with `codec`; level as in the topic's compression.*.level, None for Kafka's default.

    Raises MissingCodecError, InvalidRecordsError (UNSUPPORTED_COMPRESSION_TYPE) for an unknown codec.
    """
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
        return _compress_zstd(data, ZSTD_DEFAULT_LEVEL if level is None else level)
    raise _unknown_codec(codec)


def decompress(codec: int, data: ReadableBuffer, magic: int, max_bytes: int) -> bytes:
    """Return `data` decompressed.

    Raises RecordTooLargeError before the result exceeds max_bytes, CorruptRecordError if the data is not in the codec's
    format, MissingCodecError, InvalidRecordsError (UNSUPPORTED_COMPRESSION_TYPE) for an unknown codec.
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


def inflated_at_most(codec: int, data: ReadableBuffer, max_bytes: int) -> int:
    """Return an upper bound of the decompressed size, at most max_bytes. Takes microseconds.

    For zstd and xerial snappy it is computed from the block headers, otherwise from the codec's best ratio.
    """
    if codec == NONE:
        return len(data)
    bound_bytes = _BEST_RATIOS.get(codec, 1) * len(data)
    if codec == ZSTD:
        bound_bytes = _zstd_at_most(bytes(data), max_bytes)
    elif codec == SNAPPY and data[:8] == _XERIAL_MAGIC:
        bound_bytes = min(bound_bytes, _xerial_at_most(data, max_bytes))
    return min(bound_bytes, max_bytes)


def _zstd_at_most(data: bytes, max_bytes: int) -> int:
    try:
        end, bound_bytes, _ = _zstd_frame_bounds(data, 0, _MAX_BLOCK_HEADERS_READ)
    except CorruptRecordError:  # also raised for too many blocks
        return max_bytes
    return bound_bytes if end == len(data) else max_bytes


def _xerial_at_most(data: ReadableBuffer, max_bytes: int) -> int:
    position, bound_bytes = 16, 0
    for _ in range(_MAX_BLOCK_HEADERS_READ):
        if position >= len(data):
            return bound_bytes
        block_bytes = int.from_bytes(data[position : position + 4], "big")
        length, _ = _snappy_length(bytes(data[position + 4 : position + 9]))
        bound_bytes += length
        position += 4 + block_bytes
    return max_bytes


def _unknown_codec(codec: int) -> InvalidRecordsError:
    return InvalidRecordsError(f"compression type {codec} does not exist", code=UNSUPPORTED_COMPRESSION_TYPE)


def _too_large(max_bytes: int) -> RecordTooLargeError:
    return RecordTooLargeError(f"the records inflate to more than {max_bytes} bytes")


class _Inflated:
    """Collects decompressed parts, up to max_bytes in total."""

    __slots__ = ("_first", "_joined", "_max_bytes", "left_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.left_bytes = max_bytes
        self._first = b""
        self._joined: BytesIO | None = None

    def add(self, part: bytes) -> None:
        """Append a part. Raises RecordTooLargeError."""
        self.left_bytes -= len(part)
        if self.left_bytes < 0:
            raise _too_large(self._max_bytes)
        if self._joined is not None:
            self._joined.write(part)
        elif not self._first:
            self._first = part
        elif part:
            self._joined = BytesIO()
            self._joined.write(self._first)
            self._joined.write(part)

    def whole(self) -> bytes:
        """Return all parts concatenated; BytesIO returns its buffer without copying."""
        return self._first if self._joined is None else self._joined.getvalue()


def _decompress_gzip(data: ReadableBuffer, max_bytes: int) -> bytes:
    view = memoryview(data)
    inflated = _Inflated(max_bytes)
    position = 0
    for _ in range(MAX_PARTS):
        position = _inflate_member(view, position, inflated)
        is_followed = bytes(view[position : position + 2]) == b"\x1f\x8b"
        if not is_followed:  # like Java's reader, treat anything but another member as the end
            return inflated.whole()
    raise CorruptRecordError(f"gzip: more than {MAX_PARTS} members")


def _inflate_member(view: memoryview, position: int, inflated: _Inflated) -> int:
    """Decompress the gzip member at `position`; return the position after it."""
    decompressor = zlib.decompressobj(31)
    try:
        while not decompressor.eof:
            rest: ReadableBuffer = decompressor.unconsumed_tail
            if not rest:
                rest = view[position : position + _GZIP_INPUT_BYTES]
                position += len(rest)
            part = decompressor.decompress(rest, min(_CHUNK_BYTES, inflated.left_bytes + 1))
            if not rest and not part:
                raise CorruptRecordError("gzip: the stream is cut short")
            inflated.add(part)
    except zlib.error as error:
        raise CorruptRecordError(f"gzip: {error}") from error
    return position - len(decompressor.unused_data)


def _snappy() -> Any:
    try:
        import snappy
    except ImportError:
        raise MissingCodecError("snappy", "python-snappy") from None
    return snappy


def _compress_snappy(data: ReadableBuffer) -> bytes:
    snappy = _snappy()
    parts = [_XERIAL_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = snappy.compress(bytes(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(len(block).to_bytes(4, "big"))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: bytes, max_bytes: int) -> bytes:
    if data[:8] != _XERIAL_MAGIC:
        return _inflate_snappy_block(data, max_bytes, max_bytes)
    inflated = _Inflated(max_bytes)
    position = 16
    while position < len(data):
        block_bytes = int.from_bytes(data[position : position + 4], "big")
        if data[position : position + 8] == _XERIAL_MAGIC:  # another stream follows
            position += 16
            continue
        position += 4
        if block_bytes > len(data) - position:
            raise CorruptRecordError(f"snappy: a block of {block_bytes} bytes in {len(data) - position} bytes")
        block = data[position : position + block_bytes]
        inflated.add(_inflate_snappy_block(block, inflated.left_bytes, max_bytes))
        position += block_bytes
    if position > len(data):
        raise CorruptRecordError("snappy: the stream is cut short")
    return inflated.whole()


def _inflate_snappy_block(block: bytes, left_bytes: int, max_bytes: int) -> bytes:
    """Return a block decompressed, which may take the `left_bytes` of the stream's max_bytes."""
    snappy = _snappy()
    length, is_whole = _snappy_length(block)
    if not is_whole:
        raise CorruptRecordError("snappy: a block does not start with its length")
    if length > _SNAPPY_MAX_RATIO * len(block):
        raise CorruptRecordError(f"snappy: {len(block)} bytes cannot inflate to {length}")
    if length > left_bytes:
        raise _too_large(max_bytes)
    try:
        return bytes(snappy.uncompress(block))
    except snappy.UncompressError as error:
        raise CorruptRecordError("snappy: a block does not inflate") from error


def _snappy_length(block: bytes) -> tuple[int, bool]:
    """Return the length prefix of a raw snappy block, and whether it is complete."""
    length = 0
    for index, byte in enumerate(block[:5]):
        length |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return length, True
    return length, False


def _lz4_frame() -> Any:
    """Return lz4.frame; the package has no wheel for the newest Pythons. Raises MissingCodecError."""
    try:
        import lz4.frame
    except ImportError:
        raise MissingCodecError("lz4", "lz4") from None
    return lz4.frame


def _compress_lz4(data: ReadableBuffer, level: int, magic: int) -> bytes:
    lz4_frame = _lz4_frame()
    frame: bytes = lz4_frame.compress(
        data,
        compression_level=0 if level == LZ4_DEFAULT_LEVEL else max(level, lz4_frame.COMPRESSIONLEVEL_MINHC),
        block_size=lz4_frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    if magic > 0:
        return frame
    return frame[:6] + _lz4_checksum(frame[:6]) + frame[7:]


def _decompress_lz4(data: bytes, magic: int, max_bytes: int) -> bytes:
    decompressor = _lz4_frame().LZ4FrameDecompressor()
    inflated = _Inflated(max_bytes)
    chunk_bytes = min(max(65536, 4 * len(data)), _CHUNK_BYTES)
    rest = _check_lz4_header(data, magic)
    try:
        while not decompressor.eof:
            inflated.add(decompressor.decompress(rest, min(chunk_bytes, inflated.left_bytes + 1)))
            rest = b""
            if decompressor.needs_input and not decompressor.eof:
                raise CorruptRecordError("lz4: the frame is cut short")
    except (RuntimeError, ValueError) as error:
        raise CorruptRecordError(f"lz4: {error}") from error
    return inflated.whole()


def _check_lz4_header(data: bytes, magic: int) -> bytes:
    """Return the frame, for magic 0 with its header checksum corrected. Raises CorruptRecordError.

    Frames with linked blocks are refused: Kafka's clients cannot read them.
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
    """Return the checksum of a frame header: the second byte of XXH32 (seed 0) of fewer than 16 bytes."""
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


def _compress_zstd(data: ReadableBuffer, level: int) -> bytes:
    try:
        import zstandard
    except ImportError:
        return bytes(_standard_zstd().compress(data, level))
    return zstandard.ZstdCompressor(level=level).compress(data)


def _zstd_inflater() -> tuple[Callable[[bytes, int], bytes], type[Exception]]:
    """Return a function of (a whole frame, the most bytes that it may make), and what it raises if it cannot."""
    try:
        import zstandard
    except ImportError:
        return _standard_zstd_inflater()
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
    return lambda frame, max_bytes: decompressor.decompress(frame, max_output_size=max_bytes), zstandard.ZstdError


def _standard_zstd_inflater() -> tuple[Callable[[bytes, int], bytes], type[Exception]]:
    zstd = _standard_zstd()

    def inflate_frame(frame: bytes, max_bytes: int) -> bytes:
        window_log = _ZSTD_WINDOW_BYTES.bit_length() - 1
        decompressor = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: window_log})
        inflated: bytes = decompressor.decompress(frame, max_bytes + 1)  # with room for the end to be noticed
        if not decompressor.eof or len(inflated) > max_bytes:
            raise zstd.ZstdError(f"no whole frame of at most {max_bytes} bytes")
        return inflated

    return inflate_frame, zstd.ZstdError


def _standard_zstd() -> Any:
    """Return the standard library's module, which Python 3.14 brought. Raises MissingCodecError."""
    try:
        return import_module("compression.zstd")
    except ImportError:
        raise MissingCodecError("zstd", "zstandard") from None


def _decompress_zstd(data: bytes, max_bytes: int) -> bytes:
    inflate_frame, zstd_error = _zstd_inflater()
    inflated = _Inflated(max_bytes)
    position = 0
    for _ in range(MAX_PARTS):
        end, bound_bytes, is_exact = _zstd_frame_bounds(data, position)
        left_bytes = inflated.left_bytes
        if is_exact and bound_bytes > left_bytes:
            raise _too_large(max_bytes)
        if bound_bytes > 0:
            try:
                inflated.add(inflate_frame(data[position:end], min(bound_bytes, left_bytes)))
            except zstd_error as error:
                if bound_bytes > left_bytes:
                    raise _too_large(max_bytes) from error
                raise CorruptRecordError(f"zstd: {error}") from error
        position = end
        if position >= len(data):
            return inflated.whole()
    raise CorruptRecordError(f"zstd: more than {MAX_PARTS} frames")


def _zstd_frame_bounds(data: bytes, start: int, max_blocks: int = MAX_ZSTD_BLOCKS) -> tuple[int, int, bool]:
    """Return (end of the frame at `start`, its largest possible decompressed size, whether that size is exact).

    Computed from the headers, since libzstd needs an output buffer for the whole frame, and streamed frames do not
    state their size. Raises CorruptRecordError, also if the frame claims a size that its blocks cannot produce.
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
    position, bound_bytes = _walk_zstd_blocks(data, position + size_length, max_blocks)
    end = position + (4 if descriptor & 4 else 0)
    if end > len(data):
        raise CorruptRecordError("zstd: a frame is cut short")
    if claimed_bytes > bound_bytes:
        raise CorruptRecordError(f"zstd: a frame claims {claimed_bytes} bytes, its blocks make {bound_bytes} at most")
    return (end, claimed_bytes, True) if size_length else (end, bound_bytes, False)


def _walk_zstd_blocks(data: bytes, position: int, max_blocks: int) -> tuple[int, int]:
    """Return (the position after the last block, the largest possible decompressed size of the blocks)."""
    bound_bytes = block_count = 0
    is_last = 0
    while not is_last:
        block_count += 1
        if block_count > max_blocks:
            raise CorruptRecordError(f"zstd: more than {max_blocks} blocks")
        if position + 3 > len(data):
            raise CorruptRecordError("zstd: a frame is cut short")
        header = int.from_bytes(data[position : position + 3], "little")
        is_last = header & 1
        block_type = header >> 1 & 3
        block_bytes = header >> 3
        position += 3 + (1 if block_type == 1 else block_bytes)
        bound_bytes += _ZSTD_BLOCK_BYTES if block_type == 2 else block_bytes
    return position, bound_bytes
