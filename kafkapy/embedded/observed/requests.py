"""`broker.requests`: who sent which request, and with which errors it was answered; off unless it is turned on.

    broker.requests.on()
    ...
    assert broker.requests.matching("Produce", topic="orders")

A request is recorded when it has been answered: a Fetch that waits for records is not there yet.
"""

import contextlib
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from kafkapy.dataclass import dataclass
from kafkapy.embedded.observed.waiting import TIMEOUT_S, ObservationError, wait_until
from kafkapy.errors import first_of, near, quoted
from kafkapy.protocol.api import APIS
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.types import TopicPartition

MOST: Final = 10_000
"""Requests that are remembered unless `on` says otherwise: some MB."""
SHOWN: Final = 5
OFF: Final = "requests are not recorded: requests.on() before what is tested turns that on"
LIVE: "Final[weakref.WeakSet[Requests]]" = weakref.WeakSet()
"""The records of requests that are on: the pytest plugin shows the last requests of a failing test."""


@dataclass(slots=True, frozen=True)
class Request:
    """A request that was answered. `partitions`, `topics`, `groups`, `transactional_ids`: what it is about.

    `errors`: names of the errors in the response; `ms`: the time until there was one. `is_answered`: False if the
    connection ended in its place.
    """

    api: str
    version: int
    client_id: str | None
    principal: str
    connection: str
    """The client's host:port."""
    partitions: tuple[TopicPartition, ...]
    topics: tuple[str, ...]
    groups: tuple[str, ...]
    transactional_ids: tuple[str, ...]
    errors: tuple[str, ...]
    is_answered: bool
    ms: float

    def __str__(self) -> str:
        names = [
            *(map(str, self.partitions) if self.partitions else self.topics),
            *self.groups,
            *self.transactional_ids,
        ]
        about = f" of {first_of(names, SHOWN)}" if names else ""
        end = (first_of(self.errors, SHOWN) or "done") if self.is_answered else "not answered"
        return f"{self.api} v{self.version}{about} by {self.client_id} ({self.connection}): {end}, {self.ms:.1f} ms"


class Recording(Protocol):
    """Takes a broker's requests: Requests itself or, in the process of a node, what sends them there."""

    @property
    def is_on(self) -> bool:
        """Whether requests are recorded."""
        ...

    def add(self, request: Request) -> None:
        """Record a request. Called on the broker's loop."""
        ...


class Requests:
    """The last requests of clients, the oldest first: a sequence that one can iterate over."""

    def __init__(self, install: Callable[[], None], refresh: Callable[[], None] = lambda: None) -> None:
        """`install`: called after a change of `is_on`; has the broker record, or not.

        `refresh`: called before requests are read; returns when those that were answered are here.
        """
        self._install = install
        self._refresh = refresh
        self._ring: deque[Request] | None = None

    @property
    def is_on(self) -> bool:
        return self._ring is not None

    def on(self, most: int = MOST) -> None:
        """Record requests from now on, and keep the last `most` of them."""
        if most < 1:
            raise ObservationError(f"most is a number from 1 on, not {most}")
        before, self._ring = self._ring, deque(self._ring or (), maxlen=most)
        if before is None:
            try:
                self._install()
            except BaseException:
                self._ring = None
                raise
        LIVE.add(self)

    def off(self) -> None:
        """Record nothing more, and forget what there is."""
        if self.is_on:
            self._ring = None
            with contextlib.suppress(RuntimeError):  # a broker that does not run records nothing
                self._install()

    def clear(self) -> None:
        """Forget the requests so far."""
        if self._ring is not None:
            self._ring.clear()

    def add(self, request: Request) -> None:
        """Called on the broker's loop."""
        ring = self._ring
        if ring is not None:
            ring.append(request)

    def last(self, count: int) -> list[Request]:
        """Return the last requests, the oldest first."""
        return list(self)[-count:]

    def matching(
        self,
        api: str | None = None,
        *,
        client_id: str | None = None,
        topic: str | None = None,
        group: str | None = None,
        error: str | None = None,
    ) -> list[Request]:
        """Return the requests of an API, a client, about a topic or a group, with an error in the response.

        Raises ObservationError for an unknown API or error, and if nothing is recorded.
        """
        self._check(api, error)

        def is_wanted(request: Request) -> bool:
            return (
                (api is None or request.api == api)
                and (client_id is None or request.client_id == client_id)
                and (topic is None or topic in request.topics)
                and (group is None or group in request.groups)
                and (error is None or error in request.errors)
            )

        return [request for request in self if is_wanted(request)]

    def wait_for(
        self,
        count: int,
        api: str | None = None,
        *,
        client_id: str | None = None,
        topic: str | None = None,
        group: str | None = None,
        error: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> list[Request]:
        """Return the requests that match, as `matching` does, once there are `count`. Raises NotObserved."""
        __tracebackhide__ = True
        self._check(api, error)

        def find() -> list[Request]:
            return self.matching(api, client_id=client_id, topic=topic, group=group, error=error)

        def enough() -> list[Request] | None:
            found = find()
            return found if len(found) >= count else None

        def complaint() -> str:
            shown = "\n".join(f"  {request}" for request in self.last(4 * SHOWN))
            return f"{len(find())} requests match, not {count}; the last of all:\n{shown or '  none'}"

        return wait_until(enough, complaint, timeout_s)

    def __iter__(self) -> Iterator[Request]:
        ring = self._ring
        if ring is None:
            return iter(())
        self._refresh()
        return iter(ring.copy())  # the loop's thread may append meanwhile

    def __len__(self) -> int:
        ring = self._ring
        if ring is None:
            return 0
        self._refresh()
        return len(ring)

    def report(self, count: int) -> str:
        """Return the last requests, a line each."""
        return "\n".join(map(str, self.last(count)))

    def _check(self, api: str | None, error: str | None) -> None:
        names = [each.name for each in APIS.values()]
        if api is not None and api not in names:
            raise ObservationError(f"there is no API {quoted(str(api))}{near(str(api), names)}")
        if error is not None and error not in ErrorCode.__members__:
            raise ObservationError(f"there is no error {quoted(str(error))}{near(str(error), ErrorCode.__members__)}")
        if not self.is_on:
            raise ObservationError(OFF)
