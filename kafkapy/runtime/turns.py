"""Cooperative scheduling: long work runs on the event loop in turns of some milliseconds, with pauses in between.

    turn = Turn(clock, 100)                    walk = Walk(turns, clock, context)
    for step in steps:                         async for entry in walk.over(request.entries):
        step()                                     results.append(answer(entry))
        if turn.is_over():
            ...

The walks of all requests share one `Turns`, which lets one of them continue at a time: however many there are, together
they use the loop for TURN_MS of every TURN_MS + PAUSE_MS. Turns go round by client (principal and address), not by
request: a hundred requests of one client take no more turns than one of another.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from kafkapy.seams import Clock

T = TypeVar("T")
GiveWay = Callable[[int], Awaitable[None] | None]
"""Called after so many small steps; what it returns is awaited before the next ones."""

TURN_MS: Final = 4
"""How long a turn holds the loop, plus the rest of its last step."""
PAUSE_MS: Final = 1
"""The pause between two turns: a request needs some passes of the loop until its response is sent."""
STEPS_PER_TURN: Final = 1_000
"""Steps after which a turn ends, whatever the clock says (it stands still in the simulator). A step takes 2 to 10
us."""


class Turn:
    """Reports the end of a turn: after TURN_MS, or after `steps` steps."""

    __slots__ = ("_clock", "_end_ms", "_steps", "_steps_left")

    def __init__(self, clock: "Clock", steps: int) -> None:
        self._clock = clock
        self._steps = self._steps_left = steps
        self._end_ms = clock.monotonic_ms() + TURN_MS  # as `begin`

    def begin(self) -> None:
        self._steps_left = self._steps
        self._end_ms = self._clock.monotonic_ms() + TURN_MS

    def is_over(self, steps: int = 1) -> bool:
        """Count `steps` more steps; return whether the turn is over."""
        self._steps_left -= steps
        return self._steps_left <= 0 or self._clock.monotonic_ms() >= self._end_ms


async def in_turns(steps: Generator[None, None, T], clock: "Clock", steps_per_turn: int) -> T:
    """Run the generator to its end, in turns; return its result."""
    turn = Turn(clock, steps_per_turn)
    try:
        while True:
            next(steps)
            if turn.is_over():
                await asyncio.sleep(PAUSE_MS / 1000)
                turn.begin()
    except StopIteration as end:
        result: T = end.value
        return result


def pauses(clock: "Clock") -> GiveWay:
    """Return the function that pauses work of no request at the end of its turns."""
    turn = Turn(clock, STEPS_PER_TURN)

    async def pause() -> None:
        await asyncio.sleep(PAUSE_MS / 1000)
        turn.begin()

    return lambda steps: pause() if turn.is_over(steps) else None


class Turns:
    """The queue of walks that have yielded: each pause is followed by the turn of one of them."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}
        """By client, the one whose turn is next first."""
        self._timer: asyncio.TimerHandle | None = None

    async def next(self, client: Hashable = None) -> None:
        """Return when it is the caller's turn again, after PAUSE_MS at least. The walks of a client share its turns."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(client, deque()).append(future)
        if self._timer is None:
            self._timer = loop.call_later(PAUSE_MS / 1000, self._wake_one)
        await future

    def _wake_one(self) -> None:
        self._timer = None
        while self._waiting:
            client, walks = next(iter(self._waiting.items()))
            future = walks.popleft()
            del self._waiting[client]
            if walks:
                self._waiting[client] = walks  # behind the other clients
            if not future.done():  # else its request was cancelled
                future.set_result(None)
                break
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later((TURN_MS + PAUSE_MS) / 1000, self._wake_one)


class _Connection(Protocol):
    is_held: bool


class _Context(Protocol):
    is_long: bool

    @property
    def client(self) -> Hashable: ...

    @property
    def connection(self) -> _Connection: ...


class Walk:
    """One request's iteration over many entries. Its connection starts no other request until it is answered."""

    __slots__ = ("_context", "_turn", "_turns", "is_over")

    def __init__(self, turns: Turns, clock: "Clock", context: _Context) -> None:
        self._turns = turns
        self._turn = Turn(clock, STEPS_PER_TURN)
        self._context = context
        self.is_over = self._turn.is_over

    def over(self, entries: Iterable[T]) -> "EntriesInTurns[T]":
        """Return an asynchronous iterator over the entries that yields to other tasks in between."""
        return EntriesInTurns(self, entries)

    def begin_anew(self) -> None:
        """Begin a turn: the request has waited for others, and the loop has run meanwhile."""
        self._turn.begin()

    async def give_way(self) -> None:
        """Wait for the next turn. The request counts as long from now on."""
        self._context.is_long = True
        self._context.connection.is_held = True
        await self._turns.next(self._context.client)
        self._turn.begin()


class EntriesInTurns(Generic[T]):
    """Iterates over the entries. Not a generator, which would have to be closed if its loop ends early."""

    __slots__ = ("_entries", "_walk")

    def __init__(self, walk: Walk, entries: Iterable[T]) -> None:
        self._walk = walk
        self._entries: Iterator[T] = iter(entries)

    def __aiter__(self) -> "EntriesInTurns[T]":
        return self

    async def __anext__(self) -> T:
        for entry in self._entries:
            if self._walk.is_over():
                await self._walk.give_way()
            return entry
        raise StopAsyncIteration
