"""Shared by the handlers of partitions: topic access, leaders, warming of cold pages, waiting for a callback."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kafkapy.errors import ApiError
from kafkapy.handlers.cluster_view import ClusterView, endpoint_of
from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.metadata.registrations import NO_LEADER, BrokerRegistration
from kafkapy.record.batch import NO_LEADER_EPOCH
from kafkapy.replication.partition import Role
from kafkapy.runtime.pool import run_in_pool
from kafkapy.runtime.turns import Walk
from kafkapy.seams import FileRegion
from kafkapy.security.authorizer import AclOperation, ResourceType
from kafkapy.storage.errors import NeedsWarming

if TYPE_CHECKING:
    from kafkapy.metadata.registrations import PartitionRegistration
    from kafkapy.replication.hosted_partitions import HostedPartition
    from kafkapy.replication.partition_read import PartitionRead

PARTITION_BYTES = 44
"""Size of a partition in a Fetch response, without its records."""
STORAGE_ERROR_SINCE = 6
"""The first Fetch version whose clients know KAFKA_STORAGE_ERROR; older ones get NOT_LEADER_OR_FOLLOWER."""


class TopicAccess:
    """Authorization of one request for its topics. Each topic is authorized once, when it is first looked up.

    `names`: every topic name of the request, as often as Apache Kafka counts it (the authorizer's reference count). It
    is iterated once, and not at all without an authorizer.

    Deviation: Apache Kafka's OffsetCommit 10 and OffsetFetch 10 authorize the topic "" for an unknown id. Here nothing
    is authorized, because there is no topic.
    """

    __slots__ = (
        "_allowed",
        "_allows_everything",
        "_context",
        "_counts",
        "_log_if_denied",
        "_names",
        "_operation",
        "_services",
    )

    def __init__(
        self,
        services: Services,
        context: RequestContext,
        operation: AclOperation,
        names: Iterable[str] = (),
        *,
        log_if_denied: bool = True,
    ) -> None:
        self._allows_everything = services.authorizer.allows_everything
        if self._allows_everything:
            return
        self._services = services
        self._context = context
        self._operation = operation
        self._names = names
        self._log_if_denied = log_if_denied
        self._counts: Counter[str] | None = None
        self._allowed: dict[str, bool] = {}

    def allows(self, topic: str) -> bool:
        return self._allows_everything or self._authorize(topic)

    def denied(self, topics: Iterable[str]) -> list[str]:
        """Return the topics that are denied; all of these topics are authorized."""
        return [] if self._allows_everything else [topic for topic in topics if not self._authorize(topic)]

    async def count_names(self, way: Walk) -> None:
        """Count the names of a large request in turns."""
        if not self._allows_everything:
            counts: Counter[str] = Counter()
            async for name in way.over(self._names):
                counts[name] += 1
            self._counts = counts

    async def authorize_all(self, topics: Iterable[str]) -> None:
        """Authorize each topic, yielding to the event loop. Later `allows` and `denied` use what it found."""
        if not self._allows_everything:
            async for topic in walk(self._services, self._context).over(topics):
                self._authorize(topic)

    def _authorize(self, topic: str) -> bool:
        is_allowed = self._allowed.get(topic)
        if is_allowed is None:
            if self._counts is None:
                self._counts = Counter(self._names)
            is_allowed = self._services.authorizer.authorize(
                self._context,
                self._operation,
                ResourceType.TOPIC,
                topic,
                reference_count=self._counts[topic] or 1,
                log_if_denied=self._log_if_denied,
            )
            self._allowed[topic] = is_allowed
        return is_allowed


class Leaders:
    """The current leaders and their endpoints, sent with NOT_LEADER_OR_FOLLOWER: saves a Metadata request (KIP-951)."""

    def __init__(self, services: Services, context: RequestContext) -> None:
        self._services = services
        self._image = services.metadata.image
        self._listener_name = context.listener_name
        self._view = ClusterView(self._image.cluster, context.listener_name)
        self._returned: dict[int, BrokerRegistration] = {}

    def leader_of(self, topic: str, partition_id: int) -> tuple[int, int]:
        """Return (leader id, leader epoch), or (-1, -1) if the partition is unknown, or was led here until now.

        A client that is sent back to this broker would ask nobody else (librdkafka).
        """
        registration: PartitionRegistration | None = self._image.topics.partition(topic, partition_id)
        if registration is None or self._has_resigned(topic, partition_id, registration):
            return NO_LEADER, NO_LEADER_EPOCH
        leader = self._view.alive.get(registration.leader)
        if leader is not None:
            self._returned[leader.id] = leader
        return registration.leader, registration.leader_epoch

    def _has_resigned(self, topic: str, partition_id: int, registration: "PartitionRegistration") -> bool:
        """Whether the metadata still names this broker, which knows that another one was elected."""
        if registration.leader != self._services.node_id:
            return False
        hosted = self._services.replica_manager.partitions.find(topic, partition_id)
        return hosted is not None and hosted.role is Role.RESIGNED

    def endpoints(self) -> Iterable[tuple[int, str, int, str | None]]:
        """Yield (node id, host, port, rack) of the leaders returned so far."""
        for node_id, broker in self._returned.items():
            host, port = endpoint_of(broker, self._listener_name)
            yield node_id, host, port, broker.rack


def find_partition(
    services: Services,
    topic: str,
    partition_id: int,
    current_leader_epoch: int = NO_LEADER_EPOCH,
    *,
    or_follower: bool = False,
) -> "HostedPartition":
    """Return a partition that this broker leads, or follows, at the leader epoch of the request. Raises ApiError."""
    partitions = services.replica_manager.partitions
    partition = partitions.find(topic, partition_id)
    if partition is None:
        raise ApiError(partitions.missing_code(topic, partition_id), f"{topic}-{partition_id} is not here")
    check = partition.check_readable if or_follower else partition.check_leader
    code = check(current_leader_epoch)
    if code:
        raise ApiError(code, f"{topic}-{partition_id} at leader epoch {current_leader_epoch}")
    return partition


async def warm(services: Services, cold: NeedsWarming) -> None:
    """Read the cold data into the page cache on a worker. Raises OSError."""
    await run_in_pool(services.io_pool, cold.warm)


def completion() -> tuple[asyncio.Future[None], Callable[[], None]]:
    """Return a future and a callback that completes it. After a cancellation the callback does nothing."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_done() -> None:
        if not future.done():
            future.set_result(None)

    return future, on_done


def sent_bytes(response: "PartitionRead") -> int:
    """Return the size in bytes for which a partition of a Fetch response counts in quotas."""
    records = response.records
    record_bytes = records.length if isinstance(records, FileRegion) else len(records or b"")
    return PARTITION_BYTES + record_bytes if record_bytes or response.error_code else 0


def merge_topics(topics: list[Any], refused: Iterable[Any]) -> None:
    """Add the refused partitions of a commit of offsets to its response's topics: one entry per topic, as in Kafka."""
    by_topic = {(topic.name, topic.topic_id): topic for topic in topics}
    for topic in refused:
        present = by_topic.get((topic.name, topic.topic_id))
        if present is None:
            topics.append(topic)
        else:
            present.partitions += topic.partitions
