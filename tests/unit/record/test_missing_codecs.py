"""Codecs whose library is not installed: what is refused, and how; zstd by the standard library of Python 3.14."""

import sys

import pytest

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.record.compression import GZIP, LZ4, SNAPPY, ZSTD, compress, decompress
from kafkapy.record.errors import CorruptRecordError, MissingCodecError, RecordsError, RecordTooLargeError

MIB = 1 << 20
FRAMES = {LZ4: b"\x04\x22\x4d\x18\x60\x40\x82" + bytes(4), SNAPPY: b"\x01\x00a"}
"""An empty lz4 frame: magic, flags, block size, checksum, end; "a" in raw snappy: length, literal."""
LIBRARIES = [
    pytest.param(LZ4, ["lz4", "lz4.frame"], "lz4", id="lz4"),
    pytest.param(SNAPPY, ["snappy"], "python-snappy", id="snappy"),
]


@pytest.mark.parametrize(("codec", "modules", "package"), LIBRARIES)
def test_a_codec_without_its_library_is_an_error_that_names_the_package(
    monkeypatch: pytest.MonkeyPatch, codec: int, modules: list[str], package: str
) -> None:
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)
    for call in (lambda: compress(codec, b"a"), lambda: decompress(codec, FRAMES[codec], 2, MIB)):
        with pytest.raises(MissingCodecError, match=rf"pip install {package}$") as raised:
            call()
        assert raised.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert not issubclass(MissingCodecError, RecordsError), "recovery would take it for damage and truncate the log"
    assert decompress(GZIP, compress(GZIP, b"others work"), 2, MIB) == b"others work"


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="the standard library has zstd")
def test_zstd_without_its_library_is_such_an_error_before_python_3_14(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = compress(ZSTD, b"a")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    for call in (lambda: compress(ZSTD, b"a"), lambda: decompress(ZSTD, packed, 2, MIB)):
        with pytest.raises(MissingCodecError, match=r"pip install zstandard$"):
            call()


@pytest.mark.skipif(sys.version_info < (3, 14), reason="the standard library's zstd came with Python 3.14")
def test_zstd_of_the_standard_library_reads_and_writes_the_same_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"".join(b"%d, " % number for number in range(30_000))
    packed = compress(ZSTD, text)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    own = compress(ZSTD, text)
    for frame in (packed, own, own + own):
        assert decompress(ZSTD, frame, 2, MIB) == text * (2 if frame == own + own else 1)
        assert decompress(ZSTD, frame, 2, len(text) * 2)
        with pytest.raises(RecordTooLargeError):
            decompress(ZSTD, frame, 2, len(text) - 1)
        for damaged in (frame[:-1], frame[:20] + bytes(8) + frame[28:]):
            with pytest.raises(CorruptRecordError):
                decompress(ZSTD, damaged, 2, MIB)
    assert decompress(ZSTD, compress(ZSTD, b""), 2, MIB) == b""
