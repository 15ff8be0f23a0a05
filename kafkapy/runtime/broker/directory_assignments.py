"""Reports to the controller which log directory holds each replica (AssignReplicasToDirs, KIP-858).

Assignments are collected, sent in batches, and retried until the controller has accepted them: when a directory fails,
the controller elects new leaders only for replicas that it knows to be there.
"""

import asyncio
import logging
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Final

from kafkapy.dataclass import dataclass
from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.types import Uuid, uuid_to_string

if TYPE_CHECKING:
    from kafkapy.protocol.messages.assign_replicas_to_dirs_response import AssignReplicasToDirsResponse
    from kafkapy.runtime.broker.active_controller import ActiveController

MAX_ASSIGNMENTS_PER_REQUEST: Final = 2250
"""The limit of one request, as in Kafka."""
FIRST_BACKOFF_MS: Final = 100
MAX_BACKOFF_MS: Final = 10_000
"""Between tries while the controller takes none, doubled each time; as in Kafka."""

logger = logging.getLogger("kafkapy.runtime")


@dataclass(frozen=True, slots=True)
class Assignment:
    """A replica's directory; on_accepted is called once the controller has accepted it."""

    topic_id: Uuid
    partition_id: int
    directory_id: Uuid
    on_accepted: Callable[[], None] | None = None


class DirectoryAssignments:
    """Assignments to be sent to the controller: collected at any time, sent between start() and stop().

    The newest assignment of a replica replaces older ones. A caller that waits for on_accepted must make sure that no
    other assignment replaces its own: see `is_pending`.
    """

    def __init__(self, controller: "ActiveController", node_id: int, broker_epoch: Callable[[], int]) -> None:
        self._controller = controller
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._ready: dict[tuple[Uuid, int], Assignment] = {}
        self._sent: dict[tuple[Uuid, int], Assignment] = {}
        self._is_started = False
        self._is_stopped = False
        self._task: asyncio.Task[None] | None = None

    @property
    def pending_count(self) -> int:
        """The number of assignments that the controller has not accepted yet."""
        return len(self._ready) + len(self._sent)

    def is_pending(self, topic_id: Uuid, partition_id: int) -> bool:
        """Whether an assignment of the replica is queued or in flight."""
        key = (topic_id, partition_id)
        return key in self._ready or key in self._sent

    def start(self) -> None:
        """Start to send. The broker must be registered: the controller refuses a request without a broker epoch."""
        self._is_started = True
        self._send_soon()

    def assign(self, assignment: Assignment) -> None:
        """Queue an assignment; ignored after `stop`."""
        if self._is_stopped:
            return
        self._ready[assignment.topic_id, assignment.partition_id] = assignment
        self._send_soon()

    def _send_soon(self) -> None:
        if self._is_started and self._ready and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._send_all())

    async def stop(self) -> None:
        """Stop sending; the next start reports what is missing."""
        self._is_stopped = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _send_all(self) -> None:
        backoff_ms = FIRST_BACKOFF_MS
        while self._ready:
            await asyncio.sleep(0)  # lets assignments of the same loop pass share a request
            sent = self._sent = self._pop_valid()
            if not sent:
                continue
            logger.info("Sending %d directory assignments to the controller", len(sent))
            try:
                failed = self._record_outcome(await self._send(sent), sent)
            except ApiError as error:
                logger.error(
                    "Could not send %d directory assignments to the controller, trying again: %s", len(sent), error
                )
                failed = list(sent)
            except Exception:
                logger.exception(
                    "Could not send %d directory assignments to the controller after an unexpected error, trying again",
                    len(sent),
                )
                failed = list(sent)
            finally:
                self._sent = {}
            for key in failed:
                self._ready.setdefault(key, sent[key])
            if failed:
                await asyncio.sleep(backoff_ms / 1000)
            backoff_ms = min(2 * backoff_ms, MAX_BACKOFF_MS) if failed else FIRST_BACKOFF_MS

    def _pop_valid(self) -> dict[tuple[Uuid, int], Assignment]:
        """Take the next request's assignments from the queue, without replicas that are no longer here."""
        taken: dict[tuple[Uuid, int], Assignment] = {}
        while self._ready and len(taken) < MAX_ASSIGNMENTS_PER_REQUEST:
            # many keys at once: to find the first key of a dict that lost many takes as many steps
            for key in list(islice(self._ready, MAX_ASSIGNMENTS_PER_REQUEST - len(taken))):
                assignment = self._ready.pop(key)
                if self._is_hosted(assignment):
                    taken[key] = assignment
        return taken

    def _is_hosted(self, assignment: Assignment) -> bool:
        topic = self._controller.image.topics.by_id.get(assignment.topic_id)
        partition = topic.partitions.get(assignment.partition_id) if topic is not None else None
        return partition is not None and self._node_id in partition.replicas

    async def _send(self, sent: dict[tuple[Uuid, int], Assignment]) -> "AssignReplicasToDirsResponse":
        from kafkapy.protocol.messages.assign_replicas_to_dirs_request import (
            AssignReplicasToDirsRequest,
            DirectoryData,
            PartitionData,
            TopicData,
        )

        request = AssignReplicasToDirsRequest(broker_id=self._node_id, broker_epoch=self._broker_epoch())
        directories: dict[Uuid, DirectoryData] = {}
        topics: dict[tuple[Uuid, Uuid], TopicData] = {}
        for each in sent.values():
            directory = directories.setdefault(each.directory_id, DirectoryData(id=each.directory_id))
            topic = topics.get((each.directory_id, each.topic_id))
            if topic is None:
                topic = topics[each.directory_id, each.topic_id] = TopicData(topic_id=each.topic_id)
                directory.topics.append(topic)
            topic.partitions.append(PartitionData(partition_index=each.partition_id))
        request.directories = list(directories.values())
        return await self._controller.send_request(
            request, lambda controller, _: controller.partitions.decide_assign_replicas(request)
        )

    def _record_outcome(
        self, response: "AssignReplicasToDirsResponse", sent: dict[tuple[Uuid, int], Assignment]
    ) -> list[tuple[Uuid, int]]:
        """Call on_accepted of the accepted assignments; return the keys of those to retry."""
        failed = []
        for directory in response.directories:
            for topic in directory.topics:
                for partition in topic.partitions:
                    key = (topic.topic_id, partition.partition_index)
                    if partition.error_code:
                        logger.debug(
                            "The controller refused the directory of partition %d of topic id %s: %s",
                            partition.partition_index,
                            uuid_to_string(topic.topic_id),
                            ErrorCode(partition.error_code).name,
                        )
                        failed.append(key)
                        continue
                    on_accepted = sent[key].on_accepted
                    if on_accepted is not None:
                        on_accepted()
        return failed
