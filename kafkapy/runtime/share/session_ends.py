"""Releases the records of members whose share sessions have ended; then forgets groups without sessions.

A connection may have sessions of 40,000 share partitions, so this takes turns of the loop, the first one at once. A
member that begins a new session meanwhile waits for it, because records that it acquires would be released, too. A
group is forgotten only when all its members are released: a share partition that was loaded before that would not have
the releases, and its writes would overwrite them.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from kafkapy.runtime.begun import begin
from kafkapy.runtime.share.in_use import InUse
from kafkapy.runtime.turns import in_turns
from kafkapy.seams import Clock
from kafkapy.share.pending_write import PendingWrite
from kafkapy.share.persister import TopicIdPartition
from kafkapy.share.session import EndedSession, SessionKey, ShareSessionCache

R = TypeVar("R")

RELEASED_PER_TURN: Final = 400
"""Share partitions that are released or forgotten in a turn: some 3 ms."""


class Shares(Protocol):
    """What this needs of all share partitions in use (share_partitions.py)."""

    sessions: ShareSessionCache

    def find(self, group_id: str, partition: TopicIdPartition) -> InUse | None: ...
    def of_group(self, group_id: str) -> list[InUse]: ...
    def attempt(self, in_use: InUse, work: Callable[[], R]) -> R | None: ...
    def forget(self, in_use: InUse) -> None: ...
    def start_write(self, group_id: str, writes: Sequence[tuple[InUse, PendingWrite]]) -> None: ...
    def start(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]": ...


class SessionEnds:
    """Releases the records that members of ended sessions have acquired."""

    def __init__(self, shares: Shares, clock: Clock) -> None:
        self._shares = shares
        self._clock = clock
        self._releasing: dict[SessionKey, asyncio.Future[None]] = {}
        self._unreleased: Counter[str] = Counter()
        """By group: the number of members that are not released yet."""

    def release(self, ended: Iterable[EndedSession]) -> None:
        """Release the records of ended sessions; many of them in several turns."""
        ended = list(ended)
        self._unreleased.update(each.key.group_id for each in ended)
        releasing = begin(in_turns(self._steps(ended), self._clock, RELEASED_PER_TURN), self._shares.start)
        if releasing.done():
            return
        keys = [each.key for each in ended]
        self._releasing |= dict.fromkeys(keys, releasing)
        releasing.add_done_callback(partial(self._on_released, keys))

    async def until_released(self, key: SessionKey) -> None:
        """Return once the records of a member's last session are released."""
        while (releasing := self._releasing.get(key)) is not None:
            await asyncio.wait({releasing})

    def _on_released(self, keys: Sequence[SessionKey], releasing: "asyncio.Future[None]") -> None:
        for key in keys:
            if self._releasing.get(key) is releasing:
                del self._releasing[key]

    def _steps(self, ended: Sequence[EndedSession]) -> Generator[None, None, None]:
        unreleased = list(reversed(ended))
        try:
            while unreleased:
                yield from self._release(unreleased[-1])
                group_id = unreleased.pop().key.group_id
                self._unreleased[group_id] -= 1
                if not self._unreleased[group_id]:
                    del self._unreleased[group_id]
                    yield from self._forget_group(group_id)
        finally:
            self._unreleased.subtract(each.key.group_id for each in unreleased)

    def _release(self, ended: EndedSession) -> Generator[None, None, None]:
        group_id, shares = ended.key.group_id, self._shares
        writes: list[tuple[InUse, PendingWrite]] = []
        for partition in ended.partitions:
            in_use = shares.find(group_id, partition)
            if in_use is not None:
                release = partial(in_use.partition.release, ended.key.member_id, self._clock.monotonic_ms())
                write = shares.attempt(in_use, release)
                if write is not None:
                    writes.append((in_use, write))
            yield
        if writes:
            shares.start_write(group_id, writes)

    def _forget_group(self, group_id: str) -> Generator[None, None, None]:
        """Forget a group, unless it has a session (again): then it is forgotten when that ends."""
        shares = self._shares
        if shares.sessions.has_group(group_id):
            return
        for in_use in shares.of_group(group_id):
            shares.forget(in_use)
            yield
            if shares.sessions.has_group(group_id):
                return
