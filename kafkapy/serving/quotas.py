"""Client quotas: a client above its quota gets throttle_time_ms, and its connection is muted for that time (KIP-219).

Here `connection.throttle_ms` is set; `reactor/link.py` mutes the connection once the response is queued. Limits and
measured rates are in `security/quotas.py`.

A request of a client with quotas gets a Meter, kept in its context. It counts, once the response is there:

* producer_byte_rate: the size of a Produce request (KIP-13);
* consumer_byte_rate: the size of a Fetch response (called by handlers/data/fetch.py: a throttled response is empty);
* request_percentage: the request's time (KIP-124), except for Produce with acks=0 and requests between nodes;
* controller_mutation_rate: partitions created and deleted (KIP-599). The controller calls MutationCharge for each topic
  as it decides, before it adds the topic's records: newer versions of the APIs get THROTTLING_QUOTA_EXCEEDED for
  topics above the quota, older ones are only throttled.

The largest throttle applies. A request forwarded to this controller gets its throttle in the response, and this node
mutes no connection: the forwarding broker does, for the larger of the controller's throttle and its own.

A request's time is its wall time on the event loop: reading it, each step of its handler, encoding the response
(counted after the throttle was computed, like the network threads' time in Apache Kafka); and the time a worker takes
to decode or encode it if it is large. 100 percent is one event loop, as it is one thread in Apache Kafka.

Deviation: Apache Kafka counts the time of its network threads. Here moving bytes between sockets and memory, and other
work of workers, is not part of a request's time, because it is the kernel's. Deviation: Apache Kafka counts the encoded
Fetch response. Here its size is that of its records and some bytes for each partition with records or an error, because
it is encoded later. Deviation: Apache Kafka throttles some requests that only nodes may send. Here BrokerHeartbeat,
BrokerRegistration and others are exempt from request_percentage, because a throttled node would be fenced. Deviation:
Apache Kafka exempts a Fetch that names a replica without CLUSTER_ACTION. Here it is not, because a client could escape
its quotas that way. Deviation: Apache Kafka mutes the connection alone. Here the first request of another connection,
and its first Produce, wait until the client's throttle ends, because a client that reconnected was served 82 times its
quota.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from kafkapy.errors import ApiError
from kafkapy.handlers.context import (
    CloseConnection,
    Connection,
    ControllerServices,
    MeteredContext,
    RequestContext,
    Services,
)
from kafkapy.handlers.data_plane import sent_bytes
from kafkapy.handlers.encoded_responses import EncodedResponse
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.headers import RequestHeader, read_response_header
from kafkapy.protocol.primitives import Writer
from kafkapy.security.quotas import user_of

if TYPE_CHECKING:
    from kafkapy.replication.partition_read import PartitionRead

R = TypeVar("R")

PERCENT_OF_NS: Final = 100 / 1e9
"""One nanosecond as a percentage of a second."""
PRODUCE: Final = 0
WITHOUT_THROTTLE: Final = frozenset((55,))
"""DescribeQuorum: the only API forwarded unchanged whose response has no throttle_time_ms."""
METADATA_THROTTLE_SINCE: Final = 3
MAX_HELD_BYTES: Final = 16 << 20
"""The size of all requests that are held back; the connection of one beyond is closed. They charge request memory."""
HEADER_BYTES: Final = 8
"""An upper bound of the size of a response header without tagged fields."""


class Meter:
    """Counts one request of a client with quotas, and throttles the client."""

    def __init__(
        self, services: Services | ControllerServices, header: RequestHeader, connection: Connection, frame_bytes: int
    ) -> None:
        assert services.client_quotas is not None, "the caller has checked that there are quotas"
        self._quotas = services.client_quotas
        self._clock = services.clock
        self._header = header
        self._connection = connection
        self._user = user_of(connection.principal)
        self._client_id = header.client_id or ""
        self._frame_bytes = frame_bytes
        served = services.apis.get(header.api_key)
        self._is_exempt = served is not None and served.is_between_nodes
        self._is_charged = False
        self._time_ns = 0
        """The time of earlier steps that is not recorded yet."""
        self._step_began_ns = 0
        self._mutations: MutationCharge | None = None

    def new_context(self) -> RequestContext:
        return MeteredContext(self._header, self._connection, self)

    async def drive(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Run the request and measure its time; at the end, record the rest of it.

        A request without a response that could carry a throttle, such as one of an unknown version, mutes its
        connection, too.
        """
        try:
            return await _Steps(coroutine, self._begin_step, self._end_step)
        finally:
            throttle_ms = self._count_time()
            if not self._is_charged:
                self._mute(throttle_ms)

    async def await_throttle(self) -> None:
        """Delay a connection's first request, and its first Produce, until the client is no longer throttled.

        Raises CloseConnection if MAX_HELD_BYTES of requests are delayed.
        """
        connection, is_produce = self._connection, self._header.api_key == PRODUCE
        if connection.is_forwarded:
            return
        throttle_ms, now_ms = 0, self._clock.monotonic_ms()
        if not connection.is_metered and not self._is_exempt:
            throttle_ms = self._quotas.request.remaining_throttle_ms(self._user, self._client_id, now_ms)
        if is_produce and not connection.is_metered_producer:
            throttle_ms = max(
                throttle_ms, self._quotas.produce.remaining_throttle_ms(self._user, self._client_id, now_ms)
            )
            connection.is_metered_producer = True
        connection.is_metered = True
        if throttle_ms == 0:
            return
        if self._quotas.held_bytes + self._frame_bytes > MAX_HELD_BYTES:
            raise CloseConnection(f"{self._quotas.held_bytes} bytes of throttled clients' requests are held back")
        self._quotas.held_bytes += self._frame_bytes
        connection.is_held = True
        try:
            await asyncio.sleep(throttle_ms / 1000)
        finally:
            self._quotas.held_bytes -= self._frame_bytes

    def timed(self, work: Callable[[], R]) -> Callable[[], R]:
        """Return `work` wrapped so that its time on a worker is added to the request's."""

        def run() -> R:
            started = self._clock.monotonic_ns()
            try:
                return work()
            finally:
                self._time_ns += self._clock.monotonic_ns() - started

        return run

    def exempt(self) -> None:
        """Exempt the request, which is a follower's, from quotas."""
        self._is_exempt = self._is_charged = True

    def refuse_node(self) -> None:
        """Count a request that only nodes may send as a client's: its sender is not authorized as a node."""
        self._is_exempt = False

    def mutations(self, *, is_strict: bool) -> "MutationCharge":
        """Return the function that charges this request for the partitions that it creates or deletes."""
        self._mutations = mutations = self.mutations_of_auto_creation(is_strict=is_strict)
        return mutations

    def mutations_of_auto_creation(self, *, is_strict: bool) -> "MutationCharge":
        """Like `mutations`, for topics that are created because a client names them: no response has their throttle."""

        def charge(count: int, now_ms: int) -> int | None:
            quota = self._quotas.mutation
            charge = quota.charge_strictly if is_strict else quota.charge
            return charge(self._user, self._client_id, count, now_ms)

        return MutationCharge(charge, self._clock.monotonic_ms, is_strict=is_strict)

    def max_fetch_bytes(self, max_bytes: int) -> int:
        """Return the maximum bytes of a Fetch: limited to what consumer_byte_rate allows in all windows together."""
        limit = self._quotas.fetch.max_in_windows(self._user, self._client_id)
        return max_bytes if limit is None or limit >= max_bytes else int(limit)

    def throttle_fetch(
        self, responses: "Iterable[tuple[Any, PartitionRead]]", *, is_sent_throttled: bool = False
    ) -> int:
        """Count a Fetch response; return the throttle in ms, for which the connection is muted.

        A throttled response does not count, because it is not sent, unless is_sent_throttled.
        """
        self._is_charged = True
        size_bytes = sum(sent_bytes(response) for _, response in responses)
        now_ms = self._clock.monotonic_ms()
        quota = self._quotas.fetch
        request_ms = self._count_time()
        throttle_ms = max(request_ms, quota.record(self._user, self._client_id, size_bytes, now_ms))
        if throttle_ms > 0:
            if not is_sent_throttled:
                quota.unrecord(self._user, self._client_id, size_bytes, now_ms)
            self._mute(throttle_ms)
        return throttle_ms

    def charge(self, response: Any) -> Any:
        """Count a request after its response (None with acks=0); return the response with throttle_time_ms set."""
        if self._is_charged:
            return response
        given_ms = getattr(response, "throttle_time_ms", 0)  # set by the controller if a part was forwarded
        throttle_ms = max(given_ms, self._throttle_ms(response))
        if throttle_ms == 0:
            return response
        self._mute(throttle_ms)
        if isinstance(response, EncodedResponse):
            return self._with_throttle(response, throttle_ms)
        if hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = throttle_ms
        return response

    def charge_forwarded(self, response: Writer) -> None:
        """Count a forwarded request; set the larger of the controller's and this throttle in its response."""
        api_key = self._header.api_key
        throttle_ms = self._throttle_ms(None)
        if api_key not in WITHOUT_THROTTLE:
            _, position = read_response_header(bytes(response[:HEADER_BYTES]), api_key, self._header.api_version)
            throttle_ms = max(throttle_ms, int.from_bytes(response[position : position + 4], "big", signed=True))
            response[position : position + 4] = throttle_ms.to_bytes(4, "big")
        if throttle_ms > 0:
            self._mute(throttle_ms)

    def _throttle_ms(self, response: Any) -> int:
        self._is_charged = True
        throttle_ms = 0 if self._mutations is None else self._mutations.throttle_ms()
        is_unanswered = False
        if self._header.api_key == PRODUCE:
            is_unanswered = response is None
            now_ms = self._clock.monotonic_ms()
            throttle_ms = self._quotas.produce.record(self._user, self._client_id, self._frame_bytes, now_ms)
        elif getattr(response, "error_code", 0) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            self.refuse_node()
        if is_unanswered:
            self._is_exempt = True
        return max(throttle_ms, self._count_time())

    def _with_throttle(self, response: EncodedResponse, throttle_ms: int) -> EncodedResponse:
        """Return a copy with the throttle time: the response is Metadata's, cached for other clients."""
        if self._header.api_version < METADATA_THROTTLE_SINCE:
            return response
        return EncodedResponse(throttle_ms.to_bytes(4, "big") + response.body[4:])

    def _begin_step(self) -> None:
        self._step_began_ns = self._clock.monotonic_ns()

    def _end_step(self) -> None:
        now_ns = self._clock.monotonic_ns()
        self._time_ns += now_ns - self._step_began_ns
        self._step_began_ns = now_ns

    def _count_time(self) -> int:
        """Record the request's time since the last call; return the throttle in ms."""
        self._end_step()
        time_ns, self._time_ns = self._time_ns, 0
        if self._is_exempt:
            return 0
        now_ms = self._clock.monotonic_ms()
        return self._quotas.request.record(self._user, self._client_id, time_ns * PERCENT_OF_NS, now_ms)

    def _mute(self, throttle_ms: int) -> None:
        connection = self._connection
        if not connection.is_forwarded:
            connection.throttle_ms = max(connection.throttle_ms, throttle_ms)


class MutationCharge:
    """Charges a request for the partitions that it creates or deletes; called by the controller as it decides."""

    def __init__(
        self, charge: Callable[[int, int], int | None], monotonic_ms: Callable[[], int], *, is_strict: bool
    ) -> None:
        self._charge = charge
        self._monotonic_ms = monotonic_ms
        self._is_strict = is_strict
        self._until_ms = 0

    def __call__(self, partition_count: int) -> None:
        """Charge for partitions. Raises ApiError THROTTLING_QUOTA_EXCEEDED if they are refused."""
        now_ms = self._monotonic_ms()
        throttle_ms = self._charge(partition_count, now_ms)
        if throttle_ms:
            self._until_ms = now_ms + throttle_ms
        if throttle_ms is not None and self._is_strict:
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)

    def throttle_ms(self) -> int:
        """Return the remaining throttle in ms: part of it may have passed while the request was processed."""
        return max(self._until_ms - self._monotonic_ms(), 0)


class _Steps(Generic[R]):
    """A coroutine whose steps are timed, without the time for which it waits."""

    def __init__(self, coroutine: Coroutine[Any, Any, R], begin: Callable[[], None], end: Callable[[], None]) -> None:
        """`begin` and `end` are called around each step."""
        self._coroutine = coroutine
        self._begin = begin
        self._end = end

    def __await__(self) -> Generator[Any, Any, R]:
        go_on = partial(self._coroutine.send, None)
        step = go_on
        while True:
            self._begin()
            try:
                awaited = step()
            except StopIteration as stop:
                result: R = stop.value
                return result
            finally:
                self._end()
            step = go_on
            try:
                yield awaited
            except BaseException as error:  # cancelled or closed: raised in the coroutine
                step = partial(self._coroutine.throw, error)
