"""TLS over any seams.Channel. OpenSSL works on memory buffers (ssl.MemoryBIO), so that the simulator can run it, too.

A TlsSession is a connection's OpenSSL state with its two memory buffers. TlsChannel is the channel that a link or an
outbound peer drives after the handshake (tls_handshake.py).

* SSL_read returns one record, at most 16 KiB. What follows is kept (tls_records.py). A channel that still holds input
  after its owner stopped receiving therefore calls the owner back itself, as the socket below may not become readable
  again.
* Bytes count as sent once all their ciphertext has been sent. Until then the owner keeps them, as after a partial write
  to a socket, and passes the same bytes again.
* Output that OpenSSL generates itself (session tickets, responses to KeyUpdate, alerts) is sent as soon as the channel
  below accepts it. If a peer provokes such output and does not read it, the connection is closed.
"""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final

from kafkapy.reactor.tls_records import FED_BYTES, HEADER_BYTES, RECORD_BYTES, WHOLE_RECORD_BYTES, RecordFeed
from kafkapy.seams import Channel, FileRegion, ReadableBuffer

CIPHERTEXT_BYTES: Final = FED_BYTES
"""The maximum size of one receive from the channel below. At least WHOLE_RECORD_BYTES are received at once: an owner
that wants the last byte of a frame needs the whole record that holds it."""

RECORD_OVERHEAD_BYTES: Final = 512
"""An upper bound of a record's header and tag, added to the size that the owner wants to receive."""

PLAINTEXT_BYTES: Final = 128 * 1024
"""Bytes encrypted before each send to the channel below: at most so much is buffered for a peer that does not read."""

MAX_UNASKED_BYTES: Final = 64 * 1024
"""Limit of unsent output that OpenSSL generated itself. A ticket or KeyUpdate response has some hundred bytes."""

MAX_WASTED_BYTES: Final = 64 * 1024
"""Limit of received ciphertext that carried no data: empty records and key changes cost the broker more than the peer.
At least 1/DATA_SHARE of the ciphertext of a real client is data, so each data byte offsets DATA_SHARE bytes."""
DATA_SHARE: Final = 4


class TlsSession:
    """A connection's OpenSSL state over the channel below."""

    __slots__ = ("_unsent", "incoming", "outgoing", "tls", "transport")

    def __init__(
        self, context: ssl.SSLContext, transport: Channel, *, is_server: bool, server_hostname: str | None = None
    ) -> None:
        self.transport = transport
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self.incoming, self.outgoing, server_side=is_server, server_hostname=server_hostname
        )
        self._unsent = memoryview(b"")

    @property
    def unsent_bytes(self) -> int:
        """Bytes of ciphertext that the channel below has not accepted yet."""
        return len(self._unsent) + self.outgoing.pending

    def flush(self, *, more: bool = False) -> bool:
        """Send ciphertext; return whether all of it was sent. Raises OSError."""
        while True:
            if not self._unsent:
                if not self.outgoing.pending:
                    return True
                self._unsent = memoryview(self.outgoing.read())
            count = self.transport.send([self._unsent], more)
            self._unsent = self._unsent[count:]
            if self._unsent:
                return False

    def send_close_notify(self) -> None:
        """Send the pending alert, or close_notify, if the channel below accepts it at once."""
        try:
            if self.flush():
                self._queue_close_notify()
                self.flush()
        except OSError:  # includes SSLError
            return

    def _queue_close_notify(self) -> None:
        try:
            self.tls.unwrap()
        except ssl.SSLError:  # raised because the peer's close_notify has not arrived; kafkapy does not wait for it
            return


class TlsChannel:
    """seams.Channel that encrypts to the channel below. Created after the handshake."""

    __slots__ = (
        "_has_record",
        "_is_closed",
        "_is_drained",
        "_is_ended",
        "_is_polling",
        "_is_writer_set",
        "_loop",
        "_overhead_bytes",
        "_reader",
        "_records",
        "_session",
        "_transport",
        "_unfinished_bytes",
        "_wasted_bytes",
        "_writer",
        "local",
        "on_failed",
        "peer",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, session: TlsSession) -> None:
        self._loop = loop
        self._session = session
        self._transport = session.transport
        self.local = session.transport.local
        self.peer = session.transport.peer
        self._reader: Callable[[], None] | None = None
        self._writer: Callable[[], None] | None = None
        self._records = RecordFeed(session.incoming)
        self._has_record = session.tls.pending() > 0
        """Whether OpenSSL has a whole record, or the rest of one. The record may carry no data."""
        self._overhead_bytes = _min_overhead(session.tls)
        self._wasted_bytes = 0
        self._is_polling = False
        self._is_writer_set = False
        self._is_drained = False
        """Whether the channel below returned less than was requested: it is not read again in the same receive."""
        self._is_ended = False
        self._is_closed = False
        self.on_failed: Callable[[ssl.SSLError], None] | None = None
        """Called with an alert or a record error before it is raised. With TLS 1.3 a client learns only in this way
        that its certificate was refused."""
        self._unfinished_bytes = 0
        """How many bytes passed to `send` are encrypted but not completely sent."""
        self._watch_output()

    @property
    def peer_certificate(self) -> bytes | None:
        """The peer's certificate as DER, None if it presented none."""
        return self._session.tls.getpeercert(binary_form=True)

    # ---- in

    def receive(self, max_bytes: int) -> bytes | None:
        parts: list[bytes] = []
        if self._decrypt(max_bytes, None, parts):
            return parts[0] if len(parts) == 1 else b"".join(parts)
        return b"" if self._is_ended else None

    def receive_into(self, buffer: memoryview) -> int | None:
        count = self._decrypt(len(buffer), buffer, [])
        return count if count or self._is_ended else None

    def _decrypt(self, wanted: int, buffer: memoryview | None, parts: list[bytes]) -> int:
        """Receive up to `wanted` bytes of data into `buffer`, or as `parts` without one; return how many."""
        done = 0
        may_waste = self._wasted_bytes + WHOLE_RECORD_BYTES
        self._is_drained = False
        while done < wanted and not self._is_ended:
            if not self._has_record and (self._wasted_bytes >= may_waste or not self._feed(wanted - done)):
                break
            count = self._read_records(wanted - done, buffer[done:] if done and buffer is not None else buffer, parts)
            done += count
            wasted_bytes = self._wasted_bytes - DATA_SHARE * count
            self._wasted_bytes = wasted_bytes if wasted_bytes > 0 else 0
        self._after_receive()
        return done

    def _read_records(self, wanted: int, buffer: memoryview | None, parts: list[bytes]) -> int:
        """Read up to `wanted` bytes of the records that OpenSSL has; return how many. Record whether it has more."""
        incoming, read = self._session.incoming, self._session.tls.read
        count: Any
        left = wanted
        try:
            while left:
                most = left if left < RECORD_BYTES else RECORD_BYTES
                if buffer is None:
                    part = read(most)
                    parts.append(part)
                    count = len(part)
                else:
                    count = read(most, buffer[wanted - left :])  # an int, if there is a buffer
                if not count:
                    self._is_ended = True
                    return wanted - left
                left -= count
                if not incoming.pending:
                    self._has_record = not left and self._session.tls.pending() > 0
                    break
        except ssl.SSLWantReadError:  # only records without data
            self._has_record = False
        except ssl.SSLError as error:
            self._check_is_end(error)
            self._is_ended = True
        return wanted - left

    def _check_is_end(self, error: ssl.SSLError) -> None:
        """Return if the error is the end of the stream; otherwise report it to on_failed and raise it."""
        if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            return
        if self.on_failed is not None:
            self.on_failed(error)
        raise error

    def _feed(self, wanted_bytes: int) -> bool:
        """Pass received ciphertext to OpenSSL, receiving more if necessary; return whether it has a whole record."""
        records = self._records
        while True:
            if count := records.feed():
                self._wasted_bytes += count
                if not records.missing_bytes:
                    self._has_record = True
                    return True
            if self._is_drained:
                return False
            asked_bytes = max(WHOLE_RECORD_BYTES, min(CIPHERTEXT_BYTES, wanted_bytes + RECORD_OVERHEAD_BYTES))
            received = self._transport.receive(asked_bytes)
            if not received:  # an end without close_notify is fine: frames carry their size, so truncation is detected
                self._is_ended = received is not None
                return False
            self._is_drained = len(received) < asked_bytes
            records.add(received)

    def _after_receive(self) -> None:
        if self._wasted_bytes > MAX_WASTED_BYTES and not self._has_record:  # or data may follow
            raise ConnectionAbortedError("the peer sends TLS records without data")
        if self._session.outgoing.pending:
            self._send_unasked()
        if self._reader is not None and self._holds_input:
            self._poll_soon()

    @property
    def _holds_input(self) -> bool:
        """Whether `receive` would return something without the channel below becoming readable."""
        return self._has_record or self._is_ended or self._records.has_more

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        self._reader = callback
        self._transport.on_readable(callback)
        if callback is not None and self._holds_input:
            self._poll_soon()

    def await_bytes(self, count: int) -> None:
        is_awaited = count > 1 and not self._holds_input
        self._transport.await_bytes(self._records.bytes_to_come(count, self._overhead_bytes) if is_awaited else 1)

    def _poll_soon(self) -> None:
        if not self._is_polling:
            self._is_polling = True
            self._loop.call_soon(self._poll)

    def _poll(self) -> None:
        """Call the reader in each pass of the loop while there is input, as the loop does for sockets."""
        self._is_polling = False
        if self._reader is not None and not self._is_closed and self._holds_input:
            self._poll_soon()
            self._reader()

    # ---- out

    def send(self, buffers: Sequence[ReadableBuffer], more: bool) -> int:
        data = buffers[0] if len(buffers) == 1 else b"".join(buffers)
        with memoryview(data) as view:
            return self._send(lambda position, count: view[position : position + count], len(view), more)

    def send_region(self, region: FileRegion, start: int, count: int) -> int:
        def read(position: int, count: int) -> bytes:
            wanted = region.position + start + position
            data = region.file.pread(count, wanted)
            if len(data) < count:
                raise EOFError(f"{region.file.path} ends before position {wanted + count}")
            return data

        return self._send(read, count, False)

    def _send(self, read: Callable[[int, int], ReadableBuffer], byte_count: int, more: bool) -> int:
        """Encrypt and send what `read(position, count)` returns, in pieces; return the number of bytes sent."""
        session = self._session
        if not session.flush():
            return 0
        position, self._unfinished_bytes = self._unfinished_bytes, 0
        assert position <= byte_count, "bytes that were handed over are not handed over again"
        while position < byte_count:
            count = min(PLAINTEXT_BYTES, byte_count - position)
            self._encrypt(read(position, count))
            if not session.flush(more=more):
                self._unfinished_bytes = count
                return position
            position += count
        return position

    def _encrypt(self, data: ReadableBuffer) -> None:
        write = self._session.tls.write
        with memoryview(data) as view:
            position = 0
            while position < len(view):
                position += write(view[position:])

    def _send_unasked(self) -> None:
        """Send the output that OpenSSL generated itself. Raises BrokenPipeError if too much of it is unsent."""
        if not self._session.flush() and self._session.unsent_bytes > MAX_UNASKED_BYTES + self._unfinished_bytes * 2:
            raise BrokenPipeError("the peer asks for TLS messages that it does not read")
        self._watch_output()

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        self._writer = callback
        self._watch_output()

    def _watch_output(self) -> None:
        """Register for writability of the channel below while the owner waits for it or ciphertext is unsent."""
        is_wanted = self._writer is not None or self._session.unsent_bytes > 0
        if is_wanted != self._is_writer_set:
            self._is_writer_set = is_wanted
            self._transport.on_writable(self._on_writable if is_wanted else None)

    def _on_writable(self) -> None:
        if self._writer is not None:
            self._writer()
            return
        try:
            self._session.flush()
        except OSError:
            self._is_ended = True  # the owner notices at its next receive
            self._transport.on_writable(None)
            self._is_writer_set = False
            return
        self._watch_output()

    def close(self) -> None:
        """Send close_notify, if that is possible at once, and close the channel below."""
        if self._is_closed:
            return
        self._is_closed = True
        self._reader = self._writer = None
        self._session.send_close_notify()
        self._transport.close()


def _min_overhead(tls: ssl.SSLObject) -> int:
    """Return by how many bytes a record is longer than its data, at least."""
    cipher = tls.cipher()
    if tls.version() == "TLSv1.3" and cipher is not None and "CCM" not in cipher[0]:
        return HEADER_BYTES + 1 + 16  # its content type, the tag
    return HEADER_BYTES
