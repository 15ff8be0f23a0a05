"""Counts and times the requests of a router; used only on nodes with an admin listener.

`route` and `coalesce` stand between the reactor and the router's methods of the same names. A request's time begins
when its frame is taken, and ends when its response is queued.
"""

import time
import types
from collections import Counter
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from struct import Struct
from typing import Any, Final

from kafkapy.metrics.histogram import SMALL, SMALL_VALUES, bucket_of
from kafkapy.metrics.requests import RequestCounts, VersionCounts
from kafkapy.protocol.primitives import Writer
from kafkapy.protocol.serving import Coalesce, ConnectionInfo, Route, Served
from kafkapy.protocol.traffic import SIZE_BYTES

_unpack_key = Struct(">I").unpack_from
"""API key and version, as one number."""
KEY_BYTES: Final = 4


class MeasuredRouter:
    """Stands for a router: it has the methods that the reactor and logins call."""

    def __init__(
        self,
        route: Route,
        coalesce: Coalesce,
        counts: RequestCounts,
        *,
        are_fetches_of_followers: bool = False,
        now_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        """are_fetches_of_followers: whether all Fetch requests come from followers, as on a controller's listener."""
        self._route = route
        self._coalesce = coalesce
        self._counts = counts
        self._always_follows = are_fetches_of_followers
        self._now_ns = now_ns

    @types.coroutine
    def route(self, connection: ConnectionInfo, frame: memoryview) -> Generator[Any, Any, Writer | None]:
        """Serve a request as Router.route does, and count it."""
        began_ns = self._now_ns()
        size = len(frame)
        key = _unpack_key(frame)[0] if size >= KEY_BYTES else 0  # too short: the router raises ProtocolError
        handling = self._route(connection, frame)
        del frame  # the router frees it
        try:
            awaited = handling.send(None)
        except StopIteration as stop:
            took_us = (self._now_ns() - began_ns) // 1000
            api = self._count(connection, key, size).api
            api.at_once[SMALL[took_us] if took_us < SMALL_VALUES else bucket_of(took_us)] += 1
            response: Writer | None = stop.value
        else:
            local_us = (self._now_ns() - began_ns) // 1000
            response = yield from _Resumed(handling, awaited)
            api = self._count(connection, key, size).api
            api.record_wait(local_us, (self._now_ns() - began_ns) // 1000)
        traffic = connection.traffic
        if traffic is not None:
            traffic.received_frames += 1
            if response is not None:
                traffic.count_sent(response.wire_length, 1)
        if connection.throttle_ms:
            api.throttled_ms[bucket_of(connection.throttle_ms)] += 1
        return response

    def _count(self, connection: ConnectionInfo, key: int, size: int) -> VersionCounts:
        counts = self._counts.of(key)
        if counts.followers is not None and (connection.is_replica or self._always_follows):
            counts = counts.followers
        counts.request_count += 1
        counts.api.frame_bytes[SMALL[size] if size < SMALL_VALUES else bucket_of(size)] += 1
        return counts

    def coalesce(self, connection: ConnectionInfo, data: bytes, position: int, most: int) -> Served | None:
        """Serve Produce requests together as Router.coalesce does, and count them."""
        began_ns = self._now_ns()
        served = self._coalesce(connection, data, position, most)
        if served is None:
            return None
        took_us = (self._now_ns() - began_ns) // 1000
        count = served.frame_count
        traffic = connection.traffic
        if traffic is not None:
            traffic.received_frames += count
            if served.responses is not None:
                traffic.count_sent(len(served.responses) // count - SIZE_BYTES, count)
        counts = self._counts.of(_unpack_key(data, position + 4)[0])
        counts.request_count += count
        api = counts.api
        size = (
            served.end_position - position
        ) // count - 4  # requests served together are alike: the mean stands for all
        api.frame_bytes[SMALL[size] if size < SMALL_VALUES else bucket_of(size)] += count
        errors = self._counts.errors_of(counts.api_key)
        if served.wait is None:
            _count_errors(errors, served)
            api.at_once[SMALL[took_us] if took_us < SMALL_VALUES else bucket_of(took_us)] += count
            return served

        def answered(on_responses: Callable[[bytes], None], responses: bytes) -> None:
            api.record_wait(took_us, (self._now_ns() - began_ns) // 1000, count)
            _count_errors(errors, served)
            if traffic is not None:
                traffic.count_sent(len(responses) // count - SIZE_BYTES, count)
            on_responses(responses)

        wait = served.wait
        return served._replace(wait=lambda on_responses: wait(partial(answered, on_responses)))


def _count_errors(errors: Counter[int], served: Served) -> None:
    if served.error_codes:
        errors.update(served.error_codes)
    else:
        errors[0] += served.frame_count


class _Resumed:
    """The rest of a coroutine that has already been driven to its first wait, which it yields first."""

    __slots__ = ("_first", "_handling", "_is_begun")

    def __init__(self, handling: Coroutine[Any, Any, Any], first: Any) -> None:
        self._handling = handling
        self._first = first
        self._is_begun = False

    def __iter__(self) -> "_Resumed":
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        if self._is_begun:
            return self._handling.send(value)
        self._is_begun = True
        return self._first

    def throw(self, *error: Any) -> Any:
        return self._handling.throw(*error)

    def close(self) -> None:
        self._handling.close()
