"""The keys that sign bearer tokens: a JSON web key set from an https or file URL, refreshed periodically.

The first read is at the start, and fails it on an error. Later reads run in a worker, when a login finds the keys older
than sasl.oauthbearer.jwks.endpoint.refresh.ms, or lacking the key that a token names. If a read fails, the old keys
stay, and the next read waits for the back-off. No redirects, 1 MiB, 10 s. The URL must be listed in
kafkapy.sasl.oauthbearer.allowed.urls, or -Dorg.apache.kafka.sasl.oauthbearer.allowed.urls in KAFKA_OPTS.
"""

import logging
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
forgets the oldest id for each further one, so that tokens with made-up key ids make it read its JWKS back to back.
"""
EXPEDITED_MS: Final = 60_000

logger = logging.getLogger("kafkapy.server")


class JwksSource:
    """A jwt_validator.Keys."""

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
        """When each key id was first missed (ms), in this order."""
        self._failures = 0
        self._read_at_ms: int | None = None
        self._not_before_ms = 0
        self._is_reading = False
        self._keys = parse_jwks(read(url, context))

    def __call__(self, key_id: str | None, now_ms: int) -> list[Key]:
        if self._read_at_ms is None:
            self._read_at_ms = now_ms
        if now_ms - self._read_at_ms >= self._refresh_ms:
            self._maybe_read(now_ms)
        if key_id is None:
            return self._keys
        found = [key for key in self._keys if key.key_id == key_id]
        if not found and self._is_first_miss(key_id, now_ms):
            self._maybe_read(now_ms)
        return found

    def _is_first_miss(self, key_id: str, now_ms: int) -> bool:
        """Whether an unknown key id should trigger a read: it did not recently, and not too many others did."""
        missing = self._missing
        while missing and now_ms - next(iter(missing.values())) >= EXPEDITED_MS:
            missing.popitem(last=False)
        if key_id in missing or len(missing) >= MISSING_KEY_IDS:
            return False
        missing[key_id] = now_ms
        return True

    def _maybe_read(self, now_ms: int) -> None:
        if self._is_reading or now_ms < self._not_before_ms:
            return
        self._is_reading = True

        def done(data: bytes | None, error: BaseException | None) -> None:
            self._is_reading = False
            self._take(data, error, now_ms)

        self._io_pool.submit(lambda: read(self._url, self._context), done)

    def _take(self, data: bytes | None, error: BaseException | None, now_ms: int) -> None:
        try:
            if data is None:
                raise JwtError(str(error))
            self._keys = parse_jwks(data)
        except JwtError as refusal:
            self._failures += 1
            backoff_ms = min(self._retry_backoff_ms << min(self._failures - 1, 20), self._retry_backoff_max_ms)
            self._not_before_ms = now_ms + backoff_ms
            logger.warning("Could not renew the keys of %s, keeping the former ones: %s", self._url, refusal)
            return
        self._failures, self._read_at_ms = 0, now_ms


def read(url: str, context: "SSLContext | None" = None) -> bytes:
    """Return the content of an https or file URL. Raises JwtError, OSError."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        with open(unquote(parts.path), "rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise JwtError(f"more than {MAX_BYTES} bytes")
        return data
    if parts.scheme != "https":
        raise JwtError("only https and file URLs are read")
    from kafkapy.server.web_request import WebError, send

    try:
        return send(url, context=context)
    except WebError as error:
        raise JwtError(str(error)) from error
