"""Periodic decisions of the active controller.

metadata.max.idle.interval.ms             a no-op record shows that the controller is alive
broker.session.timeout.ms                 brokers without heartbeats are fenced; looked for eight times in that time
unclean.leader.election.interval.ms       leaders for partitions without one, if unclean.leader.election.enable says so
leader.imbalance.check.interval.seconds   leadership goes back to preferred replicas (auto.leader.rebalance.enable)
delegation.token.expiry.check.interval.ms expired tokens are removed
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from kafkapy.errors import ApiError
from kafkapy.machine import Decided
from kafkapy.metadata.requested_elections import ELECTIONS_PER_SLICE
from kafkapy.seams import Clock

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.metadata.controller import Controller

FENCE_CHECKS_PER_SESSION: Final = 8
"""Checks for expired broker sessions per session time-out (as Apache Kafka)."""

R = TypeVar("R")

log = logging.getLogger(__name__)


class ScheduledController(Protocol):
    """The part of a controller that the schedule uses (controller.py)."""

    @property
    def is_active(self) -> bool: ...

    async def write(self, decide: "Callable[[Controller, int], Decided[Any, R]]") -> R:
        """Decide, append and replay; return the response once committed. Raises ApiError."""
        ...

    def pop_has_appended(self) -> bool:
        """Return whether records were appended in this term since the last call. Raises ApiError."""
        ...


class ControllerSchedule:
    """Runs each kind of periodic work in a task of its own, while `controller` is active."""

    def __init__(self, controller: ScheduledController, config: "BrokerConfig", clock: Clock) -> None:
        self._controller = controller
        self._config = config
        self._clock = clock
        self._fence_interval_ms = config.quorum.broker_session_timeout_ms // FENCE_CHECKS_PER_SESSION
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, *, has_tokens: bool) -> None:
        """has_tokens: delegation tokens are in use."""
        quorum, replication = self._config.quorum, self._config.replication
        token_check_ms = self._config.security.delegation_token_expiry_check_interval_ms if has_tokens else 0
        balance_s = (
            replication.leader_imbalance_check_interval_seconds if replication.auto_leader_rebalance_enable else 0
        )
        for interval_ms, step in (
            (quorum.metadata_max_idle_interval_ms, self.write_no_op),
            (self._fence_interval_ms, self.fence_expired),
            (replication.unclean_leader_election_interval_ms, self.elect_uncleanly),
            (balance_s * 1000, self.balance_leaders),
            (token_check_ms, self.remove_expired_tokens),
        ):
            if interval_ms > 0:
                self._tasks.append(asyncio.get_running_loop().create_task(self._every(interval_ms, step)))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def _every(self, interval_ms: int, step: Callable[[int], Awaitable[None]]) -> None:
        """Call `step` every interval_ms while the controller is active, with how many ms late it is called."""
        while True:
            due_ms = self._clock.monotonic_ms() + interval_ms
            await asyncio.sleep(interval_ms / 1000)
            if not self._controller.is_active:
                continue
            try:
                await step(self._clock.monotonic_ms() - due_ms)
            except ApiError as error:
                log.info("Periodic work of the controller failed, trying again at the next interval: %s", error)
            except Exception:
                log.exception("Periodic work of the controller failed unexpectedly, trying again at the next interval")

    async def write_no_op(self, _: int) -> None:
        """Write a NoOpRecord, unless the log has grown since the last interval: a growing log shows a living leader.

        Apache Kafka writes one in every interval.
        """
        if not self._controller.pop_has_appended():
            await self._controller.write(lambda controller, _: controller.decide_no_op())
            self._controller.pop_has_appended()

    async def fence_expired(self, late_ms: int) -> None:
        """Fence brokers whose session expired, unless this event loop has stalled: heartbeats may be unread then.

        A few passes of the loop (AfterReads) are not enough here: a heartbeat may wait for its commit, and the next
        heartbeat, of our own broker too, is sent one interval after the response.
        """
        if late_ms > self._fence_interval_ms:
            log.warning("The controller was blocked for %d ms; sessions of brokers are extended", late_ms)
            return
        while await self._controller.write(lambda controller, now_ms: controller.decide_fence_expired(now_ms)):
            pass

    async def elect_uncleanly(self, _: int) -> None:
        elected = await self._controller.write(lambda controller, _: controller.partitions.decide_unclean_elections())
        if elected:
            log.warning("Elected %d leaders uncleanly: their partitions may have lost records", elected)

    async def balance_leaders(self, _: int) -> None:
        """Move leadership back to preferred replicas (auto.leader.rebalance.enable), some partitions at a time."""
        write = self._controller.write
        candidates = await write(lambda controller, _: controller.elections.decide_candidates())
        elected = 0
        for start in range(0, len(candidates), ELECTIONS_PER_SLICE):
            part = candidates[start : start + ELECTIONS_PER_SLICE]
            elected += await write(lambda controller, _, part=part: controller.elections.decide_balance(part))  # type: ignore[misc]
            await asyncio.sleep(0)
        if elected:
            log.info("%d partitions are led by their preferred replica again", elected)

    async def remove_expired_tokens(self, _: int) -> None:
        """Remove expired delegation tokens (delegation.token.expiry.check.interval.ms)."""
        now_ms = self._clock.wall_ms()
        while await self._controller.write(lambda controller, _: controller.tokens.decide_remove_expired(now_ms)):
            pass
