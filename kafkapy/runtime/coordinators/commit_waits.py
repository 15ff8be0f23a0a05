"""Responses and effects of decisions that wait until the records of their coordinator are committed."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.timer.purgatory import DelayedOperation

if TYPE_CHECKING:
    from kafkapy.storage.log.log import Log


class CommittingHost(Protocol):
    """The part of a shard's host that waits use (shard_host.py)."""

    @property
    def log(self) -> "Log": ...
    @property
    def replayed_offset(self) -> int: ...
    @property
    def is_led_here(self) -> bool: ...
    @property
    def is_active(self) -> bool: ...

    def run_effect(self, effect: Any) -> None:
        """Carry out one effect of a decision whose records are committed."""
        ...

    def watch_effects(self, effects: Sequence[Any], required_offset: int) -> None:
        """After a time-out, keep waiting for the commit of these effects' records."""
        ...


class CommitWait(DelayedOperation):
    """Responses that are sent once everything replayed is committed, or that fail after the commit time-out."""

    __slots__ = ("_error", "_host", "_required_offset", "_responses")

    def __init__(self, host: CommittingHost, responses: list[tuple[asyncio.Future[Any], Any]]) -> None:
        super().__init__()
        self._host = host
        self._responses = responses
        self._required_offset = host.replayed_offset
        self._error: ApiError | None = None

    def try_complete(self) -> bool:
        if not self._host.is_led_here:
            self._error = ApiError(ErrorCode.NOT_COORDINATOR)
        elif not self._host.log.is_committed(self._required_offset):
            return False
        return self.complete()

    def on_expiration(self) -> None:
        self._error = ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The records were not replicated in time.")

    def on_complete(self) -> None:
        for future, response in self._responses:
            set_outcome(future, self._error or response)


class EffectWait(DelayedOperation):
    """Effects to carry out once the records up to an offset are committed. Dropped if leadership is lost."""

    __slots__ = ("_effects", "_host", "_is_expired", "_required_offset")

    def __init__(self, host: CommittingHost, effects: Sequence[Any], required_offset: int) -> None:
        super().__init__()
        self._host = host
        self._effects = effects
        self._required_offset = required_offset
        self._is_expired = False

    def try_complete(self) -> bool:
        if self._host.is_led_here and not self._host.log.is_committed(self._required_offset):
            return False
        return self.complete()

    def on_expiration(self) -> None:
        self._is_expired = True

    def on_complete(self) -> None:
        if self._is_expired:
            self._host.watch_effects(self._effects, self._required_offset)
        elif self._host.is_active:
            for effect in self._effects:
                self._host.run_effect(effect)


def set_outcome(future: asyncio.Future[Any], response: Any) -> None:
    """Complete one request, unless it was cancelled."""
    if future.done():
        return
    if isinstance(response, ApiError):
        future.set_exception(response)
    else:
        future.set_result(response)
