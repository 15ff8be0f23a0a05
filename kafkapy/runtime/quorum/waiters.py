"""Waits of coroutines for conditions of the metadata quorum, each checked again after every step of it."""

import asyncio
from collections.abc import Callable

from kafkapy.errors import ApiError
from kafkapy.named_tuple import NamedTuple
from kafkapy.protocol.error_code import ErrorCode


class NotLeaderError(ApiError):
    """A request for a node that does not lead in the given epoch (NOT_CONTROLLER)."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NOT_CONTROLLER.value, message)


class _Waiter(NamedTuple):
    condition: Callable[[], bool]
    future: "asyncio.Future[None]"


class QuorumWaiters:
    """Pending conditions; `wake` checks them again. A cancelled wait is removed."""

    def __init__(self) -> None:
        self._waiters: dict[int, _Waiter] = {}
        self._next_key = 0
        self._error: BaseException | None = None

    def __len__(self) -> int:
        return len(self._waiters)

    async def wait(self, condition: Callable[[], bool]) -> None:
        """Return once `condition` holds. Raises the error passed to `fail`."""
        if self._error is not None:
            raise self._error
        if condition():
            return
        key, self._next_key = self._next_key, self._next_key + 1
        waiter = self._waiters[key] = _Waiter(condition, asyncio.get_running_loop().create_future())
        try:
            await waiter.future
        finally:
            del self._waiters[key]

    def wake(self) -> None:
        """Check all conditions again."""
        for condition, future in self._waiters.values():
            if not future.done() and condition():
                future.set_result(None)

    def fail(self, error: BaseException) -> None:
        """End all current and future waits with this error; only the first error is kept for future ones."""
        self._error = self._error or error
        for _, future in self._waiters.values():
            if not future.done():
                future.set_exception(error)
