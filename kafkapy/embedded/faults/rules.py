"""`broker.faults`: which requests fail, are late or lose their response, and what did.

    broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", topic="orders", times=2)
    broker.faults.delay("Fetch", ms=500).probability(0.1, seed=7)
    broker.faults.drop("EndTxn", when="after")          # it is done, and the response is lost
    with broker.faults.paused():
        ...

Selectors: `api` by name; `version` (a number, or a range of them), `topic`, `partition`, `group`, `transactional_id`,
`client_id`, `connection` (the client's `host:port`); texts may have wildcards, as in "orders-*". `nth=3` hits only the
third request that matches, `times=2` the first two. Requests of nodes to each other are not hit.

Calls may come from any thread; requests are matched on the broker's loop.
"""

import itertools
import os
import random
import weakref
from asyncio import Future
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self, TypeAlias

from kafkapy.dataclass import dataclass
from kafkapy.embedded.faults.selectors import REQUEST_SELECTORS, Selectors, complaint_about
from kafkapy.embedded.faults.shapes import Selected, is_between_nodes, selectors_of
from kafkapy.embedded.faults.whole_errors import versions_with_room
from kafkapy.embedded.loop_thread import refuse_in_child
from kafkapy.errors import KafkapyError, first_of, near, quoted, unknown
from kafkapy.named_tuple import NamedTuple
from kafkapy.protocol.api import APIS, LOGIN_APIS
from kafkapy.protocol.error_code import ErrorCode

if TYPE_CHECKING:
    from typing import Unpack

Kind: TypeAlias = Literal["fail", "delay", "drop", "truncate"]
When: TypeAlias = Literal["before", "after"]

KINDS: Final = ("fail", "delay", "drop", "truncate")
ERRORS_SINCE: Final = {
    ErrorCode.UNKNOWN_TOPIC_ID: {"Produce": 13, "Fetch": 13, "Metadata": 10, "DeleteTopics": 6, "OffsetCommit": 10},
    ErrorCode.INCONSISTENT_TOPIC_ID: {"Fetch": 13},
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: {"Fetch": 7},
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: {"Fetch": 7},
    ErrorCode.FENCED_LEADER_EPOCH: {"Fetch": 9, "ListOffsets": 4, "OffsetForLeaderEpoch": 2},
    ErrorCode.UNKNOWN_LEADER_EPOCH: {"Fetch": 9, "ListOffsets": 4, "OffsetForLeaderEpoch": 2},
    ErrorCode.OFFSET_NOT_AVAILABLE: {"ListOffsets": 5},
    ErrorCode.MEMBER_ID_REQUIRED: {"JoinGroup": 4},
    ErrorCode.FENCED_INSTANCE_ID: {"JoinGroup": 5, "SyncGroup": 3, "Heartbeat": 3, "OffsetCommit": 7},
    ErrorCode.PRODUCER_FENCED: {"InitProducerId": 4, "AddPartitionsToTxn": 2, "AddOffsetsToTxn": 2, "EndTxn": 2},
    ErrorCode.TRANSACTION_ABORTABLE: {
        "Produce": 12,
        "AddPartitionsToTxn": 5,
        "AddOffsetsToTxn": 4,
        "TxnOffsetCommit": 4,
        "EndTxn": 4,
        "FindCoordinator": 6,
        "InitProducerId": 6,
    },
}
"""By error and API: the first version whose clients know the error, for errors that are newer than the API."""
SHOWN: Final = 5
SHOWN_HITS: Final = 20
_NUMBERS: Final = itertools.count(1)
LIVE: "Final[weakref.WeakSet[Faults]]" = weakref.WeakSet()
"""The faults of all brokers and clusters: the pytest plugin reports and clears them after each test."""


class FaultError(KafkapyError, ValueError):
    """A fault that is not possible; the message says what would be."""


class FaultNeverHit(KafkapyError, AssertionError):
    """A fault was set and has hit no request, so the test has not tested what it should."""


@dataclass(slots=True, frozen=True)
class Hit:
    """A request that a fault has hit: its client, and what was done to it."""

    fault: str
    api: str
    version: int
    client_id: str | None
    principal: str
    connection: str
    parts: tuple[str, ...]
    """The partitions, groups and the like that were hit, as texts."""

    def __str__(self) -> str:
        about = f" of {first_of(list(self.parts), SHOWN)}" if self.parts else ""
        return f"{self.api} v{self.version}{about} by {self.client_id} ({self.connection}): {self.fault}"


class FaultSpec(NamedTuple):
    """The data from which the process of a node builds its copy of a fault."""

    number: int
    kind: Kind
    api: str
    selectors: Selectors
    error: int | None
    ms: int
    when: When


class Fault:
    """One fault. `hits`: how many requests it has hit."""

    def __init__(
        self, kind: Kind, api: str, selectors: Selectors, *, error: ErrorCode | None, ms: int, when: When
    ) -> None:
        """Raises FaultError."""
        self.number = next(_NUMBERS)
        self.kind: Kind = kind
        self.api = api
        self.error = error
        self.delay_ms = ms
        self.when: When = when
        self.hits = 0
        self.may_miss = selectors.get("may_miss", False)
        self.api_key = _api_key(api)
        self._selectors = selectors
        self._versions_with_room = [] if error is None else versions_with_room(self.api_key)
        self._check()
        self._matches = 0
        self._missed: dict[str, None] = {}
        self._probability = 1.0
        self._random = random.Random(0)
        self._paused = 0
        self._is_removed = False

    def probability(self, probability: float, *, seed: int) -> Self:
        """Hit a request that matches with this probability, the same ones for the same seed. Return this fault."""
        if not isinstance(probability, int | float) or not 0 < probability <= 1:
            raise FaultError(f"a probability is above 0 and at most 1, not {probability!r}")
        self._probability, self._random = probability, random.Random(seed)
        return self

    def remove(self) -> None:
        """Hit no more requests."""
        self._is_removed = True

    @property
    def is_over(self) -> bool:
        """Whether it hits no more requests: it was removed, or `times` or `nth` is reached."""
        return self._is_removed or self._is_used_up

    @property
    def is_active(self) -> bool:
        return not self._paused and not self.is_over

    @property
    def topic(self) -> str | None:
        return self._selectors.get("topic")

    def matches_header(self, version: int, client_id: str | None, connection: str) -> bool:
        """Return whether a request of the fault's API may be hit, from what its header says."""
        wanted = self._selectors.get("version")
        if wanted is not None and version not in (wanted if isinstance(wanted, range) else (wanted,)):
            self._record_miss(f"one at version {version}")
            return False
        if self.error is not None and version not in self._versions_with_room:
            self._record_miss(f"one at version {version}, whose response has no room for an error")
            return False
        if self.error is not None and version < self._error_since:
            self._record_miss(f"one at version {version}, whose clients do not know {self.error.name}")
            return False
        return self._is_like("client_id", client_id or "") and self._is_like("connection", connection)

    def matches_part(self, part: Selected) -> bool:
        """Return whether the selectors select this part of a request."""
        return all(name not in self._selectors or self._is_part(name, part.get(name)) for name in REQUEST_SELECTORS)

    def draw(self) -> bool:
        """Count a request that matches; return whether it is hit, by `nth` and the probability."""
        self._matches += 1
        nth = self._selectors.get("nth")
        if nth is not None and self._matches != nth:
            return False
        if self._probability < 1 and self._random.random() >= self._probability:
            return False
        self.hits += 1
        return True

    def pause(self, by: int) -> None:
        self._paused += by

    @property
    def spec(self) -> FaultSpec:
        error = None if self.error is None else int(self.error)
        return FaultSpec(self.number, self.kind, self.api, self._selectors, error, self.delay_ms, self.when)

    @classmethod
    def copy_of(cls, spec: FaultSpec) -> Self:
        """Return a fault that matches the same requests."""
        error = None if spec.error is None else ErrorCode(spec.error)
        found = cls(spec.kind, spec.api, spec.selectors, error=error, ms=spec.ms, when=spec.when)
        found.number = spec.number
        return found

    @property
    def nearly_hit(self) -> list[str]:
        """The requests that did not quite match, as texts."""
        return list(self._missed)

    def add_nearly_hit(self, texts: Sequence[str]) -> None:
        for text in texts:
            self._record_miss(text)

    @property
    def missed(self) -> str:
        """The requests that nearly matched, for the message of a fault that has hit nothing."""
        seen = list(self._missed)
        if self._matches:
            seen.insert(0, f"{self._matches} that matched, but not its nth or its probability")
        return f"; there came {first_of(seen, SHOWN)}" if seen else f"; no {self.api} came"

    def __str__(self) -> str:
        what = {
            "fail": f"fails with {self.error.name if self.error is not None else ''}",
            "delay": f"is delayed by {self.delay_ms} ms",
            "drop": "is lost" if self.when == "before" else "is done, and its response lost",
            "truncate": "has its response cut in two",
        }[self.kind]
        chosen = ", ".join(
            f"{name}={quoted(str(value))}" for name, value in self._selectors.items() if name != "may_miss"
        )
        return f"{self.api}{f' ({chosen})' if chosen else ''} {what}"

    @property
    def _is_used_up(self) -> bool:
        nth, times = self._selectors.get("nth"), self._selectors.get("times")
        if nth is not None:
            return self._matches >= nth
        return times is not None and self.hits >= times

    @property
    def _error_since(self) -> int:
        return 0 if self.error is None else ERRORS_SINCE.get(self.error, {}).get(self.api, 0)

    def _is_like(self, selector: Literal["client_id", "connection"], value: str) -> bool:
        wanted = self._selectors.get(selector)
        if wanted is None or fnmatchcase(value, wanted):
            return True
        self._record_miss(f"one with {selector}={quoted(str(value))}")
        return False

    def _is_part(self, selector: str, value: object) -> bool:
        wanted = self._selectors.get(selector)
        if wanted is None:
            return True
        is_like = fnmatchcase(value, wanted) if isinstance(value, str) and isinstance(wanted, str) else value == wanted
        if not is_like:
            self._record_miss(f"one with {selector}={quoted(str(value))}")
        return is_like

    def _record_miss(self, text: str) -> None:
        if len(self._missed) < SHOWN_HITS:
            self._missed[text] = None

    def _check(self) -> None:
        """Raise FaultError if no request can be hit."""
        api, selectors = self.api, self._selectors
        complaint = complaint_about(selectors)
        if complaint is not None:
            raise FaultError(complaint)
        if self.api_key in LOGIN_APIS:
            raise FaultError(f"{api} belongs to the login, which no fault hits: give the client a wrong password")
        if is_between_nodes(self.api_key):
            raise FaultError(f"{api} is sent by nodes to each other, which no fault hits: cluster.network cuts them")
        possible = selectors_of(self.api_key)
        for name in REQUEST_SELECTORS:
            if selectors.get(name) is not None and name not in possible:
                has = f"only {', '.join(sorted(possible))}" if possible else "nothing of the kind"
                raise FaultError(f"a request of {api} names no {name}, {has}")
        self._check_versions()

    def _check_versions(self) -> None:
        wanted, known = self._selectors.get("version"), APIS[self.api_key]
        if wanted is None:
            return
        versions = list(wanted) if isinstance(wanted, range) else [wanted]
        served = range(known.min_version, known.max_version + 1)
        if not any(version in served for version in versions):
            raise FaultError(f"{self.api} has the versions {served.start} to {served.stop - 1}, not {wanted}")
        if self.error is not None and not any(version in self._versions_with_room for version in versions):
            raise FaultError(f"{self.api} at version {wanted} has no room for an error: drop or delay it")
        if self.error is not None and max(versions) < self._error_since:
            since = f"clients know it from version {self._error_since} on"
            raise FaultError(f"{self.api} at version {wanted} lacks {self.error.name}: {since}")


Matched: TypeAlias = tuple[Fault, Hit]
"""A fault that matches a request, and what is recorded when it hits one."""


class Rules(Protocol):
    """The faults that match and hit requests at a broker: Faults, or their copies in the process of a node."""

    def of_api(self, api_key: int) -> list[Fault]:
        """Return the faults that may hit a request of this API now, in the order in which they were set."""
        ...

    def draw(self, matched: list[Matched]) -> "list[Fault] | Future[list[Fault]]":
        """Count a request that these faults match, return those that hit it."""
        ...


class Elsewhere(Protocol):
    """Nodes in other processes. They match requests by copies of the faults; this process decides which hit."""

    def publish(self, faults: Sequence[Fault]) -> None:
        """Set these faults on all nodes before returning. Raises ClusterError."""
        ...

    def nearly_hit(self) -> Mapping[int, list[str]]:
        """Return the requests that the nodes' copies nearly matched, by the fault's number."""
        ...


class Faults:
    """The faults of a broker, or of all brokers of a cluster."""

    def __init__(
        self, on_first: Callable[[], None], topics: Callable[[], list[str]], elsewhere: Elsewhere | None = None
    ) -> None:
        """on_first: called once, with the first fault. `topics`: the names of those that there are."""
        self._pid = os.getpid()
        self._elsewhere = elsewhere
        self._on_first: Callable[[], None] | None = on_first
        self._topics = topics
        self._all: tuple[Fault, ...] = ()
        LIVE.add(self)
        self.log: list[Hit] = []
        """The requests that were hit, in their order."""

    def fail(self, api: str, error: str, **selectors: "Unpack[Selectors]") -> Fault:
        """Answer requests with an error, and do nothing of what they ask. Raises FaultError.

        Other topics, partitions and groups of the same request are served.
        """
        _api_key(api)  # an API that does not exist is named before the error
        return self._add(Fault("fail", api, selectors, error=_error_of(error), ms=0, when="before"))

    def delay(self, api: str, *, ms: int, **selectors: "Unpack[Selectors]") -> Fault:
        """Serve requests later; their connection waits, as with a slow broker. Raises FaultError."""
        if not isinstance(ms, int) or ms < 1:
            raise FaultError(f"ms is a number from 1 on, not {quoted(str(ms))}")
        return self._add(Fault("delay", api, selectors, error=None, ms=ms, when="before"))

    def drop(self, api: str, *, when: When = "before", **selectors: "Unpack[Selectors]") -> Fault:
        """Close the connection instead of a response, before the request is done or after it. Raises FaultError."""
        if when not in ("before", "after"):
            raise FaultError(f"when is 'before' or 'after', not {quoted(str(when))}")
        return self._add(Fault("drop", api, selectors, error=None, ms=0, when=when))

    def truncate(self, api: str, **selectors: "Unpack[Selectors]") -> Fault:
        """Do what requests ask, send half of the response, and close the connection. Raises FaultError."""
        return self._add(Fault("truncate", api, selectors, error=None, ms=0, when="after"))

    @property
    def is_used(self) -> bool:
        """Whether there has been a fault."""
        return self._on_first is None

    @contextmanager
    def paused(self, *faults: Fault) -> Iterator[None]:
        """Within the block these faults hit nothing; without arguments, all."""
        chosen = faults or self._all
        for fault in chosen:
            fault.pause(1)
        try:
            yield
        finally:
            for fault in chosen:
                fault.pause(-1)

    def clear(self) -> None:
        """Remove all faults; the log stays."""
        for fault in self._all:
            fault.remove()
        if self._all:
            self._set(())

    def __iter__(self) -> Iterator[Fault]:
        return iter(self._all)

    def add(self, kind: str, *arguments: Any, **selectors: Any) -> Fault:
        """Set a fault by the name of its kind, as `@pytest.mark.kafka_faults` does. Raises FaultError, TypeError."""
        if kind not in KINDS:
            raise FaultError(f"there is no kind of fault {quoted(kind)}, only {', '.join(KINDS)}")
        found: Fault = getattr(self, kind)(*arguments, **selectors)
        return found

    def check_hit(self) -> None:
        """Raise FaultNeverHit if a fault has hit no request, unless it may miss."""
        never = [fault for fault in self._all if not fault.hits and not fault.may_miss]
        if never:
            self.collect_nearly_hit()
            self.clear()
            raise FaultNeverHit("; ".join(f"never hit: {fault}{fault.missed}" for fault in never))

    def collect_nearly_hit(self) -> None:
        """Fetch from nodes that are processes what they did not match, before they end."""
        if self._elsewhere is None or not self._all:
            return
        found = self._elsewhere.nearly_hit()
        for fault in self._all:
            fault.add_nearly_hit(found.get(fault.number, []))

    def report(self) -> str:
        """Return the faults and what they hit, a line each: for a failing test."""
        lines = [f"{fault}: {fault.hits} hits" for fault in self._all]
        lines += [str(hit) for hit in self.log[-SHOWN_HITS:]]
        return "\n".join(lines)

    def of_api(self, api_key: int) -> list[Fault]:
        """Return the faults that may hit a request of this API now, in the order in which they were set."""
        return [fault for fault in self._all if fault.api_key == api_key and fault.is_active]

    def draw(self, matched: list[Matched]) -> list[Fault]:
        """Count a request that these faults match, return those that hit it; the log has them then."""
        drawn = [(fault, hit) for fault, hit in matched if fault.is_active and fault.draw()]
        self.log.extend(hit for _, hit in drawn)
        return [fault for fault, _ in drawn]

    def numbered(self, number: int) -> Fault | None:
        """Return the fault with this number, unless it was cleared."""
        return next((fault for fault in self._all if fault.number == number), None)

    def _add(self, fault: Fault) -> Fault:
        refuse_in_child(self._pid)  # the parent's brokers would not know of it
        topic = fault.topic
        if topic is not None and not any(mark in topic for mark in "*?["):
            known = self._topics()
            if topic not in known:
                raise FaultError(f"{unknown('topic', topic, known)}. Create it first, or give a pattern with a *")
        if self._on_first is not None:
            on_first, self._on_first = self._on_first, None
            try:
                on_first()
            except BaseException:
                self._on_first = on_first
                raise
        self._set((*self._all, fault))
        return fault

    def _set(self, faults: tuple[Fault, ...]) -> None:
        before, self._all = self._all, faults  # first: a node that matches by them asks at once
        if self._elsewhere is None:
            return
        try:
            self._elsewhere.publish(faults)
        except BaseException:
            self._all = before
            raise


def _api_key(name: str) -> int:
    """Return the key of an API. Raises FaultError."""
    for api in APIS.values():
        if api.name == name:
            return api.key
    if not isinstance(name, str):
        raise FaultError(f"an API has a name, as 'Produce', not {name!r}")
    raise FaultError(f"there is no API {quoted(name)}{near(name, [api.name for api in APIS.values()])}")


def _error_of(name: str) -> ErrorCode:
    """Return the error code of this name. Raises FaultError."""
    found = ErrorCode.__members__.get(name)
    if found is ErrorCode.NONE:
        raise FaultError("NONE is no error: it is what a request without one is answered")
    if not isinstance(name, str):
        raise FaultError(f"an error has a name, as 'NOT_LEADER_OR_FOLLOWER', not {name!r}")
    if found is None:
        raise FaultError(f"there is no error {quoted(name)}{near(name, ErrorCode.__members__)}")
    return found
