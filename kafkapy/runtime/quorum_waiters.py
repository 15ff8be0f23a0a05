"""Those who wait for something of the metadata quorum to be so."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple


class _Waiter(NamedTuple):
    condition: Callable[[], bool]
    future: "asyncio.Future[None]"


class QuorumWaiters:
    """Conditions that are awaited; `wake` looks at them again. Who gives up leaves nothing behind."""

    def __init__(self) -> None:
        self._waiters: dict[int, _Waiter] = {}
        self._next_key = 0
        self._error: BaseException | None = None

    def __len__(self) -> int:
        return len(self._waiters)

    async def wait(self, condition: Callable[[], bool]) -> None:
        """Return once `condition` holds. Raises what `fail` was told."""
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
        """Look at all conditions: something may have changed."""
        for condition, future in self._waiters.values():
            if not future.done() and condition():
                future.set_result(None)

    def fail(self, error: BaseException) -> None:
        """Nothing will change any more: end every wait, and those to come. Of several errors the first counts."""
        self._error = self._error or error
        for _, future in self._waiters.values():
            if not future.done():
                future.set_exception(error)
