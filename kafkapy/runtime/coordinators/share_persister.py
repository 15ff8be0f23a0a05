"""Keeps the state of share partitions with their share coordinators: on this broker by a call, on others by requests.

The coordinator of a share partition is the leader of its partition of `__share_group_state` in the newest metadata; the
topic is created when it is first needed. Share partitions of one call that have the same coordinator share a request.
What finds no coordinator, or one that is loading, is tried again for GIVE_UP_AFTER_MS; then the error is the result. To
write the same twice changes nothing.

Deviation: Apache Kafka waits a second before its second try, and two before the third. Here it is 50 ms, doubled each
time, because a coordinator that has moved has mostly loaded by then; the fifteen seconds for all tries are the same.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Generic

from kafkapy.metadata.registrations import NO_LEADER
from kafkapy.metadata.topic_names import SHARE_STATE_TOPIC
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.runtime.coordinators.share_coordinator import ShareCoordinator
from kafkapy.runtime.peer import NoResponseError
from kafkapy.seams import Clock
from kafkapy.share.persister import (
    InitialState,
    ItemT,
    PartitionResult,
    ResultT,
    SharePartitionKey,
    StateRead,
    StateReadResult,
    StateSummary,
    StateWrite,
    TopicIdPartition,
)
from kafkapy.share.state_messages import DELETE, INITIALIZE, READ, READ_SUMMARY, WRITE, Exchange
from kafkapy.types import Uuid

if TYPE_CHECKING:
    from kafkapy.runtime.broker_channels import BrokerChannels

FIRST_BACKOFF_MS: Final = 50
MAX_BACKOFF_MS: Final = 2_000
GIVE_UP_AFTER_MS: Final = 15_000
ELEMENTS_PER_REQUEST: Final = 10_000
"""Share partitions and their state batches in a request to another broker, unless a single one has more."""
ITEMS_PER_SLICE: Final = 250
"""Share partitions whose coordinator is looked up before other tasks run: some milliseconds."""
TRIED_AGAIN: Final = frozenset(
    (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    )
)
"""UNKNOWN_TOPIC_OR_PARTITION: the coordinator may not have the metadata of a new topic yet."""


logger = logging.getLogger("kafkapy.share")


class RoutedPersister:
    """A Persister over the share coordinators of the cluster."""

    def __init__(
        self,
        coordinator: ShareCoordinator,
        channels: "BrokerChannels",
        *,
        node_id: int,
        create_topic: Callable[[], Awaitable[None]],
        clock: Clock,
        timeout_ms: int,
    ) -> None:
        """create_topic: creates `__share_group_state` and returns when it is there, or has failed and logged that.

        timeout_ms: of a request to another broker.
        """
        self._coordinator = coordinator
        self._channels = channels
        self._node_id = node_id
        self._create_topic = create_topic
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._creating: asyncio.Future[None] | None = None
        self._is_closed = False

    async def initialize(self, group_id: str, states: Sequence[InitialState]) -> list[PartitionResult]:
        """As specified by Persister."""
        return await self._persist(
            _Call(INITIALIZE, self._coordinator.initialize_states, PartitionResult, group_id, states)
        )

    async def read(self, group_id: str, reads: Sequence[StateRead]) -> list[StateReadResult]:
        """As specified by Persister."""
        return await self._persist(_Call(READ, self._coordinator.read_states, StateReadResult, group_id, reads))

    async def write(self, group_id: str, writes: Sequence[StateWrite]) -> list[PartitionResult]:
        """As specified by Persister."""
        return await self._persist(_Call(WRITE, self._coordinator.write_states, PartitionResult, group_id, writes))

    async def delete(self, group_id: str, partitions: Sequence[TopicIdPartition]) -> list[PartitionResult]:
        """As specified by Persister."""
        return await self._persist(
            _Call(DELETE, self._coordinator.delete_states, PartitionResult, group_id, partitions)
        )

    async def read_summary(self, group_id: str, partitions: Sequence[TopicIdPartition]) -> list[StateSummary]:
        """As specified by Persister."""
        call = _Call(READ_SUMMARY, self._coordinator.read_summaries, StateSummary, group_id, partitions)
        return await self._persist(call)

    def close(self) -> None:
        """Stop: what is still waiting gets its last error, at the end of its backoff at the latest."""
        self._is_closed = True
        self._channels.close()
        if self._creating is not None:
            self._creating.cancel()

    async def _persist(self, call: "_Call[ItemT, ResultT]") -> list[ResultT]:
        """Ask the coordinators of the items until each result is final; return the results in order."""
        deadline_ms = self._clock.monotonic_ms() + GIVE_UP_AFTER_MS
        backoff_ms = FIRST_BACKOFF_MS
        while True:
            await self._ask(call)
            call.waiting = [index for index in call.waiting if call.results[index].error_code in TRIED_AGAIN]
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if not call.waiting or left_ms <= 0 or self._is_closed:
                return [call.results[index] for index in range(len(call.items))]
            await asyncio.sleep(min(backoff_ms, left_ms) / 1000)
            backoff_ms = min(2 * backoff_ms, MAX_BACKOFF_MS)

    def _are_kept_here(self, call: "_Call[ItemT, ResultT]") -> bool:
        """Return whether this broker coordinates all of the items, which are few."""
        if len(call.items) > ITEMS_PER_SLICE:
            return False
        is_hosted = self._coordinator.is_hosted
        return all(is_hosted(call.key_of(index)) for index in call.waiting)

    async def _ask(self, call: "_Call[ItemT, ResultT]") -> None:
        """Ask the coordinator of each item that waits, all brokers at the same time; set their results."""
        if self._are_kept_here(call):  # as on a lone node: none of the other brokers has to be looked for
            await self._ask_broker(call, self._node_id, call.waiting)
            return
        by_broker: dict[int, list[int]] = {}
        for count, index in enumerate(call.waiting, 1):
            if count % ITEMS_PER_SLICE == 0:
                await asyncio.sleep(0)
            by_broker.setdefault(self._broker_of(call.key_of(index)), []).append(index)
        if NO_LEADER in by_broker:
            call.fail(by_broker.pop(NO_LEADER), ErrorCode.COORDINATOR_NOT_AVAILABLE)
            await self._ensure_topic()
        requests = [
            self._ask_broker(call, broker_id, some)
            for broker_id, indexes in by_broker.items()
            for some in ([indexes] if broker_id == self._node_id else call.cut(indexes))
        ]
        if len(requests) == 1:  # without a task: the usual case
            await requests[0]
        else:
            await asyncio.gather(*requests)

    def _broker_of(self, coordinator_key: str) -> int:
        """Return the id of the broker to ask, NO_LEADER if there is none."""
        if self._coordinator.is_hosted(coordinator_key):
            return self._node_id
        return self._coordinator.broker_of(coordinator_key)

    async def _ask_broker(self, call: "_Call[ItemT, ResultT]", broker_id: int, indexes: Sequence[int]) -> None:
        items = [call.items[index] for index in indexes]
        if broker_id == self._node_id:
            results = await call.local(call.group_id, items)
            call.results.update(zip(indexes, results, strict=True))
            return
        request = call.exchange.request_of(call.group_id, items)
        try:
            response = await self._channels.send_request(
                broker_id, call.exchange.api_key, lambda _version: request, versions=call.exchange.versions,
                timeout_ms=self._timeout_ms,
            )  # fmt: skip
        except NoResponseError as error:
            logger.info("Could not ask the share coordinator on broker %d: %s", broker_id, error)
            code = ErrorCode.UNSUPPORTED_VERSION if error.is_unsupported else ErrorCode.NETWORK_EXCEPTION
            call.fail(indexes, code)
            return
        call.set_results(indexes, call.exchange.results_of(response))

    async def _ensure_topic(self) -> None:
        """Create the topic if it is missing. Calls that need it at the same time wait for one creation."""
        if self._coordinator.has_topic() or self._is_closed:
            return
        if self._creating is None:
            self._creating = asyncio.ensure_future(self._create_topic())
            self._creating.add_done_callback(self._created)
        await asyncio.wait({self._creating})

    def _created(self, creating: "asyncio.Future[None]") -> None:
        self._creating = None
        if not creating.cancelled() and creating.exception() is not None:
            logger.error("Creating %s failed", SHARE_STATE_TOPIC, exc_info=creating.exception())


class _Call(Generic[ItemT, ResultT]):
    """One call of a Persister: its items, and their results so far.

    local: asks the coordinator on this broker. waiting: the indexes of the items without a final result.
    """

    __slots__ = ("exchange", "group_id", "items", "local", "result_type", "results", "waiting")

    def __init__(
        self,
        exchange: Exchange[ItemT, ResultT],
        local: Callable[[str, Sequence[ItemT]], Awaitable[list[ResultT]]],
        result_type: Callable[[Uuid, int, int, str], ResultT],
        group_id: str,
        items: Sequence[ItemT],
    ) -> None:
        self.exchange = exchange
        self.local = local
        self.result_type = result_type
        self.group_id = group_id
        self.items = items
        self.results: dict[int, ResultT] = {}
        self.waiting = list(range(len(items)))

    def key_of(self, index: int) -> str:
        item = self.items[index]
        return SharePartitionKey(self.group_id, item.topic_id, item.partition).coordinator_key

    def cut(self, indexes: Sequence[int]) -> list[list[int]]:
        """Return the indexes of the items of one request after the other."""
        requests: list[list[int]] = [[]]
        element_count = 0
        for index in indexes:
            item = self.items[index]
            size = 1 + len(item.state_batches) if isinstance(item, StateWrite) else 1
            if requests[-1] and element_count + size > ELEMENTS_PER_REQUEST:
                requests.append([])
                element_count = 0
            requests[-1].append(index)
            element_count += size
        return requests

    def fail(self, indexes: Iterable[int], code: ErrorCode) -> None:
        message = code.message
        for index in indexes:
            item = self.items[index]
            self.results[index] = self.result_type(item.topic_id, item.partition, code, message)

    def set_results(self, indexes: Sequence[int], results: Sequence[ResultT]) -> None:
        """Set the results of some items; what a response does not have is an error."""
        found = {(result.topic_id, result.partition): result for result in results}
        for index in indexes:
            item = self.items[index]
            result = found.get((item.topic_id, item.partition))
            if result is None:
                self.fail((index,), ErrorCode.UNKNOWN_SERVER_ERROR)
            else:
                self.results[index] = result
