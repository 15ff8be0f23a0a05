"""Sends dead letters to the leaders of their partitions: here by a call, elsewhere by Produce 13, with acks=-1.

What waits for the same partition goes into one batch, as far as the topic's max.message.bytes allow; there is one
request at a time for a partition, so that a slow leader is not sent more and more.

With an authorizer, letters for partitions that this broker leads also go as requests to its inter-broker listener, as
in Apache Kafka. So the ACLs of the brokers' principal decide whether letters may be written and topics created,
whichever broker leads them.

Deviation: Apache Kafka sends dead letters to its own listener also without an authorizer, or without a login for that
listener, which fails. Here the partitions that this broker leads are written at once then, as transaction markers are,
because that needs no connection: what a broker in a container advertises may not be reachable from within, and a node
alone, as `kafkapy security init` makes one, has no login.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from kafkapy.dataclass import dataclass
from kafkapy.named_tuple import NamedTuple
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.create_topics_request import CreateTopicsRequest
from kafkapy.protocol.messages.create_topics_response import CreateTopicsResponse
from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkapy.protocol.messages.produce_response import ProduceResponse
from kafkapy.record.builder import NewRecord, build_batch
from kafkapy.replication.replica_manager import ALL_ACKS
from kafkapy.runtime.peer import NoResponseError
from kafkapy.seams import failpoint
from kafkapy.share.dead_letters import LetterRound
from kafkapy.types import Uuid

if TYPE_CHECKING:
    from kafkapy.runtime.broker_channels import BrokerChannels

CREATE_TOPICS: Final = 19
CREATE_TOPICS_VERSIONS: Final = (7, 7)
PRODUCE: Final = 0
PRODUCE_VERSIONS: Final = (13, 13)
"""By topic id: a topic that was deleted and made again does not get what was meant for the old one."""
TIMEOUT_MS: Final = 30_000
"""For which a leader waits for its replicas."""

logger = logging.getLogger("kafkapy.share")


class Destination(NamedTuple):
    """A partition of a dead-letter topic, its leader, and the topic's max.message.bytes."""

    topic: str
    topic_id: Uuid
    partition: int
    leader_id: int
    max_bytes: int


class Outcome(NamedTuple):
    """The result of a Produce or CreateTopics: error code (NETWORK_EXCEPTION without a response) and message."""

    error_code: int
    message: str | None = None


WriteHere = Callable[[Destination, bytes, int], Awaitable[Outcome]]
"""Appends a batch to a partition that this broker leads; returns once its replicas have it, or after the time-out."""


@dataclass(slots=True)
class _Waiting:
    round: LetterRound
    done: "asyncio.Future[Outcome]"


class DeadLetterOutbox:
    """The dead letters that are to be written, by destination."""

    def __init__(
        self,
        node_id: int,
        write_here: WriteHere | None,
        new_channels: "Callable[[], BrokerChannels]",
        request_timeout_ms: int,
    ) -> None:
        """`write_here`: None if this broker is sent its letters as the others are."""
        self._node_id = node_id
        self._write_here = write_here
        self._channels = new_channels()
        self._creations = new_channels()
        """Apart: a creation may have to wait for a controller, and the responses behind its own with it."""
        self._request_timeout_ms = request_timeout_ms
        self._waiting: dict[Destination, deque[_Waiting]] = {}
        """The waiting letters, by destination with a task."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def write(self, destination: Destination, letters: LetterRound) -> Outcome:
        """Write records; return when they are written, or were refused."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(letters, loop.create_future())
        queue = self._waiting.get(destination)
        if queue is not None:
            queue.append(waiting)
        else:
            self._waiting[destination] = deque((waiting,))
            task = loop.create_task(self._empty(destination))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await waiting.done

    async def create_topic(self, request: CreateTopicsRequest) -> Outcome:
        """Send this broker a request for one topic, as a client with the brokers' principal; return the outcome."""
        try:
            response = await self._creations.send_request(
                self._node_id,
                CREATE_TOPICS,
                lambda _version: request,
                versions=CREATE_TOPICS_VERSIONS,
                timeout_ms=self._request_timeout_ms,
            )
        except NoResponseError as error:
            return _without_response(error)
        assert isinstance(response, CreateTopicsResponse)
        for created in response.topics:
            return Outcome(created.error_code, created.error_message)
        return Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the response lacks the topic")

    async def close(self) -> None:
        """Stop sending. What waits is cancelled."""
        self._channels.close()
        self._creations.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _empty(self, destination: Destination) -> None:
        """Write what waits for a destination, until nothing does."""
        queue = self._waiting[destination]
        taken: list[_Waiting] = []
        try:
            await asyncio.sleep(0)  # what is given up in the same pass of the loop shares the first batch
            while queue:
                taken = _one_batch(queue, destination.max_bytes)
                if taken:
                    outcome = await self._send(destination, [record for each in taken for record in each.round.records])
                    for each in taken:
                        if not each.done.done():
                            each.done.set_result(outcome)
        finally:
            del self._waiting[destination]
            for each in (*taken, *queue):
                each.done.cancel()

    async def _send(self, destination: Destination, records: Sequence[NewRecord]) -> Outcome:
        batch = build_batch(records)
        try:
            if self._write_here is None or destination.leader_id != self._node_id:
                return await self._send_to_leader(destination, batch)
            failpoint("share.dead_letter.before_append")
            outcome = await self._write_here(destination, batch, TIMEOUT_MS)
            failpoint("share.dead_letter.after_append")
            return outcome
        except Exception as error:  # the waiting copy must get an outcome; with this one the records are archived
            logger.exception("Writing %d dead letters to %s failed", len(records), destination.topic)
            return Outcome(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))

    async def _send_to_leader(self, destination: Destination, batch: bytes) -> Outcome:
        partition = PartitionProduceData(destination.partition, records=batch)
        topic = TopicProduceData(destination.topic, topic_id=destination.topic_id, partition_data=[partition])
        request = ProduceRequest(acks=ALL_ACKS, timeout_ms=TIMEOUT_MS, topic_data=[topic])
        try:
            response = await self._channels.send_request(
                destination.leader_id,
                PRODUCE,
                lambda _version: request,
                versions=PRODUCE_VERSIONS,
                timeout_ms=self._request_timeout_ms,
            )
        except NoResponseError as error:
            return _without_response(error)
        assert isinstance(response, ProduceResponse)
        for each in response.responses:
            for answered in each.partition_responses:
                if (each.topic_id, answered.index) == (destination.topic_id, destination.partition):
                    return Outcome(answered.error_code, answered.error_message)
        return Outcome(ErrorCode.UNKNOWN_SERVER_ERROR, "the response lacks the partition")


def _without_response(error: NoResponseError) -> Outcome:
    code = ErrorCode.UNSUPPORTED_VERSION if error.is_unsupported else ErrorCode.NETWORK_EXCEPTION
    return Outcome(code, str(error))


def _one_batch(queue: "deque[_Waiting]", max_bytes: int) -> list[_Waiting]:
    """Remove and return the letters of the next batch, at least one; skip those whose sender no longer waits."""
    taken: list[_Waiting] = []
    size_bytes = 0
    while queue:
        waiting = queue[0]
        if waiting.done.done():
            queue.popleft()
            continue
        if taken and size_bytes + waiting.round.size_bytes > max_bytes:
            break
        taken.append(queue.popleft())
        size_bytes += waiting.round.size_bytes
    return taken
