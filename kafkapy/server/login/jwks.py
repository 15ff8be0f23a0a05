"""The keys that sign bearer tokens: a JSON web key set from an https or file URL, kept up to date.

The first read is at the start, and fails it on an error. A file is read again by the first login after it has changed.
An https URL is read again, in a worker, every sasl.oauthbearer.jwks.endpoint.refresh.ms, whether or not anybody logs
in, and early if a token names an unknown key. If a read fails, the old keys stay, and the next read waits for the
back-off. No redirects, 1 MiB, 10 s. The URL must be listed in kafkapy.sasl.oauthbearer.allowed.urls, or
-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls in KAFKA_OPTS.
"""

import asyncio
import logging
import os
from collections import OrderedDict
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from kafkapy.seams import IoPool
from kafkapy.security.jwt_validator import Key, parse_jwks
from kafkapy.security.oauthbearer import JwtError

if TYPE_CHECKING:
    from ssl import SSLContext

MAX_BYTES: Final = 1 << 20
MISSING_KEY_IDS: Final = 16
"""Maximum number of unknown key ids that may trigger a read within EXPEDITED_MS, one read each. Deviation: Apache Kafka
forgets the oldest id for each further one. Here it does not, because tokens with made-up key ids could make it read its
JWKS back to back.
"""
EXPEDITED_MS: Final = 60_000

logger = logging.getLogger("kafkapy.server")


class JwksFile:
    """A jwt_validator.Keys from a file URL: always those of the file as it is now, like Apache Kafka's CachedFile.

    If a changed file cannot be read, the former keys stay until it changes again.
    """

    def __init__(self, url: str) -> None:
        """Read the keys. Raises JwtError, OSError."""
        self._url = url
        self._version = _version(url)
        self._keys = parse_jwks(read(url))

    def __call__(self, key_id: str | None, now_ms: int) -> list[Key]:
        version = _version(self._url)
        if version != self._version:
            self._version = version
            try:
                self._keys = parse_jwks(read(self._url))
            except (JwtError, OSError) as refusal:
                _warn(self._url, refusal)
        return _named(self._keys, key_id)


class JwksEndpoint:
    """A jwt_validator.Keys from an https URL. Used on the event loop, and refreshed between start() and close()."""

    def __init__(
        self,
        url: str,
        *,
        io_pool: IoPool,
        refresh_ms: int,
        retry_backoff_ms: int,
        retry_backoff_max_ms: int,
        context: "SSLContext | None" = None,
    ) -> None:
        """Read the keys. `context`: TLS trust settings. Raises JwtError, OSError."""
        self._context = context
        self._url = url
        self._io_pool = io_pool
        self._refresh_ms = refresh_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._retry_backoff_max_ms = retry_backoff_max_ms
        self._missing: OrderedDict[str, int] = OrderedDict()
        """When each unknown key id triggered a read (ms), in this order."""
        self._failures = 0
        self._is_reading = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._keys = parse_jwks(read(url, context))

    def start(self) -> None:
        """Begin to refresh the keys; to be called on the event loop."""
        assert self._loop is None, "started twice"
        self._loop = asyncio.get_running_loop()
        self._read_after(self._refresh_ms)

    def close(self) -> None:
        """Stop refreshing. The result of a read in progress is dropped."""
        self._cancel_timer()
        self._loop = None

    def __call__(self, key_id: str | None, now_ms: int) -> list[Key]:
        found = _named(self._keys, key_id)
        if not found and key_id is not None and self._may_read_early and self._is_first_miss(key_id, now_ms):
            self._read()
        return found

    @property
    def _may_read_early(self) -> bool:
        """Not during a read or a back-off, after which the keys are read anyway."""
        return self._loop is not None and not self._is_reading and not self._failures

    def _is_first_miss(self, key_id: str, now_ms: int) -> bool:
        """Whether an unknown key id should trigger a read: it did not recently, and not too many others did."""
        missing = self._missing
        while missing and now_ms - next(iter(missing.values())) >= EXPEDITED_MS:
            missing.popitem(last=False)
        if key_id in missing or len(missing) >= MISSING_KEY_IDS:
            return False
        missing[key_id] = now_ms
        return True

    def _read_after(self, delay_ms: int) -> None:
        assert self._loop is not None
        self._timer = self._loop.call_later(delay_ms / 1000, self._read)

    def _read(self) -> None:
        self._cancel_timer()
        self._is_reading = True
        self._io_pool.submit(lambda: read(self._url, self._context), self._on_read)

    def _on_read(self, data: bytes | None, error: BaseException | None) -> None:
        self._is_reading = False
        if self._loop is None:
            return
        try:
            if data is None:
                raise JwtError(str(error))
            self._keys = parse_jwks(data)
        except JwtError as refusal:
            self._failures += 1
            _warn(self._url, refusal)
            self._read_after(min(self._retry_backoff_ms << min(self._failures - 1, 20), self._retry_backoff_max_ms))
        else:
            self._failures = 0
            self._read_after(self._refresh_ms)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _named(keys: list[Key], key_id: str | None) -> list[Key]:
    return keys if key_id is None else [key for key in keys if key.key_id == key_id]


def _version(url: str) -> tuple[int, int, int] | None:
    """Return a value that differs after each change of a file: time, size and inode; None without a file."""
    try:
        status = os.stat(_path(url))
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _path(url: str) -> str:
    return unquote(urlsplit(url).path)


def _warn(url: str, refusal: Exception) -> None:
    logger.warning("Could not renew the keys of %s, keeping the former ones: %s", url, refusal)


def read(url: str, context: "SSLContext | None" = None) -> bytes:
    """Return the content of an https or file URL. Raises JwtError, OSError."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        with open(_path(url), "rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise JwtError(f"more than {MAX_BYTES} bytes")
        return data
    if parts.scheme != "https":
        raise JwtError("only https and file URLs are read")
    from kafkapy.server.login.web_request import WebError, send

    try:
        return send(url, context=context)
    except WebError as error:
        raise JwtError(str(error)) from error
