"""Received TLS ciphertext, passed to OpenSSL in runs that end where a record ends.

OpenSSL returns data of whole records only: a read before that raises SSLWantReadError, which costs as much as
decrypting half a record. So a channel reads only if OpenSSL has a whole record. A record is a header (content type,
version, length of the rest as 2 bytes; RFC 8446, 5.1) and that many bytes. All versions of TLS have the same header, in
the clear.
"""

import ssl
from typing import Final

FED_BYTES: Final = 68 * 1024
"""The most ciphertext passed to OpenSSL at once: four whole records. Passing each alone costs more."""

FED_RECORDS: Final = 32
"""The most records passed to OpenSSL at once. It processes all that it has until one carries data, and 68 KiB may be
2,500 records that only change keys: some milliseconds."""

WHOLE_RECORD_BYTES: Final = 17 * 1024
"""A receive of this size holds a whole record of 16 KiB of data."""

HEADER_BYTES: Final = 5

RECORD_BYTES: Final = 16 * 1024
"""The most data that a record carries, and so the most that OpenSSL returns at once."""

MAX_RECORD_BYTES: Final = HEADER_BYTES + RECORD_BYTES + 2048
"""No record is longer, header included (RFC 5246, 6.2.3). OpenSSL refuses a longer one by its header."""


class RecordFeed:
    """The received ciphertext that was not passed to OpenSSL yet."""

    __slots__ = ("_begun_bytes", "_incoming", "_position", "_received", "missing_bytes")

    def __init__(self, incoming: ssl.MemoryBIO) -> None:
        """`incoming`: the BIO from which OpenSSL reads. Its content starts with a record, and is moved here."""
        self._incoming = incoming
        self._received = incoming.read()
        self._position = 0
        self.missing_bytes = 0
        """How many bytes are missing of the record of which OpenSSL has a part."""
        self._begun_bytes = 0
        """The size of that record, header included."""

    @property
    def has_more(self) -> bool:
        """Whether `feed` would pass something on without further bytes."""
        return len(self._received) - self._position >= HEADER_BYTES

    def add(self, received: bytes) -> None:
        """Add received bytes. Call only after `feed` has passed on all that it can."""
        assert not self.has_more, "bytes were added before those at hand were passed on"
        rest = self._received[self._position :]
        self._received = rest + received if rest else received
        self._position = 0

    def feed(self) -> int:
        """Pass on up to FED_BYTES of up to FED_RECORDS records, or one record; return how many bytes were passed on.

        They end where a record ends, if one has arrived whole. Otherwise they are what has arrived of it, and
        `missing_bytes` says how much has not. Part of a header is kept.
        """
        data, start = self._received, self._position
        size = len(data)
        end = self._end_of_run(data, start, size)
        if end <= start or start == size:
            return 0
        if end > size:
            if not self.missing_bytes:
                self._begun_bytes = end - start
            self.missing_bytes = end - size
            end = size
        else:
            self.missing_bytes = 0
        self._incoming.write(data if end - start == size else memoryview(data)[start:end])
        if end == size:
            self._received, self._position = b"", 0
        else:
            self._position = end
        return end - start

    def _end_of_run(self, data: bytes, start: int, size: int) -> int:
        """Return the end of the last record of the run from `start` on; above `size` if no record is whole."""
        end = start + self.missing_bytes
        limit = min(size, start + FED_BYTES)
        records_left = FED_RECORDS - 1 if self.missing_bytes else FED_RECORDS
        while size - end >= HEADER_BYTES:
            next_end = end + HEADER_BYTES + (data[end + 3] << 8 | data[end + 4])
            if next_end - end > MAX_RECORD_BYTES:
                return size  # OpenSSL reports why this cannot be read
            records_left -= 1
            if end > start and (next_end > limit or records_left < 0):
                return end
            end = next_end
        return end

    def bytes_to_come(self, data_bytes: int, overhead_bytes: int) -> int:
        """Return how much ciphertext has to arrive, at least, before OpenSSL has returned so many bytes of data.

        Call when everything was passed on that could be. `overhead_bytes`: of each record, at least.
        """
        begun_bytes = self.missing_bytes - (len(self._received) - self._position)
        if self.missing_bytes:
            data_bytes -= self._begun_bytes - overhead_bytes
        if data_bytes <= 0:
            return begun_bytes
        return begun_bytes + data_bytes + -(-data_bytes // RECORD_BYTES) * overhead_bytes
