"""Client quotas on a broker: a client's limit, the bucket it shares with other clients, and its throttle time.

For each quota key the most specific quota applies, in this order (KIP-13, KIP-55):

    user + client-id, user + default client-id, user, default user + client-id, default user + default client-id,
    default user, client-id, default client-id

With a quota of a user without client-id, all clients of that user share one bucket; with a quota of a client-id without
user, all users of that client-id do. A default quota is a limit for each user or client-id, not a shared one. A bucket
expires after an hour without use. Driven by `serving/quotas.py`.

Deviation: Apache Kafka has any number of buckets, and measures all clients once one quota of a key is set. Here there
are at most MAX_RATES per key, and the least recently used is removed, because clients choose their client-ids freely;
clients without a limit are not measured.
"""

from collections.abc import Mapping
from functools import partial
from hashlib import blake2b
from typing import Final

from kafkapy.metadata.client_quotas import (
    CLIENT_ID,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    NO_QUOTAS,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
)
from kafkapy.metadata.image import QuotaEntity
from kafkapy.named_tuple import NamedTuple
from kafkapy.security.rate import RateTable, RecentMean, TokenBucket, WindowedRate

_ANY: Final = ""
"""In a bucket's name: all users, or all client-ids. Names of entities and users are never empty."""
_Name = str | None
"""The name of a quota entity; None is the default entity."""
MAX_KEY_LENGTH: Final = 256
"""The maximum length of a client-id in a table's key. The rest of a longer one (up to 32 KiB) is replaced by a hash."""
MAX_CACHED_CLIENTS: Final = 4096
"""Clients for which it is cached whether they have a quota; the cache is cleared when full."""
MAX_SHOWN: Final = 1000
"""Buckets per key that metrics report, as client-ids may be very many. Apache Kafka reports all."""
_ANY_QUOTA: Final = 1
_PRODUCE_QUOTA: Final = 2


class Bucket(NamedTuple):
    """Identifies the clients that share a rate; an empty user or client-id means all."""

    user: str
    client_id: str

    @property
    def key(self) -> "Bucket":
        """Return the bucket's key in a table, whose size is bounded."""
        if len(self.client_id) <= MAX_KEY_LENGTH:
            return self
        hashed = blake2b(self.client_id.encode(), digest_size=32).hexdigest()
        return Bucket(self.user, f"{self.client_id[:MAX_KEY_LENGTH]}#{hashed}")


class QuotaLimits:
    """The limits of one quota key, by user and client-id."""

    def __init__(self) -> None:
        self._limits: dict[tuple[_Name, _Name], float] = {}
        """By user and client-id: a name, None for the default, _ANY if the entity does not include that type."""

    @property
    def is_empty(self) -> bool:
        return not self._limits

    def set_limit(self, names: Mapping[str, _Name], limit: float | None) -> None:
        """Set or remove (None) the limit of an entity; `names` is by entity type.

        A limit that is not above 0, which the metadata may contain, throttles nobody, as in Apache Kafka.
        """
        key = (names.get(USER, _ANY), names.get(CLIENT_ID, _ANY))
        if limit is None or not limit > 0:
            self._limits.pop(key, None)
        else:
            self._limits[key] = limit

    def bucket(self, user: str, client_id: str) -> Bucket:
        """Return a client's bucket, which follows from its most specific quota."""
        limits = self._limits
        if (user, client_id) in limits or (user, None) in limits:
            return Bucket(user, client_id)
        if (user, _ANY) in limits:
            return Bucket(user, _ANY)
        if (None, client_id) in limits or (None, None) in limits:
            return Bucket(user, client_id)
        if (None, _ANY) in limits:
            return Bucket(user, _ANY)
        return Bucket(_ANY, client_id)

    def limit(self, bucket: Bucket) -> float | None:
        """Return the limit of a bucket, None if there is none.

        A client without a client-id has only the quotas of its user, even if defaults for client-ids would come first.
        """
        user, client_id = bucket
        if user and client_id:
            keys: tuple[tuple[_Name, _Name], ...] = ((user, client_id), (user, None), (None, client_id), (None, None))
        elif user:
            keys = ((user, _ANY), (None, _ANY))
        else:
            keys = ((_ANY, client_id), (_ANY, None)) if client_id else ()
        return next((self._limits[key] for key in keys if key in self._limits), None)


class ClientQuota:
    """A quota on a rate: the limits of one key, and the measured rates."""

    def __init__(self, window_count: int, window_ms: int, max_throttle_ms: int | None = None) -> None:
        """max_throttle_ms: the maximum throttle time of one response, None if there is no bound."""
        self.limits = QuotaLimits()
        self._full_windows_s = (window_count - 1) * window_ms / 1000
        self._max_throttle_ms = max_throttle_ms
        self._rates = RateTable[Bucket, WindowedRate](partial(WindowedRate, window_count, window_ms))
        self._throttles = RateTable[Bucket, RecentMean](RecentMean)

    @property
    def bucket_count(self) -> int:
        return len(self._rates)

    def record(self, user: str, client_id: str, value: float, now_ms: int) -> int:
        """Record a value; return the throttle time of the client in ms, 0 for none."""
        bucket = self.limits.bucket(user, client_id)
        limit = self.limits.limit(bucket)
        if limit is None:
            return 0
        rate = self._rates.get(bucket.key, now_ms)
        rate.record(value, now_ms)
        throttle_ms = rate.throttle_ms(limit, now_ms)
        if self._max_throttle_ms is not None:
            throttle_ms = min(throttle_ms, self._max_throttle_ms)
        if throttle_ms > 0:
            rate.throttled_until_ms = max(rate.throttled_until_ms, now_ms + throttle_ms)
            rate.throttled_by = limit
            self._throttles.get(bucket.key, now_ms).record(throttle_ms, now_ms)
        return throttle_ms

    def remaining_throttle_ms(self, user: str, client_id: str, now_ms: int) -> int:
        """Return for how long the client is throttled still, on any connection; 0 if it is not, or has no limit."""
        bucket = self.limits.bucket(user, client_id)
        limit = self.limits.limit(bucket)
        rate = self._rates.peek(bucket.key, now_ms) if limit is not None else None
        if rate is None or limit is None or limit > rate.throttled_by:  # it was raised
            return 0
        return max(rate.throttled_until_ms - now_ms, 0)

    def unrecord(self, user: str, client_id: str, value: float, now_ms: int) -> None:
        """Subtract a recorded value, because the bytes it stands for are not sent."""
        bucket = self.limits.bucket(user, client_id)
        if self.limits.limit(bucket) is not None:
            self._rates.get(bucket.key, now_ms).record(-value, now_ms)

    def max_in_windows(self, user: str, client_id: str) -> float | None:
        """Return the total that may be recorded in all full windows, None if there is no limit."""
        limit = self.limits.limit(self.limits.bucket(user, client_id))
        return None if limit is None else limit * self._full_windows_s

    def rates(self, now_ms: int) -> list[tuple[Bucket, float]]:
        """Return the rates per second of the MAX_SHOWN most recently used buckets, for metrics."""
        return [(bucket, rate.per_second(now_ms)) for bucket, rate in self._rates.newest(MAX_SHOWN)]

    def throttles(self, now_ms: int) -> list[tuple[Bucket, float]]:
        """Return the mean throttle time in ms of buckets that were throttled in the last minute, for metrics."""
        found = ((bucket, throttle.mean(now_ms)) for bucket, throttle in self._throttles.newest(MAX_SHOWN))
        return [(bucket, mean) for bucket, mean in found if mean is not None]


class MutationQuota:
    """controller_mutation_rate: partitions that a client creates or deletes, limited by a token bucket (KIP-599)."""

    def __init__(self, window_count: int, window_ms: int) -> None:
        self.limits = QuotaLimits()
        self._buckets = RateTable[Bucket, TokenBucket](partial(TokenBucket, window_count, window_ms))

    @property
    def bucket_count(self) -> int:
        return len(self._buckets)

    def charge(self, user: str, client_id: str, count: int, now_ms: int) -> int:
        """Take a token per partition; return the throttle time in ms, 0 unless the bucket is overdrawn."""
        name = self.limits.bucket(user, client_id)
        limit = self.limits.limit(name)
        if limit is None:
            return 0
        bucket = self._buckets.get(name.key, now_ms)
        bucket.charge(count, limit, now_ms)
        return bucket.throttle_ms(limit, now_ms)

    def charge_strictly(self, user: str, client_id: str, count: int, now_ms: int) -> int | None:
        """Take a token per partition unless the bucket is overdrawn; return None, or the ms until it no longer is.

        A request may overdraw the bucket by any count, as long as it was not overdrawn before. A refused request does
        not count as a use of the bucket, which expires after an hour without use.
        """
        name = self.limits.bucket(user, client_id)
        limit = self.limits.limit(name)
        if limit is None:
            return None
        bucket = self._buckets.peek(name.key, now_ms)
        if bucket is not None and bucket.tokens(limit, now_ms) < 0:
            return bucket.throttle_ms(limit, now_ms)
        self._buckets.get(name.key, now_ms).charge(count, limit, now_ms)
        return None

    def tokens(self, now_ms: int) -> list[tuple[Bucket, float]]:
        """Return the token counts of the MAX_SHOWN most recently used buckets, for metrics."""
        found = ((bucket, tokens, self.limits.limit(bucket)) for bucket, tokens in self._buckets.newest(MAX_SHOWN))
        return [(bucket, tokens.tokens(limit, now_ms)) for bucket, tokens, limit in found if limit is not None]


class ClientQuotas:
    """The client quotas of a node, one field per quota key."""

    def __init__(
        self, window_count: int, window_ms: int, *, mutation_window_count: int = 11, mutation_window_ms: int = 1000
    ) -> None:
        self.produce = ClientQuota(window_count, window_ms)
        """Bytes a second of Produce requests."""
        self.fetch = ClientQuota(window_count, window_ms)
        """Bytes a second of Fetch responses."""
        self.request = ClientQuota(window_count, window_ms, max_throttle_ms=window_ms)
        """Event loop time that requests take, in percent of real time (KIP-124)."""
        self.mutation = MutationQuota(mutation_window_count, mutation_window_ms)
        self.held_bytes = 0
        """The size of the requests that are held back (serving/quotas.py)."""
        self._quota_flags: dict[tuple[str, str], int] = {}
        """By principal and client-id: the flags _ANY_QUOTA and _PRODUCE_QUOTA."""

    @property
    def is_empty(self) -> bool:
        return all(limits.is_empty for limits in self._limits())

    def has_quota(self, principal: str, client_id: str | None) -> bool:
        """Whether a client has any quota; `principal` is `type:name`. Requests of other clients are not measured."""
        return self._quotas_of(principal, client_id or "") != 0

    def has_produce_quota(self, principal: str, client_id: str | None) -> bool:
        """Whether a client has a quota that applies to Produce requests."""
        return self._quotas_of(principal, client_id or "") & _PRODUCE_QUOTA != 0

    def _quotas_of(self, principal: str, client_id: str) -> int:
        found = self._quota_flags.get((principal, client_id))
        if found is not None:
            return found
        user = user_of(principal)
        found = 0
        for limits in self._limits():
            if limits.limit(limits.bucket(user, client_id)) is not None:
                is_for_produces = limits is self.produce.limits or limits is self.request.limits
                found |= _ANY_QUOTA | _PRODUCE_QUOTA if is_for_produces else _ANY_QUOTA
        if len(client_id) <= MAX_KEY_LENGTH:
            if len(self._quota_flags) >= MAX_CACHED_CLIENTS:
                self._quota_flags.clear()
            self._quota_flags[principal, client_id] = found
        return found

    def set_entity(self, entity: QuotaEntity, quotas: Mapping[str, float] | None) -> None:
        """Replace the quotas of an entity."""
        names = dict(entity)
        if IP in names:
            return
        self._quota_flags.clear()
        quotas = quotas or NO_QUOTAS
        self.produce.limits.set_limit(names, quotas.get(PRODUCER_BYTE_RATE))
        self.fetch.limits.set_limit(names, quotas.get(CONSUMER_BYTE_RATE))
        self.request.limits.set_limit(names, quotas.get(REQUEST_PERCENTAGE))
        self.mutation.limits.set_limit(names, quotas.get(CONTROLLER_MUTATION_RATE))

    def _limits(self) -> tuple[QuotaLimits, ...]:
        return self.produce.limits, self.fetch.limits, self.request.limits, self.mutation.limits


def user_of(principal: str) -> str:
    """Return the name in a principal `type:name`: quotas do not include the type."""
    return principal.partition(":")[2]
