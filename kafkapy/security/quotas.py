"""Client quotas as a broker applies them: which limit a client has, which bucket it shares, how long it is throttled.

Of the quotas of a key the most specific applies, in this order (KIP-13, KIP-55):

    user + client-id, user + default client-id, user, default user + client-id, default user + default client-id,
    default user, client-id, default client-id

Clients whose quota names no client-id share a bucket with all of their user's; of a quota of a client-id alone with all
users of that id. A default is a limit for each, not for all together. A bucket is forgotten after an hour of silence.

Deviation: there are at most MAX_RATES buckets of a key, the least recently used goes: client-ids are the clients' own
words. What has no limit is not measured, while Apache Kafka measures all clients once one quota of a key is set.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from kafkapy.metadata.client_quotas import CLIENT_ID, CONSUMER_BYTE_RATE, IP, NO_QUOTAS, PRODUCER_BYTE_RATE, USER
from kafkapy.metadata.image import QuotaEntity
from kafkapy.security.rate import RateTable

_ANY: Final = ""
"""In a bucket's name: of all users, or of all client-ids. Entities and users have no empty name."""
_Name = str | None
"""None: the default."""


class Bucket(NamedTuple):
    """Who shares a rate; an empty user or client-id stands for all."""

    user: str
    client_id: str


class ClientQuota:
    """The quotas of one key, and the rates measured for them."""

    def __init__(self, window_count: int, window_ms: int) -> None:
        self._limits: dict[tuple[_Name, _Name], float] = {}
        """By user and client-id: a name, None for the default, _ANY if the entity does not have the type."""
        self._rates = RateTable[Bucket](window_count, window_ms)

    @property
    def is_empty(self) -> bool:
        return not self._limits

    @property
    def bucket_count(self) -> int:
        return len(self._rates)

    def set_limit(self, names: Mapping[str, _Name], limit: float | None) -> None:
        """Set or remove the limit of an entity, whose names are by type.

        One that is not above 0, which Apache Kafka's metadata may have, throttles nobody there, either.
        """
        key = (names.get(USER, _ANY), names.get(CLIENT_ID, _ANY))
        if limit is None or not limit > 0:
            self._limits.pop(key, None)
        else:
            self._limits[key] = limit

    def bucket(self, user: str, client_id: str) -> Bucket:
        """Return the bucket of a client: that of the most specific quota."""
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

        A client without a client-id has the quotas of its user alone, even where defaults for client-ids come first.
        """
        user, client_id = bucket
        if user and client_id:
            keys: tuple[tuple[_Name, _Name], ...] = ((user, client_id), (user, None), (None, client_id), (None, None))
        elif user:
            keys = ((user, _ANY), (None, _ANY))
        else:
            keys = ((_ANY, client_id), (_ANY, None)) if client_id else ()
        return next((self._limits[key] for key in keys if key in self._limits), None)

    def record(self, user: str, client_id: str, value: float, now_ms: int) -> int:
        """Note a value; return for how many ms the client is to be throttled."""
        bucket = self.bucket(user, client_id)
        limit = self.limit(bucket)
        if limit is None:
            return 0
        rate = self._rates.rate(bucket, now_ms)
        rate.record(value, now_ms)
        return rate.throttle_ms(limit, now_ms)

    def unrecord(self, user: str, client_id: str, value: float, now_ms: int) -> None:
        """Take back a value: what it was for is not sent."""
        self._rates.rate(self.bucket(user, client_id), now_ms).record(-value, now_ms)

    def most_in_windows(self, user: str, client_id: str) -> float | None:
        """Return what may be recorded in all windows together, None if there is no limit."""
        limit = self.limit(self.bucket(user, client_id))
        return None if limit is None else limit * (self._rates.window_count - 1) * self._rates.window_ms / 1000


class ClientQuotas:
    """The quotas of a broker's clients, by what they limit."""

    def __init__(self, window_count: int, window_ms: int) -> None:
        self.produce = ClientQuota(window_count, window_ms)
        """Bytes a second of Produce requests."""
        self.fetch = ClientQuota(window_count, window_ms)
        """Bytes a second of Fetch responses."""

    @property
    def is_empty(self) -> bool:
        return self.produce.is_empty and self.fetch.is_empty

    def set_entity(self, entity: QuotaEntity, quotas: Mapping[str, float] | None) -> None:
        """Apply the quotas of an entity, which replace those it had."""
        names = dict(entity)
        if IP in names:
            return
        quotas = quotas or NO_QUOTAS
        self.produce.set_limit(names, quotas.get(PRODUCER_BYTE_RATE))
        self.fetch.set_limit(names, quotas.get(CONSUMER_BYTE_RATE))
