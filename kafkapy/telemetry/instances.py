"""Client instances: who may ask for subscriptions and push metrics, and when. KIP-714.

An instance is a client that asked for its subscription, by the id that it was given then. MAX_INSTANCES are kept; the
one unused for longest goes first. An instance is forgotten when its connection closes, or when it has sent nothing for
three push intervals, and at least a minute. A forgotten client continues with its id: a broker that does not know the
id treats it as a new instance. Driven by `runtime/client_telemetry.py`.

Deviation: Apache Kafka forgets the last instance of a connection that closes. Here all of them go, because nobody can
use them any more.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import Final

from kafkapy.errors import ApiError
from kafkapy.named_tuple import NamedTuple
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.telemetry.subscriptions import (
    Attributes,
    RequestedMetrics,
    Subscription,
    subscription_id_of,
    wanted_of,
)
from kafkapy.timer.wheel import TimerEntry, TimingWheel
from kafkapy.types import ONE_UUID, ZERO_UUID, Uuid, uuid_to_string

MAX_INSTANCES: Final = 16_384
MAX_ATTRIBUTE: Final = 500
"""Characters of an attribute that are kept, and matched: a client id may have 32,767."""
MIN_EXPIRY_MS: Final = 60_000
COMPRESSIONS: Final = (4, 3, 1, 2)
"""zstd, lz4, gzip, snappy: the order of preference, as sent to clients."""
LAST_COMPRESSION: Final = 4
NEVER_MS: Final = -(1 << 62)
RETRIED_AT_ONCE: Final = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
"""After these a client asks for its subscription before the interval is over."""


class Push(NamedTuple):
    """The fields of a push of metrics. `is_last`: the client terminates, and need not wait for its interval."""

    subscription_id: int
    compression: int
    size_bytes: int
    is_last: bool


class ClientInstance(TimerEntry):
    """One instance, and the subscription that it got last. It is forgotten at its deadline."""

    __slots__ = (
        "_forget",
        "attributes",
        "client_instance_id",
        "connection_id",
        "is_terminating",
        "last_error",
        "last_get_ms",
        "last_push_ms",
        "requested",
        "subscription_id",
        "version",
    )

    def __init__(
        self,
        client_instance_id: Uuid,
        connection_id: str,
        attributes: Attributes,
        *,
        forget: "Callable[[ClientInstance], None]",
    ) -> None:
        super().__init__()
        self.client_instance_id = client_instance_id
        self.connection_id = connection_id
        self.attributes = attributes
        self._forget = forget

    def subscribe(self, requested: RequestedMetrics, version: int) -> None:
        """Set the first or another subscription; the client then need not wait for its interval."""
        self.requested = requested
        self.version = version
        self.subscription_id = subscription_id_of(requested, self.client_instance_id)
        self.last_get_ms = self.last_push_ms = NEVER_MS
        self.is_terminating = False
        self.last_error = ErrorCode.NONE

    def check_get(self, now_ms: int) -> None:
        """Raise ApiError if the interval since the last request is not over."""
        if now_ms - max(self.last_get_ms, self.last_push_ms) >= self.requested.push_interval_ms:
            self.last_get_ms = now_ms
        elif self.last_error not in RETRIED_AT_ONCE:
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)

    def check_push(self, push: Push, max_bytes: int, now_ms: int) -> None:
        """Raise ApiError if a push may not be taken, for example because it has more than max_bytes.

        The first push after the subscription was fetched may come early, as clients vary their interval.
        """
        if self.is_terminating:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        is_early = (
            now_ms - self.last_push_ms < self.requested.push_interval_ms and self.last_get_ms <= self.last_push_ms
        )
        if not is_early:
            self.last_push_ms = now_ms
        elif not push.is_last:
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        if push.subscription_id != self.subscription_id:
            raise ApiError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if not 0 <= push.compression <= LAST_COMPRESSION:
            raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if push.size_bytes > max_bytes:
            raise ApiError(ErrorCode.TELEMETRY_TOO_LARGE)

    def record_failure(self) -> None:
        """Record that an accepted push could not be read."""
        self.last_error = ErrorCode.INVALID_RECORD

    def on_timeout(self, now_ms: int) -> None:
        self._forget(self)


class ClientInstances:
    """The subscriptions, and the instances that this broker knows."""

    def __init__(
        self, wheel: TimingWheel, new_uuid: Callable[[], Uuid], on_forgotten: Callable[[ClientInstance], None]
    ) -> None:
        """`on_forgotten`: called with each forgotten instance."""
        self._wheel = wheel
        self._new_uuid = new_uuid
        self._on_forgotten = on_forgotten
        self._subscriptions: dict[str, Subscription] = {}
        self._version = 0
        """Counts the changes of subscriptions: an instance with an older version gets a new subscription."""
        self._instances: OrderedDict[Uuid, ClientInstance] = OrderedDict()
        self._of_connection: dict[str, dict[Uuid, ClientInstance]] = {}
        self.unknown_subscription_count = 0
        self.throttle_count = 0

    def __len__(self) -> int:
        return len(self._instances)

    def known(self) -> Collection[ClientInstance]:
        return self._instances.values()

    def is_known(self, instance: ClientInstance) -> bool:
        return self._instances.get(instance.client_instance_id) is instance

    def update(self, name: str, configs: Mapping[str, str]) -> Subscription | None:
        """Set a subscription, or remove it if it has no configs; return it."""
        self._version += 1
        if not configs:
            self._subscriptions.pop(name, None)
            return None
        subscription = self._subscriptions[name] = Subscription.of(configs)
        return subscription

    def subscribe(
        self, client_instance_id: Uuid, connection_id: str, attributes: Attributes, now_ms: int
    ) -> ClientInstance:
        """Return the instance of a client that asks for its subscription; it gets an id if it has none.

        Raises ApiError THROTTLING_QUOTA_EXCEEDED.
        """
        known_id = client_instance_id if client_instance_id != ZERO_UUID else self._unused_uuid()
        instance = self._instance(known_id, connection_id, attributes, now_ms)
        try:
            instance.check_get(now_ms)
        except ApiError:
            self.throttle_count += 1
            raise
        instance.last_error = ErrorCode.NONE
        return instance

    def push(
        self,
        client_instance_id: Uuid,
        connection_id: str,
        attributes: Attributes,
        now_ms: int,
        push: Push,
        max_bytes: int,
    ) -> ClientInstance:
        """Return the instance of a client that pushes metrics. Raises ApiError if they are not to be taken."""
        if client_instance_id in (ZERO_UUID, ONE_UUID):
            raise ApiError(ErrorCode.INVALID_REQUEST)
        instance = self._instance(client_instance_id, connection_id, attributes, now_ms)
        try:
            instance.check_push(push, max_bytes, now_ms)
        except ApiError as error:
            instance.last_error = ErrorCode(error.code)
            self.throttle_count += error.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            self.unknown_subscription_count += error.code == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
            raise
        finally:
            # As in Kafka, also after a refused push: it was the last.
            instance.is_terminating = push.is_last
        instance.last_error = ErrorCode.NONE
        return instance

    def disconnected(self, connection_id: str) -> None:
        """Forget the instances of a connection that has closed."""
        for instance in self._of_connection.pop(connection_id, {}).values():
            self._remove(instance)

    def _unused_uuid(self) -> Uuid:
        while (found := self._new_uuid()) in self._instances:
            pass
        return found

    def _instance(
        self, client_instance_id: Uuid, connection_id: str, attributes: Attributes, now_ms: int
    ) -> ClientInstance:
        instance = self._instances.get(client_instance_id)
        if instance is None:
            instance = self._add(client_instance_id, connection_id, attributes)
        elif instance.version < self._version:
            self._subscribe(instance)
        self._instances.move_to_end(client_instance_id)
        instance.cancel()
        self._wheel.add(instance, now_ms + max(MIN_EXPIRY_MS, 3 * instance.requested.push_interval_ms))
        return instance

    def _add(self, client_instance_id: Uuid, connection_id: str, attributes: Attributes) -> ClientInstance:
        if len(self._instances) >= MAX_INSTANCES:
            self._forget(next(iter(self._instances.values())))
        attributes = {selector: value[:MAX_ATTRIBUTE] for selector, value in attributes.items()}
        attributes["client_instance_id"] = uuid_to_string(client_instance_id)
        instance = ClientInstance(client_instance_id, connection_id, attributes, forget=self._forget)
        self._subscribe(instance)
        self._instances[client_instance_id] = instance
        self._of_connection.setdefault(connection_id, {})[client_instance_id] = instance
        return instance

    def _subscribe(self, instance: ClientInstance) -> None:
        instance.subscribe(wanted_of(self._subscriptions.values(), instance.attributes), self._version)

    def _forget(self, instance: ClientInstance) -> None:
        of_connection = self._of_connection[instance.connection_id]
        del of_connection[instance.client_instance_id]
        if not of_connection:
            del self._of_connection[instance.connection_id]
        self._remove(instance)

    def _remove(self, instance: ClientInstance) -> None:
        instance.cancel()
        del self._instances[instance.client_instance_id]
        self._on_forgotten(instance)
